"""Sharing: what accounts take from each other, as running sinks."""

import logging

from millstream.accounts.account import Export, Import, goes_round
from millstream.clock import Clock
from millstream.kernel._hub import Hub
from millstream.nats.accounts.accounts import Accounts, Space
from millstream.nats.accounts.service_import import (
    REPLY_PREFIX,
    FindSession,
    Replies,
    ServiceImport,
)
from millstream.nats.accounts.stream_import import StreamImport

INBOX_PREFIX = "_INBOX."

log = logging.getLogger(__name__)


class Sharing:
    """Every import between accounts; ``renew`` after the accounts changed."""

    def __init__(
        self, hub: Hub, accounts: Accounts, clock: Clock, find_session: FindSession
    ) -> None:
        self._hub = hub
        self._accounts = accounts
        self._clock = clock
        self._find_session = find_session
        self._services: list[ServiceImport] = []
        self._replies: dict[str, Replies] = {}
        self.renew()

    def renew(self) -> None:
        """Take down every import and put up those that are configured and allowed now."""
        self.close()
        for importer in self._accounts:
            for item in importer.account.imports:
                self._take(importer, item)

    def is_awaited(self, account: str, reply: bytes) -> bool:
        """Whether somebody of another account still listens for an answer at ``reply``."""
        while reply.startswith(REPLY_PREFIX):  # further and further through imports of imports
            replies = self._replies.get(account)
            found = replies.awaited(reply) if replies is not None else None
            if found is None:
                return False
            space, reply = found
            account = space.name
        listening = self._accounts.get(account)
        return listening is not None and listening.interest.has_interest(reply)

    def close(self) -> None:
        """Take down every import."""
        for space in self._accounts:
            for stream in space.stream_imports:
                stream.close()
            space.stream_imports.clear()
        for service in self._services:
            service.close()
        for replies in self._replies.values():
            replies.close()
        self._services.clear()
        self._replies.clear()

    def _take(self, importer: Space, item: Import) -> None:
        owner = self._accounts.get(item.account)
        export = owner.account.offer(item, importer.name) if owner is not None else None
        if owner is None or export is None:
            self._refuse(importer, item, "it is not exported to this account")
        elif goes_round(item, importer.name, self._accounts.configured):
            self._refuse(importer, item, "the imports go round in a circle")
        elif item.service:
            self._take_service(owner, importer, item, export)
        else:
            self._take_stream(owner, importer, item)

    def _take_service(self, owner: Space, importer: Space, item: Import, export: Export) -> None:
        replies = self._replies.get(owner.name)
        if replies is None:
            replies = self._replies[owner.name] = Replies(
                self._hub, owner, self._clock, self._find_session
            )
        self._services.append(
            ServiceImport(self._hub, replies, owner, importer, item, export, self._find_session)
        )

    def _take_stream(self, owner: Space, importer: Space, item: Import) -> None:
        # Streams of records listen without a session, so where there may be some it always flows;
        # and so it does where somebody listened already when the import came.
        # No stream listens at inboxes, and consumers of the owner wait for them to be listened at.
        listens = bool(importer.interest.reverse_match(item.local.encode()))
        always = importer.account.jetstream or listens
        is_inbox = item.local.startswith(INBOX_PREFIX)
        stream = StreamImport(self._hub, owner, importer, item, always=always and not is_inbox)
        importer.stream_imports.append(stream)
        for cid in importer.members if is_inbox else ():
            for subject, _, sid, _, _ in self._hub.subscriptions(cid):
                stream.wanted(cid, sid, subject)

    def _refuse(self, importer: Space, item: Import, reason: str) -> None:
        log.error(
            "import left out account=%s from=%s subject=%r reason=%s",
            importer.name,
            item.account,
            item.subject,
            reason,
        )
