"""``mappings { source: destination }`` as they stand in a file."""

from millstream.server.conf.setting import Setting, Table, read
from millstream.server.conf.syntax import ConfBlock, ConfError
from millstream.server.options.auth_options import MapDestination, MappingOptions
from millstream.subjects.subject import is_pattern
from millstream.subjects.transform import BadTransform, SubjectTransform


def mappings(setting: Setting) -> tuple[MappingOptions, ...]:
    """Read a block of mappings; a bad one is reported and left out."""
    made = []
    for inner in setting.inner():
        try:
            made.append(_mapping(inner))
        except ConfError as error:
            setting.findings.problems.append(error)
    return tuple(made)


def _mapping(setting: Setting) -> MappingOptions:
    if not is_pattern(setting.key):
        raise setting.wrong("is not a valid subject to map from")
    mapping = MappingOptions(setting.key, _destinations(setting))
    _check(mapping, setting)
    return mapping


def _destinations(setting: Setting) -> tuple[MapDestination, ...]:
    if isinstance(setting.value, str):
        return (MapDestination(setting.value),)
    if isinstance(setting.value, ConfBlock):
        return (_destination(setting),)
    return tuple(_destination(element) for element in setting.elements())


def _destination(setting: Setting) -> MapDestination:
    values = read(setting.block(), _DESTINATION, setting.findings)
    if "weight" not in values:
        raise setting.wrong("has a destination without a weight: add weight: 100%")
    return MapDestination(**{"subject": "", **values})


def _weight(setting: Setting) -> int:
    text = setting.value.removesuffix("%") if isinstance(setting.value, str) else setting.value
    try:
        weight = int(text) if isinstance(text, str) else setting.integer()
    except ValueError:
        raise setting.wrong(f"must be a percentage like 40%, not {text!r}") from None
    if not 0 <= weight <= 100:
        raise setting.wrong(f"must be 0 to 100 percent, not {weight}")
    return weight


def _check(mapping: MappingOptions, setting: Setting) -> None:
    seen: set[str] = set()
    totals: dict[str, int] = {}
    for destination in mapping.destinations:
        if destination.subject in seen:
            raise setting.wrong(f"lists {destination.subject!r} twice")
        seen.add(destination.subject)
        total = totals.get(destination.cluster, 0) + destination.weight
        totals[destination.cluster] = total
        if total > 100:
            raise setting.wrong(f"has weights that add up to {total}%: at most 100%")
        try:
            SubjectTransform(mapping.source, destination.subject)
        except BadTransform as error:
            raise setting.wrong(f"cannot be mapped: {error}") from error


_DESTINATION: Table = {
    **dict.fromkeys(("dest", "destination"), ("subject", Setting.text)),
    "weight": ("weight", _weight),
    "cluster": ("cluster", Setting.text),
}
