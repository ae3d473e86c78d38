"""What the README and the first five minutes tell you to type works as it is written."""

import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from support.broker import millstream
from support.pages import typed as shell

curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")


def shaped(pattern: str, text: str) -> None:
    assert re.search(pattern, text), text


@curl
def test_the_first_five_minutes(tmp_path: Path) -> None:
    data = tmp_path / "millstream-data"
    jobs = '{"records":[%s]}' % ",".join('{"data":{"id":%d}}' % n for n in range(1, 6))  # noqa: UP031
    (tmp_path / "orders.ndjson").write_text('{"data":{"id":4}}\n' * 1000)
    kind = "-H 'content-type: application/json'"
    with millstream(data_dir=data) as broker:

        def typed(line: str, code: int = 0) -> str:
            done = shell(line, broker, tmp_path)
            assert done.returncode == code, (line, done.stdout, done.stderr)
            return done.stdout + done.stderr

        banner = broker.output()
        shaped(r"^millstream \S+   data .* \(new\)   jetstream: fsync before ack\n", banner)
        tried = re.search(r"Try:  millstream (pub .*)$", banner, re.MULTILINE)
        assert tried is not None
        shaped("stored in ORDERS as seq 1\n", typed(f"./millstream {tried[1]}"))
        typed("./millstream stream add ORDERS --subjects 'orders.>' --defaults")
        shaped("stored in ORDERS as seq 2\n", typed("./millstream pub orders.new '{\"id\":2}'"))
        one = '{"records":[{"subject":"orders.new","data":{"id":3}}]}'
        shaped(
            r'^\{"topic":"ORDERS","first_seq":3,"last_seq":3,"head_seq":3,"count":1,.*"seqs":\[3\]',
            typed(f"curl -s localhost:8222/v0/topics/ORDERS {kind} -d '{one}'"),
        )
        lines = "-H 'content-type: application/x-ndjson' --data-binary @orders.ndjson"
        shaped(
            r'"first_seq":4,"last_seq":1003,',
            typed(f"curl -s localhost:8222/v0/topics/ORDERS {lines}"),
        )
        tail = typed(
            "curl -sN --max-time 2 'localhost:8222/v0/topics/ORDERS/tail?from_seq=1001'", 28
        )
        shaped(r'event: record\ndata: \{"topic":"ORDERS".*"records":\[\{"\$seq":1002,', tail)
        shaped(
            '"message":"no topic named ORDER","detail":{"topic":"ORDER","did_you_mean":"ORDERS"}',
            typed("curl -s localhost:8222/v0/topics/ORDER"),
        )
        typed("./millstream queue add jobs --max-deliveries 3 --dead-letter jobs-dead")
        typed(f"curl -s localhost:8222/v0/topics/jobs {kind} -d '{jobs}'")
        (tmp_path / "bill.sh").write_text('#!/bin/sh\nread job; test "$job" != \'{"id":3}\'\n')
        (tmp_path / "bill.sh").chmod(0o755)
        shaped(
            r"5 leased   4 acked   1 dead-lettered \(seq 3: exit 1, 3 tries\)"
            r"   → ./millstream dlq replay jobs",
            typed("./millstream work jobs -- ./bill.sh", 1),
        )
        shaped("1 → jobs\n", typed("./millstream dlq replay jobs"))
        typed("./millstream queue add plain")
        shaped("has no dead_letter topic", typed("./millstream dlq ls plain"))
        typed("./millstream consumer add ORDERS billing --deliver new")
        shaped(
            r"^caught up; 0 pending, 0 in flight\n",
            typed("./millstream consumer why ORDERS billing"),
        )
        shaped(rf"^http://127.0.0.1:{broker.http_port}/\n", typed("./millstream open --print"))
        os.kill(int((data / "millstream.pid").read_text()), signal.SIGKILL)
        broker.process.wait(30)
    with millstream(data_dir=data) as again:
        shaped(r"recovered ORDERS: 1,003 records, 0 lost, 0 torn, in \S+ s\n", again.output())
