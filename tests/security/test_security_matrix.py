"""Every operation, asked by everybody: who is carried out and who is refused stands in tables."""

import re
from collections import Counter
from pathlib import Path

import http_rows
import nats_rows
import verb_rows
import ways
from matrix_site import KEY_NAMES, SECONDS, SECRET, STRANGERS, USER_NAMES, Site, matrix_site

from millstream.kernel import _hub
from millstream.nats.jetstream.endpoint import ROUTES

A_MOMENT = 0.3
REFUSALS = ("violation", "nobody", "silence")
SEES_SECRETS = ("read", "worker", "full", "all", "nojs")
WHO = (*STRANGERS, *KEY_NAMES, *USER_NAMES)


def expected(row: http_rows.HttpRow, who: str) -> int:
    if who in row.odd:
        return row.odd[who]
    if who == "elsewhere":
        return row.elsewhere
    if who in row.allowed.split():
        return row.status
    return 401 if who in STRANGERS else 403


async def test_every_http_operation_answers_each_credential_as_written_down(tmp_path: Path) -> None:
    rows = http_rows.everything()
    async with matrix_site(tmp_path) as site:
        written = {(row.method, row.pattern) for row in rows}
        served = {(route.method, route.pattern) for route in site.table}
        assert served - written == set(), "operations that no row judges"
        assert written - served == set(), "rows of operations that are not there"
        wrong, counts = [], Counter[str]()
        for row in rows:
            for who in WHO:
                got = await asked(site, row, who)
                counts["refused" if got in (401, 403) else "allowed"] += 1
                if got != (due := expected(row, who)):
                    where = row.target or row.pattern
                    wrong.append(f"{who}: {row.method} {where}: {got}, not {due}")
    print(f"\nhttp rows={counts.total()} {dict(counts)}")
    assert not wrong, "\n".join(wrong)
    assert counts["refused"] >= 1083
    assert counts["allowed"] >= 855


async def asked(site: Site, row: http_rows.HttpRow, who: str) -> int:
    target = row.target or row.pattern
    for name, value in http_rows.FILLED.items():
        target = target.replace(name, value)
    told = await site.http(who, row.method, target, row.body, **row.headers)
    if row.changes and told.answer in (200, 201):
        await site.furnish(who)
    assert isinstance(told.answer, int)
    if who not in SEES_SECRETS:
        assert SECRET.encode() not in told.body, (who, row)
    return told.answer


async def test_every_request_over_nats_answers_each_user_as_written_down(tmp_path: Path) -> None:
    async with matrix_site(tmp_path) as site:
        rows = nats_rows.everything(site.parts.info.server_id)
        assert operations(site) - {row.operation for row in rows} == set(), "no row judges these"
        wrong, counts = [], Counter[str]()
        wires = {who: await site.wire(who) for who in USER_NAMES}
        for row in rows:
            for who, wire in wires.items():
                wait = A_MOMENT if row.expected(who) == "silence" else SECONDS
                told = await wire.ask(row.subject, row.body, wait=wait)
                counts["refused" if told.answer in REFUSALS else "allowed"] += 1
                if told.answer != row.expected(who):
                    wrong.append(f"{who}: {row.subject}: {told}, not {row.expected(who)}")
                if who not in SEES_SECRETS:
                    assert SECRET.encode() not in told.body, (who, row)
                if row.changes and told.answer == "answered":
                    await site.furnish(who)
        for wire in wires.values():
            await wire.close()
    print(f"\nnats rows={counts.total()} {dict(counts)}")
    assert not wrong, "\n".join(wrong)
    assert counts["refused"] >= 637
    assert counts["allowed"] >= 233


def operations(site: Site) -> set[str]:
    """Return what the server listens to: the API's own table, and each sink of any account."""
    found = {*ROUTES, "CONSUMER.CREATE", "CONSUMER.MSG.NEXT", "DIRECT.GET"}
    for space in site.parts.guards.accounts:
        for subject, *_ in space.interest.reverse_match(b">"):
            text = subject.decode()
            if text.startswith("$") and not text.startswith(("$JS.API.", "$JS.hub.")):
                found.add("$JS.ACK.>" if text.startswith("$JS.ACK.") else text)
    return found


async def test_no_way_shows_a_record_that_is_denied(tmp_path: Path) -> None:
    """Each way is gone by somebody who may, so that it is known to lead somewhere."""
    async with matrix_site(tmp_path) as site:
        boss = await site.wire("all")
        wrong, counts = [], Counter[str]()
        for name, way in ways.SHOWING.items():
            for who, sees in (("all", True), ("denied", False), ("elsewhere", False)):
                wire = await site.wire(who)
                shown = ways.shows(await way(ways.Attacker(site, who, wire, boss)))
                await wire.close()
                counts["shown" if shown else "hidden"] += 1
                if shown != (sees and name not in ways.TO_NOBODY):
                    wrong.append(f"{name}: {who} {'sees it' if shown else 'does not see it'}")
        await boss.close()
    print(f"\nways to a record={counts.total()} {dict(counts)}")
    assert not wrong, "\n".join(wrong)
    assert counts["hidden"] >= 69
    assert counts["shown"] >= 33


async def test_no_way_speaks_where_it_is_denied(tmp_path: Path) -> None:
    async with matrix_site(tmp_path) as site:
        boss, witness = await site.wire("all"), await site.wire("all")
        witness.say(b"SUB forbidden 1")
        await witness.heard()
        wrong, counts = [], Counter[str]()
        for name, way in ways.SPEAKING.items():
            for who, may in (("all", True), ("denied", False)):
                wire = await site.wire(who)
                told = await way(ways.Attacker(site, who, wire, boss))
                spoken = b"SPOKEN" in told or bool(await witness.heard())
                await wire.close()
                counts["spoken" if spoken else "silent"] += 1
                if spoken != may:
                    wrong.append(f"{name}: {who} {'speaks' if spoken else 'does not speak'}")
        await boss.close()
        await witness.close()
    print(f"\nways to speak={counts.total()} {dict(counts)}")
    assert not wrong, "\n".join(wrong)
    assert counts["silent"] >= 13
    assert counts["spoken"] >= 13


async def test_every_operation_of_the_protocol_is_judged(tmp_path: Path) -> None:
    scanner = Path(_hub.__file__).with_name("_scan.pxd").read_text()
    (listed,) = re.findall(r"cdef enum:\n    NO_VERB\n(.*?)\n\n", scanner, re.DOTALL)
    verbs = {line.split()[0] for line in listed.splitlines()} - {"LONE_VERBS"}
    assert verbs - {row.verb for row in verb_rows.ROWS} == set(), "no row judges these"
    wrong, counts = [], Counter[str]()
    async with matrix_site(tmp_path) as site:
        for row in verb_rows.ROWS:
            for who in ("stranger", "listener", "speaker"):
                got = await said(site, row.said, who)
                counts[got] += 1
                if got != getattr(row, who):
                    wrong.append(f"{who}: {row.said!r}: {got}, not {getattr(row, who)}")
    print(f"\nverb rows={counts.total()} {dict(counts)}")
    assert not wrong, "\n".join(wrong)
    assert counts["ended"] + counts["violation"] >= 50


async def said(site: Site, line: bytes, who: str) -> str:
    wire = await site.wire("" if who == "stranger" else who)
    wire.say(line)
    if who == "stranger":  # whoever is let go on is still there to be asked who they are
        wire.say(b'CONNECT {"user":"all","pass":"p"}')
    wire.say(b"PING")
    found = "fine"
    while (told := await wire.next()).answer not in ("PONG", "closed"):
        found = "violation" if told.answer == "violation" else found
    await wire.close()
    return "ended" if told.answer == "closed" else found
