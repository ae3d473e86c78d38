"""JetStream: the API for streams, consumers and their messages, one blocking call at a time.

It works with any NATS server that has JetStream. Answers are the server's own JSON objects.
"""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from millstream.client.errors import ClientError, NoResponders

if TYPE_CHECKING:
    from millstream.client.blocking import Client

API = "$JS.API."
NO_STREAM, NO_CONSUMER, NO_MESSAGE = 10059, 10014, 10037

Json = dict[str, Any]


class JetStreamRefused(ClientError):
    """The server understood the request and refused it: ``err_code`` says how."""

    def __init__(self, code: int, err_code: int, description: str) -> None:
        super().__init__(f"{description} (error {err_code})")
        self.code = code
        self.err_code = err_code
        self.description = description


class NameUnknown(JetStreamRefused):
    """There is no stream or consumer of that name; ``near`` is one that may be meant."""

    def __init__(self, err_code: int, text: str) -> None:
        super().__init__(404, err_code, text)
        self.args = (text,)


class JetStreamApi:
    """Requests to the JetStream API over one connection."""

    def __init__(self, client: "Client", timeout: float = 5.0) -> None:
        self.client = client
        self.timeout = timeout

    def ask(self, verb: str, body: object = None, *, timeout: float | None = None) -> Json:
        """Return the answer to a request; raises JetStreamRefused."""
        payload = b"" if body is None else json.dumps(body).encode()
        try:
            answer = self.client.request(API + verb, payload, timeout or self.timeout).payload
        except NoResponders:
            raise ClientError(
                f"{self.client.address} has no JetStream for this user: no streams, no consumers. "
                "Start the server with JetStream, or name another with --url"
            ) from None
        told: Json = json.loads(answer)
        error = told.get("error")
        if error:
            raise JetStreamRefused(
                error.get("code", 500), error.get("err_code", 0), error.get("description", "")
            )
        return told

    def about(self, verb: str, stream: str, consumer: str = "", body: object = None) -> Json:
        """Ask about a stream or consumer; where there is none, name one that may be meant."""
        check_name(stream, "stream")
        if consumer:
            check_name(consumer, "consumer")
        try:
            return self.ask(f"{verb}.{stream}" + (f".{consumer}" if consumer else ""), body)
        except JetStreamRefused as error:
            if error.err_code == NO_STREAM:
                raise NameUnknown(NO_STREAM, self._no_stream(stream)) from None
            if error.err_code == NO_CONSUMER:
                raise NameUnknown(NO_CONSUMER, self._no_consumer(stream, consumer)) from None
            raise

    def _no_stream(self, stream: str) -> str:
        return f"the server has no stream named {stream!r}{_hint(stream, self.stream_names())}"

    def _no_consumer(self, stream: str, name: str) -> str:
        known = self.consumer_names(stream)
        return f"stream {stream!r} has no consumer named {name!r}{_hint(name, known)}"

    # -- streams --------------------------------------------------------------------------

    def stream(self, name: str, **wishes: Any) -> Json:
        """Return a stream's configuration and state."""
        return self.about("STREAM.INFO", name, body=wishes or None)

    def streams(self, subject: str = "") -> list[Json]:
        """Return every stream, by name."""
        wish = {"subject": subject} if subject else {}
        found = self._paged("STREAM.LIST", "streams", wish)
        return sorted(found, key=lambda each: str(each["config"]["name"]))

    def stream_names(self, subject: str = "") -> list[str]:
        """Return the names of the streams, or of those that capture a subject."""
        wish = {"subject": subject} if subject else {}
        return [str(name) for name in self._paged("STREAM.NAMES", "streams", wish)]

    def message(self, stream: str, **wish: Any) -> Json | None:
        """Return a stored message: by ``seq``, ``last_by_subj`` or ``next_by_subj``."""
        try:
            found: Json = self.about("STREAM.MSG.GET", stream, body=wish)["message"]
        except JetStreamRefused as error:
            if error.err_code == NO_MESSAGE:
                return None
            raise
        return found

    # -- consumers ------------------------------------------------------------------------

    def consumer(self, stream: str, name: str) -> Json:
        """Return a consumer's configuration and state."""
        return self.about("CONSUMER.INFO", stream, name)

    def consumers(self, stream: str) -> list[Json]:
        """Return every consumer of a stream, by name."""
        self.stream(stream)
        found = self._paged(f"CONSUMER.LIST.{stream}", "consumers", {})
        return sorted(found, key=lambda each: str(each["name"]))

    def consumer_names(self, stream: str) -> list[str]:
        """Return the names of the consumers of a stream."""
        return [str(name) for name in self._paged(f"CONSUMER.NAMES.{stream}", "consumers", {})]

    def _paged(self, verb: str, field: str, wish: Json) -> list[Any]:
        return list(self._pages(verb, field, wish))

    def _pages(self, verb: str, field: str, wish: Json) -> Iterator[Any]:
        offset = 0
        while True:
            told = self.ask(verb, {**wish, "offset": offset})
            page = told.get(field) or []
            yield from page
            offset += len(page)
            if not page or offset >= told.get("total", 0):
                return


def check_name(name: str, what: str) -> None:
    """Refuse what cannot be a name, as its tokens would ask something else."""
    if not name or set(name) & set(".*>/\\ \t\r\n"):
        raise ClientError(
            f"{name!r} is not a name of a {what}: no dots, wildcards, slashes or blanks"
        )


def _hint(word: str, known: list[str]) -> str:
    from difflib import get_close_matches  # only a mistake needs it

    folded = {name.lower(): name for name in known}
    found = get_close_matches(word.lower(), folded, n=1)
    if found:
        return f"; did you mean {folded[found[0]]!r}?"
    if 0 < len(known) <= 5:
        return f"; there is {', '.join(sorted(known))}"
    return "" if known else "; there are none yet"
