"""Inputs that no client library would send, and the ways to cut them into writes."""

from __future__ import annotations

import re
from itertools import count, islice
from random import Random
from typing import TYPE_CHECKING

from compat.sessions import BAD_LINES

if TYPE_CHECKING:
    from collections.abc import Iterator

# What mutations start from; ``{s}`` becomes a subject of the input's own.
VALID = (
    b"CONNECT {}\r\nSUB {s}.> 1\r\nPUB {s}.a 5\r\nhello\r\nPING\r\n",
    b'CONNECT {"verbose":false,"headers":true}\r\n'
    b"SUB {s}.* 1\r\nUNSUB 1 2\r\nPUB {s}.b {s}.r 2\r\nok\r\n",
    b'CONNECT {"verbose":false,"headers":true}\r\n'
    b"SUB {s}.b 7\r\nHPUB {s}.b 12 17\r\nNATS/1.0\r\n\r\nhello\r\n",
    b"SUB {s}.a q 1\r\nPUB {s}.a 0\r\n\r\nUNSUB 1\r\nPUB {s}.a 0\r\n\r\nPONG\r\n",
    b'CONNECT {"pedantic":true,"echo":false}\r\nSUB {s}.a 1\r\nPUB {s}.* 3\r\nabc\r\n',
)

OPENING = b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nSUB {s}.> 1\r\n'

# One line each, after a good opening.
ODD_LINES = (
    *BAD_LINES,
    b"PUB {s}.a 5\nhello\r\n",
    b"PUB {s}.a 5\r\nhello\n",
    b"PUB {s}.a 5\r\nhello\r\r\n",
    b"PUB {s}.a 5\r\nhell\r\n",
    b"PUB {s}.a 5\r\nhello!\r\n",
    b"PUB {s}.a 05\r\nhello\r\n",
    b"PUB {s}.a +5\r\nhello\r\n",
    b"PUB {s}.a 5 \r\nhello\r\n",
    b"PUB  {s}.a \t 5\r\nhello\r\n",
    b"PUB\t{s}.a\t5\r\nhello\r\n",
    b"PUB{s}.a 5\r\nhello\r\n",
    b"PUB {s}.a\r5\r\nhello\r\n",
    b"PUB {s}.a 5\x00\r\nhello\r\n",
    b"PUB {s}\x00.a 5\r\nhello\r\n",
    b"PUB {s}.\xff\xfe 2\r\nhi\r\n",
    b"PUB {s}..a 2\r\nhi\r\n",
    b"PUB {s}. 2\r\nhi\r\n",
    b"PUB .{s} 2\r\nhi\r\n",
    b"PUB {s}.* 2\r\nhi\r\n",
    b"PUB {s}.> 2\r\nhi\r\n",
    b"PUB {s}.a 0\r\n\r\n",
    b"PUB {s}.a 9223372036854775808\r\n",
    b"PUB {s}.a 4294967297\r\nx\r\n",
    b"PUB {s}.a 999999999\r\n",
    b"PUB {s}.a 9999999999999999999999\r\n",
    b"HPUB {s}.a 0 2\r\nhi\r\n",
    b"HPUB {s}.a 2 2\r\nhi\r\n",
    b"HPUB {s}.a 12 12\r\nNATS/1.0\r\n\r\n\r\n",
    b"HPUB {s}.a {s}.r 12 14\r\nNATS/1.0\r\n\r\nhi\r\n",
    b"HPUB {s}.a r x 12 14\r\nNATS/1.0\r\n\r\nhi\r\n",
    b"HPUB {s}.a x 14\r\nNATS/1.0\r\n\r\nhi\r\n",
    b"HPUB {s}.a 12 1048577\r\n",
    b"HMSG {s}.a 1 2 2\r\nhi\r\n",
    b"SUB {s}.a 2\n",
    b"SUB {s}.> 2\r\nSUB {s}.> 2\r\nPUB {s}.a 1\r\nx\r\n",
    b"SUB {s}.a..b 2\r\n",
    b"SUB {s}.>.a 2\r\n",
    b"SUB {s}.a. 2\r\n",
    b"SUB .{s} 2\r\n",
    b"SUB {s}.a* 2\r\nPUB {s}.a* 1\r\nx\r\n",
    b"SUB {s}.a \r\n",
    b"SUB  {s}.a  q  2\r\n",
    b"UNSUB 1 -1\r\nPUB {s}.a 1\r\nx\r\n",
    b"UNSUB 1 0\r\nPUB {s}.a 1\r\nx\r\n",
    b"UNSUB 1 99999999999999999999\r\nPUB {s}.a 1\r\nx\r\n",
    b"UNSUB 1 1\r\nPUB {s}.a 1\r\nx\r\nPUB {s}.a 1\r\ny\r\n",
    b"UNSUB 404\r\n",
    b"UNSUB \r\n",
    b"unsub 1\r\npub {s}.a 1\r\nx\r\n",
    b"PiNg\r\n",
    b"PING \r\n",
    b"PING x\r\n",
    b"PING\n",
    b"PING\r\r\n",
    b"PIN\r\n",
    b"PON\r\n",
    b"PONG x\r\n",
    b"P\r\n",
    b"\n",
    b"\r",
    b"\x00\r\n",
    b"\xff\xff\xff\xff\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"CONNECT\r\n",
    b"CONNECT {}\n",
    b"CONNECT{}\r\n",
    b"CONNECT {}{}\r\n",
    b"CONNECT {} x\r\n",
    b"CONNECT null\r\n",
    b"CONNECT 5\r\n",
    b'CONNECT "x"\r\n',
    b'CONNECT {"verbose":"yes"}\r\n',
    b'CONNECT {"verbose":true}\r\nPUB {s}.a 1\r\nx\r\n',
    b'CONNECT {"protocol":2}\r\n',
    b'CONNECT {"protocol":-1}\r\n',
    b'CONNECT {"protocol":"1"}\r\n',
    b'CONNECT {"no_responders":true}\r\n',
    b'CONNECT {"no_responders":true,"headers":false}\r\n',
    b'CONNECT {"echo":false}\r\nSUB {s}.a 5\r\nPUB {s}.a 1\r\nx\r\n',
    b'CONNECT {"name":"\xff"}\r\n',
    b"CONNECT {" + b" " * 5000 + b"}\r\n",
    b"+\r\n",
    b"+OKAY\r\n",
    b"-\r\n",
    b"-ERR\r\n",
    b"INFO\r\n",
    b"INFO {bad\r\n",
    b"RMSG $G {s} 1\r\nx\r\n",
    b"RS- $G {s}\r\n",
    b"A- $G\r\n",
    b"LS- {s}\r\n",
    b"LMSG {s} 1\r\nx\r\n",
    b"PUB " + b"{s}" + b".a" * 2100 + b" 1\r\nx\r\n",
    b"PUB {s}.a " + b" " * 5000 + b"1\r\nx\r\n",
    b"PUB {s}.a " + b"0" * 5000 + b"1\r\nx\r\n",
    b"PING" + b" " * 5000 + b"\r\n",
    b"SUB {s}." + b"b" * 4060 + b" 2\r\n",
    b"X" * 5000,
)

INTERESTING = (b"\r", b"\n", b"\r\n", b" ", b"\t", b"\x00", b"\xff", b"-1", b"0", b"9", b".", b"*")


def corpus(size: int) -> list[bytes]:
    """Return ``size`` inputs; the written ones first, then mutations of valid ones."""
    written = [OPENING + line for line in ODD_LINES] + list(ODD_LINES)
    made = islice(_mutations(), max(size - len(written), 0))
    inputs = [*written, *made][:size]
    return [data.replace(b"{s}", b"m%d" % number) for number, data in enumerate(inputs)]


def ways_to_send(data: bytes, seed: int) -> list[list[bytes]]:
    """Whole, byte by byte, and cut at random three times."""
    random = Random(seed)
    ways = [[data], [data[at : at + 1] for at in range(len(data))]]
    for _ in range(3):
        cuts = sorted(random.sample(range(1, len(data)), min(random.randint(1, 6), len(data) - 1)))
        ways.append([data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)])
    return ways


def _mutations() -> Iterator[bytes]:
    random = Random(2)
    seen = set(VALID)
    for _ in count():
        data = random.choice(VALID)
        for _ in range(random.choice([1, 1, 1, 2, 4])):
            data = _mutated(data, random)
        if b"{s}" in data and data not in seen and not _hears_others(data):
            seen.add(data)
            yield data


def _mutated(data: bytes, random: Random) -> bytes:
    at = random.randrange(1, max(len(data), 2))
    match random.randrange(6):
        case 0:
            return data[:at] + bytes([random.randrange(256)]) + data[at + 1 :]
        case 1:
            return data[:at] + data[at + random.randint(1, 4) :]
        case 2:
            return data[:at] + random.choice(INTERESTING) + data[at:]
        case 3:
            return data[: at + 1]
        case 4:
            return data[:at] + data[max(at - random.randint(1, 12), 0) :]
        case _:
            return data.replace(b"\r\n", b"\n", random.randint(1, 3))


def _hears_others(data: bytes) -> bool:
    """A subject that is not the input's own would hear those that are tried at the same time."""
    subjects = re.findall(rb"(?i)sub[ \t]+(\S+)", data)
    return not all(subject.startswith(b"{s}") for subject in subjects)
