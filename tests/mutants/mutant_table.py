"""Mutants of the source: a line changed for the worse, and the tests that must notice.

Each is a fault that a hurried change could make; many are faults that this project or its models
once had. ``test_mutants.py`` plants them one by one in a copy of the source.
"""

from typing import NamedTuple


class Mutant(NamedTuple):
    """One change: in ``file``, below ``src/millstream``, ``before`` becomes ``after``."""

    name: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]


MUTANTS = (
    Mutant(
        "two records of one key are out",
        "delivery/key_lanes.py",
        "return not key or key not in self._holders",
        "return True",
        ("tests/delivery/test_delivery_key_lanes.py", "tests/queues/test_queues_keys.py"),
    ),
    Mutant(
        "a record is answered before its letter is kept",
        "consumers/ledger.py",
        "if self.policy.keeps_letters:",
        "if False:",
        ("tests/consumers/test_consumers_letters.py",),
    ),
    Mutant(
        "a wildcard in what is published matches",
        "subjects/subject.py",
        "return not has_wildcard(literal) and is_subset(literal, pattern)",
        "return is_subset(literal, pattern)",
        ("tests/subjects",),
    ),
    Mutant(
        "> matches no token at all",
        "subjects/subject.py",
        "        if ours is None:\n            return False\n        if theirs",
        "        if ours is None and theirs != '>':\n            return False\n        if theirs",
        ("tests/subjects",),
    ),
    Mutant(
        "a queue name overrides a deny",
        "accounts/permissions.py",
        "return self._plain.covers(subject) or (bool(queue) and self._names(subject, queue))",
        "return self._names(subject, queue) if queue else self._plain.covers(subject)",
        ("tests/accounts", "tests/nats/test_nats_permissions.py"),
    ),
    Mutant(
        "leave to answer never ends",
        "accounts/permissions.py",
        "if left == 0 or (self._granted.seconds >= 0 and now >= until):",
        "if left == 0:",
        ("tests/accounts",),
    ),
    Mutant(
        "a piece of a backup is not checked",
        "backup/moment.py",
        "if piece_name(data) != name:",
        "if not data:",
        ("tests/backup/test_backup_files.py",),
    ),
    Mutant(
        "a moment's list of files is not checked",
        "backup/moment.py",
        'if sealed.check != f"{xxh3_64_intdigest(body):016x}":',
        "if not sealed.check:",
        ("tests/backup/test_backup_files.py",),
    ),
    Mutant(
        "health is green while the store is not",
        "monitor/health.py",
        "    if problems:\n",
        "    if problems and options.details:\n",
        ("tests/monitor/test_monitor_endpoints.py", "tests/server/test_server_ended_threads.py"),
    ),
    Mutant(
        "a missing consumer is healthy",
        "monitor/health.py",
        "if options.consumer and options.consumer not in names:",
        "if options.consumer and not names:",
        ("tests/monitor/test_monitor_health.py",),
    ),
    Mutant(
        "a lease ends a moment early",
        "queues/leases.py",
        "self._deadlines[0][0] < now_ms:",
        "self._deadlines[0][0] <= now_ms:",
        ("tests/queues/test_queues_leases.py",),
    ),
    Mutant(
        "a stale deadline ends a lease that was extended",
        "queues/leases.py",
        "return lease is not None and lease.deadline_ms == deadline_ms",
        "return lease is not None",
        ("tests/queues/test_queues_leases.py",),
    ),
    Mutant(
        "a router copies what the destination holds",
        "routers/choice.py",
        "            if is_held(seq):\n",
        "            if is_held(seq) and made.known:\n",
        ("tests/routers/test_routers_choice.py", "tests/routers/test_routers_forwarding.py"),
    ),
    Mutant(
        "a router passes over a loss of the source",
        "routers/choice.py",
        "if gap.reason != VOID and gap.first <= cursor + 1 <= gap.last:",
        "if gap.reason != VOID and gap.first < cursor + 1 <= gap.last:",
        ("tests/routers/test_routers_choice.py", "tests/routers/test_routers_forwarding.py"),
    ),
    Mutant(
        "what waits never rises",
        "delivery/priority.py",
        "return round(priority + AGE_PER_MS * min(waited_ms, OLDEST_MS))",
        "return priority",
        ("tests/delivery/test_delivery_priority.py",),
    ),
    Mutant(
        "a priority has no bounds",
        "delivery/priority.py",
        "return max(LOWEST, min(HIGHEST, manual))",
        "return manual",
        ("tests/delivery/test_delivery_priority.py",),
    ),
    Mutant(
        "a redelivery waits twice",
        "consumers/ledger.py",
        "        if seq not in self._members:\n            self._tickets += 1",
        "        if seq:\n            self._tickets += 1",
        ("tests/consumers/test_consumers_ledger.py",),
    ),
    Mutant(
        "a redelivery that was called off comes all the same",
        "consumers/ledger.py",
        "        self._members.pop(seq, None)\n\n    def pop",
        "        self._members.get(seq, None)\n\n    def pop",
        ("tests/consumers/test_consumers_ledger.py",),
    ),
    Mutant(
        "the client trusts a message's end",
        "client/parser.py",
        'if self._buffer[end : end + 2] != b"\\r\\n":',
        "if end < 0:",
        ("tests/client/test_client_parser.py",),
    ),
    Mutant(
        "a follower gives up while the server restarts",
        "client/patience.py",
        "return error.status in (429, 503)",
        "return error.status == 429",
        ("tests/client/test_client_restart.py", "tests/client/test_client_worker.py"),
    ),
    Mutant(
        "Spark takes a loss for harmless",
        "spark/reading/planner.py",
        'HARMLESS = frozenset({"void", "delete"})',
        'HARMLESS = frozenset({"void", "delete", "unsynced"})',
        ("tests/spark/test_spark_planner.py", "tests/spark/test_spark_reader.py"),
    ),
    Mutant(
        "Spark reads what lies between two files from nowhere",
        "spark/reading/planner.py",
        "            ranges += _server(position, before, max_records)\n",
        "",
        ("tests/spark/test_spark_planner.py",),
    ),
    Mutant(
        "an idempotency key is forgotten at once",
        "topics/limits/idempotency.py",
        "return written if when >= now_ns - self.window_ns else None",
        "return written if when >= now_ns else None",
        (
            "tests/topics/test_topics_write.py",
            "tests/topics/test_topics_contract_02_conventions.py",
        ),
    ),
    Mutant(
        "wrong keys are answered at once, always",
        "topics/limits/guesses.py",
        "return max(left - FREE * INTERVAL, 0.0)",
        "return 0.0",
        ("tests/topics/test_topics_guesses.py",),
    ),
    Mutant(
        "the log is taken over without a second look at its floor",
        "store/object_log/take_over.py",
        "    return now.floor < epoch\n",
        "    return True\n",
        ("tests/store/test_store_object_log.py",),
    ),
    Mutant(
        "an object's signature is not checked",
        "store/object_log/entry.py",
        "if not hmac.compare_digest(self._mac(data[:_SIGNED], body), mac):",
        "if not mac:",
        ("tests/store/test_store_object_log.py",),
    ),
)
