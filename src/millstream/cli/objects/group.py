"""The commands of ``millstream object``."""

from millstream.cli.lazy import LazyGroup

object_ = LazyGroup(
    name="object",
    purpose="Object stores: files of any size, in parts, with their digests.",
    within="millstream.cli.objects",
    also={"list": "ls", "del": "rm", "delete": "rm"},
    places={
        "ls": ("commands:ls", "List the stores, or the objects of one."),
        "info": ("commands:info", "Show a store, or an object of it."),
        "add": ("commands:add", "Create a store."),
        "rm": ("commands:rm", "Remove an object, or a store with everything in it."),
        "put": ("transfer:put", "Store a file."),
        "get": ("transfer:get", "Fetch an object."),
        "seal": ("commands:seal", "Let nothing change a store any more."),
        "watch": ("commands:watch", "Print changes as they happen."),
    },
)
