"""Prints how long files and functions are, so that a reviewer sees what grows."""

import ast
import re
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path

CYTHON_DEF = re.compile(r"^( *)(?:def|cdef|cpdef)\b[^=]*\(.*")


def python_functions(path: Path) -> Iterator[tuple[str, int]]:
    """Yield each function of a Python file with its length in lines."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
            yield f"{path}:{node.lineno} {node.name}", node.end_lineno - node.lineno + 1


def cython_functions(path: Path) -> Iterator[tuple[str, int]]:
    """Yield each function of a Cython file; it ends at the next line indented no deeper."""
    lines = path.read_text().splitlines()
    for start, line in enumerate(lines):
        if (found := CYTHON_DEF.match(line)) is None:
            continue
        inner, last = " " * (len(found[1]) + 1), start
        for number in range(start + 1, len(lines)):
            text = lines[number]
            if text.strip() and not text.startswith((inner, f"{found[1]})")):
                break
            last = number if text.strip() else last
        yield f"{path}:{start + 1} {line.strip()[:50]}", last - start + 1


def show(what: str, sizes: list[tuple[str, int]]) -> None:
    """Print the distribution of one kind of thing and its longest five."""
    if not sizes:
        return
    lengths = sorted(size for _, size in sizes)
    p90 = lengths[int(len(lengths) * 0.9)]
    median = statistics.median_low(lengths)
    print(f"{what:10} {len(lengths):5}   median {median:4}   p90 {p90:4}   longest {lengths[-1]:5}")
    for name, size in sorted(sizes, key=lambda pair: -pair[1])[:5]:
        print(f"    {size:5}  {name}")


def main(root: Path) -> None:
    """Measure every source file under ``root``."""
    python = sorted(root.rglob("*.py"))
    cython = sorted(root.rglob("*.pyx"))
    show("files", [(str(p), len(p.read_text().splitlines())) for p in python + cython])
    show("functions", [f for p in python for f in python_functions(p)])
    show("compiled", [f for p in cython for f in cython_functions(p)])


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "src"))
