"""The commands of ``millstream stream``."""

from millstream.cli.lazy import LazyGroup

stream = LazyGroup(
    name="stream",
    purpose="Look at streams; make, change, copy, back up and remove them (any NATS server).",
    within="millstream.cli.streams",
    also={"list": "ls", "create": "add", "update": "edit", "delete": "rm", "cp": "copy"},
    places={
        "ls": ("listing:ls", "List the streams."),
        "info": ("listing:info", "Show a stream's configuration and state."),
        "report": ("listing:report", "Show how much each stream holds and who reads it."),
        "add": ("making:add", "Create a stream."),
        "edit": ("making:edit", "Change a stream's configuration."),
        "copy": ("copying:copy", "Create a stream like another one, with or without its records."),
        "rm": ("removing:rm", "Remove a stream with everything in it."),
        "purge": ("removing:purge", "Remove records of a stream, all or some."),
        "rmm": ("removing:rmm", "Remove one record."),
        "view": ("reading:view", "Show stored records, without consuming them."),
        "get": ("reading:get", "Show one stored record."),
        "gaps": ("gaps:gaps", "List the records that are gone."),
        "backup": ("backups:backup", "Save a stream into a directory."),
        "restore": ("backups:restore", "Bring a saved stream back."),
    },
)
