"""Compression: answers are sent packed to clients that say they can read it."""

import asyncio
import re
import zlib
from collections.abc import Awaitable, Callable

import cramjam
from msgspec.structs import replace

from millstream.http.request import Request
from millstream.http.response import Answer, Response

SMALLEST = 1024  # below this an answer fits a packet or two anyway
BUSY = 256 * 1024  # from this size on another thread does it, and the loop goes on
MOST_MEMBERS = 10_000  # of a gzip body: as many as a write has records
LARGEST_STEP = 1024 * 1024
NOT_ALONE = "the gzip body is cut short or followed by something else"
VARY = (b"Vary", b"Accept-Encoding")

_NONE = re.compile(rb"q\s*=\s*0(\.0*)?")

App = Callable[[Request], Awaitable[Answer]]


def compressed(app: App) -> App:
    """Return the application with its larger answers packed; event streams go as they are."""

    async def answer(request: Request) -> Answer:
        given = await app(request)
        if not isinstance(given, Response) or len(given.body) < SMALLEST:
            return given
        coding = chosen(request.header(b"accept-encoding"))
        if coding is None or request.method == "HEAD":
            return given
        if len(given.body) < BUSY:
            body = pack(coding, given.body)
        else:
            body = await asyncio.to_thread(pack, coding, given.body)
        headers = (*given.headers, (b"Content-Encoding", coding), VARY)
        return replace(given, body=body, headers=headers)

    return answer


def chosen(accept: bytes | None) -> bytes | None:
    """Return the best coding that a client accepts and that we have."""
    if accept is None:
        return None
    wishes = dict(_wish(part) for part in accept.lower().split(b","))
    return next((each for each in (b"zstd", b"gzip") if wishes.get(each)), None)


def pack(coding: bytes, body: bytes) -> bytes:
    """Return a body packed, quickly rather than tightly."""
    if coding == b"zstd":
        return bytes(cramjam.zstd.compress(body, level=1))
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    return packer.compress(body) + packer.flush()


class TooLarge(Exception):
    """A body unpacks to more than it may."""


class NotPacked(Exception):
    """A body is not what its coding says."""


def unpack(coding: bytes, body: bytes, most: int) -> bytes:
    """Return a body unpacked; nothing above ``most`` bytes is ever held."""
    return _inflated(body, most) if coding == b"gzip" else _unzstd(body, most)


def _inflated(body: bytes, most: int) -> bytes:
    """Inflate one member after another; each costs something, however little is in it."""
    view, parts, at, room = memoryview(body), list[bytes](), 0, most
    for _ in range(MOST_MEMBERS):
        at, room = _member(view, at, room, parts)
        if at == len(body):
            return b"".join(parts)
    raise NotPacked(f"a gzip body holds at most {MOST_MEMBERS} members")


def _member(view: memoryview, at: int, room: int, parts: list[bytes]) -> tuple[int, int]:
    """Inflate the member that begins at ``at``; returns its end, and the room that is left."""
    inflater, began = zlib.decompressobj(wbits=31), at
    step = SMALLEST  # small at first: what is behind the member's end is copied
    while not inflater.eof:
        piece = view[at : at + step]
        try:
            part = inflater.decompress(piece, room + 1)
        except zlib.error as error:
            raise NotPacked(NOT_ALONE if began else "the body is not gzip") from error
        if not piece:
            raise NotPacked(NOT_ALONE)
        if len(part) > room:
            raise TooLarge
        parts.append(part)
        room -= len(part)
        at += len(piece) - len(inflater.unused_data)
        step = min(2 * step, LARGEST_STEP)
    return at, room


def _unzstd(body: bytes, most: int) -> bytes:
    """Unpack into a buffer that grows: what a body says about its size need not be true."""
    size = max(64 * 1024, 4 * len(body))
    while True:
        room = bytearray(min(size, most + 1))
        try:
            used = cramjam.zstd.decompress_into(body, room)
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise NotPacked("the body is not zstd") from error
            if len(room) > most:
                raise TooLarge from None
            size *= 8
            continue
        if used > most:
            raise TooLarge
        return bytes(memoryview(room)[:used])


def _wish(part: bytes) -> tuple[bytes, bool]:
    name, _, weight = part.partition(b";")
    return name.strip(), _NONE.fullmatch(weight.strip()) is None
