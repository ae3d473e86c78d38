"""The ``fleet`` block as it stands in a file."""

from millstream.server.conf.setting import Setting, Table, read
from millstream.server.conf.syntax import ConfBlock
from millstream.server.options.fleet_url import problem_of
from millstream.server.options.options import FleetOptions


def fleet(setting: Setting) -> FleetOptions:
    """Read the block, or the URL alone."""
    if not isinstance(setting.value, ConfBlock):
        return FleetOptions(_url(setting))
    values = read(setting.value, _FLEET, setting.findings)
    if "url" not in values:
        raise setting.wrong("needs a url, such as s3://bucket/prefix")
    return FleetOptions(**values)


def _url(setting: Setting) -> str:
    if wrong := problem_of(setting.text()):
        raise setting.wrong(f"{wrong}, not {setting.text()!r}")
    return setting.text()


def _shards(setting: Setting) -> int:
    if setting.integer() != 1:
        raise setting.wrong(
            "must be 1 for now: several shards need routing between members, which is not there yet"
        )
    return 1


_FLEET: Table = {"url": ("url", _url), "shards": ("shards", _shards)}
