"""Compiles the kernel; everything else about the package is in pyproject.toml.

The kernel needs Linux and a C compiler. Where one is missing, the clients, the command line and the
Spark source install all the same, and `millstream serve` says what it lacks. MILLSTREAM_KERNEL
changes that: "require" fails instead, as the Makefile and the release builds ask for, and "skip"
leaves the kernel out.

A module is made anew when the text of what it is made of has changed: its own source and every .pxd
that it cimports, however far away. Times of files do not show that: a merge during a build leaves
files that are older than what was made of their predecessors.
"""

import hashlib
import json
import os
import re
import sys
from pathlib import Path

import Cython
from Cython.Build import cythonize
from setuptools import Extension, setup

FLAGS = os.environ.get("MILLSTREAM_CFLAGS", "-O3 -fno-semantic-interposition").split()
KERNEL = os.environ.get("MILLSTREAM_KERNEL", "")
SKIP = KERNEL == "skip" or (not sys.platform.startswith("linux") and KERNEL != "require")
SOURCES = [] if SKIP else sorted(Path("src/millstream/kernel").glob("*.pyx"))
MADE_OF = Path("build/kernel.json")  # module → digest of what its library was made of
CIMPORT = re.compile(r"^from millstream\.kernel\.(\w+) cimport", re.MULTILINE)


def parts_of(source: Path) -> set[Path]:
    """Return the files that a module is made of."""
    found: set[Path] = set()
    ahead = [source, source.with_suffix(".pxd")]
    while ahead:
        path = ahead.pop()
        if path not in found and path.exists():
            found.add(path)
            names = CIMPORT.findall(path.read_text())
            ahead += [path.with_name(f"{name}.pxd") for name in names]
    return found


def digest_of(source: Path) -> str:
    """Return what tells one state of a module from another."""
    digest = hashlib.sha256(f"{Cython.__version__} {FLAGS}".encode())
    for path in sorted(parts_of(source)):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def libraries_of(source: Path) -> list[Path]:
    """Return what was made of a module, in its folder and where setuptools makes it."""
    name = f"{source.stem}.cpython-*.so"
    return [*source.parent.glob(name), *Path("build").glob(f"lib*/millstream/kernel/{name}")]


def drop_stale(digests: dict[str, str]) -> None:
    """Remove what was made of other files than there are now."""
    made = json.loads(MADE_OF.read_text()) if MADE_OF.exists() else {}
    for source in SOURCES:
        if made.get(source.stem) == digests[source.stem]:
            continue
        for path in [source.with_suffix(".c"), *libraries_of(source)]:
            path.unlink(missing_ok=True)


DIGESTS = {source.stem: digest_of(source) for source in SOURCES}  # before they are read
if "build_ext" in sys.argv:
    drop_stale(DIGESTS)

EXTENSIONS = cythonize(
    [
        Extension(f"millstream.kernel.{source.stem}", [str(source)], extra_compile_args=FLAGS)
        for source in SOURCES
    ],
    include_path=["src"],
    compiler_directives={"language_level": "3", "embedsignature": False},
)
for extension in EXTENSIONS:
    extension.optional = KERNEL != "require"  # cythonize drops it when it is given above

setup(ext_modules=EXTENSIONS)
if "build_ext" in sys.argv and SOURCES:
    MADE_OF.parent.mkdir(exist_ok=True)
    MADE_OF.write_text(json.dumps(DIGESTS))
