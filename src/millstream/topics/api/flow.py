"""Flow: where records come from and go to, and who reads and writes them in batches."""

import asyncio
from typing import TYPE_CHECKING, Any

from millstream.consumers.readers import MARK
from millstream.http.request import Request
from millstream.http.response import Response, json_response
from millstream.queues.settings import is_queue
from millstream.topics.context import Topics
from millstream.topics.directory import may_see

if TYPE_CHECKING:
    from millstream.consumers.registry import Registry
    from millstream.streams.stream import Stream
    from millstream.topics.api.consumers import ConsumerCalls

MOST_EDGES = 2000
MOST_SHOWN = 1000
TURN = 500  # streams that are looked at before everybody else has had a turn


class FlowCalls:
    """The picture of all copying, and the readers and writers of pipelines."""

    def __init__(self, topics: Topics, registry: "Registry", consumers: "ConsumerCalls") -> None:
        self._topics = topics
        self._registry = registry
        self._consumers = consumers

    async def flow(self, request: Request) -> Response:
        """Return every way that records take between topics that the caller may see."""
        caller, edges = request.caller, list[dict[str, Any]]()
        for router in self._topics.routers.all_of(caller.account):
            if may_see(router, caller):
                one = router.definition
                edges.append(
                    {
                        "kind": "router",
                        "name": one.name,
                        "from": one.source,
                        "to": one.dest,
                        "total": router.forwarded,
                    }
                )
        for at, stream in enumerate(self._topics.directory.visible(caller)):
            if at % TURN == TURN - 1:
                await asyncio.sleep(0)
            edges += self._into(stream, request)
        return json_response({"edges": edges[:MOST_EDGES], "total": len(edges)})

    def _into(self, stream: "Stream", request: Request) -> list[dict[str, Any]]:
        kind = "mirror" if stream.config.mirror is not None else "source"
        found: list[dict[str, Any]] = []
        for feed in stream.feeds:
            info = feed.info()
            outside = "external" in info
            if outside or request.caller.may_touch(info["name"]):
                edge = {"kind": kind, "from": info["name"], "to": stream.name}
                edge |= {"lag": info.get("lag", 0), "outside": outside}
                found.append(edge)
        letters = ""
        if is_queue(stream.config):
            letters = stream.config.to_topic()["dead_letter"] or ""
        named = {each.config.dead_letter for each in self._registry.by_name(stream).values()}
        return found + [
            {"kind": "dead letters", "from": stream.name, "to": to}
            for to in sorted({letters, *named} - {""})
            if request.caller.may_touch(to)
        ]

    async def pipelines(self, request: Request) -> Response:
        """Return who reads topics in batches, as Spark does, and who writes them so."""
        readers, sinks = list[dict[str, Any]](), list[dict[str, Any]]()
        for at, stream in enumerate(self._topics.directory.visible(request.caller)):
            if at % TURN == TURN - 1:
                await asyncio.sleep(0)
            readers += [
                self._consumers.shown(each)
                for each in self._registry.listed(stream)
                if each.config.metadata.get(MARK) is not None
            ]
            marks = self._topics.deposits.of(stream) if self._topics.deposits is not None else []
            sinks += [
                {
                    "topic": stream.name,
                    "sink": mark.sink,
                    "batch": mark.batch,
                    "records": mark.records,
                    "ts": mark.ts_ns // 1_000_000,
                    "query": mark.query,
                }
                for mark in marks
            ]
        return json_response(
            {
                "readers": readers[:MOST_SHOWN],
                "sinks": sinks[:MOST_SHOWN],
                "total": len(readers) + len(sinks),
            }
        )
