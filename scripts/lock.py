"""Writes the versions installed here into requirements/: one file per set, pins only.

A set is an entry of pyproject.toml with everything it pulls in; what an earlier set already
pins is left out of the later ones.
"""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

HEAD = "# Written by `make lock`. Pins only: pyproject.toml says what is needed and why.\n"
BUILD_TOOLS = ["cython", "setuptools"]
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def normal(name: str) -> str:
    """Return the name as the package index spells it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def closure(roots: list[str]) -> dict[str, str]:
    """Return name → version of everything that ``roots`` need and that is installed."""
    found: dict[str, str] = {}
    waiting = list(roots)
    while waiting:
        requirement = waiting.pop()
        match = NAME.match(requirement)
        if match is None or "extra ==" in requirement:
            continue
        name = normal(match[0])
        if name in found:
            continue
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            continue  # its environment marker does not hold on this machine
        found[name] = installed.version
        waiting.extend(installed.requires or [])
    return found


def main() -> None:
    """Write requirements/{run,dev,spark,docs}.txt."""
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    sets = {"run": project["dependencies"] + BUILD_TOOLS, **extras}
    sets["spark"] = extras["spark"] + extras["pipelines"]  # one environment runs both
    pinned: set[str] = set()
    for name in ("run", "dev", "spark", "docs"):
        pins = {k: v for k, v in closure(sets[name]).items() if k not in pinned}
        lines = [f"{package}=={version}\n" for package, version in sorted(pins.items())]
        Path("requirements", f"{name}.txt").write_text(HEAD + "".join(lines))
        pinned |= pins.keys()


if __name__ == "__main__":
    main()
