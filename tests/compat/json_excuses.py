"""Where an answer to a generated JSON body may differ from the reference's, and why."""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from compat.jetstream_excuses import where

if TYPE_CHECKING:
    from compat.json_bodies import Case

SHORT_LIFE = re.compile(rb'(?i)inactive_thre.{1,2}hold"?\s*:\s*[1-9]\d{0,6}[,}]')


@dataclass(frozen=True, slots=True)
class Excuse:
    """A difference in these places is no mistake, if the body gives the occasion for it."""

    why: str
    place: str  # of the differing value in the answers, as a pattern
    occasion: str = ""  # in the subject and body of the request, as a pattern


EXCUSES = (
    Excuse(
        "The reference counts sequence 0 of an empty stream in files as deleted.",
        r"\.state\.(num_deleted|deleted) is null, not (1|\[0\])",
    ),
    Excuse(
        "That an origin is missing is told at once here, in the reference after its first try.",
        r"\.(sources\.\d+|mirror)\.error is \{\"code\": 404.*\}, not null",
        "(?i)sources|mirror",
    ),
    Excuse(
        "A consumer that may be inactive for less than a few milliseconds is gone by the next "
        "request here, in the reference a moment later.",
        r".*",
        SHORT_LIFE.pattern.decode(),
    ),
    Excuse(
        "An update of the reference turns a republish without destination into one to everything, "
        "which would come back to the stream; here it republishes nothing, as after a create.",
        r"\.(config|state|error|domain|created|did_create|total)\b.*|\.config\.republish.*",
        r"STREAM\.UPDATE.*(?i:republish)",
    ),
    Excuse(
        "Who no longer listens waits here until it is looked for, in the reference until told so.",
        r"\.num_waiting is 1, not 0",
        r"MSG\.NEXT",
    ),
    Excuse(
        "What is wrong with a subject transform is in part said in words of our own.",
        r"description is \"stream transform: ",
        r"(?i:tran.{1,2}form)",
    ),
    Excuse(
        "How much of a broken escape the reference shows depends on where its read buffer ends.",
        r"description is \"invalid JSON: invalid escape sequence",
        r"\\u12",
    ),
    Excuse(
        "An update that names first_seq 1 shows it as the first sequence of an empty stream.",
        r"\.state\.first_seq is 1, not 0",
        r"STREAM\.UPDATE.*(?i:fir.{1,2}t_.{1,2}eq)",
    ),
    Excuse(
        "A pause that ended before 1970 is shown as none, as the zero time.",
        r"\.pause_until is \"0001-01-01T00:00:00Z\", not",
        r"CONSUMER\.PAUSE.*0000-",
    ),
    Excuse(
        "An empty list of tags is no placement here, in the reference one that says nothing.",
        r"\.config\.placement is null, not \{\}",
        r"(?i:placement).*\[\]",
    ),
    Excuse(
        "The API level that a priority timeout below zero asks for: it is set to none here first.",
        r"\.metadata\._nats\.req\.level is \"0\", not \"1\"",
        r"(?i)priority_timeout\"?:-",
    ),
)

# Bodies that the reference must not be asked: pattern and reason.
NOT_ASKED = (
    (
        r"STREAM\.PURGE.*(?i:seq)\"?\s*:\s*\d{8,}[,}]",
        "With a filter, the reference counts up to the sequence that is named, one by one, and "
        "answers nobody meanwhile.",
    ),
)


def may_be_asked(case: Case) -> bool:
    """Whether the reference survives this body."""
    said = case.asked.subject + " " + case.asked.body.decode("utf-8", "replace")
    return not any(re.search(pattern, said) for pattern, _ in NOT_ASKED)


def excuse(case: Case, ours: list[Any], theirs: list[Any]) -> str:
    """Return why these answers may differ, nothing when they may not."""
    said = case.asked.subject + " " + case.asked.body.decode("utf-8", "replace")
    allowed = [one for one in EXCUSES if re.search(one.occasion, said)]
    used = []
    for line in where(deepcopy(ours), deepcopy(theirs)):
        fitting = [one.why for one in allowed if re.search(one.place, line, re.DOTALL)]
        if not fitting:
            return ""
        used.append(fitting[0])
    return used[0] if used else ""
