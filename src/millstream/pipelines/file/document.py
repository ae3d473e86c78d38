"""A pipeline file as plain values, and on which line each of them stands."""

import difflib
import re
import runpy
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from millstream.pipelines.problems import MissingPackage, PipelineError

Key = tuple[str | int, ...]

MAX_BYTES = 1 << 20
PYTHON_NAME = "pipeline"


@dataclass(frozen=True, slots=True)
class Document:
    """The values of a file; ``lines`` knows where each key is, as far as the file has lines."""

    name: str
    data: Any
    directory: Path = field(default_factory=Path)
    lines: dict[Key, int] = field(default_factory=dict)

    def fail(self, key: Key, text: str) -> NoReturn:
        """Raise the problem with its place: ``orders.yaml:12: sinks[0].mode: …``."""
        raise PipelineError(f"{self._place(key)}: {text}")

    def _place(self, key: Key) -> str:
        line = next((self.lines[up] for up in _upwards(key) if up in self.lines), None)
        file = self.name if line is None else f"{self.name}:{line}"
        return f"{file}: {spelled(key)}" if key else file


def spelled(key: Key) -> str:
    """Return a key as people write it: ``sinks[0].mode``."""
    text = ""
    for part in key:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def near(name: object, known: Iterable[str]) -> str:
    """Return the hint behind a wrong name: what was meant, or what there is."""
    names = list(known)
    close = difflib.get_close_matches(str(name), names, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known here: {', '.join(names)}"


def load(path: Path) -> Document:
    """Read a YAML or Python file; raises ``PipelineError`` with the line of what is wrong."""
    if not path.is_file():
        raise PipelineError(f"{path}: no such file")
    if path.stat().st_size > MAX_BYTES:
        raise PipelineError(f"{path}: larger than {MAX_BYTES} bytes, too large for a pipeline")
    if path.suffix == ".py":
        return _from_python(path)
    if path.suffix in (".yaml", ".yml"):
        return from_yaml(_text_of(path), str(path), path.parent)
    raise PipelineError(f"{path}: a pipeline is a .yaml, .yml or .py file")


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise PipelineError(f"{path}:{line}: not UTF-8: save the file in UTF-8") from error


def _from_python(path: Path) -> Document:
    """Run the file: its ``pipeline`` is what a YAML file would hold, and may name functions."""
    try:
        names = runpy.run_path(str(path), run_name="millstream.pipeline")
    except (Exception, SystemExit) as error:
        raise PipelineError(f"{path}: {type(error).__name__}: {error}") from error
    if PYTHON_NAME not in names:
        raise PipelineError(f"{path}: defines no {PYTHON_NAME!r}: set it to a dict as in YAML")
    return Document(str(path), names[PYTHON_NAME], path.parent)


def from_yaml(text: str, name: str, directory: Path) -> Document:
    """Return the values of YAML text with their lines."""
    try:
        import yaml
    except ImportError:
        raise MissingPackage("PyYAML", f"{name}: a YAML pipeline") from None
    try:
        loader = _plain_loader(yaml)
        root = yaml.compose(text, loader)
        lines: dict[Key, int] = {}
        document = Document(name, None, directory, lines)
        if root is not None:
            _note_lines(root, (), document)
        return Document(name, yaml.load(text, loader), directory, lines)
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise PipelineError(f"{name}{line}: not valid YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise PipelineError(f"{name}: not valid YAML: {error}") from error


def _plain_loader(yaml: Any) -> Any:
    """Return a loader for which ``on``, ``no`` and times are the text that they look like."""

    class PlainLoader(yaml.SafeLoader):  # type: ignore[misc]
        pass

    wordy = ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:timestamp")
    PlainLoader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in found if tag not in wordy]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    PlainLoader.add_implicit_resolver(wordy[0], re.compile("^(?:true|false)$"), list("tf"))
    return PlainLoader


def _note_lines(node: Any, key: Key, document: Document) -> None:
    document.lines.setdefault(key, node.start_mark.line + 1)
    if node.id == "mapping":
        for name, value in node.value:
            below = (*key, str(name.value))
            if below in document.lines:
                document.lines[below] = name.start_mark.line + 1
                document.fail(below, "is there twice: remove one")
            document.lines[below] = name.start_mark.line + 1
            _note_lines(value, below, document)
    elif node.id == "sequence":
        for at, value in enumerate(node.value):
            _note_lines(value, (*key, at), document)


def _upwards(key: Key) -> Iterable[Key]:
    return (key[:size] for size in range(len(key), -1, -1))
