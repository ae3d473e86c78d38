"""A server inside another program, and what it tells systemd."""

import os
import socket
from pathlib import Path

import pytest

import millstream
import nats
from millstream.server.options.config_error import ConfigError
from millstream.server.process.service_manager import ServiceManager


async def test_a_program_serves_publishes_and_leaves_nothing_behind() -> None:
    async with millstream.Server() as server:
        directory = server.data_dir
        client = await nats.connect(server.nats_url)
        stream = client.jetstream()
        await stream.add_stream(name="ORDERS", subjects=["orders.>"])
        ack = await stream.publish("orders.new", b"1")
        await client.close()
        assert ack.seq == 1
        assert server.http_url is not None
    assert not directory.exists()


async def test_records_stay_in_a_directory_of_one_s_own(tmp_path: Path) -> None:
    for expected in (1, 2):
        async with millstream.Server(tmp_path / "data") as server:
            client = await nats.connect(server.nats_url)
            stream = client.jetstream()
            await stream.add_stream(name="ORDERS", subjects=["orders.>"])
            ack = await stream.publish("orders.new", b"1")
            await client.close()
        assert ack.seq == expected


async def test_a_port_that_is_taken_is_named_and_nothing_stays_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"{port} is taken"):
            async with millstream.Server(port=port):
                pass


def test_a_setting_that_does_not_exist_is_named() -> None:
    with pytest.raises(ConfigError, match="no setting named prot"):
        millstream.Server(prot=4222)


def test_the_service_manager_hears_each_state(tmp_path: Path) -> None:
    place = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(place)
        manager = ServiceManager({"NOTIFY_SOCKET": place, "WATCHDOG_USEC": "30000000"})
        manager.ready("serving")
        manager.alive()
        manager.stopping()
        told = [heard.recv(4096).decode() for _ in range(3)]
    assert told[0].splitlines() == ["READY=1", "STATUS=serving", f"MAINPID={os.getpid()}"]
    assert told[1] == "WATCHDOG=1"
    assert told[2].splitlines()[0] == "STOPPING=1"
    assert manager.watchdog_seconds == 15.0


def test_without_a_service_manager_nothing_is_told(tmp_path: Path) -> None:
    ServiceManager({}).ready("serving")
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "gone")}).stopping()
    assert ServiceManager({"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}).watchdog_seconds == 0.0
