"""DirectStreams: which streams of an account answer direct gets, and under which names."""

from typing import TYPE_CHECKING

from millstream.nats.jetstream.direct_get import DirectGet
from millstream.nats.jetstream.serving.shared_parts import SharedParts
from millstream.streams.stream import Stream

if TYPE_CHECKING:
    from millstream.kernel._interest import Interest

_Handles = dict[int, list[int]]  # sinks by the stream's incarnation


class DirectStreams:
    """Answers for the streams that allow it, and for the origins of mirrors that do."""

    def __init__(self, parts: SharedParts, account: str, interest: "Interest") -> None:
        self._parts = parts
        self._account = account
        self._interest = interest
        self._own: _Handles = {}
        self._of_origins: _Handles = {}
        self._mirrors: dict[int, Stream] = {}

    def stream_changed(self, stream: Stream, alive: bool) -> None:
        """Answer direct gets for the streams that allow them, and only for those."""
        wanted = alive and stream.config.allow_direct
        self._answer(self._own, stream, wanted, stream.name, b"")
        if alive and stream.config.mirror is not None:
            self._mirrors[stream.incarnation] = stream
        elif self._mirrors.pop(stream.incarnation, None) is not None:
            self._answer(self._of_origins, stream, False, "", b"")
        for mirror in self._mirrors.values():
            self._answer_for_origin(mirror)

    def _answer_for_origin(self, mirror: Stream) -> None:
        """Let a mirror answer in its origin's name, where the origin does not do it itself."""
        config = mirror.config
        name = config.mirror["name"] if config.mirror is not None else ""
        origin = self._parts.catalog.find(name, self._account)
        answers_itself = origin is not None and origin.config.allow_direct
        wanted = bool(name) and config.mirror_direct and not answers_itself
        self._answer(self._of_origins, mirror, wanted, name, b"mirrors")

    def _answer(
        self, handles: _Handles, stream: Stream, wanted: bool, name: str, queue: bytes
    ) -> None:
        """Answer direct gets under a name from a stream, or no more; one of a ``queue`` does."""
        if wanted == (stream.incarnation in handles):
            return
        for handle in handles.pop(stream.incarnation, []):
            self._interest.remove_sink(handle)
        if wanted:
            sink = DirectGet(stream, self._parts.hub, self._interest, name)
            base = f"$JS.API.DIRECT.GET.{name}"
            handles[stream.incarnation] = [
                self._interest.add_sink(pattern.encode(), sink, queue)
                for pattern in (base, f"{base}.>")
            ]
