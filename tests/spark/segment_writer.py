"""Sealed segments on disk as the store writes them, and a server's two calls over HTTP."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from spark_frames import Row, frames

from millstream.client.streams import PlannedSegment
from millstream.kernel._frames import index_frames
from millstream.kernel._index import SegmentIndex, SubjectTable
from millstream.store.segments.files import data_header, encode_idx


def write_segment(directory: Path, rows: list[Row], stream_id: int) -> PlannedSegment:
    """Write a sealed segment as the store does; the frames are those of the second opinion."""
    base = rows[0].seq
    data = data_header(stream_id, base) + frames(rows, stream_id)
    index = SegmentIndex(base, SubjectTable())
    index_frames(data, 64, len(data), stream_id, index)
    path, idx = directory / f"seg-{base}.data", directory / f"seg-{base}.idx"
    path.write_bytes(data)
    idx.write_bytes(encode_idx(index, stream_id, len(data)))
    return PlannedSegment(str(path), str(idx), base, rows[-1].seq, len(data))


class PlannedStream:
    """One stream of the little server below; tests change it while it is served."""

    def __init__(self, segments: list[PlannedSegment], rows: list[Row], stream_id: int) -> None:
        self.segments = segments
        self.rows = rows
        self.stream_id = stream_id
        self.name = "ORDERS"
        self.first_seq = rows[0].seq
        self.gaps: list[tuple[int, int, str]] = []
        self.cold: dict[str, Any] = {}  # what the plan says about cold files
        self.reads = 0

    def plan(self) -> dict[str, Any]:
        last = self.rows[-1].seq
        sealed = max([s.last_seq for s in self.segments], default=self.first_seq - 1)
        return {
            "stream": self.name,
            "incarnation": self.stream_id,
            "first_seq": self.first_seq,
            "last_seq": last,
            "gaps": self.gaps,
            "segments": [
                {
                    "path": s.path,
                    "idx_path": s.idx_path,
                    "base_seq": s.base_seq,
                    "last_seq": s.last_seq,
                    "bytes": s.bytes,
                }
                for s in self.segments
            ],
            "tail": {"from_seq": sealed + 1, "to_seq": last},
        } | self.cold

    def read(self, from_seq: int, to_seq: int, max_bytes: int) -> bytes:
        self.reads += 1
        low = max(from_seq, self.first_seq)
        wanted = [r for r in self.rows if low <= r.seq <= to_seq and not r.deleted]
        return frames(wanted[: max(max_bytes // 200, 1)], self.stream_id)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    streams: dict[str, PlannedStream]

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        _, _, _, name, what = url.path.split("/")
        stream = self.streams.get(name)
        if stream is None:
            self._send(404, b'{"error":{"code":"topic_not_found","message":"no such topic"}}')
        elif what == "plan":
            self._send(200, json.dumps(stream.plan()).encode())
        else:
            asked = {key: int(values[0]) for key, values in parse_qs(url.query).items()}
            self._send(200, stream.read(asked["from_seq"], asked["to_seq"], asked["max_bytes"]))

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Keep quiet."""


@contextmanager
def serving(streams: dict[str, PlannedStream]) -> Iterator[str]:
    """Serve plans and ranges on a free port; yields the url."""
    handler = type("Handler", (_Handler,), {"streams": streams})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
