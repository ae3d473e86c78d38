"""Prints how large the parts of a source tree are, so that a reviewer sees what grows.

``shape.py src`` prints the figures and names what is above a bound; ``--json`` prints the same as
one object; ``--against CHECKOUT`` puts the figures of another checkout beside them.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from shape_hooks import Hook, hooks
from shape_source import Class, classes, cython_lengths, folders, lengths, sources, twice

MOST_METHODS, MOST_ATTRIBUTES, MOST_LINES = 25, 15, 60
SHOWN = 5


@dataclass(frozen=True, slots=True)
class Shape:
    """Everything that is measured of a tree."""

    files: list[tuple[str, int]]
    functions: list[tuple[str, int]]
    compiled: list[tuple[str, int]]
    folders: list[tuple[str, int]]
    classes: list[Class]
    hooks: list[Hook]
    twice: dict[str, list[str]]

    @property
    def many_methods(self) -> list[Class]:
        """Classes with more methods than one page shows."""
        found = [each for each in self.classes if each.methods > MOST_METHODS]
        return sorted(found, key=lambda each: -each.methods)

    @property
    def many_attributes(self) -> list[Class]:
        """Classes that keep more than one can hold in the head."""
        found = [each for each in self.classes if each.attributes > MOST_ATTRIBUTES]
        return sorted(found, key=lambda each: -each.attributes)

    @property
    def long_functions(self) -> list[tuple[str, int]]:
        """Functions above the bound, Python and Cython."""
        both = self.functions + self.compiled
        return sorted((f for f in both if f[1] > MOST_LINES), key=lambda pair: -pair[1])

    def figures(self) -> dict[str, int]:
        """Return one number for each thing that is watched."""
        functions = sorted(size for _, size in self.functions)
        return {
            "files": len(self.files),
            "longest file": max((size for _, size in self.files), default=0),
            "files in the largest folder": self.folders[0][1] if self.folders else 0,
            "functions": len(functions),
            "median function": statistics.median_low(functions) if functions else 0,
            "p90 function": functions[int(len(functions) * 0.9)] if functions else 0,
            f"functions above {MOST_LINES} lines": len(self.long_functions),
            f"classes above {MOST_METHODS} methods": len(self.many_methods),
            f"classes above {MOST_ATTRIBUTES} attributes": len(self.many_attributes),
            "installed hooks": len(self.hooks),
            "class names that occur twice": len(self.twice),
        }


def measured(root: Path) -> Shape:
    """Measure every source file under ``root``."""
    python = sources(root)
    cython = {str(p.relative_to(root)): p.read_text() for p in sorted(root.rglob("*.pyx"))}
    texts = {**{source.path: source.text for source in python}, **cython}
    every = [each for source in python for each in classes(source)]
    return Shape(
        files=[(path, len(text.splitlines())) for path, text in texts.items()],
        functions=[each for source in python for each in lengths(source)],
        compiled=[each for path, text in cython.items() for each in cython_lengths(path, text)],
        folders=folders(texts).most_common(),
        classes=every,
        hooks=hooks(python, sources(root, ".pyi")),
        twice=twice(every),
    )


def report(shape: Shape) -> str:
    """Return the figures, then by name whatever is above a bound."""
    parts = [
        *_sizes("files", shape.files),
        *_sizes("functions", shape.functions),
        *_sizes("compiled", shape.compiled),
        *_list("folders by files of their own", (f"{n:5}  {path}" for path, n in shape.folders)),
        *_list(
            f"functions above {MOST_LINES} lines",
            (f"{size:5}  {name}" for name, size in shape.long_functions),
        ),
        *_list(
            f"classes above {MOST_METHODS} methods",
            (f"{each.methods:5}  {each.name}  {each.where}" for each in shape.many_methods),
        ),
        *_list(
            f"classes above {MOST_ATTRIBUTES} attributes",
            (f"{each.attributes:5}  {each.name}  {each.where}" for each in shape.many_attributes),
        ),
        *_list("installed hooks", (f"  {hook.where}  {hook.text}" for hook in shape.hooks)),
        *_list(
            "class names that occur twice",
            (f"{len(where):5}  {name}  {' '.join(where)}" for name, where in shape.twice.items()),
        ),
    ]
    return "\n".join(parts)


def _sizes(what: str, sizes: Sequence[tuple[str, int]]) -> list[str]:
    """Return the distribution of one kind of thing and its longest few."""
    if not sizes:
        return []
    ordered = sorted(size for _, size in sizes)
    p90 = ordered[int(len(ordered) * 0.9)]
    median = statistics.median_low(ordered)
    longest = sorted(sizes, key=lambda pair: -pair[1])[:SHOWN]
    return [
        f"{what:10} {len(sizes):5}   median {median:4}   p90 {p90:4}   longest {ordered[-1]:5}",
        *(f"    {size:5}  {name}" for name, size in longest),
    ]


def _list(title: str, lines: Iterable[str]) -> list[str]:
    found = list(lines)
    return [f"{title}: {len(found)}", *(f"    {line}" for line in found)]


def compared(before: Shape, after: Shape) -> str:
    """Return both trees' figures side by side."""
    then, now = before.figures(), after.figures()
    rows = [f"{name:32} {then[name]:7} {value:7}" for name, value in now.items()]
    return "\n".join([f"{'':32} {'before':>7} {'after':>7}", *rows])


def plain(shape: Shape) -> dict[str, Any]:
    """Return what ``--json`` prints."""
    return {
        "figures": shape.figures(),
        "folders": dict(shape.folders),
        "methods": {f"{c.name} {c.where}": c.methods for c in shape.many_methods},
        "attributes": {f"{c.name} {c.where}": c.attributes for c in shape.many_attributes},
        "long_functions": dict(shape.long_functions),
        "hooks": [f"{hook.where} {hook.text}" for hook in shape.hooks],
        "twice": shape.twice,
    }


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path, nargs="?", default=Path("src"))
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--against", type=Path, help="another checkout, measured before this one")
    arguments = parser.parse_args()
    shape = measured(arguments.root)
    if arguments.json:
        print(json.dumps(plain(shape), indent=1))
    elif arguments.against:
        print(compared(measured(arguments.against / arguments.root.name), shape))
    else:
        print(report(shape))


if __name__ == "__main__":
    main()
