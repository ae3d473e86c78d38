"""Parameters of the monitoring endpoints: booleans and numbers, or a refusal that names them."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from millstream.errors import BadRequest
from millstream.http.number import whole_number

TRUE = {"1", "t", "T", "true", "TRUE", "True"}
FALSE = {"0", "f", "F", "false", "FALSE", "False"}
LARGEST = 2**63 - 1

Query = Mapping[str, str]
Item = TypeVar("Item")


def flag(query: Query, name: str) -> bool:
    """Return a boolean; absent means no."""
    text = query.get(name, "")
    if text and text not in TRUE | FALSE:
        raise BadRequest(f"cannot read {name}={text}: it takes true or false")
    return text in TRUE


def number(query: Query, name: str) -> int:
    """Return a whole number; absent means 0."""
    text = query.get(name, "")
    if not text:
        return 0
    digits = text[1:] if text[0] in "+-" else text
    size = whole_number(digits, LARGEST)
    if size is None:
        raise BadRequest(f"cannot read {name}={text}: it takes a whole number")
    return -size if text[0] == "-" else size


def page(found: Sequence[Item], offset: int, limit: int) -> list[Item]:
    """Return one page of what was found."""
    return list(found[offset : offset + limit])
