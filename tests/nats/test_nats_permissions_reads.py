from typing import Any

import pytest

from millstream.accounts.permissions import Permissions, Rule
from millstream.accounts.rights import Rights
from millstream.nats.publish_rights import PublishRights
from millstream.nats.record_reads import ReadRequest, may_read, read_request, sight_of
from millstream.streams.config.config import StreamConfig


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
        ("$JS.API.STREAM.SNAPSHOT.LOG", ReadRequest("LOG", whole=True)),
        ("$JS.hub.API.STREAM.SNAPSHOT.LOG", ReadRequest("LOG", whole=True)),
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


@pytest.mark.parametrize(
    ("subjects", "origins", "may"),
    [
        (("log.open",), [], True),
        (("log.>",), [], False),
        ((), ["OPEN"], True),
        ((), ["LOG"], False),
        (("log.open",), ["GONE"], False),
    ],
)
def test_records_are_not_copied_out_of_what_is_denied(
    subjects: tuple[str, ...], origins: list[str], may: bool
) -> None:
    streams = {"LOG": ("log.>", "LOG"), "OPEN": ("log.open", "OPEN")}
    limited = Permissions(subscribe=Rule.of(deny=["log.secret"]))
    for permissions, expected in ((limited, may), (Permissions(), True)):
        rights = PublishRights(Rights(permissions), "$G", lambda _, name: streams.get(name), "")
        assert rights.may_copy(subjects, origins) is expected


@pytest.mark.parametrize(
    ("more", "renamed"),
    [
        ({}, ((), [])),
        ({"republish": {"src": "log.>", "dest": "out.>"}}, (("log.>",), [])),
        ({"subject_transform": {"src": "log.>", "dest": "out.>"}}, (("log.>",), [])),
        ({"sources": ({"name": "A"},)}, ((), [])),
        (
            {"sources": ({"name": "A", "subject_transforms": [{"src": "a", "dest": "b"}]},)},
            ((), ["A"]),
        ),
        ({"mirror": {"name": "A"}, "republish": {"src": ">", "dest": "b.>"}}, (("log.>",), ["A"])),
    ],
)
def test_a_configuration_says_what_it_shows_under_other_subjects(
    more: dict[str, Any], renamed: tuple[tuple[str, ...], list[str]]
) -> None:
    assert StreamConfig(name="S", subjects=("log.>",), **more).renamed() == renamed


@pytest.mark.parametrize(
    ("headers", "wrong"),
    [
        (b"Nats-Schedule-Target: open", b""),
        (b"Nats-Schedule-Target: shut", b"shut"),
        (b"Nats-Schedule-Source: log.open", b""),
        (b"Nats-Schedule-Source: log.secret", b"log.secret"),
        (b"Nats-Schedule-Target: open\r\nNats-Schedule-Target: shut", b"shut"),
        (b"Other: shut", b""),
    ],
)
def test_a_schedule_names_only_what_its_publisher_may_use(headers: bytes, wrong: bytes) -> None:
    limited = Permissions(publish=Rule.of(deny=["shut"]), subscribe=Rule.of(deny=["log.secret"]))
    rights = PublishRights(Rights(limited), "$G", lambda _, name: None, "")
    assert rights.wrong_schedule(b"NATS/1.0\r\n%b\r\n\r\n" % headers) == wrong
    assert rights.may_send_out(["open.*"])
    assert not rights.may_send_out(["open", "*"])


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
