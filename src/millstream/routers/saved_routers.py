"""SavedRouters: routers as control frames and a section of the snapshot keep them."""

from collections.abc import Iterable, Mapping

import msgspec

from millstream.errors import NotHere
from millstream.routers.forwarder import PAGE_BYTES, PAGE_RECORDS
from millstream.routers.hops import Hops
from millstream.routers.router import Definition, Router, RouterProgress
from millstream.store.log import derived
from millstream.store.log.derived import DERIVE
from millstream.store.recovery.recovery import Recovery

ROUTER_SET = 31
ROUTER_GONE = 32
SECTION = "routers"


class RouterSet(msgspec.Struct, frozen=True):
    """The body of a control frame: a router is made or changed."""

    definition: Definition
    cursor: int


class RouterGone(msgspec.Struct, frozen=True):
    """The body of a control frame: a router is removed."""

    id: int


class SavedRouter(msgspec.Struct):
    """A router while it is being recovered, and as the section keeps it."""

    definition: Definition
    progress: RouterProgress


class _RouterSection(msgspec.Struct, frozen=True):
    next_id: int
    routers: list[SavedRouter]
    hops: dict[int, list[tuple[int, int, int]]] = {}


class SavedRouters:
    """What a snapshot and the control frames behind it say, one after another."""

    def __init__(self) -> None:
        self.next_id = 1
        self.routers: dict[int, SavedRouter] = {}
        self.hops: dict[int, Hops] = {}  # stream → copies that its own routers have not passed

    @classmethod
    def of(cls, found: Recovery) -> "SavedRouters":
        """Read what a start found."""
        saved = cls()
        if section := found.sections.get(SECTION):
            saved._take_section(msgspec.json.decode(section, type=_RouterSection))
        for control in found.controls:
            if control.kind == ROUTER_SET:
                saved._set(msgspec.json.decode(control.body, type=RouterSet))
            elif control.kind == ROUTER_GONE:
                gone = msgspec.json.decode(control.body, type=RouterGone)
                saved.routers.pop(gone.id, None)
            elif control.kind == DERIVE:
                for part in derived.decode(control.body).parts:
                    if part.router in saved.routers:
                        saved._advance(saved.routers[part.router], part)
        return saved

    def _take_section(self, kept: _RouterSection) -> None:
        self.next_id = kept.next_id
        self.routers = {each.definition.id: each for each in kept.routers}
        for stream, items in kept.hops.items():
            hops = self.hops.setdefault(stream, Hops())
            for item in items:
                hops.add(*item)

    def _set(self, body: RouterSet) -> None:
        one = body.definition
        self.next_id = max(self.next_id, one.id + 1)
        known = self.routers.get(one.id)
        if known is None:
            self.routers[one.id] = SavedRouter(one, RouterProgress(body.cursor))
        elif one.version > known.definition.version:
            known.definition = one

    def _advance(self, saved: SavedRouter, part: derived.DerivedPart) -> None:
        done = saved.progress
        if part.passed > done.cursor:
            saved.progress = RouterProgress(
                part.passed, done.forwarded + part.count + part.lost, max(done.tail, part.last)
            )
        if part.hops:
            hops = self.hops.setdefault(saved.definition.dest_id, Hops())
            hops.add(part.base, part.last, part.hops)


def find_held(router: Router) -> None:
    """Find copies that outlived the frame which told of them: they are not made again."""
    one, at = router.definition, router.tail + 1
    while at <= router.dest.log.committed_seq:
        try:
            frames = router.dest.read(at, PAGE_RECORDS, PAGE_BYTES)
        except NotHere as missing:  # moved: a snapshot has told of what is in there
            at = missing.next_seq
            continue
        if not len(frames):
            return
        for record in frames if derived.MARK.encode() in frames.raw() else ():
            seq = derived.origin_of(record[7], one.name, one.source_id)
            if seq > router.cursor:
                router.held.add(seq, seq)
        at = frames.last_seq + 1


def encode_section(next_id: int, routers: Iterable[Router], hops: Mapping[int, Hops]) -> bytes:
    """Return the snapshot's section."""
    kept = [SavedRouter(each.definition, each.progress) for each in routers]
    return msgspec.json.encode(
        _RouterSection(next_id, kept, {stream: h.items() for stream, h in hops.items() if h})
    )
