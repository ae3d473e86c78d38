"""Sweeping the cold place: what a crash left there goes, and what no manifest names is named again.

On the mover's thread, once for each start, before anything else is done there.
"""

import logging

from millstream.store.cold import manifest as cold_manifest
from millstream.store.cold.manifest import ColdFile, folder
from millstream.store.cold.owner import PlaceOwner
from millstream.store.cold.remains import Remains
from millstream.store.disk.files import Files
from millstream.store.disk.objects import Objects

log = logging.getLogger(__name__)


def remove(objects: Objects, names: list[str]) -> None:
    """Remove objects."""
    for name in names:
        objects.remove(name)


def remove_folder(objects: Objects, log_id: int) -> None:
    """Remove everything of a log."""
    remove(objects, [f"{folder(log_id)}/{name}" for name in objects.names(folder(log_id))])


def sweep(
    owner: PlaceOwner, objects: Objects, files: Files, cold: dict[int, dict[int, Remains]]
) -> dict[int, list[ColdFile]]:
    """Return each log's cold files; those of segments that are gone or hot go (on the mover).

    What the manifest should name and does not is named again by what is left of it.
    """
    owner.claim()
    found: dict[int, list[ColdFile]] = {}
    for log_id, bases in cold.items():
        names = objects.names(folder(log_id))
        stray = [n for n in names if n.startswith("seg-") and int(n[4:24]) not in bases]
        remove(objects, [f"{folder(log_id)}/{name}" for name in stray])
        manifest = cold_manifest.load(objects, log_id)
        named = {f.base_seq: f for f in manifest.files} if manifest is not None else {}
        if bases.keys() - named.keys():
            path = f"{objects.place}/{folder(log_id)}/{cold_manifest.NAME}"
            log.warning("cold manifest is damaged, making it anew file=%s", path)
        found[log_id] = [
            named.get(base) or remains.named_again(files, names) for base, remains in bases.items()
        ]
    return found


def is_doubtful(file: ColdFile | None) -> bool:
    """Say whether nobody vouches for some form of a segment."""
    return file is not None and not all(form.is_vouched_for for form in file.forms)
