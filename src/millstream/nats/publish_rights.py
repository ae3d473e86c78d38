"""PublishRights: what a client may publish, where a publish may also read or write a stream."""

from collections.abc import Sequence

from millstream.accounts.rights import Rights, text_of
from millstream.accounts.sight import Sight
from millstream.kernel._hub import ALLOWED, ALLOWED_ONCE, DENIED
from millstream.nats.record_reads import (
    ReadRequest,
    SubjectsOf,
    may_read,
    may_write,
    read_request,
    sight_of,
    written_stream,
)
from millstream.subjects.pattern_set import any_overlap
from millstream.wire.headers import MalformedHeaders, parse_headers


class PublishRights:
    """Judges publishes by a client's rights and by what the streams of its account hold."""

    def __init__(self, rights: Rights, account: str, subjects_of: SubjectsOf, domain: str) -> None:
        self._rights = rights
        self._account = account
        self._subjects_of = subjects_of
        self._domain = f"$JS.{domain}.API.".encode() if domain else b""

    def plain(self, subject: bytes) -> bytes:
        """Return a subject of the API by the name that it has without the server's domain."""
        if self._domain and subject.startswith(self._domain):
            return b"$JS.API." + subject[len(self._domain) :]
        return subject

    def judge(self, asked: bytes, now: float) -> int:
        """Return DENIED, ALLOWED or ALLOWED_ONCE."""
        rights, request, target = self._rights, None, None
        subject = self.plain(asked) if self._domain else asked
        if subject.startswith(b"$"):
            request = None if rights.reads_all else read_request(text_of(subject))
            target = written_stream(text_of(subject))
        if request is not None and not self._may_read(request):
            return DENIED
        if target is not None and not self._may_write(target):
            return DENIED
        if rights.may_publish(subject):
            if request is not None or target is not None:
                return ALLOWED_ONCE  # what the stream holds can change
            rights.remember(asked)
            return ALLOWED
        return ALLOWED_ONCE if rights.may_answer(subject, now) else DENIED

    def may_touch(self, asked: bytes) -> bool:
        """Say whether a request to an API shows and changes only what the client may."""
        subject = text_of(self.plain(asked))
        if not subject.startswith("$"):
            return True
        request, target = read_request(subject), written_stream(subject)
        if request is not None and not self._rights.reads_all and not self._may_read(request):
            return False
        return target is None or self._may_write(target)

    def sight_of(self, stream: str) -> Sight | None:
        """Return what the client sees of a stream in its account, None for everything."""
        if self._rights.reads_all:
            return None
        patterns = self._subjects_of(self._account, stream)
        return sight_of(self._rights.permissions.subscribe, stream, patterns)

    def wrong_schedule(self, headers: bytes) -> bytes:
        """Return a subject that a schedule names and the client may not use so, nothing if none.

        It publishes to its target, and it may take the newest record of a source along.
        """
        from millstream.streams.schedules.schedules import SOURCE, TARGET  # a server may keep none

        try:
            named = parse_headers(headers)
        except MalformedHeaders:
            return b""  # nobody finds a schedule in it
        hidden = self._rights.permissions.subscribe.filters()
        for name, value in named:
            if name == TARGET and not self._rights.may_publish(value):
                return value
            if name == SOURCE and hidden and any_overlap((text_of(value),), hidden):
                return value
        return b""

    def may_send_out(self, targets: Sequence[str]) -> bool:
        """Say whether the client may have everything published that fits these patterns."""
        if not self._rights.guards_publishing:
            return True
        denied = [entry.pattern for entry in self._rights.permissions.publish.deny]
        return not any_overlap(targets, denied) and all(
            self._rights.may_publish(target.encode("utf-8", "surrogateescape"))
            for target in targets
        )

    def may_copy(self, subjects: Sequence[str], origins: Sequence[str]) -> bool:
        """Say whether records may go out under other subjects: those that the client may hear.

        They are what is published to ``subjects``, and what the streams ``origins`` hold.
        """
        denied = self._rights.permissions.subscribe.filters()
        if not denied:
            return True
        return not any_overlap(subjects, denied) and all(
            self._may_read(ReadRequest(origin)) for origin in origins
        )

    def _may_read(self, request: ReadRequest) -> bool:
        patterns = self._subjects_of(self._account, request.stream)
        return may_read(self._rights.permissions.subscribe, request, patterns)

    def _may_write(self, stream: str) -> bool:
        patterns = self._subjects_of(self._account, stream)
        return may_write(self._rights.permissions.publish, patterns)
