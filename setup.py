"""Compiles the kernel; everything else about the package is in pyproject.toml.

The kernel needs Linux and a C compiler. Where one is missing, the clients, the command line and the
Spark source install all the same, and `millstream serve` says what it lacks. MILLSTREAM_KERNEL
changes that: "require" fails instead, as the Makefile and the release builds ask for, and "skip"
leaves the kernel out.
"""

import os
import sys
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

FLAGS = os.environ.get("MILLSTREAM_CFLAGS", "-O3 -fno-semantic-interposition").split()
KERNEL = os.environ.get("MILLSTREAM_KERNEL", "")
SKIP = KERNEL == "skip" or (not sys.platform.startswith("linux") and KERNEL != "require")
SOURCES = [] if SKIP else sorted(Path("src/millstream/kernel").glob("*.pyx"))


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
