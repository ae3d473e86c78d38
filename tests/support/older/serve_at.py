"""Runs the millstream command at another time: ``serve_at.py NOW_NS BOOT serve …``.

Leases and ages in a directory that an older version wrote end when their time is over. A server
that takes the clock from here believes that the directory was closed a moment ago. BOOT, if it is
not ``-``, stands for the machine's boot: a directory that was made under it looks, to any later
start, as after a power cut.
"""

import builtins
import io
import runpy
import sys
import time
from typing import Any

BOOT_ID = "/proc/sys/kernel/random/boot_id"


def shift_clock(now_ns: int) -> None:
    """Let the wall clock go on from this time."""
    time_ns = time.time_ns
    ahead = now_ns - time_ns()
    time.time_ns = lambda: time_ns() + ahead
    time.time = lambda: time.time_ns() / 1e9


def pretend_boot(boot: str) -> None:
    """Answer with this boot id whoever reads the machine's."""
    real_open = builtins.open

    def opened(file: Any, *args: Any, **more: Any) -> Any:
        return io.StringIO(boot) if file == BOOT_ID else real_open(file, *args, **more)

    builtins.open = opened


def main() -> None:
    now_ns, boot, *arguments = sys.argv[1:]
    shift_clock(int(now_ns))
    if boot != "-":
        pretend_boot(boot)
    sys.argv = ["millstream", *arguments]
    runpy.run_module("millstream", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
