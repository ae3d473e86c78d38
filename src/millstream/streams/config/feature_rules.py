"""A stream's features in its configuration: defaults filled in, contradictions refused."""

from collections.abc import Mapping
from typing import Any

from millstream.errors import InvalidStreamConfig, MillstreamError
from millstream.subjects.subject import is_pattern, overlap
from millstream.subjects.transform import BadSubject, BadTransform, SubjectTransform

_SHORTEST_MARKER_NS = 1_000_000_000
_WINDOW_NS = 120_000_000_000


class FeatureRefused(MillstreamError):
    """A feature asked for in a way that cannot work; the code says which."""

    status = 400
    http_status = 400
    code = "invalid_request"

    def __init__(self, err_code: int, message: str) -> None:
        super().__init__(message)
        self.err_code = err_code  # type: ignore[misc]


class Pedantic(FeatureRefused):
    """A request that wants to be told rather than be set right."""

    def __init__(self, why: str) -> None:
        super().__init__(10157, f"pedantic mode: {why}")


def filled(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the features of a configuration turn on or fill in."""
    fill: dict[str, Any] = {}
    if fields["subject_delete_marker_ttl"] >= _SHORTEST_MARKER_NS:
        fill["allow_msg_ttl"] = True
        if not fields["allow_rollup_hdrs"]:
            fill |= {"allow_rollup_hdrs": True, "deny_purge": False}
    if fields["allow_msg_schedules"] and not fields["allow_rollup_hdrs"]:
        fill |= {"allow_rollup_hdrs": True, "deny_purge": False}
    if fields["republish"] is not None:
        fill["republish"] = _filled_republish(fields)
    if not fields["placement"]:
        fill["placement"] = None
    return fill


def _filled_republish(fields: Mapping[str, Any]) -> dict[str, Any]:
    asked = {"src": ">", "dest": "", **{k: v for k, v in fields["republish"].items() if v}}
    transform = fields["subject_transform"]
    everything = asked["src"] == asked["dest"] == ">"
    if everything and transform and fields["subjects"] == (transform.get("src"),):
        # Captured subjects are all rewritten, so that nothing can come back to the stream.
        asked |= {"src": transform.get("dest", ""), "dest": transform.get("dest", "")}
    return asked


_UNLIMITED = ("max_msgs", "max_msgs_per_subject", "max_bytes", "max_msg_size", "max_consumers")


def check_unlimited(fields: Mapping[str, Any]) -> None:
    """Refuse limits that would otherwise be taken for none."""
    for key in _UNLIMITED:
        if fields[key] < -1:
            raise Pedantic(f"{key} must be set to -1")


def check_window(sent: Mapping[str, Any]) -> None:
    """Refuse a window that would be cut to the longest life of a record."""
    takes = not sent["mirror"] and not sent["sources"]
    if takes and not sent["duplicate_window"] and 0 < sent["max_age"] < _WINDOW_NS:
        raise Pedantic("duplicate window cannot be bigger than max age")


def _check_republish_source(sent: Mapping[str, Any]) -> None:
    """Refuse a source that would be taken for everything."""
    if sent["republish"] is not None and not sent["republish"].get("src"):
        raise Pedantic("republish source can not be empty")


def check_features(fields: Mapping[str, Any], sent: Mapping[str, Any] | None) -> None:
    """Refuse features that contradict each other; where ``sent``, also what they turned on."""
    if fields["discard_new_per_subject"]:
        if fields["discard"] != "new":
            raise InvalidStreamConfig(
                "discard new per subject requires discard new policy to be set"
            )
        if fields["max_msgs_per_subject"] <= 0:
            raise InvalidStreamConfig("discard new per subject requires max msgs per subject > 0")
    marker_ttl = fields["subject_delete_marker_ttl"]
    if marker_ttl < 0:
        raise InvalidStreamConfig("subject delete marker TTL must not be negative")
    if 0 < marker_ttl < _SHORTEST_MARKER_NS:
        raise InvalidStreamConfig("subject delete marker TTL must be at least 1 second")
    if sent is not None and marker_ttl > 0:
        _check_turned_on(sent)
    if fields["allow_msg_schedules"] and fields["discard"] == "new":
        raise InvalidStreamConfig("message scheduling cannot use discard new")
    if sent is not None and sent["allow_msg_schedules"] and not sent["allow_rollup_hdrs"]:
        raise InvalidStreamConfig("message scheduling cannot be set if roll-ups are disabled")
    if fields["persist_mode"] == "async":
        _check_async(fields)


def _check_turned_on(sent: Mapping[str, Any]) -> None:
    for key, what in (("allow_msg_ttl", "message TTLs"), ("allow_rollup_hdrs", "roll-ups")):
        if not sent[key]:
            raise InvalidStreamConfig(f"subject delete marker cannot be set if {what} are disabled")


def check_subjects(fields: Mapping[str, Any], sent: Mapping[str, Any] | None) -> None:
    """Refuse transforms and copies that cannot be carried out, and placements without meaning."""
    if fields["subject_transform"] is not None:
        _check_transform(fields["subject_transform"])
    if sent is not None:
        _check_republish_source(sent)
    if fields["republish"] is not None:
        _check_republish(fields["republish"], fields["subjects"])
    if fields["placement"] and fields["placement"].get("preferred"):
        raise InvalidStreamConfig("preferred server not permitted in placement")


def check_mirror(fields: Mapping[str, Any]) -> None:
    """Refuse what no mirror can be."""
    if fields["mirror"] is None:
        return
    for refused, err_code, why in (
        (fields["first_seq"], 10143, "stream mirrors can not have first sequence configured"),
        (fields["subjects"], 10034, "stream mirrors can not contain subjects"),
        (fields["sources"], 10031, "stream mirrors can not also contain other sources"),
        (fields["allow_msg_counter"], 10173, "stream mirrors can not also calculate counters"),
        (fields["allow_atomic"], 10198, "stream mirrors can not also use atomic publishing"),
        (fields["allow_batched"], 10209, "stream mirrors can not also use batch publishing"),
        (fields["allow_msg_schedules"], 10186, "stream mirrors can not also schedule messages"),
    ):
        if refused:
            raise FeatureRefused(err_code, why)
    if fields["subject_delete_marker_ttl"] > 0:
        raise InvalidStreamConfig("subject delete markers forbidden on mirrors")


def check_counter(fields: Mapping[str, Any]) -> None:
    """Refuse what no counter can be; ``allow_msg_ttl`` is as asked, not as markers turn it on."""
    for refused, why in (
        (fields["discard"] == "new", "counter stream cannot use discard new"),
        (fields["allow_msg_ttl"], "counter stream cannot use message TTLs"),
        (fields["allow_msg_schedules"], "counter stream cannot use message schedules"),
        (fields["retention"] != "limits", "counter stream can only use limits retention"),
    ):
        if refused:
            raise InvalidStreamConfig(why)


def _check_async(fields: Mapping[str, Any]) -> None:
    if fields["storage"] != "file":
        raise InvalidStreamConfig("async persist mode is only supported on file storage")
    if fields["num_replicas"] > 1:
        raise InvalidStreamConfig("async persist mode is not supported on replicated streams")
    if fields["allow_atomic"]:
        raise InvalidStreamConfig("async persist mode is not supported with atomic batch publish")


def _check_transform(asked: Mapping[str, Any]) -> None:
    source = asked.get("src", "")
    if source and not is_pattern(source):
        raise FeatureRefused(10155, f"stream transform source: invalid subject {source}")
    try:
        transform_of(asked)
    except BadSubject as error:
        raise FeatureRefused(10156, "stream transform: invalid subject") from error
    except BadTransform as error:
        raise FeatureRefused(10156, f"stream transform: {error.message}") from error


def _check_republish(asked: Mapping[str, Any], subjects: tuple[str, ...]) -> None:
    source, destination = asked.get("src", ""), asked.get("dest", "")
    if any(overlap(destination, subject) for subject in subjects):
        raise InvalidStreamConfig("stream configuration for republish destination forms a cycle")
    try:
        transform_of(asked)
    except BadTransform as error:
        raise InvalidStreamConfig(
            "stream configuration for republish with transform "
            f"from '{source}' to '{destination}' not valid"
        ) from error


def transform_of(asked: Mapping[str, Any] | None) -> SubjectTransform | None:
    """Return the transform of a ``{src, dest}`` object, None when it rewrites nothing."""
    if not asked or not asked.get("dest"):
        return None
    return SubjectTransform(asked.get("src", ""), asked["dest"])
