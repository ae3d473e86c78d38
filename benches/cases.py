"""What is measured: one case is one run of the load generator against each server."""

from __future__ import annotations

from dataclasses import dataclass

CORE, UNSYNCED, SYNCED, MEMORY = "core", "unsynced", "synced", "memory"
SOON = "synced in 50 ms"  # of the write: an ack comes before
STORED = 1_000_000


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table.

    ``setting`` says which pair of servers it runs against; ``reach`` is the throughput ratio and
    ``cpu_reach`` the ratio of server CPU per message that the project wants, 0 where it has none.
    """

    name: str
    setting: str
    messages: int
    options: dict[str, str | int]
    reach: float = 0.0
    cpu_reach: float = 0.0
    stored: int = 0  # records that the stream holds beforehand, over 10,000 subjects
    filtered: str = ""  # the consumer's filter subject
    bucket: bool = False  # against a key-value bucket instead of a plain stream

    @property
    def section(self) -> str:
        """``core`` or ``js``, as chosen by --only."""
        return "core" if self.setting == CORE else "js"


def all_cases() -> list[Case]:
    """Every row, in the order of the table."""
    return [
        *_core(),
        *_jetstream(MEMORY, 0.0),
        *_jetstream(UNSYNCED, 3.0),
        *_jetstream(SYNCED, 10.0),
        *_jetstream(SOON, 0.0)[:2],
        *_consume(),
        *_key_value(),
    ]


def _core() -> list[Case]:
    counts = {16: 4_000_000, 128: 2_500_000, 1024: 800_000, 16384: 80_000}
    rows = [_core_case(f"pub {_size(s)}", n, mode="pub", size=s) for s, n in counts.items()]
    rows += [_fan(1, 1, size, count // 2) for size, count in counts.items()]
    for publishers, subscribers in ((1, 8), (4, 4)):
        rows += [
            _fan(publishers, subscribers, size, count // subscribers)
            for size, count in counts.items()
        ]
    rows.append(_core_case("10k subjects, 100 wildcard subs", 500_000, mode="wild", subscribers=4))
    rows.append(
        _core_case("10k subjects, 10k literal subs", 500_000, mode="literal", subscribers=4)
    )
    rows.append(_core_case("request/reply, 1 at a time", 10_000, mode="request"))
    rows.append(
        _core_case("request/reply, 64 at once", 100_000, mode="request", publishers=16, window=4)
    )
    return rows


def _fan(publishers: int, subscribers: int, size: int, messages: int) -> Case:
    name = f"{publishers}→{subscribers} {_size(size)}"
    return _core_case(
        name, messages, mode="fan", size=size, publishers=publishers, subscribers=subscribers
    )


def _core_case(name: str, messages: int, **options: str | int) -> Case:
    size = int(options.setdefault("size", 128))
    return Case(name, CORE, messages, options, 2.0 if size <= 128 else 1.3, 0.5)


def _jetstream(setting: str, reach: float) -> list[Case]:
    quick = setting != SYNCED
    several, alone = (200_000, 10_000) if quick else (20_000, 1_000)
    return [
        _publish("async publish, 1 client, 128 B", setting, several, reach, window=1000),
        _publish("async publish, 1 client, 1 KiB", setting, several, reach, window=1000, size=1024),
        _publish(
            "async publish, 8 clients, 128 B", setting, several, reach, window=128, publishers=8
        ),
        _publish("sync publish, 1 client, 128 B", setting, alone, 0.0, window=1),
        _publish(
            "sync publish, 16 clients, 128 B", setting, alone * 4, 0.0, window=1, publishers=16
        ),
    ]


def _publish(name: str, setting: str, messages: int, reach: float, **options: str | int) -> Case:
    options = {"mode": "jspub", "subject": "bench.js", "size": 128, **options}
    return Case(f"{name}, {setting}", setting, messages, options, reach)


def _consume() -> list[Case]:
    fetch: dict[str, str | int] = {"mode": "fetch", "size": 128, "batch": 500}
    ordered: dict[str, str | int] = {"mode": "ordered", "size": 128}
    create: dict[str, str | int] = {"mode": "create", "window": 1, "size": 0}
    name = "fetch 500 at a time, 128 B"
    # One record in a hundred matches; the eighth is the first.
    picky: dict[str, str | int] = {**fetch, "first": 8, "stride": 100}
    return [
        Case(f"{name}, no acks", UNSYNCED, 300_000, fetch, 2.0, stored=STORED),
        Case(f"{name}, acks", UNSYNCED, 200_000, {**fetch, "ack": 1}, 2.0, stored=STORED),
        *(
            Case(
                f"fetch {batch} at a time, 128 B, acks",
                UNSYNCED,
                200_000,
                {**fetch, "batch": batch, "ack": 1},
                2.0,
                stored=STORED,
            )
            for batch in (100, 1000)
        ),
        Case("ordered consume, 128 B", UNSYNCED, STORED, ordered, 2.0, stored=STORED),
        Case("consumer create, 1 M records", UNSYNCED, 500, create, stored=STORED),
        Case(
            "fetch filtered, 1 of 100, 10k subjects",
            UNSYNCED,
            STORED // 100,
            picky,
            2.0,
            stored=STORED,
            filtered="bench.js.7.*",
        ),
    ]


def _key_value() -> list[Case]:
    """Puts and gets of 10,000 keys, as the clients' key-value stores send them."""
    put: dict[str, str | int] = {
        "mode": "jspub", "subject": "$KV.bench", "size": 128, "spread": 10_000,
    }  # fmt: skip
    get: dict[str, str | int] = {
        **put,
        "mode": "get",
        "subject": "$JS.API.DIRECT.GET.KV_bench.$KV.bench",
    }
    return [
        Case("KV put, 1 at a time", UNSYNCED, 10_000, {**put, "window": 1}, bucket=True),
        Case("KV put, 100 at once", UNSYNCED, 100_000, {**put, "window": 100}, bucket=True),
        Case("KV get, 1 at a time", UNSYNCED, 10_000, {**get, "window": 1}, bucket=True),
        Case("KV get, 100 at once", UNSYNCED, 100_000, {**get, "window": 100}, bucket=True),
    ]


def _size(size: int) -> str:
    return f"{size} B" if size < 1024 else f"{size // 1024} KiB"
