"""Compiles the kernel; everything else about the package is in pyproject.toml."""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

FLAGS = os.environ.get("MILLSTREAM_CFLAGS", "-O3 -fno-semantic-interposition").split()
KERNEL = Path("src/millstream/kernel")

setup(
    ext_modules=cythonize(
        [
            Extension(f"millstream.kernel.{source.stem}", [str(source)], extra_compile_args=FLAGS)
            for source in sorted(KERNEL.glob("*.pyx"))
        ],
        include_path=["src"],
        compiler_directives={"language_level": "3", "embedsignature": False},
    )
)
