"""What the log asks of an object store, and what the store answers, as values."""

from collections.abc import Generator
from typing import Protocol, TypeAlias, TypeVar

import msgspec


class Create(msgspec.Struct, frozen=True):
    """Make an object where none of its name is there."""

    name: str
    data: bytes


class Get(msgspec.Struct, frozen=True):
    """Return an object."""

    name: str


class Replace(msgspec.Struct, frozen=True):
    """Put an object in place of the one with this tag; without a tag, where there is none."""

    name: str
    data: bytes
    tag: str | None


class Put(msgspec.Struct, frozen=True):
    """Put an object, whatever stands there: for what nothing else depends on, such as leases."""

    name: str
    data: bytes


class Remove(msgspec.Struct, frozen=True):
    """Remove an object, if it is there."""

    name: str


class Accepted(msgspec.Struct, frozen=True):
    """The store did as asked."""

    tag: str = ""


class ConditionFailed(msgspec.Struct, frozen=True):
    """The condition does not hold: the object is there, or is another one."""


class FoundObject(msgspec.Struct, frozen=True):
    """The object, and the tag that a replacement names."""

    data: bytes
    tag: str = ""


class Absent(msgspec.Struct, frozen=True):
    """There is no object of that name."""


class Unsure(msgspec.Struct, frozen=True):
    """Nobody can tell whether the store did it, or does it later: an error, a time-out, a reset."""

    why: str = ""


Request: TypeAlias = Create | Get | Replace | Put | Remove
Answer: TypeAlias = Accepted | ConditionFailed | FoundObject | Absent | Unsure
_Result = TypeVar("_Result")
Steps: TypeAlias = Generator[Request, Answer, _Result]
"""A decision in steps: yields what to ask, is sent the answer, returns what came of it."""

CONDITION_FAILED, ABSENT = ConditionFailed(), Absent()


class ObjectPlace(Protocol):
    """A place for objects, such as a bucket with a prefix; each call is one request, never retried.

    An answer other than the plain ones is ``Unsure``: error classes of stores are not trusted.
    """

    def carry_out(self, request: Request) -> Answer:
        """Do what the request asks; never raises for what a store may answer."""
        ...


class ListedPlace(ObjectPlace, Protocol):
    """A place that can be looked through. A listing may be late: it is a hint, never a proof."""

    def names(self, folder: str) -> list[str]:
        """Return the names of the objects in a folder, without it; raises ``ObjectsFailed``."""
        ...


def carried_out(steps: Steps[_Result], place: ObjectPlace) -> _Result:
    """Carry a decision through to its end, one request after the other."""
    answer: Answer | None = None
    while True:
        try:
            request = next(steps) if answer is None else steps.send(answer)
        except StopIteration as end:
            result: _Result = end.value
            return result
        answer = place.carry_out(request)
