"""What others notice of the first delete by tag on a topic of five million tagged records."""

from __future__ import annotations

import argparse
import http.client
import json
import shutil
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from many import Server

RECORDS_IN_A_CALL = 10_000
LEAST_SECONDS = 5.0


def main() -> None:
    """Print the median and the 99th percentile of a bystander's writes, before and meanwhile."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=5_000_000)
    arguments = parser.parse_args()
    place = tempfile.mkdtemp(prefix="tags-")
    server = Server(f"{place}/data")
    try:
        _fill(server.http_port, arguments.records)
        time.sleep(2)
        before = _bystander(server.http_port, threading.Event())
        over, took = threading.Event(), [0.0]
        deleting = threading.Thread(target=_delete, args=(server.http_port, over, took))
        deleting.start()
        during = _bystander(server.http_port, over, until_over=True)
        deleting.join()
    finally:
        server.process.kill()
        server.process.wait()
        shutil.rmtree(place)
    print(
        "| a bystander's write | median ms | p99 ms | slowest ms |",
        "|---|---:|---:|---:|",
        sep="\n",
    )
    _show("before", before)
    _show(f"during the first delete, which took {took[0]:.1f} s", during)


def _fill(port: int, records: int) -> None:
    client = http.client.HTTPConnection("127.0.0.1", port)
    for start in range(0, records, RECORDS_IN_A_CALL):
        lines = [
            json.dumps({"data": at, "tag": f"job:{at % 1000}"})
            for at in range(start, start + RECORDS_IN_A_CALL)
        ]
        headers = {"content-type": "application/x-ndjson"}
        client.request("POST", "/v0/topics/tagged", "\n".join(lines), headers)
        answer = client.getresponse()
        assert answer.status in (200, 201), answer.read()
        answer.read()


def _delete(port: int, over: threading.Event, took: list[float]) -> None:
    client = http.client.HTTPConnection("127.0.0.1", port)
    began = time.monotonic()
    headers = {"content-type": "application/json"}
    client.request("POST", "/v0/topics/tagged/delete", '{"match":"job:7"}', headers)
    answer = client.getresponse()
    body = json.loads(answer.read())
    assert answer.status == 200, body
    took[0] = time.monotonic() - began
    over.set()


def _bystander(port: int, over: threading.Event, *, until_over: bool = False) -> list[float]:
    client = http.client.HTTPConnection("127.0.0.1", port)
    took, began = [], time.monotonic()
    while (until_over and not over.is_set()) or time.monotonic() - began < LEAST_SECONDS:
        if until_over and over.is_set():
            break
        asked = time.perf_counter()
        headers = {"content-type": "application/json"}
        client.request("POST", "/v0/topics/other", '{"records":[{"data":1}]}', headers)
        client.getresponse().read()
        took.append((time.perf_counter() - asked) * 1000)
        time.sleep(0.002)
    return took


def _show(when: str, took: list[float]) -> None:
    worst = sorted(took)
    p99 = worst[int(len(worst) * 0.99)]
    print(f"| {when} | {statistics.median(took):.2f} | {p99:.2f} | {worst[-1]:.2f} |")


if __name__ == "__main__":
    main()
