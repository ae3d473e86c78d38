"""The commands of ``millstream bench``."""

from millstream.cli.lazy import LazyGroup

bench = LazyGroup(
    name="bench",
    purpose="Measure a server; the clients are written in Python, so compare servers, not tools.",
    within="millstream.cli.bench",
    places={
        "core": ("core:core", "Publish, fan out and request, over NATS."),
        "js": ("js:js", "Publish to a stream and consume it."),
        "kv": ("kv:kv", "Put and get keys of a bucket."),
        "http": ("http:http_", "Write and read a topic over HTTP."),
        "spark": ("spark:spark", "Read a stream with Spark."),
    },
)
