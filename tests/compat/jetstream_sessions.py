"""Generated JetStream sessions: what one client asks, publishes, pulls and answers, step by step.

A session is a value made from a seed. Its names and subjects start with ``@``, which stands for a
prefix that is given when it is played: the same session can be played again on the same servers,
and many sessions share them at the same time. ``RESTART`` is where both servers are restarted.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from random import Random
from typing import Any

SECOND = 10**9
STREAMS = ("@S", "@T")
CONSUMERS = ("c0", "c1", "c2")
TOKENS = ("a", "b", "c")
RESTART = "restart"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """One act of the client.

    ``ask`` waits for one answer, ``many`` for all that come; ``pull`` notes deliveries, ``ack``
    answers the n-th of them, ``listen`` subscribes, ``gather`` notes what came since.
    """

    kind: str
    subject: str = ""
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    n: int = 0


@dataclass(frozen=True, slots=True)
class Session:
    """A seed's worth of steps."""

    seed: int
    steps: tuple[Step, ...]

    def transcript(self) -> str:
        """The session as text that a bug report can hold."""
        return "\n".join(
            f"  {step.kind} {step.subject} {step.body[:400]!r} {dict(step.headers)} {step.n}"
            for step in self.steps
        )


def generate(seed: int) -> Session:
    """Return the session of this seed; the same seed always gives the same steps."""
    return _Writer(seed).session()


class _Writer:
    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._random = Random(seed)
        self._streams: dict[str, Json] = {}
        self._consumers: dict[tuple[str, str], Json] = {}
        self._made = 0
        self._stored = Counter[str]()  # records that a stream has for certain, nearly
        # The reference forgets streams in memory at a restart; ours are empty then.
        self._restarts = self._chance(0.6)
        # It moves what starts behind the end back to it at a restart: see _made_consumer, too.
        self._starts = (1, 2, 2, 3) if self._restarts else (1, 2, 5, 50)
        self._filtered: set[tuple[str, str]] = set()
        self._sampled: set[tuple[str, str]] = set()
        self._grouped: set[str] = set()  # subjects that a queue group listens to
        self._many: set[str] = set()  # streams whose consumers may have several filters
        self._unnamed: set[str] = set()  # streams with a consumer whose name the server makes up
        self._awaited: set[tuple[str, str]] = set()  # somebody may wait there without an end

    def session(self) -> Session:
        steps = [self._create_stream("@S")]
        steps += [self._publish() for _ in range(self._random.randint(0, 8))]
        steps += [self._create_consumer()]
        count = self._random.randint(10, 45)
        restart = self._random.randint(5, count)
        for at in range(count):
            if at == restart and self._restarts:
                steps.append(Step(RESTART))
            steps.append(self._step())
        steps += [self._stream_info("@S", {"deleted_details": True, "subjects_filter": ">"})]
        steps += [_ask(f"CONSUMER.INFO.{s}.{c}") for s, c in self._consumers]
        return Session(self._seed, tuple(steps))

    def _step(self) -> Step:
        makers = {
            self._publish: 24,
            self._pull: 16,
            self._ack: 16,
            self._create_consumer: 7,
            self._update_consumer: 4,
            self._consumer_request: 7,
            self._look: 6,
            self._get: 5,
            self._direct: 5,
            self._remove: 5,
            self._update_stream: 4,
            self._second_stream: 2,
            self._batch: 3,
            self._gather: 3,
            self._odd: 2,
        }
        return self._random.choices(list(makers), list(makers.values()))[0]()

    # -- small choices -----------------------------------------------------------------------

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _pick(self, *options: Any) -> Any:
        return self._random.choice(options)

    def _literal(self) -> str:
        return self._pick("@.x.a", "@.x.b", "@.x.c", "@.y", "@.x.a.d", "@.z.a")

    def _pattern(self) -> str:
        return self._pick("@.x.*", "@.x.a", "@.>", "@.y", "@.*", "@.x.>", "@.none", "@.*.b")

    def _stream(self) -> str:
        return self._random.choice(list(self._streams)) if self._streams else "@S"

    def _consumer(self) -> tuple[str, str]:
        if not self._consumers or self._chance(0.03):
            return "@S", "nobody"
        return self._random.choice(list(self._consumers))

    def _number(self) -> int:
        return self._random.choice([0, 1, 1, 2, 2, 3, 3, 4, 5, 6, 8, 12, 99])

    def _sprinkle(self, config: Json, options: dict[str, tuple[Any, ...]], share: float) -> Json:
        for key, values in options.items():
            if self._chance(share):
                config[key] = self._random.choice(values)
        return config

    # -- streams -----------------------------------------------------------------------------

    def _stream_config(self, name: str) -> Json:
        config: Json = {"name": name}
        tail = "x.*" if name == "@S" else "z.>"
        config["subjects"] = self._pick([f"@.{tail}"], [f"@.{tail}", "@.y"], [f"@.{tail}", "@.w.>"])
        if name != "@S":
            config["subjects"] = [f"@.{tail}"]
        storages = ("file",) if self._restarts else ("file", "memory", "memory")
        options: dict[str, tuple[Any, ...]] = {
            "retention": ("limits", "limits", "interest", "workqueue"),
            "storage": storages,
            "max_msgs": (0, 1, 3, 6, -1),
            "max_bytes": (2000, 0, -1),
            "max_msgs_per_subject": (1, 2, 3),
            "max_msg_size": (5, 40, 200),
            "discard": ("old", "new"),
            "discard_new_per_subject": (True,),
            "allow_direct": (True,),
            "allow_rollup_hdrs": (True,),
            "allow_msg_ttl": (True,),
            "allow_atomic": (True,),
            "allow_msg_counter": (True,),
            "deny_delete": (True,),
            "deny_purge": (True,),
            "no_ack": (True,),
            "first_seq": (1, 5, 100),
            "max_consumers": (1, 2, 10),
            "description": ("words",),
            "metadata": ({"k": "v"}, {"_nats.level": "9", "a": ""}),
            "duplicate_window": (SECOND * 60, 1000, SECOND),
            "max_age": (3600 * SECOND, 5, 20 * SECOND),
            "num_replicas": (1, 0, 3, -1, 9),
            "consumer_limits": (
                {"inactive_threshold": 80 * SECOND},
                {"max_ack_pending": 3},
                {"max_ack_pending": 3, "inactive_threshold": 70 * SECOND},
            ),
            "subject_transform": (
                {"src": "@.x.*", "dest": "@.t.{{wildcard(1)}}"},
                {"src": ">", "dest": "@.t.>"},
                {"src": "@.x.*", "dest": "@.t.{{wildcard(3)}}"},
            ),
            "republish": ({"src": "@.x.*", "dest": "@.r.{{wildcard(1)}}"}, {"dest": "@.r.>"}),
            "placement": ({"cluster": "c"}, {"tags": ["t"]}, {"preferred": "p"}),
            "sealed": (True,),
            "persist_mode": ("default", "async"),
            "mirror_direct": (True,),
            "subject_delete_marker_ttl": (60 * SECOND, 5),
            "pedantic": (True,),
        }
        config = self._sprinkle(config, options, self._pick(0.04, 0.08, 0.15))
        if self._restarts and config.get("allow_msg_counter"):
            # The reference cannot open such a stream again.
            config.pop("subject_delete_marker_ttl", None)
        return config

    def _create_stream(self, name: str) -> Step:
        config = self._stream_config(name)
        before = self._streams.get(name)
        self._streams[name] = dict(config)
        if before is not None:  # it is refused, and an update must not bring what it asked for
            for key in ("consumer_limits", "retention"):
                self._streams[name].pop(key, None)
                self._streams[name] |= {k: v for k, v in before.items() if k == key}
        return _ask(f"STREAM.CREATE.{name}", config)

    def _second_stream(self) -> Step:
        return self._create_stream(self._pick(*STREAMS))

    def _update_stream(self) -> Step:
        name = self._stream()
        config = {**self._streams.get(name, {"name": name}), **self._stream_config(name)}
        config.pop("first_seq", None)
        if self._chance(0.6):
            kept = self._streams.get(name, {"name": name})
            changed = self._stream_config(name)
            changed.pop("consumer_limits", None)
            changed.pop("first_seq", None)
            config = {**kept, **{k: changed[k] for k in list(changed)[-2:]}}
        if any(stream == name for stream, _ in self._consumers):
            # Consumers there follow the retention that they were made under.
            config.pop("retention", None)
            config |= {k: v for k, v in self._streams.get(name, {}).items() if k == "retention"}
        # The reference gives new ones to consumers that exist, and to the stream, at a restart.
        config.pop("first_seq", None)
        config.pop("consumer_limits", None)
        config |= {k: v for k, v in self._streams.get(name, {}).items() if k == "consumer_limits"}
        if self._chance(0.1):
            config["sealed"] = True
        if config.get("sealed"):
            # The reference cannot open such streams again, or opens them changed.
            for key in ("allow_msg_counter", "subject_delete_marker_ttl", "allow_rollup_hdrs"):
                config.pop(key, None)
            # It drops what nobody waits for when this brings interest retention too.
            config.pop("retention", None)
            config |= {k: v for k, v in self._streams.get(name, {}).items() if k == "retention"}
        self._streams[name] = config
        return _ask(f"STREAM.UPDATE.{name}", config)

    def _stream_info(self, name: str, body: Json | None = None) -> Step:
        return _ask(f"STREAM.INFO.{name}", body)

    def _look(self) -> Step:
        stream, consumer = self._consumer()
        step: Step = self._pick(
            self._stream_info(self._stream()),
            self._stream_info(self._stream(), {"subjects_filter": self._pattern()}),
            self._stream_info(self._stream(), {"deleted_details": True}),
            _ask("STREAM.NAMES", {"subject": self._pick("@.>", "@.y", "@.x.a")}),
            _ask("STREAM.LIST", {"subject": "@.>"}),
            _ask(f"CONSUMER.NAMES.{stream}", self._pick(None, {"offset": 1}, {"offset": -1})),
            _ask(f"CONSUMER.LIST.{stream}", self._pick(None, {"offset": 1})),
            _ask(f"CONSUMER.INFO.{stream}.{consumer}"),
            _ask(f"CONSUMER.INFO.{stream}.{consumer}"),
        )
        if b'"offset": 1' in step.body and stream in self._unnamed:
            return replace(step, body=b"")  # which one is first is up to chance
        return step

    # -- records -----------------------------------------------------------------------------

    def _publish(self) -> Step:
        step = Step("ask", self._literal(), self._payload(), self._demands())
        if not step.headers:
            in_s = step.subject in ("@.x.a", "@.x.b", "@.x.c")
            self._stored["@S" if in_s else "@T" if step.subject == "@.z.a" else ""] += 1
        return step

    def _payload(self) -> bytes:
        self._made += 1
        return self._pick(b"%d" % self._made, b"", b"x" * 30, b"%d" % self._made)  # type: ignore[no-any-return]

    def _demands(self) -> tuple[tuple[str, str], ...]:
        if self._chance(0.55):
            return ()
        known: dict[str, tuple[str, ...]] = {
            "Nats-Msg-Id": ("m1", "m2", "m3", ""),
            "Nats-Expected-Stream": ("@S", "@T"),
            "Nats-Expected-Last-Sequence": (*"0123456", "x"),
            "Nats-Expected-Last-Subject-Sequence": tuple("01234"),
            "Nats-Expected-Last-Msg-Id": ("m1", "m2"),
            "Nats-Rollup": ("sub", "all", "SUB", "bad"),
            "Nats-TTL": ("60s", "1h", "100", "never", "0", "1ms", "bad"),
            "Nats-Incr": ("+1", "-2", "5", "x"),
            "Nats-Expected-Last-Subject-Sequence-Subject": ("@.x.*", "@.y"),
            "Nats-Schedule-Target": ("@.y",),
            "Other": ("value",),
        }
        names = self._random.sample(list(known), self._random.choice([1, 1, 1, 2]))
        return tuple((name, self._random.choice(known[name])) for name in names)

    def _batch(self) -> Step:
        """One message of an atomic batch; several of these make one, mostly."""
        self._made += 1
        fields = [("Nats-Batch-Id", self._pick("b1", "b2", "b" * 65))]
        fields.append(("Nats-Batch-Sequence", self._pick("1", "1", "2", "3", "0", "x")))
        if self._chance(0.4):
            fields.append(("Nats-Batch-Commit", self._pick("1", "1", "eob", "no")))
        return Step("ask", self._literal(), b"%d" % self._made, tuple(fields))

    def _get(self) -> Step:
        body = self._pick(
            {"seq": self._number()},
            {"seq": self._number(), "no_hdr": True},
            {"last_by_subj": self._pattern()},
            {"last_by_subj": self._literal()},
            {"next_by_subj": self._pattern(), "seq": self._number()},
            {"next_by_subj": self._pattern()},
            {"seq": 1, "last_by_subj": "@.y"},
            {"batch": 2},
        )
        return _ask(f"STREAM.MSG.GET.{self._stream()}", body)

    def _direct(self) -> Step:
        stream = self._stream()
        if self._chance(0.3):
            return Step("ask", f"$JS.API.DIRECT.GET.{stream}.{self._literal()}")
        body = self._pick(
            {"seq": self._number()},
            {"last_by_subj": self._pattern()},
            {"next_by_subj": self._pattern(), "seq": self._number()},
            {"batch": 2, "seq": self._number()},
            {"batch": 3, "next_by_subj": self._pattern(), "seq": 1},
            {"batch": 5, "max_bytes": 40, "seq": 1},
            {"multi_last": [self._pattern()]},
            {"multi_last": ["@.x.a", "@.y"], "up_to_seq": self._number()},
            {"multi_last": ["@.>"], "batch": 2},
            {"no_hdr": True, "seq": 1},
            {},
        )
        return Step("many", f"$JS.API.DIRECT.GET.{stream}", json.dumps(body).encode())

    def _remove(self) -> Step:
        stream = self._stream()
        purge = self._pick(
            None,
            {"keep": self._pick(1, 2)},
            {"seq": self._number()},
            {"filter": self._pattern()},
            {"filter": self._pattern(), "keep": 1},
            {"filter": self._pattern(), "seq": self._number()},
            {"seq": 2, "keep": 1},
        )
        if purge is not None and "filter" in purge and stream in self._many:
            # The reference takes a consumer past everything where one of its filters was purged.
            purge["filter"] = "@.>"
        delete = {"seq": self._number()}
        if self._chance(0.3):
            delete["no_erase"] = True
        if self._chance(0.06):
            self._forget(stream)
            return _ask(f"STREAM.DELETE.{stream}")
        if self._chance(0.6):
            return _ask(f"STREAM.MSG.DELETE.{stream}", delete)
        return _ask(f"STREAM.PURGE.{stream}", purge)

    def _forget(self, stream: str) -> None:
        self._streams.pop(stream, None)
        self._stored[stream] = 0
        self._consumers = {k: v for k, v in self._consumers.items() if k[0] != stream}

    # -- consumers ---------------------------------------------------------------------------

    def _consumer_config(self, name: str) -> Json:
        config: Json = {"name": name}
        if self._chance(0.7):
            config["durable_name"] = name
        else:  # the default would end it while a slow machine plays
            config["inactive_threshold"] = 65 * SECOND
        config["ack_policy"] = self._pick("explicit", "explicit", "explicit", "all", "none")
        options: dict[str, tuple[Any, ...]] = {
            "filter_subject": ("@.x.*", "@.x.a", "@.y", "@.>", "@.q"),
            "filter_subjects": (["@.x.a", "@.y"], ["@.x.*", "@.x.a"], ["@.x.b"], [""]),
            "deliver_policy": ("all", "last", "new", "by_start_sequence", "last_per_subject"),
            "opt_start_seq": self._starts,
            # No wait ends while a slow machine plays, or it has ended at once.
            "ack_wait": (40 * SECOND, 60 * SECOND, -1, 1000),
            "max_deliver": (1, 2, 3, 0, -5),
            "backoff": ([40 * SECOND, 50 * SECOND], [SECOND * 39] * 4, [-1]),
            "max_ack_pending": (1, 2, 3, -1, 2000),
            "max_waiting": (1, 2, 0),
            "max_batch": (1, 2, -1),
            "max_bytes": (60, 200),
            "max_expires": (SECOND, 1),
            "headers_only": (True,),
            "mem_storage": (True,),
            "inactive_threshold": (60 * SECOND, 90 * SECOND, -1),
            "num_replicas": (0, 1, 3, -1),
            "sample_freq": ("100", "100%", "x"),
            "description": ("more words",),
            "metadata": ({"a": "b"},),
            # What a replay at the original pace has brought by now depends on the machine.
            "replay_policy": ("instant",),
            "rate_limit_bps": (10**9,),
            "flow_control": (True,),
            "idle_heartbeat": (20 * SECOND, 5),
            "deliver_subject": ("@.push.1", "@.push.2", "@.x.z", "@.*"),
            "deliver_group": ("g",),
            "priority_groups": (["g"], ["g", "h"], [""]),
            "priority_policy": ("overflow", "pinned_client", "prioritized", "none"),
            "priority_timeout": (30 * SECOND,),
            "pause_until": ("2100-01-01T00:00:00Z", "2001-01-01T00:00:00Z"),
            "direct": (True,),
        }
        return self._sprinkle(config, options, self._pick(0.02, 0.05, 0.1))

    def _create_consumer(self) -> Step:
        stream, name = self._stream(), self._random.choice(CONSUMERS)
        config = self._consumer_config(name)
        if config.get("deliver_policy") == "by_start_sequence" and self._chance(0.8):
            config["opt_start_seq"] = self._pick(*self._starts)
        if config.get("priority_policy") and self._chance(0.8):
            config["priority_groups"] = ["g"]
        return self._made_consumer(stream, name, config)

    def _made_consumer(self, stream: str, name: str, config: Json) -> Step:
        if stream == "@T" and config.get("deliver_subject") == "@.x.z":
            # The other stream listens there by a wildcard, which the reference does not serve.
            config["deliver_subject"] = "@.z.z"
        if self._restarts and self._streams.get(stream, {}).get("retention") == "interest":
            # The reference keeps what only consumers in memory waited for.
            config.pop("mem_storage", None)
        before = self._consumers.get((stream, name), {"ack_wait": 1000})
        if (stream, name) in self._consumers:
            # The reference goes on to look for listeners in the group that it was made with.
            config.pop("deliver_group", None)
            config |= {k: v for k, v in before.items() if k == "deliver_group"}
        if config.get("ack_wait") == 1000 != before.get("ack_wait"):
            # The reference looks at what an update leaves no more time within a tenth of a second.
            config["ack_wait"] = 40 * SECOND
        if self._restarts and "opt_start_seq" in config:
            config["opt_start_seq"] = min(config["opt_start_seq"], max(self._stored[stream], 1))
        body: Json = {"stream_name": stream, "config": config}
        if self._chance(0.3):
            body["action"] = self._pick("create", "update", "")
        if self._chance(0.08):
            body["pedantic"] = True
        self._consumers[stream, name] = config
        subject = f"CONSUMER.CREATE.{stream}.{name}"
        if "filter_subject" in config and self._chance(0.5):
            subject += f".{config['filter_subject']}"
        elif self._chance(0.1):
            subject = f"CONSUMER.DURABLE.CREATE.{stream}.{name}"
        elif self._chance(0.04):
            subject = f"CONSUMER.CREATE.{stream}"
            config = {k: v for k, v in config.items() if k != "name"}
            body["config"] = config
            self._unnamed.add(stream)
        if config.keys() & {"filter_subject", "filter_subjects"}:
            self._filtered.add((stream, name))
        elif (stream, name) in self._filtered:
            # The reference does not count what comes after an update took all filters away.
            body["config"] = {**config, "filter_subject": "@.>"}
        if len(config.get("filter_subjects", ())) > 1:
            self._many.add(stream)
        if "sample_freq" in config:
            self._sampled.add((stream, name))
        elif (stream, name) in self._sampled:
            # Nor does it stop to tell of acks before a restart.
            body["config"] = {**body["config"], "sample_freq": "100"}
        return _ask(subject, body)

    def _update_consumer(self) -> Step:
        stream, name = self._consumer()
        kept = self._consumers.get((stream, name), {"name": name})
        changed = self._consumer_config(name)
        config = {**kept, **{k: changed[k] for k in list(changed)[-2:]}}
        return self._made_consumer(stream, name, config)

    def _consumer_request(self) -> Step:
        stream, name = self._consumer()
        if self._chance(0.15):
            self._consumers.pop((stream, name), None)
            return _ask(f"CONSUMER.DELETE.{stream}.{name}")
        step: Step = self._pick(
            _ask(f"CONSUMER.PAUSE.{stream}.{name}", {"pause_until": "2100-01-01T00:00:00Z"}),
            _ask(f"CONSUMER.PAUSE.{stream}.{name}"),
            _ask(f"CONSUMER.PAUSE.{stream}.{name}", {"pause_until": "2001-01-01T00:00:00Z"}),
            # The reference takes a reset beyond the end back at a restart, and counts what comes
            # before it as pending.
            _ask(f"CONSUMER.RESET.{stream}.{name}", self._pick(None, {"seq": self._pick(0, 1, 1)})),
            _ask(f"CONSUMER.UNPIN.{stream}.{name}", {"group": self._pick("g", "h", "")}),
            _ask(f"CONSUMER.INFO.{stream}.{name}"),
        )
        resumes = ".PAUSE." in step.subject and b"2100" not in step.body
        if resumes and (stream, name) in self._awaited:
            # The reference serves who waits at the next signal, not when it is resumed.
            return _ask(f"CONSUMER.INFO.{stream}.{name}")
        return step

    def _pull(self) -> Step:
        stream, name = self._consumer()
        body: Json = {"batch": self._pick(1, 1, 2, 3, 10)}
        style = self._random.random()
        if style < 0.5:
            body["no_wait"] = True
        elif style < 0.85:
            body["expires"] = self._pick(120_000_000, 250_000_000)
        elif style < 0.92:
            body |= {"no_wait": True, "expires": 150_000_000}
        options: dict[str, tuple[Any, ...]] = {
            "max_bytes": (1, 80, 150, 1000),
            "idle_heartbeat": (110_000_000, 50_000_000),
            "group": ("g", "h", ""),
            "min_pending": (1, 3),
            "min_ack_pending": (1, 2),
            "id": ("someone",),
            "priority": (0, 5, 11),
        }
        self._sprinkle(body, options, 0.04)
        config = self._consumers.get((stream, name), {})
        if config.get("priority_groups") and self._chance(0.8):
            body["group"] = "g"
        raw = json.dumps(body).encode()
        if (b"no_wait" not in raw and b"expires" not in raw) or style > 0.96:
            self._awaited.add((stream, name))
        if style > 0.96:
            raw = self._pick(b"", b"2", b"{", b"zz", b'{"batch":0}', b'{"batch":-3,"no_wait":true}')
        return Step("pull", f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{name}", raw, n=body["batch"])

    def _ack(self) -> Step:
        body = self._random.choices(
            [b"+ACK", b"", b"-NAK", b'-NAK {"delay":60000000000}', b"+WPI", b"+TERM why", b"+TERM",
             b"+NXT", b'+NXT {"batch":2,"no_wait":true}', b"nonsense", b"-NAK 60s", b"+OK"],
            [40, 10, 10, 5, 5, 5, 3, 3, 3, 1, 3, 2],
        )[0]  # fmt: skip
        return Step("ack", "", body, n=self._random.randrange(12))

    def _gather(self) -> Step:
        if self._chance(0.4):
            return Step("gather")
        group = self._pick("", "", "g")
        subject = self._pick("@.push.1", "@.push.2", "@.r.>")
        if group and subject in self._grouped:
            group = ""  # of two in a group either server picks one at random
        if group:
            self._grouped.add(subject)
        return Step("listen", subject, group.encode())

    def _odd(self) -> Step:
        stream, name = self._consumer()
        return self._pick(
            _ask(f"STREAM.LEADER.STEPDOWN.{stream}"),
            _ask(f"CONSUMER.LEADER.STEPDOWN.{stream}.{name}"),
            _ask(f"STREAM.PEER.REMOVE.{stream}", {"peer": "p"}),
            Step("ask", f"$JS.API.STREAM.CREATE.{stream}", b"{"),
            _ask(f"STREAM.INFO.{stream}", {"unknown": 1}),
            _ask(f"CONSUMER.INFO.{stream}.{name}", {"a": 1}),
            Step("ask", f"$JS.API.STREAM.INFO.{stream}", b"", (("Nats-Required-Api-Level", "9"),)),
            _ask(f"STREAM.CREATE.{stream}", {"name": "@other"}),
            _ask("STREAM.INFO.@none"),
            _ask(f"STREAM.SNAPSHOT.{stream}", {"deliver_subject": ""}),
        )


def _ask(operation: str, body: Json | None = None) -> Step:
    return Step("ask", f"$JS.API.{operation}", json.dumps(body).encode() if body else b"")
