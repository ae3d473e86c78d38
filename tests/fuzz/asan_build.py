"""The kernel compiled with AddressSanitizer, kept under build/ until a source changes."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "millstream"
PLANTED = Path(__file__).parent / "planted.pyx"
FLAGS = ["-shared", "-fPIC", "-O0", "-w", "-fsanitize=address"]


def asan_is_missing() -> str | None:
    """Return why this machine cannot run the suite, if so."""
    if sys.platform != "linux" or shutil.which("gcc") is None:
        return "the sanitizer needs gcc on Linux"
    if not Path(_libasan()).is_absolute():
        return "gcc has no libasan"
    return None


def asan_environment(built: Path) -> dict[str, str]:
    """Return the environment in which Python runs the sanitized kernel.

    Python's own allocator would hide where its objects end.
    """
    return {
        **os.environ,
        "LD_PRELOAD": _libasan(),
        "ASAN_OPTIONS": "detect_leaks=0:exitcode=99",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": str(built),
    }


def asan_build() -> Path:
    """Return a directory to import the sanitized kernel from, compiled if need be."""
    sources = sorted([*(PACKAGE / "kernel").glob("*.p*"), PLANTED, Path(__file__)])
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    built = ROOT / "build" / f"asan-{digest}"
    built.parent.mkdir(exist_ok=True)
    with (ROOT / "build" / "asan.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (built / "done").exists():
            _forget_older(built)
            _compile(built)
            (built / "done").touch()
    return built


def _libasan() -> str:
    found = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True)
    return found.stdout.strip()


def _forget_older(built: Path) -> None:
    for old in built.parent.glob("asan-*"):
        shutil.rmtree(old)


def _compile(built: Path) -> None:
    kernel = built / "millstream" / "kernel"
    skip = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(PACKAGE / "kernel", kernel, ignore=skip)  # keeps the times: fresh C is reused
    (built / "millstream" / "__init__.py").touch()
    shutil.copy(PLANTED, kernel)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda source: _extension(built, source), sorted(kernel.glob("*.pyx"))))


def _extension(built: Path, source: Path) -> None:
    code = source.with_suffix(".c")
    newest = max(path.stat().st_mtime for path in source.parent.glob("*.p[xy][dx]"))
    if not code.exists() or code.stat().st_mtime < newest:
        subprocess.run(
            [sys.executable, "-m", "cython", "-3", str(source.relative_to(built))],
            cwd=built,
            check=True,
        )
    target = source.with_suffix(sysconfig.get_config_var("EXT_SUFFIX"))
    include = sysconfig.get_path("include")
    subprocess.run(["gcc", *FLAGS, f"-I{include}", str(code), "-o", str(target)], check=True)
