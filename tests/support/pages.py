"""The commands and Python blocks of a document, in the order in which a reader meets them."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from support.peers import Peer

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Step:
    """One line to type, or one block of Python to run."""

    kind: str
    text: str

    @property
    def first_line(self) -> str:
        return self.text.splitlines()[0]


def steps(page: Path) -> list[Step]:
    """Read what a page asks its reader to run: lines behind ``$`` and Python blocks."""
    text = re.sub(r"\\\n\s*", "", page.read_text())
    found = []
    fence: list[str] | None = None
    for line in text.splitlines():
        if fence is not None:
            if line.startswith("```"):
                found.append(Step("python", "\n".join(fence) + "\n"))
                fence = None
            else:
                fence.append(line)
        elif line.startswith("```python"):
            fence = []
        elif line.startswith("    $ "):
            found.append(Step("shell", line[6:]))
    return found


def typed(line: str, broker: Peer, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a line as a reader would, beside a ``./millstream``."""
    script = directory / "millstream"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m millstream "$@"\n')
    script.chmod(0o755)
    line = line.replace("localhost:8222", f"127.0.0.1:{broker.http_port}")
    return _run(["bash", "-c", line], broker, directory)


def executed(source: str, broker: Peer, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run a block as a program of its own, against this broker instead of the default address."""
    source = source.replace("nats.connect()", f'nats.connect("{broker.url}")')
    source = source.replace("nats://127.0.0.1:4222", broker.url)
    source = source.replace("http://127.0.0.1:8222", f"http://127.0.0.1:{broker.http_port}")
    return _run([sys.executable, "-c", source], broker, directory)


def _run(command: list[str], broker: Peer, directory: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "NATS_URL": broker.url,
        "MILLSTREAM_HTTP_URL": f"http://127.0.0.1:{broker.http_port}",
        "MILLSTREAM_COMMAND": "./millstream",
        "XDG_CONFIG_HOME": str(directory / "config"),
        "PYTHONPATH": str(ROOT / "src"),
    }
    return subprocess.run(
        command,
        env=environment,
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
