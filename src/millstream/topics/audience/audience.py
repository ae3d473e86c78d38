"""Audience: everybody who follows a stream, told once of each change.

Followers whom one commit wakes want the same bytes. Their view renders them once, and the next
change throws them away, so nothing stale is ever sent. When they are told is the scheduler's to
say: a topic that changes again meanwhile tells them once.
"""

import asyncio
from collections.abc import Callable, Hashable
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from millstream.http.response import chunk
from millstream.topics.audience.follower import Follower
from millstream.topics.audience.group import Group
from millstream.topics.audience.view import TopicView

if TYPE_CHECKING:
    from millstream.clock import Clock
    from millstream.streams.stream import Stream
    from millstream.topics.page.page import PageMemo

Schedule = Callable[["Stream", Callable[[], int]], None]  # runs it when it is the topic's turn
MayPush = Callable[["Stream"], bool]  # whether followers may be sent records just now


class Audience:
    """The followers of one stream. Those who wait in one place are sent to as a group."""

    def __init__(
        self,
        stream: "Stream",
        clock: "Clock",
        memo: "PageMemo",
        schedule: Schedule,
        may_push: MayPush,
        on_empty: Callable[[], None],
    ) -> None:
        self.stream = stream
        self._clock = clock
        self._memo = memo
        self._schedule = schedule
        self._may_push = may_push
        self._on_empty = on_empty
        self._views: WeakValueDictionary[Hashable, TopicView] = WeakValueDictionary()
        self._followers: dict[Follower, Callable[[], None] | None] = {}  # with what undoes more
        self._alone: dict[Follower, None] = {}  # those of them who are in no group
        self._groups: dict[TopicView, Group] = {}  # none is empty
        self._is_telling = False  # and whoever is told may send at once
        self._unwatch = stream.watch(self._changed)

    @property
    def may_share(self) -> bool:
        """Say whether what one has rendered is true for all until the next change.

        Records that expire do so without a change, but not while everyone is being told.
        """
        return self._is_telling or self.stream.config.max_age <= 0

    def add(self, follower: Follower) -> None:
        """Have somebody sent to, or woken, after each change."""
        is_strong = follower.query.is_strong  # what it may see changes with each sync
        undo = self.stream.log.watch_synced(follower.waiter.ring) if is_strong else None
        self._followers[follower] = undo
        self._alone[follower] = None

    def remove(self, follower: Follower) -> None:
        """Tell somebody no more; the audience ends with its last follower."""
        self.step_out(follower)
        del self._alone[follower]
        undo = self._followers.pop(follower)
        if undo is not None:
            undo()
        if not self._followers:
            self._unwatch()
            self._on_empty()

    def step_out(self, follower: Follower) -> None:
        """Have a follower looked at by itself: it waits no longer, or its client is behind."""
        if follower.audience is not self or follower.view is None or follower in self._alone:
            return
        group = self._groups[follower.view]
        group.remove(follower)
        if not group:
            del self._groups[follower.view]
        self._alone[follower] = None

    def tell_later(self) -> None:
        """Tell everyone when it is the topic's turn."""
        self._schedule(self.stream, self._tell)

    def view(self, follower: Follower) -> TopicView:
        """Return what is shared by all who see the topic in one way; it goes with the last."""
        render, query = follower.renderer.shared, follower.query
        known = self._views.get((render, query))
        if known is None:
            known = TopicView(self.stream, query, render, self._clock, self._memo)
            self._views[render, query] = known
        return known

    def _changed(self) -> None:
        self._forget_updates()
        self.tell_later()

    def _forget_updates(self) -> None:
        for known in self._views.valuerefs():  # its values cost each commit four times as much
            view = known()
            if view is not None:
                view.forget()

    def _tell(self) -> int:
        count = len(self._followers)
        self._is_telling = self._may_push(self.stream)
        try:
            if self._is_telling:
                self._send(asyncio.get_running_loop().time())
            else:
                for follower in list(self._followers):
                    follower.waiter.ring()
        finally:
            self._is_telling = False
            if not self.may_share:
                self._forget_updates()
        return count

    def _send(self, now: float) -> None:
        """Send what a commit brought, to those who wait in one place by one decision."""
        for group in list(self._groups.values()):
            if group and not group.send(now):
                for follower in group.members():
                    self.step_out(follower)
        # Each follower that is in no group comes by here for each commit: mind what it costs.
        for follower in list(self._alone):
            if not self._push(follower, now):
                follower.waiter.ring()
            elif not follower.renderer.is_personal:
                self._join(follower)

    def _push(self, follower: Follower, now: float) -> bool:
        """Send somebody what all who wait for just that get; False: it must look for itself."""
        push, view, position = follower.waiter.push, follower.view, follower.position
        if push is None or view is None:
            return False
        if not (position.is_caught_up and follower.waiter.is_waiting):
            return False
        caller = follower.caller
        covers = caller.covers  # the allow-list of a key stays as it was
        if caller.standing.revoked or not (covers is None or covers(follower.name)):
            return False
        before, update = position.cursor, view.update(position.cursor)
        if update is None:
            return False
        position.cursor, piece = update.cursor, update.chunked
        if piece and follower.renderer.is_personal:
            piece = chunk(follower.renderer.personal(update))
        if piece and not push.push(piece):
            position.cursor = before
            return False
        position.sent_at = now
        return True

    def _join(self, follower: Follower) -> None:
        """Put somebody who was just sent to together with those who wait in the same place."""
        push, view = follower.waiter.push, follower.view
        if push is None or view is None or follower.caller.covers is not None:
            return
        group = self._groups.get(view) or Group()
        if not (follower.waiter.is_waiting and group.stands_at(follower.position.cursor)):
            return
        writer = push.writer(partial(self.step_out, follower))
        if writer is not None:
            group.add(follower, writer)
            self._groups[view] = group
            del self._alone[follower]


class Audiences:
    """One audience for each stream that somebody follows."""

    def __init__(
        self, clock: "Clock", memo: "PageMemo", schedule: Schedule, may_push: MayPush
    ) -> None:
        self._clock = clock
        self._memo = memo
        self._schedule = schedule
        self._may_push = may_push
        self._known: dict[int, Audience] = {}  # by incarnation

    def __len__(self) -> int:
        return len(self._known)

    def follow(self, follower: Follower, stream: "Stream") -> Audience:
        """Have somebody in the audience of a stream, and in no other; returns it."""
        if follower.audience is not None and follower.audience.stream is stream:
            return follower.audience
        follower.leave()
        follower.position.meet(stream.incarnation)
        audience = self.of(stream)
        follower.join(audience)
        return audience

    def of(self, stream: "Stream") -> Audience:
        """Return the audience of a stream; it ends with its last follower."""
        known = self._known.get(stream.incarnation)
        if known is None:
            on_empty = partial(self._forget, stream.incarnation)
            shared = self._clock, self._memo, self._schedule, self._may_push
            known = self._known[stream.incarnation] = Audience(stream, *shared, on_empty)
        return known

    def _forget(self, incarnation: int) -> None:
        self._known.pop(incarnation, None)
