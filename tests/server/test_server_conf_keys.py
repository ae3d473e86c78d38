"""No key of a configuration file is dropped in silence: it acts, or it is named with the reason."""

import ast
import importlib
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conf_keys import BLOCKS, KEYS, NATS_SERVER, PARTS, Acts, Fate, Refused, Warned

import millstream
from millstream.server.conf.document import FileOptions, from_block
from millstream.server.conf.syntax import parse
from millstream.server.options.config_error import ConfigError
from millstream.server.options.options import Options
from support.annotations import structs_in

SOURCE = Path(millstream.__file__).parent
READERS = sorted(SOURCE.glob("server/conf/*.py"))
EVERY = [(block, key) for block, keys in KEYS.items() for key in keys]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    directory = tmp_path_factory.mktemp("keys")
    cert, key = directory / "cert.pem", directory / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=localhost"],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return {"CERT": str(cert), "KEY": str(key), "DIR": str(directory)}


def text_of(block: str, files: dict[str, str], key: str = "") -> str:
    """Return a file with a key of a block, or with what stands beside it alone."""
    fate, separator = KEYS[block][key], "\n" if block == "" else ", "
    text = BLOCKS[block].text.replace("%", fate.beside + separator + f"{key}: {fate.value}")
    for name, path in files.items():
        text = re.sub(rf"\b{name}\b", path, text)
    return text


def without(block: str, files: dict[str, str], key: str) -> str:
    text = BLOCKS[block].text.replace("%", KEYS[block][key].beside)
    for name, path in files.items():
        text = re.sub(rf"\b{name}\b", path, text)
    return text


def read(text: str) -> FileOptions:
    return from_block(parse(text, "test.conf"))


def tables() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Go through the tables of every reader: module, variable, keys."""
    for path in READERS:
        module = importlib.import_module(f"millstream.server.conf.{path.stem}")
        for name, value in vars(module).items():
            if isinstance(value, dict) and value and all(map(_is_reader, value.values())):
                yield path.stem, name, value


def _is_reader(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and callable(value[1])


def test_every_table_of_the_readers_is_walked() -> None:
    known = {(block.module, block.table) for block in BLOCKS.values()} | PARTS
    assert {(module, name) for module, name, _ in tables()} == known


def test_no_reader_hides_a_table_in_a_function() -> None:
    hidden = [
        path.name
        for path in READERS
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
        for inner in ast.walk(node)
        if isinstance(inner, ast.AnnAssign) and ast.unparse(inner.annotation) == "Table"
    ]
    assert hidden == []


@pytest.mark.parametrize("block", BLOCKS)
def test_every_key_has_its_fate(block: str) -> None:
    where = BLOCKS[block]
    table = getattr(importlib.import_module(f"millstream.server.conf.{where.module}"), where.table)
    assert set(table) == set(KEYS[block])


@pytest.mark.parametrize("block", NATS_SERVER)
def test_every_key_of_nats_server_is_known(block: str) -> None:
    assert set(NATS_SERVER[block].split()) - set(KEYS[block]) == set()


@pytest.mark.parametrize(("block", "key"), EVERY)
def test_the_key_does_what_the_table_says(block: str, key: str, files: dict[str, str]) -> None:
    fate: Fate = KEYS[block][key]
    text = text_of(block, files, key)
    if isinstance(fate, Refused):
        with pytest.raises(ConfigError, match=re.escape(fate.reason)):
            read(text)
        return
    made = read(text)
    named = [str(note) for note in made.notes if f"'{key}'" in str(note)]
    if isinstance(fate, Warned):
        assert any(fate.reason in note for note in named), made.notes
    else:
        assert named == []
        assert made.options != _options(without(block, files, key))


def _options(text: str) -> Options | None:
    try:
        return read(text).options
    except ConfigError:
        return None  # what stands beside it cannot stand alone


# -- what acts is read ---------------------------------------------------------------------------

# Fields that the readers themselves use up.
USED_BY_READERS = {"AccountOptions.default_permissions"}


def option_fields(struct: type, seen: set[type]) -> Iterator[tuple[str, str]]:
    if struct in seen:
        return
    seen.add(struct)
    for field in msgspec.structs.fields(struct):
        yield struct.__name__, field.name
        for inner in structs_in(field.type):
            yield from option_fields(inner, seen)


def attributes_read() -> set[str]:
    """Return every attribute that is read outside of what reads and compares files."""
    skipped = {
        *READERS,
        *(SOURCE / "server/options" / name for name in ("options.py", "auth_options.py")),
    }
    return {
        node.attr
        for path in SOURCE.rglob("*.py")
        if path not in skipped
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }


def test_somebody_reads_every_option() -> None:
    used = attributes_read()
    unread = {
        f"{struct}.{field}" for struct, field in option_fields(Options, set()) if field not in used
    }
    assert unread == USED_BY_READERS


def test_the_docs_name_every_key_that_does_not_act() -> None:
    page = (SOURCE.parents[1] / "docs/reference/nats-server-mode.md").read_text()
    missing = [
        f"{block} {key}"
        for block, key in EVERY
        if not isinstance(KEYS[block][key], Acts) and f"`{key}`" not in page
    ]
    assert missing == []
