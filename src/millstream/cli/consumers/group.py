"""The commands of ``millstream consumer``."""

from millstream.cli.lazy import LazyGroup

consumer = LazyGroup(
    name="consumer",
    purpose="Look at the consumers of streams; make, change, pause and remove them.",
    within="millstream.cli.consumers",
    also={"list": "ls", "create": "add", "update": "edit", "delete": "rm"},
    places={
        "ls": ("listing:ls", "List the consumers of a stream."),
        "info": ("listing:info", "Show a consumer's configuration and state."),
        "report": ("listing:report", "Show how far each consumer is, and why it stands there."),
        "why": ("why:why", "Say in one line why a consumer delivers, or does not."),
        "add": ("making:add", "Create a consumer."),
        "edit": ("making:edit", "Change a consumer."),
        "rm": ("moving:rm", "Remove a consumer."),
        "next": ("taking:next_", "Take messages from a pull consumer."),
        "pause": ("moving:pause", "Deliver nothing until a time."),
        "resume": ("moving:resume", "Deliver again."),
        "reset": ("moving:reset", "Go back, or on, to a sequence."),
        "unpin": ("moving:unpin", "Let another client have a pinned consumer."),
    },
)
