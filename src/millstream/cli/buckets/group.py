"""The commands of ``millstream kv``."""

from millstream.cli.lazy import LazyGroup

kv = LazyGroup(
    name="kv",
    purpose="Key-value buckets: keys with their last value, history and watches.",
    within="millstream.cli.buckets",
    also={"list": "ls", "create-bucket": "add", "delete": "del", "status": "info"},
    places={
        "ls": ("listing:ls", "List the buckets, or the keys of one."),
        "info": ("listing:info", "Show a bucket's settings and size."),
        "add": ("making:add", "Create a bucket."),
        "edit": ("making:edit", "Change a bucket."),
        "rm": ("making:rm", "Remove a bucket with everything in it."),
        "put": ("writing:put", "Set a key."),
        "create": ("writing:create", "Set a key that has no value yet."),
        "update": ("writing:update", "Set a key that has not changed since a revision."),
        "del": ("writing:del_", "Delete a key; its history stays."),
        "purge": ("writing:purge", "Delete a key with its history."),
        "revert": ("writing:revert", "Set a key to an earlier value."),
        "compact": ("writing:compact", "Forget the traces of deleted keys."),
        "get": ("reading:get", "Print a key's value."),
        "history": ("reading:history", "List the values that a key had."),
        "watch": ("reading:watch", "Print changes as they happen."),
    },
)
