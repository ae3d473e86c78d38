"""Whether this machine can run Spark."""

import importlib.util
import os
import re
import shutil
import subprocess

OLDEST_JAVA = 17


def spark_is_missing() -> str | None:
    """Return why Spark tests cannot run here, with the fix; None when they can."""
    if importlib.util.find_spec("pyspark") is None:
        return "pyspark is not installed: run `make spark`"
    version = _java_version()
    if version < OLDEST_JAVA:
        found = f"Java {version}" if version else "no Java"
        return f"found {found}, Spark needs {OLDEST_JAVA}: apt-get install openjdk-17-jre-headless"
    return None


def _java_version() -> int:
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None or not os.path.exists(java):
        return 0
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    found = re.search(r'version "(\d+)', answer.stderr)
    return int(found[1]) if found else 0
