"""The commands of ``millstream fleet``."""

from millstream.cli.lazy import LazyGroup

fleet = LazyGroup(
    name="fleet",
    purpose="Look at a fleet: servers that share an object store.",
    within="millstream.cli.fleet",
    places={"status": ("status:status", "Show who owns the log, and who stands by.")},
)
