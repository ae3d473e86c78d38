"""Places: the objects of a fleet by its URL, and how patiently they are asked."""

import logging
import os
import secrets
import threading
from urllib.parse import urlsplit

from millstream.errors import ObjectsFailed
from millstream.store.disk.files import OsFiles
from millstream.store.object_log.bucket import open_bucket
from millstream.store.object_log.folder import FolderPlace
from millstream.store.object_log.requests import Answer, ListedPlace, Request, Unsure

log = logging.getLogger(__name__)

SCHEMES = ("s3", "gs", "az")  # beside file://
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 1.0  # seconds before a store is asked again


def open_place(url: str, timeout: str = "10s") -> ListedPlace:
    """Return the place at a URL; credentials come from the environment, as its tools have them."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        return FolderPlace(OsFiles(), parts.path.rstrip("/"), secrets.token_hex(8))
    if parts.scheme not in SCHEMES or not parts.netloc:
        known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise ObjectsFailed(f"{url} is no place for a fleet: it begins with file://, {known}")
    plain = os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true", "yes")
    try:
        return open_bucket(url, client_options={"timeout": timeout, "allow_http": plain})
    except Exception as error:  # of the library; its own text goes over many lines
        told = str(error).split("\n")[0]
        raise ObjectsFailed(f"the place {url} cannot be opened: {told}") from error


class LeftAlone(Exception):
    """Nobody waits for the answer any more."""


class PatientPlace:
    """Keeps ``ListedPlace``; leaves a store in peace for a while after each unsure answer.

    Whoever asks again and again until it hears something plain asks through this.
    """

    def __init__(self, place: ListedPlace) -> None:
        self._place = place
        self._ended = threading.Event()
        self._pause = SHORTEST_PAUSE
        self.trouble = ""  # what the last unsure answer said

    def carry_out(self, request: Request) -> Answer:
        """Send one request; raises ``LeftAlone`` where it would have to be asked again."""
        answer = self._place.carry_out(request)
        if not isinstance(answer, Unsure):
            self._pause, self.trouble = SHORTEST_PAUSE, ""
            return answer
        if not self.trouble:
            log.warning("object store does not answer plainly error=%s", answer.why.split("\n")[0])
        self.trouble = answer.why or "no answer"
        if self._ended.wait(self._pause):
            raise LeftAlone(answer.why)
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        return answer

    def names(self, folder: str) -> list[str]:
        """List a folder."""
        return self._place.names(folder)

    def leave(self) -> None:
        """Ask no more than once from now on."""
        self._ended.set()
