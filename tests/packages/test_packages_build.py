"""What people install: an sdist and a wheel that serve, also where nothing can be compiled."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from support.broker import millstream

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path.stem for path in (ROOT / "src/millstream/kernel").glob("*.pyx"))
BESIDE = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md")
# Quick to compile: what the kernel does is tested elsewhere.
QUICK = {"MILLSTREAM_CFLAGS": "-O0"}
BUILD = "import sys; from setuptools import build_meta as b; print(getattr(b, sys.argv[1])('dist'))"


def built(tree: Path, kind: str, settings: Mapping[str, str]) -> Path:
    """Return the distribution that the build backend makes of a source tree."""
    done = subprocess.run(
        [sys.executable, "-c", BUILD, f"build_{kind}"],
        cwd=tree,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return tree / "dist" / done.stdout.splitlines()[-1]


def unpacked(archive: Path, into: Path) -> Path:
    with tarfile.open(archive) as opened:
        opened.extractall(into, filter="data")
    [tree] = into.iterdir()
    return tree


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist of this tree, from a copy, as a build writes into the tree."""
    tree = tmp_path_factory.mktemp("source") / "millstream"
    leave = shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__", "build")
    shutil.copytree(ROOT / "src", tree / "src", ignore=leave)
    for name in (
        "pyproject.toml",
        "setup.py",
        "MANIFEST.in",
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
    ):
        shutil.copy(ROOT / name, tree)
    return built(tree, "sdist", {})


@pytest.fixture(scope="session")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = unpacked(sdist, tmp_path_factory.mktemp("sdist"))
    return built(tree, "wheel", {**QUICK, "MILLSTREAM_KERNEL": "require"})


@pytest.fixture(scope="session")
def plain_wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a machine without a compiler makes of the sdist."""
    tree = unpacked(sdist, tmp_path_factory.mktemp("sdist"))
    return built(tree, "wheel", {"CC": "/nowhere/gcc"})


def installed(wheel: Path, place: Path) -> Path:
    """Return the ``millstream`` of a fresh environment that borrows our packages alone."""
    venv.create(place, symlinks=True)
    python = place / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "-q", "--python", str(python), "install", "--no-deps"]
    subprocess.run([*pip, str(wheel)], check=True)
    site = next((place / "lib").glob("python*/site-packages"))
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return place / "bin" / "millstream"


def run(command: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        [command, *arguments], capture_output=True, text=True, env=environment, check=False
    )


def test_the_sdist_has_what_the_kernel_is_compiled_from_and_nothing_that_was_built(
    sdist: Path,
) -> None:
    with tarfile.open(sdist) as opened:
        names = opened.getnames()
    kernel = {Path(name).name for name in names if "/kernel/" in name}
    assert {f"{stem}.pyx" for stem in SOURCES} <= kernel
    assert [name for name in names if name.endswith((".c", ".so", ".pyc"))] == []
    assert not any("/tests/" in name for name in names)


def test_the_wheel_has_the_kernel_and_no_source_of_it(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    compiled = {Path(name).name.split(".")[0] for name in names if name.endswith(".so")}
    assert compiled == set(SOURCES)
    assert [name for name in names if name.endswith((".c", ".pyx", ".pxd"))] == []
    assert "millstream/py.typed" in names
    assert "pyspark_millstream/__init__.py" in names


def test_a_wheel_of_the_sdist_serves_in_a_fresh_environment(wheel: Path, tmp_path: Path) -> None:
    command = installed(wheel, tmp_path / "venv")
    with millstream(python=str(command.parent / "python")) as server:
        made = run(command, "pub", "-s", server.url, "greetings", "hello")
    assert made.returncode == 0, made.stderr


def test_without_a_compiler_the_clients_work_and_serve_says_what_it_lacks(
    plain_wheel: Path, tmp_path: Path
) -> None:
    command = installed(plain_wheel, tmp_path / "venv")
    refused = run(command, "serve", "--data-dir", str(tmp_path / "data"), "--port", "0")
    assert refused.returncode == 1
    [line] = refused.stderr.splitlines()
    assert "compiled kernel" in line
    assert "gcc" in line
    with millstream() as server:
        made = run(command, "pub", "-s", server.url, "greetings", "hello")
    assert made.returncode == 0, made.stderr


def test_the_wheel_has_every_file_of_the_dashboard(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    web = "millstream/dashboard/web"
    assert {f"{web}/index.html", f"{web}/app.js", f"{web}/style.css"} <= set(names)
