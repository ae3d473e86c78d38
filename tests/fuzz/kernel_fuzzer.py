"""Feeds every compiled entry point hostile input: ``kernel_fuzzer.py TARGETS SECONDS SEED LOG``.

Runs in a process of its own under AddressSanitizer. Each execution is made from (seed, target,
number) alone, and that is written down before it starts: a report can be replayed by naming it.
"""

import importlib
import json
import logging
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from millstream.kernel import _acks, _frames, _index, _interest, _scan, _xxh3
from millstream.kernel._batch import Batch
from millstream.kernel._hub import Hub
from millstream.kernel._interest import Interest
from millstream.kernel._phrases import Phrases

WORDS = [b"a", b"b.c", b"a.*", b">", b"a.>", b"*", b"x..y", b"_R_.1", b"$JS.ACK.1", b"q", b"", b"."]
VERBS = [
    *(b"PUB ", b"pub\t", b"HPUB ", b"SUB ", b"UNSUB ", b"PING", b"PONG", b"CONNECT ", b"INFO "),
    *(b"+OK", b"-ERR ", b"MSG ", b"\x00", b"PUBB "),
]
NUMBERS = [b"0", b"1", b"2", b"12", b"16", b"300", b"5000", b"99999999", b"-1", b"1e3", b"007"]
ENDS = [b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r", b" \r\n", b""]
HEADERS = b"NATS/1.0\r\n\r\n"
PHRASES = Phrases(
    bad_subject=b"-ERR\r\n",
    reserved_reply=(b"-ERR ", b"\r\n"),
    reserved=((b"_R_.", 4), (b"$JS.ACK.", 9)),
    nobody=(b"NATS/1.0 503\r\nAbout: ", b"\r\n\r\n"),
    scheduled=b"S",
)


def mutated(random: Random, data: bytes) -> bytes:
    """Flip, cut, repeat or insert a little."""
    changed = bytearray(data)
    for _ in range(random.choice([0, 0, 1, 1, 2, 8])):
        at = random.randrange(len(changed) + 1)
        kind = random.randrange(4)
        if kind == 0 and at < len(changed):
            changed[at] = random.randrange(256)
        elif kind == 1:
            del changed[at : at + random.choice([1, 2, 9, 60])]
        elif kind == 2:
            changed[at:at] = changed[at : at + random.choice([1, 4, 30])]
        else:
            changed[at:at] = random.choice([*WORDS, *VERBS, *NUMBERS, *ENDS])
    return bytes(changed)


def operation(random: Random) -> bytes:
    """One operation, mostly legal."""
    subject = random.choice(WORDS)
    payload = random.randbytes(random.choice([0, 1, 12, 16, 300, 5000]))
    kind = random.randrange(6)
    if kind == 0:
        return b"PUB %s %d\r\n%s\r\n" % (subject, len(payload), payload)
    if kind == 1:
        body = HEADERS + payload
        return b"HPUB %s r 12 %d\r\n%s\r\n" % (subject, len(body), body)
    if kind == 2:
        return b"SUB %s %d\r\n" % (subject, random.randrange(9))
    if kind == 3:
        return b"SUB %s %s %d\r\n" % (subject, random.choice(WORDS), random.randrange(9))
    if kind == 4:
        return b"UNSUB %d %s\r\n" % (random.randrange(9), random.choice(NUMBERS))
    words = b" ".join(random.choice([*WORDS, *NUMBERS]) for _ in range(random.randrange(6)))
    return random.choice(VERBS) + words + random.choice(ENDS)


def pieces(random: Random, data: bytes) -> list[bytes]:
    """Cut the input at random, or not at all."""
    if random.random() < 0.3:
        return [data]
    cuts = sorted(random.randrange(len(data) + 1) for _ in range(random.choice([1, 3, 20])))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


class Door:
    """A handler that answers at random, and sometimes pulls the rug away."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.interests = [Interest(cache=4, sweep=1), Interest()]
        self.hub = Hub(
            self,
            PHRASES,
            max_payload=6000,
            max_pending=random.choice([2_000, 100_000]),
            slice_ns=random.choice([0, 1 << 60]),
        )
        self.cids: list[int] = []

    def attach(self, fd: int | None = None) -> int:
        interest = self.random.choice(self.interests)
        fed = fd is None
        cid = self.hub.attach_fed(interest) if fd is None else self.hub.attach(fd, interest)
        names = ("verbose", "pedantic", "echo", "headers", "no_responders", "guarded")
        options = {name: self.random.random() < 0.5 for name in names}
        self.hub.configure(
            cid,
            **options,
            choosy=self.random.random() < 0.3,
            track_replies=self.random.random() < 0.3,
        )
        self.cids.append(cid)
        return cid if fed else -cid

    def meddle(self) -> None:
        cid = self.random.choice(self.cids)
        if cid not in self.hub.connections():
            return
        kind = self.random.randrange(12)
        if kind == 0:
            self.hub.close_connection(cid, 200)
        elif kind == 1:
            self.hub.unsubscribe_all(cid)
            self.hub.move(cid, self.random.choice(self.interests))
        elif kind == 2:
            interest = self.random.choice(self.interests)
            self.hub.publish(interest, b"a", b"r", b"", b"x" * self.random.choice([0, 3, 4000]))
        elif kind == 3:
            self.hub.write(cid, b"x" * self.random.choice([0, 5, 4096, 5000]))
        elif kind == 4:
            self.hub.flush()

    def on_sub(self, cid: int, subject: bytes, queue: bytes, sid: bytes) -> None:
        deny = (b"a.>", b"b.*") if self.random.random() < 0.2 else ()
        self.hub.subscribe(cid, subject, queue, sid, deny)
        self.meddle()

    def on_unsub(self, cid: int, sid: bytes, max_msgs: int) -> None:
        self.hub.unsubscribe(cid, sid, max_msgs)
        self.meddle()

    def may_publish(self, cid: int, subject: bytes) -> int:
        self.meddle()
        return self.random.randrange(3)

    def may_reply(self, cid: int, reply: bytes) -> int:
        self.meddle()
        return self.random.randrange(3)

    def may_schedule(self, cid: int, headers: bytes) -> bool:
        self.meddle()
        return self.random.random() < 0.5

    def on_output(self, cid: int) -> None:
        if self.random.random() < 0.9:
            self.hub.take(cid, self.random.choice([0, 1, 100]))

    def on_closed(self, cid: int, reason: int) -> None:
        self.meddle()

    def on_connect(self, cid: int, options: bytes) -> None:
        self.meddle()

    on_info = on_connect

    def on_ping(self, cid: int) -> None:
        self.meddle()

    on_pong = on_ping

    def on_error(self, cid: int, code: int) -> None:
        self.meddle()

    def on_delivered_reply(self, cid: int, reply: bytes) -> None:
        self.meddle()

    def deliver(self, batch: Batch) -> None:
        for i in range(len(batch)):
            batch.message(i)
        self.hub.publish_acks(
            self.interests[0], batch, 0, len(batch), 2**64 - 2, b"{", b"}" * len(batch)
        )


def fuzz_hub(random: Random) -> None:
    """Sessions on fed connections and on one real socket, in any order and cut anywhere."""
    door = Door(random)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    door.attach(theirs.detach())
    fed = [door.attach() for _ in range(2)]
    handles = [
        i.add_sink(random.choice([b"a", b">", b"b.*"]), door, costly=True) for i in door.interests
    ]
    for _ in range(random.randrange(1, 9)):
        data = mutated(random, b"".join(operation(random) for _ in range(random.randrange(1, 6))))
        target = random.choice([*fed, -1])
        for piece in pieces(random, data):
            if target > 0:
                door.hub.feed(target, piece)
            elif piece:
                _send(ours, piece)
                door.hub.poll()
        paused = random.random() < 0.2
        for interest, handle in zip(door.interests, handles, strict=True):
            interest.pause_sink(handle, paused)
        door.hub.poll()
        door.hub.tick(random.random() * 100)
    _read(ours)
    door.hub.close()
    ours.close()


def _send(ours: socket.socket, piece: bytes) -> None:
    try:
        ours.send(piece)
    except (BlockingIOError, BrokenPipeError, ConnectionResetError):
        return


def _read(ours: socket.socket) -> None:
    try:
        ours.recv(1 << 20)
    except (BlockingIOError, ConnectionResetError):
        return


def fuzz_interest(random: Random) -> None:
    """Patterns of every kind come, go, match and are watched."""
    interest = Interest(cache=random.choice([2, 8]), sweep=1)
    tokens = [b"a", b"b", b"*", b">", b"", random.randbytes(random.randrange(20))]
    handles: list[int] = []
    for _ in range(random.randrange(1, 60)):
        subject = b".".join(random.choice(tokens) for _ in range(random.randrange(1, 6)))
        other = b".".join(random.choice(tokens) for _ in range(random.randrange(1, 6)))
        try:
            handles.append(interest.add_sink(subject, interest, random.choice([b"", b"q", b"r"])))
            interest.reverse_match(subject)
            interest.watch(other, b"", handles.append)
        except ValueError:
            pass
        if handles and random.random() < 0.4:
            interest.remove_sink(random.choice(handles))
        interest.match(other)
        interest.count_interest(subject)
        for compare in (_interest.matches, _interest.collide, _interest.covers):
            compare(subject, other)
    interest.stats()


def fuzz_scan(random: Random) -> None:
    """Lines, numbers and hashes of any bytes."""
    for _ in range(50):
        line = mutated(random, operation(random))[: random.randrange(200)]
        _scan.words(line, random.randrange(9), random.random() < 0.5)
        _scan.size(line)
        _scan.decimal(random.getrandbits(random.randrange(1, 65)))
        _xxh3.xxh3_64(random.randbytes(random.randrange(1100)))


def _batch(random: Random) -> Batch:
    batch = Batch()
    for _ in range(random.randrange(1, 6)):
        sizes = [random.choice([0, 1, 9, 200]) for _ in range(4)]
        tag, node, meta, payload = (random.randbytes(size) for size in sizes)
        headers = random.choice([b"", HEADERS])
        batch.add(b"s.%d" % random.randrange(4), b"r", headers, payload, tag, node, meta)
    return batch


def fuzz_frames(random: Random) -> None:
    """Encoded records, damaged, are read by everything that reads records."""
    batch = _batch(random)
    index = _index.SegmentIndex(1, _index.SubjectTable())
    good = _frames.encode_batch(batch, 0, len(batch), 7, 1, 5, index, 0, True)
    data = mutated(random, good + _frames.encode_control(17, 7, 9, 5, b"{}"))
    found, _ = _frames.scan(data)
    _frames.scan(data, random.randrange(-5, len(data) + 9), random.randrange(-5, len(data) + 9))
    other = _index.SegmentIndex(1, _index.SubjectTable())
    _tolerated(_frames.index_frames, data, 0, len(data), 7, other)
    for offset in (0, random.randrange(-9, len(data) + 60), *(item[0] for item in found)):
        for reader in (_frames.check, _frames.check_header, _frames.body):
            _tolerated(reader, data, offset)
        _tolerated(_read_frames, random, data, offset)


def _read_frames(random: Random, data: bytes, offset: int) -> None:
    frames = _frames.Frames(data, [offset])
    frames.record(0)
    frames.raw()
    frames.verified()
    _acks.ack_replies(b"$JS.ACK.S.C.", frames, 0, 1, 1, 1, 0)
    pending = _acks.PendingAcks()
    pending.deliver(frames, 0, 1, 1, 1.0)
    door = Door(random)
    door.hub.feed(door.attach(), b"SUB a 1\r\n")
    door.hub.publish_frames(door.interests[0], [b"a"], frames, 0, [b"r"])
    door.hub.heard_for(door.interests[0], b"a")
    door.hub.publish_frames(door.interests[1], [b"a"], frames, 0, [b"r"])
    door.hub.close()


def fuzz_index(random: Random) -> None:
    """An index is filled, thinned, packed and read back from damaged bytes."""
    table = _index.SubjectTable()
    index = _index.SegmentIndex(1, table)
    for seq in range(1, random.randrange(2, 40)):
        index.append(seq * 100, seq, seq, b"s.%d" % random.randrange(5), 10, 0, 0, 0, 0)
    anywhere = [random.randrange(-3, 50) for _ in range(4)]
    for i in anywhere:
        for look in (index.offset, index.entry, index.delete, index.frame_len, index.next_live):
            _tolerated(look, i)
        _tolerated(index.offsets_from, i, anywhere[0], anywhere[1], anywhere[2])
        _tolerated(index.tobytes, i, anywhere[3])
        _tolerated(index.truncate, i)
    packed, subjects = index.pack()
    ids = [table.intern(subject) for subject in subjects]
    damaged = mutated(random, packed)
    fresh = _index.SubjectTable()
    _tolerated(lambda: _index.SegmentIndex.frombytes(1, table, damaged, ids).tobytes())
    _tolerated(lambda: _index.SegmentIndex.frombytes(1, fresh, damaged, ids[:-1]).live_bytes())


def fuzz_batch(random: Random) -> None:
    """Batches are read anywhere, and their acks taken for what they are not."""
    batch = _batch(random)
    for i in (0, random.randrange(-3, 9)):
        for read in (batch.message, batch.extras):
            _tolerated(read, i)
    acks = Batch()
    for _ in range(5):
        subject = mutated(random, b"$JS.ACK.S.C.1.2.3.4.0")[:300]
        acks.add(subject, b"", b"", mutated(random, random.choice([b"+ACK", b"", b"-NAK 1"])))
    pending = _acks.PendingAcks()
    pending.put(2, 3, 1, 1.0)
    _tolerated(pending.take_acks, acks, random.randrange(-2, 40))


def fuzz_planted(random: Random) -> None:
    """The fault that must be found."""
    planted = importlib.import_module("millstream.kernel.planted")  # only this build has it
    planted.total(mutated(random, operation(random)))


def _tolerated(action: Callable[..., Any], *arguments: object) -> None:
    """Refusing by name is fine; reading what is not there is not."""
    try:
        action(*arguments)
    except (IndexError, ValueError, OverflowError, KeyError):
        return


TARGETS: dict[str, Callable[[Random], None]] = {
    name.removeprefix("fuzz_"): made
    for name, made in list(globals().items())
    if name.startswith("fuzz_")
}


def main() -> None:
    """Give each target its share of the time, and print how often each ran."""
    names, seconds, seed, log = sys.argv[1].split(","), float(sys.argv[2]), sys.argv[3], sys.argv[4]
    executions = dict.fromkeys(names, 0)
    logging.disable(logging.CRITICAL)  # a handler that fails is part of the game
    with Path(log).open("w", buffering=1) as current:
        for name in names:
            until = time.monotonic() + seconds / len(names)
            while time.monotonic() < until:
                current.seek(0)
                current.write(f"{seed} {name} {executions[name]:10}\n")
                TARGETS[name](Random(f"{seed} {name} {executions[name]}"))
                executions[name] += 1
    print(json.dumps(executions))


if __name__ == "__main__":
    main()
