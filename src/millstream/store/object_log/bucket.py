"""BucketPlace: the objects of a fleet in an object store, by obstore."""

from typing import TYPE_CHECKING, Any

from millstream.errors import ObjectsFailed
from millstream.store.object_log.requests import (
    ABSENT,
    CONDITION_FAILED,
    Accepted,
    Answer,
    Create,
    FoundObject,
    Get,
    Put,
    Remove,
    Replace,
    Request,
    Unsure,
)

if TYPE_CHECKING:
    from obstore.store import ObjectStore

TIMEOUT = "10s"


def open_bucket(url: str, **config: Any) -> "BucketPlace":
    """Return the place at a URL such as ``s3://bucket/prefix``.

    The client tries each request once (rule 2): what a second try is told would be about the first.
    """
    try:
        from obstore.store import from_url
    except ImportError:
        raise ObjectsFailed(
            "object stores need the package obstore: pip install 'millstream[lake]'"
        ) from None
    if not url.startswith("memory:"):  # for tests: nothing to try, nothing to wait for
        config = {**config, "retry_config": {"max_retries": 0}}
        config["client_options"] = {"timeout": TIMEOUT, **config.get("client_options", {})}
    return BucketPlace(from_url(url, **config))


class BucketPlace:
    """Keeps ``ObjectPlace``."""

    def __init__(self, store: "ObjectStore") -> None:
        import obstore

        self._api: Any = obstore
        self._store = store
        self._exists = (obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError)

    def carry_out(self, request: Request) -> Answer:
        """Send one request."""
        try:
            return self._answer(request)
        except FileNotFoundError:
            return Accepted() if isinstance(request, Remove) else ABSENT
        except self._exists:
            return CONDITION_FAILED
        except Exception as error:
            return Unsure(f"{type(error).__name__}: {error}")

    def _answer(self, request: Request) -> Answer:
        match request:
            case Create(name, data):
                return self._put(name, data, "create")
            case Replace(name, data, tag):
                return self._put(name, data, "create" if tag is None else {"e_tag": tag})
            case Get(name):
                found = self._api.get(self._store, name)
                return FoundObject(bytes(found.bytes()), str(found.meta["e_tag"]))
            case Put(name, data):
                return self._put(name, data, "overwrite")
            case Remove(name):
                self._api.delete(self._store, name)
                return Accepted()

    def names(self, folder: str) -> list[str]:
        """List a folder, page by page."""
        prefix = f"{folder}/"
        try:
            pages = list(self._api.list(self._store, prefix=prefix))
        except Exception as error:
            raise ObjectsFailed(f"the store cannot be listed: {error}") from error
        paths = (str(item["path"]) for page in pages for item in page)
        return sorted(path[len(prefix) :] for path in paths if "/" not in path[len(prefix) :])

    def _put(self, name: str, data: bytes, mode: Any) -> Answer:
        # In one request: a store checks the condition of parts when they are joined, or not at all.
        put = self._api.put(self._store, name, data, mode=mode, use_multipart=False)
        return Accepted(str(put["e_tag"]))
