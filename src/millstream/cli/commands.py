"""The tree of commands: what each is for, and where it is."""

import click

from millstream import __version__
from millstream.cli.lazy import LazyGroup

cli = LazyGroup(
    purpose="A durable message broker: one log for NATS clients, HTTP and Spark.",
    within="millstream.cli",
    places={
        "serve": ("serve:serve", "Run the server."),
        "pub": ("messages.pub:pub", "Publish a message, or one per line of input."),
        "sub": ("messages.sub:sub", "Print messages as they arrive."),
        "request": ("messages.request:request", "Send a request and print the answer."),
        "reply": ("messages.reply:reply", "Answer requests."),
        "stream": ("streams.group:stream", "Look at streams; make, change and remove them."),
        "consumer": ("consumers.group:consumer", "Look at consumers, and say why they wait."),
        "kv": ("buckets.group:kv", "Key-value buckets."),
        "object": ("objects.group:object_", "Object stores."),
        "topic": ("topics.group:topic", "Topics of the HTTP API: streams, over HTTP."),
        "queue": ("topics.group:queue", "Job queues."),
        "work": ("work:work", "Run a command for each job of a queue."),
        "dlq": ("dlq:dlq", "List dead letters, and send them back."),
        "router": ("topics.group:router", "Copy records from topic to topic."),
        "reader": ("topics.group:reader", "Positions of Spark queries."),
        "schedule": ("messages.schedule:schedule", "Publish later, or again and again."),
        "pipeline": ("pipeline.command:pipeline", "Transform streams with Spark."),
        "apply": ("declared.apply:apply", "Make a server as a file describes it."),
        "get": ("declared.get:get", "Write what a server has as such a file."),
        "fleet": ("fleet.group:fleet", "Look at servers that share an object store."),
        "server": ("operator.group:server", "Look at a server; check, reload and drain it."),
        "account": ("operator.group:account", "Show what an account uses and may use."),
        "user": ("operator.group:user", "Add and remove users."),
        "key": ("operator.group:key", "Create, list and revoke API keys for HTTP."),
        "context": ("operator.group:context", "Name servers, and choose one."),
        "top": ("operator.top:top", "Watch rates, streams, consumers and connections."),
        "events": ("operator.events:events", "Print what happens on a server."),
        "rtt": ("messages.rtt:rtt", "Measure the way to a server and back."),
        "latency": ("messages.rtt:latency", "Measure the way from publisher to subscriber."),
        "bench": ("bench.group:bench", "Measure a server."),
        "errors": ("operator.errors:errors", "Look an error code up."),
        "doctor": ("operator.doctor:doctor", "Check machine, settings and data directory."),
        "open": ("operator.open:open_", "Open the dashboard in a browser."),
        "nats-server": ("nats_server:nats_server", "Run as the nats-server command does."),
        "fsck": ("directory.fsck:fsck", "Check a data directory; changes nothing."),
        "scrub": ("directory.scrub:scrub", "Check a data directory; mends its cold history."),
        "repair": ("directory.repair:repair", "Repair a damaged data directory."),
        "dump": ("directory.dump:dump", "Print what the files of a data directory hold."),
        "backup": ("directory.backup:backup", "Back up a data directory, also while in use."),
        "restore": ("directory.backup:restore", "Restore a backup, to any moment."),
        "completion": ("operator.completion:completion", "Print the shell's completion script."),
        "man": ("operator.man:man", "Print the manual page."),
        "version": ("version:version", "Print the version."),
    },
)
click.version_option(__version__, message="%(prog)s %(version)s")(cli)
