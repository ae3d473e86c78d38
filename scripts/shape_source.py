"""Source files as trees, and what their functions and classes look like."""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

CYTHON_DEF = re.compile(r"^( *)(?:def|cdef|cpdef)\b(?! class\b)[^=]*\(.*")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Source:
    """A Python file: where it is, seen from the root, and its tree."""

    path: str
    text: str
    tree: ast.Module


def sources(root: Path, suffix: str = ".py") -> list[Source]:
    """Read every Python file under ``root``, or every stub."""
    found = []
    for path in sorted(root.rglob(f"*{suffix}")):
        text = path.read_text()
        found.append(Source(str(path.relative_to(root)), text, ast.parse(text)))
    return found


def lengths(source: Source) -> Iterator[tuple[str, int]]:
    """Yield each function of a Python file with its length in lines."""
    for node in ast.walk(source.tree):
        if isinstance(node, FUNCTIONS) and node.end_lineno:
            yield f"{source.path}:{node.lineno} {node.name}", node.end_lineno - node.lineno + 1


def cython_lengths(name: str, text: str) -> Iterator[tuple[str, int]]:
    """Yield each function of a Cython file; it ends at the next line indented no deeper."""
    lines = text.splitlines()
    for start, line in enumerate(lines):
        if (found := CYTHON_DEF.match(line)) is None:
            continue
        inner, last = " " * (len(found[1]) + 1), start
        for number in range(start + 1, len(lines)):
            text = lines[number]
            if text.strip() and not text.startswith((inner, f"{found[1]})")):
                break
            last = number if text.strip() else last
        yield f"{name}:{start + 1} {line.strip()[:50]}", last - start + 1


@dataclass(frozen=True, slots=True)
class Class:
    """What a class has of its own; what it inherits is counted where it is written."""

    name: str
    where: str
    methods: int
    attributes: int


def classes(source: Source) -> Iterator[Class]:
    """Yield each class of a file."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ClassDef):
            methods = {part.name for part in node.body if isinstance(part, FUNCTIONS)}
            where = f"{source.path}:{node.lineno}"
            yield Class(node.name, where, len(methods), len(attributes(node)))


def attributes(node: ast.ClassDef) -> set[str]:
    """Return the names that methods set on ``self``, with the fields beside them.

    A class whose methods set nothing is a value, and a value may have many fields.
    """
    names = {
        inner.attr
        for inner in ast.walk(node)
        if isinstance(inner, ast.Attribute) and isinstance(inner.ctx, ast.Store) and is_self(inner)
    }
    return names | set(fields(node)) if names else set()


def fields(node: ast.ClassDef) -> dict[str, ast.expr]:
    """Return the fields that are declared in the body of a class, with their types."""
    return {
        part.target.id: part.annotation
        for part in node.body
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
    }


def is_self(node: ast.Attribute) -> bool:
    """Say whether this is an attribute of ``self`` or ``cls``."""
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def twice(found: Iterable[Class]) -> dict[str, list[str]]:
    """Return the class names that occur more than once, with their places."""
    known = list(found)
    counts = Counter(each.name for each in known)
    names = sorted((name for name, count in counts.items() if count > 1), key=lambda n: -counts[n])
    return {name: [each.where for each in known if each.name == name] for name in names}


def folders(paths: Iterable[str]) -> Counter[str]:
    """Return how many files are in each folder itself."""
    return Counter(str(Path(path).parent) for path in paths)
