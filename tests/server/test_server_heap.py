"""The heap: buffers that come and go have their memory already."""

import subprocess
import sys

ROUNDS = 200
BUFFERS, BYTES = 4, 700_000
PROGRAM = f"""
import resource, sys
from millstream.server.process.heap import keep_heap
if sys.argv[1] == "kept":
    assert keep_heap()
def come_and_go():
    buffers = [b"x" * {BYTES} for _ in range({BUFFERS})]
for _ in range(20):
    come_and_go()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({ROUNDS}):
    come_and_go()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def pages_made(heap: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, heap], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def test_buffers_that_come_and_go_use_the_same_pages() -> None:
    at_once = BUFFERS * BYTES // 4096
    assert pages_made("kept") < at_once  # none in most rounds
    assert pages_made("as it is") > ROUNDS * at_once // 4  # what this is for
