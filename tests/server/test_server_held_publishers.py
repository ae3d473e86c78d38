"""A disk that is behind with all streams together slows those who publish into them."""

import asyncio
from pathlib import Path

import nats
from millstream.clock import SystemClock
from millstream.server.build import build
from millstream.server.command_line.serve_options import load_serve
from millstream.server.server import Server


async def test_publishers_are_not_read_while_the_disk_is_behind(tmp_path: Path) -> None:
    options = load_serve({"port": 0, "http_port": 0, "data_dir": tmp_path / "data"}, "").options
    parts = build(options, asyncio.get_running_loop(), SystemClock())
    server = Server(options, parts)
    await server.start()
    assert parts.kept is not None
    host, port = server.nats_address
    client = await nats.connect(f"nats://{host}:{port}", allow_reconnect=False)
    try:
        js = client.jetstream()
        await js.add_stream(name="S", subjects=["s"])
        parts.kept.store.pressure.set(0, True)
        await js.publish("s", b"taken before the connection is held")
        waiting = asyncio.create_task(js.publish("s", b"read once the disk has caught up"))
        done, _ = await asyncio.wait([waiting], timeout=0.2)
        assert not done
        parts.kept.store.pressure.set(0, False)
        assert (await waiting).seq == 2
    finally:
        await client.close()
        await server.stop()
