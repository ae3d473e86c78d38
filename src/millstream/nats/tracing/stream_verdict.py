"""What a stream would make of a message, without storing it; and when it has stored one."""

from collections.abc import Callable, Sequence

from millstream.accounts.rights import text_of
from millstream.errors import MillstreamError, RecordTooLarge
from millstream.kernel._batch import Batch
from millstream.streams.stream import Stream
from millstream.streams.writing import preconditions
from millstream.streams.writing.preconditions import Duplicate, WrongLastSequence

_PLAIN = {
    10060: "expected stream does not match",
    10058: "last subject sequence mismatch",
}


def stream_verdict(
    stream: Stream, subject: bytes, headers: bytes, payload: bytes
) -> tuple[str, str, bool]:
    """Return the subject that it is stored under, why it is refused, and whether it would stay."""
    try:
        batch = Batch()
        batch.add(subject, b"", headers, payload)
        stored = stream.admission.renamed(batch).message(0)[0]
        stream.admission.prepared(stored, headers, payload, None)
    except Duplicate:
        return "", "msgid is duplicate", True
    except WrongLastSequence as error:
        return "", _sequences(headers, error), True
    except RecordTooLarge:
        return "", "maximum payload exceeded", True
    except MillstreamError as error:
        return "", _PLAIN.get(error.err_code, f"{error} ({error.err_code})"), True
    return text_of(stored), "", stream.admission.keeps(stored)


def _sequences(headers: bytes, error: WrongLastSequence) -> str:
    name = preconditions.EXPECTED_LAST_SEQ + b": "
    expected = headers.partition(name)[2].partition(b"\r\n")[0].decode("latin-1")
    return f"last sequence mismatch: {expected} vs {error.last}"


def when_stored(promised: Sequence[tuple[Stream, int]], call: Callable[[], None]) -> None:
    """Call once each stream holds the sequence that it promised, or is closed."""
    late = [(stream, seq) for stream, seq in promised if not _holds(stream, seq)]
    if not late:
        call()
        return
    stream, seq = late[0]

    def look() -> None:
        if _holds(stream, seq):
            undo()
            when_stored(late[1:], call)

    undo = stream.watch(look)


def _holds(stream: Stream, seq: int) -> bool:
    return stream.is_closed or stream.log.state().last_seq >= seq
