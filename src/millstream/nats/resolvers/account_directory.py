"""AccountDirectory: the account JWTs that the server keeps: all of them, or some as a cache."""

import hashlib
from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from millstream.clock import Clock
from millstream.nats.resolvers.jwt_files import JwtFiles

Settled = Callable[[str], None]  # with what went wrong, empty when nothing did


class DirectoryTerms(msgspec.Struct, frozen=True):
    """How JWTs are kept; a ``limit`` or ``ttl`` of 0 is none."""

    is_cache: bool = False
    limit: int = 0
    ttl: float = 0.0
    allow_delete: bool = False
    hard_delete: bool = False


class AccountDirectory:
    """JWTs by account, in memory as on disk; the least used one leaves a cache that is full."""

    def __init__(
        self, tokens: Mapping[str, str], terms: DirectoryTerms, files: JwtFiles, clock: Clock
    ) -> None:
        self.terms = terms
        self._tokens = dict(tokens)
        self._files = files
        self._clock = clock
        self._used = dict.fromkeys(self._tokens, clock.monotonic())

    def get(self, public: str) -> str | None:
        """Return an account's JWT."""
        if public in self._used:
            self._used[public] = self._clock.monotonic()
        return self._tokens.get(public)

    def all(self) -> dict[str, str]:
        """Return every JWT by its account, in the order of the names."""
        return dict(sorted(self._tokens.items()))

    def digest(self) -> bytes:
        """Return what two directories have in common only when they hold the same."""
        mixed = bytes(32)
        for token in self._tokens.values():
            one = hashlib.sha256(token.encode()).digest()
            mixed = bytes(a ^ b for a, b in zip(mixed, one, strict=True))
        return mixed

    def save(self, public: str, token: str, settled: Settled) -> None:
        """Keep a JWT; ``settled`` once it is on disk."""
        if self._tokens.get(public) == token:
            settled("")
            return
        if public not in self._tokens and 0 < self.terms.limit <= len(self._tokens):
            if not self.terms.is_cache:
                settled("jwt store is full")
                return
            self._drop(min(self._used, key=self._used.__getitem__))
        self._files.write(public, token, partial(self._saved, public, token, settled))

    def _saved(self, public: str, token: str, settled: Settled, error: OSError | None) -> None:
        if error is None:
            self._tokens[public] = token
            self._used[public] = self._clock.monotonic()
        settled("" if error is None else f"{error.filename}: {error.strerror}")

    def delete(self, public: str, settled: Settled) -> None:
        """Forget a JWT."""

        def removed(error: OSError | None) -> None:
            if error is None:
                self._tokens.pop(public, None)
                self._used.pop(public, None)
            settled("" if error is None else f"{error.filename}: {error.strerror}")

        self._files.remove(public, for_good=self.terms.hard_delete, done=removed)

    def expire(self) -> None:
        """Drop what a cache has not needed for its time to live."""
        if self.terms.ttl:
            oldest = self._clock.monotonic() - self.terms.ttl
            for public in [public for public, used in self._used.items() if used <= oldest]:
                self._drop(public)

    def _drop(self, public: str) -> None:
        self._tokens.pop(public, None)
        self._used.pop(public, None)
        self._files.remove(public, for_good=True, done=lambda error: None)
