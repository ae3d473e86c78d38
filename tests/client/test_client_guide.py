"""The blocks of the guide to the Python client run, one after another."""

import asyncio
import textwrap
from pathlib import Path

from millstream.client import topics as client
from support.broker import millstream
from support.pages import ROOT, steps

PAGE = ROOT / "docs" / "guide" / "python-client.md"
# What a page cannot have and a test needs: an address, and an end.
CHANGES = (
    ('"http://127.0.0.1:8222", token="…"', "URL"),
    ("AsyncTopics()", "AsyncTopics(URL)"),
    ("follow=True, ", ""),
    ("            ...\n", "            break\n"),
    ("bill.run()", "bill.run(until_empty=True)"),
)


def changed(source: str) -> str:
    for old, new in CHANGES:
        source = source.replace(old, new)
    return source


def test_the_guides_blocks_run_in_order(tmp_path: Path) -> None:
    blocks = [changed(step.text) for step in steps(PAGE)]
    assert len(blocks) >= 5
    assert all(any(old in step.text for step in steps(PAGE)) for old, _ in CHANGES)
    charged: list[object] = []
    with millstream(data_dir=tmp_path / "data") as broker:
        url = f"http://127.0.0.1:{broker.http_port}"
        scope: dict[str, object] = {"URL": url, "position": 0, "charge": charged.append}
        opened = client.Topics(url)
        opened.topic("prices").append({"eur": 1})
        first, *others, last = blocks
        exec(first, scope)
        scope |= {"topics": opened, "orders": opened.topic("orders")}
        for block in others:
            exec(block, scope)
            if "put(type" in block:
                assert charged == []
                opened.topic("jobs").append({"invoice": 1})
                exec("bill.run(until_empty=True)", scope)
        assert charged == [{"invoice": 1}]
        opened.topic("jobs").append({"invoice": 2})

        async def pay(job: object) -> None:
            charged.append(job)

        scope["charge"] = pay
        body = "async def main():\n" + textwrap.indent(last, "    ")
        exec(body, scope)
        asyncio.run(scope["main"]())  # type: ignore[operator]
        opened.close()
    assert charged == [{"invoice": 1}, {"invoice": 2}]
