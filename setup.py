"""Compiles the kernel; everything else about the package is in pyproject.toml."""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

FLAGS = os.environ.get("MILLSTREAM_CFLAGS", "-O3 -fno-semantic-interposition").split()
# The Makefile links the package first and compiles in parallel afterwards.
SKIP = os.environ.get("MILLSTREAM_KERNEL") == "skip"
SOURCES = [] if SKIP else sorted(Path("src/millstream/kernel").glob("*.pyx"))

setup(
    ext_modules=cythonize(
        [
            Extension(f"millstream.kernel.{source.stem}", [str(source)], extra_compile_args=FLAGS)
            for source in SOURCES
        ],
        include_path=["src"],
        compiler_directives={"language_level": "3", "embedsignature": False},
    )
)
