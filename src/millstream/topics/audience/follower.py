"""Follower: one reader of one topic, whether server-sent events or a WebSocket carry it."""

from functools import partial
from typing import TYPE_CHECKING, Protocol

from millstream.errors import NotHere
from millstream.http.request import Caller
from millstream.streams.reading.cold_reads import look_again
from millstream.topics.audience.read_position import ReadPosition
from millstream.topics.audience.view import Render, Update
from millstream.topics.page.page import Page, Query

if TYPE_CHECKING:
    from millstream.http.response import Push
    from millstream.topics.audience.audience import Audience
    from millstream.topics.audience.view import TopicView


class Waiter(Protocol):
    """Whoever carries what a follower finds to its client."""

    @property
    def is_waiting(self) -> bool:
        """Say whether what comes may be pushed past it."""
        ...

    @property
    def push(self) -> "Push | None":
        """Return what pushes to the client, where anything does."""
        ...

    def ring(self) -> None:
        """Look at the topic again."""
        ...


class ClientRenderer(Protocol):
    """How what a follower finds looks to its client."""

    shared: Render  # what every client that sees the same is sent of an update
    is_personal: bool  # this client is sent something else

    def personal(self, update: Update) -> bytes:
        """Return an update as this client is sent it."""
        ...

    def tombstone(self, name: str, page: Page, is_first: bool) -> bytes:
        """Return that records are gone which the client has not seen."""
        ...

    def records(self, name: str, before: int, page: Page) -> bytes:
        """Return the records of a page."""
        ...

    def caught_up(self, name: str, page: Page) -> bytes:
        """Return that there is nothing more for now."""
        ...

    def stays_caught_up(self, page: Page) -> bool:
        """Say whether a client that knows that it is caught up is not told again after a page."""
        ...


class Follower:
    """What a reader wants to see of a topic, the place where it stands, and the way to its client.

    It follows while it is in an audience: a topic that is deleted and made anew has another one.
    """

    __slots__ = (
        "audience",
        "caller",
        "name",
        "position",
        "query",
        "renderer",
        "view",
        "waiter",
    )

    def __init__(
        self,
        name: str,
        position: ReadPosition,
        query: Query,
        caller: Caller,
        renderer: ClientRenderer,
        waiter: Waiter,
    ) -> None:
        self.name = name
        self.position = position
        self.query = query
        self.caller = caller
        self.renderer = renderer
        self.waiter = waiter
        self.audience: Audience | None = None
        self.view: TopicView | None = None  # of the audience

    def join(self, audience: "Audience") -> None:
        """Follow with an audience."""
        self.audience, self.view = audience, audience.view(self)
        audience.add(self)

    def leave(self) -> None:
        """Follow no longer; harmless when done twice."""
        if self.audience is not None:
            self.audience.remove(self)
            self.audience = self.view = None

    def step_out(self) -> None:
        """Be looked at by itself from now on, not with those who wait in the same place."""
        if self.audience is not None:
            self.audience.step_out(self)

    def look(self) -> tuple[bytes, bool]:
        """Return what there is to send of the topic, and whether that is all for now."""
        audience, view, position = self.audience, self.view, self.position
        if audience is None or view is None:
            return b"", True
        # What a strong reader sees changes with a sync too, of which the view knows nothing.
        if position.is_caught_up and audience.may_share and not self.query.is_strong:
            update = view.update(position.cursor)
            if update is not None:
                position.cursor = update.cursor
                return (self.renderer.personal(update) if update.plain else b""), True
        try:
            page = view.page(position.cursor)
        except NotHere as missing:
            missing.wait(partial(look_again, self.waiter.ring))
            return b"", True
        return self._render(page), page.caught_up

    def _render(self, page: Page) -> bytes:
        """Return what a page shows, and move past it; each piece is made where it leads to."""
        position, renderer, frames = self.position, self.renderer, []
        is_first, position.is_first_read = position.is_first_read, False
        if page.tombstone is not None:
            position.cursor = page.after_loss
            frames.append(renderer.tombstone(self.name, page, is_first))
        before, position.cursor = position.cursor, page.next_from_seq
        if page.count:
            frames.append(renderer.records(self.name, before, page))
        if page.tombstone is not None or not renderer.stays_caught_up(page):
            position.is_caught_up = False
        if page.caught_up and not position.is_caught_up:
            position.is_caught_up = True
            frames.append(renderer.caught_up(self.name, page))
        return b"".join(frames)
