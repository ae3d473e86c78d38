import pytest

from millstream.accounts.permissions import Rule
from millstream.nats.record_reads import ReadRequest, may_read, read_request, sight_of


@pytest.mark.parametrize(
    ("subject", "request_"),
    [
        ("$JS.API.STREAM.MSG.GET.LOG", ReadRequest("LOG")),
        ("$JS.hub.API.STREAM.MSG.GET.LOG", ReadRequest("LOG")),
        ("$JS.API.DIRECT.GET.LOG", ReadRequest("LOG")),
        ("$JS.API.DIRECT.GET.LOG.a.b", ReadRequest("LOG", "a.b")),
        ("$MILLSTREAM.API.READ.LOG", ReadRequest("LOG", whole=True, parts=True)),
        ("$MILLSTREAM.API.PLAN.a.b", ReadRequest("a.b", whole=True, parts=True)),
        ("$MILLSTREAM.API.HOLD.LOG", ReadRequest("LOG", whole=True)),
        ("$JS.API.STREAM.INFO.LOG", None),
        ("$JS.API.CONSUMER.MSG.NEXT.LOG.c", None),
        ("$JS.ACK.API.x", None),
        ("$SYS.REQ.USER.INFO", None),
        ("orders", None),
    ],
)
def test_requests_for_records_are_recognised(subject: str, request_: ReadRequest | None) -> None:
    assert read_request(subject) == request_


def test_records_are_given_only_where_none_of_them_is_denied() -> None:
    rule = Rule.of(deny=["log.secret", "x.> group"], queues=True)

    assert may_read(rule, ReadRequest("LOG", "log.open"), ("log.>",))
    assert not may_read(rule, ReadRequest("LOG", "log.secret"), ("log.>",))
    assert not may_read(rule, ReadRequest("LOG", "log.*"), ("log.>",))
    assert not may_read(rule, ReadRequest("LOG"), ("log.>",))
    assert may_read(rule, ReadRequest("X"), ("x.>",))
    assert not may_read(rule, ReadRequest("GONE"), None)
    assert may_read(Rule(), ReadRequest("GONE"), None)


def test_who_hears_some_subjects_may_ask_for_parts_and_sees_those() -> None:
    rule = Rule.of(["_INBOX.>", "log.eu.>", "log.us.> group"], ["log.eu.secret"], queues=True)
    part = ReadRequest("LOG", whole=True, parts=True)
    assert may_read(rule, part, ("log.>", "LOG"))
    assert not may_read(rule, part, ("log.us.*", "LOG"))  # heard in a queue group alone
    assert not may_read(rule, part, None)
    sees = sight_of(rule, "LOG", ("log.>", "LOG"))
    assert sees is not None
    heard = [b"log.eu.a", b"log.eu.secret", b"log.us.a", b"LOG"]
    assert [sees(subject) for subject in heard] == [True, False, False, False]
    assert sight_of(rule, "LOG", ("log.eu.open", "LOG")) is None
