"""Whether this machine has the Java that Spark needs, found as Spark finds it."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping

from millstream.pipelines.problems import PipelineError

OLDEST = 17
FIX = "install one (apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
_PATIENCE = 30.0


def check_java(environment: Mapping[str, str] = os.environ) -> None:
    """Raise a one-line problem when there is no usable Java."""
    home = environment.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else _on_path(environment)
    if java is None or not os.path.exists(java):
        where = f"JAVA_HOME={home} has no bin/java" if home else "there is none on the PATH"
        raise PipelineError(f"Spark needs Java {OLDEST} or newer and {where}: {FIX}")
    version = _version(java)
    if version < OLDEST:
        found = f"is Java {version}" if version else "does not say its version"
        raise PipelineError(f"Spark needs Java {OLDEST} or newer, and {java} {found}: {FIX}")


def _on_path(environment: Mapping[str, str]) -> str | None:
    return shutil.which("java", path=environment.get("PATH", ""))


def _version(java: str) -> int:
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, check=False, timeout=_PATIENCE
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(found[1]) if found else 0
