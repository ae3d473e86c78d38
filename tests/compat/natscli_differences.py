"""Compares what natscli said of two servers; ids, times, sizes of processes and speeds differ."""

import json
import re
from typing import Any

MASKS = [
    (re.compile(r"\d{4}-\d\d-\d\d[T ][\d:.]+Z?( \+0000 UTC)?"), "TIME"),
    (re.compile(r"\b[\d.]+(µs|ms|s|m|h|ns)\b"), "DURATION"),
    (re.compile(r"\d\d:\d\d:\d\d"), "CLOCK"),
    (re.compile(r"\b[A-Z0-9]{50,}\b"), "ID"),
    (re.compile(r"_INBOX\.[A-Za-z0-9.]+"), "INBOX"),
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"Client ID: \d+"), "Client ID"),
    (re.compile(r"Received [\d.]+ \w+ compressed.*"), "RECEIVED"),
    (re.compile(r"stats: .*"), "SPEED"),
    (re.compile(r"[ \t─━═╭╮╰╯┬┴┼│├┤]+"), " "),
]
# Of this process, of this moment, or the reference's own: equal values would be chance.
CHANGING = frozenset(
    b"""id server_id host pid rtt uptime cid port ip cpu mem now start last_activity leader seq time
    http_port in_msgs out_msgs in_bytes out_bytes in_client_msgs in_client_bytes out_client_msgs
    out_client_bytes subscriptions num_subscriptions sublist_stats pending_bytes active lag
    config_load_time go git_commit gomaxprocs disk_io_wait_stats millstream store_dir sync_always
    sync_interval max_memory max_storage total errors http_req_stats perf_data uptime_ms version
    num_cache num_inserts num_removes num_matches cache_hits cache_hit_rate max_fanout avg_fanout
    subscriptions_list account_tag account total_connections slow_consumers cores stalled_clients
    active_accounts sent received S1 pause_remaining config_digest""".decode().split()
)
UNORDERED = ("accounts", "imports", "exports")
# Commands whose text or object differs, and why.
EXCUSED = {
    r"stream (add|info) (MIRROR|SOURCED|DRAIN)": "the reference begins to copy a second later",
    r"server (info|ls 1|report (connections|accounts|jetstream|cpu|mem)|check server)": (
        "figures of the process and of its traffic"
    ),
    r"server request subscriptions": "the server's own subscriptions are counted, not listed",
    r"account report (statistics|connections)": "figures of the moment",
    r"server request jetstream --(streams|consumer|all)": "the reference lists in no order",
    r"^stream info WORK": "the reference begins to draw a second later",
    r"^(rtt|bench|server ping|server check (connection|message|jetstream))": "times",
    r"stream info OBJ_OBJ": "a consumer that is just going is still counted",
}


def masked(value: Any, key: str = "") -> Any:
    """Return a JSON value without what changes from run to run."""
    if key in CHANGING:
        return None
    if isinstance(value, dict):
        kept = {name: masked(one, name) for name, one in value.items()}
        return {name: one for name, one in kept.items() if one is not None}
    if isinstance(value, list):
        listed = [masked(one, key) for one in value]
        return sorted(listed, key=json.dumps) if key in UNORDERED else listed
    return plain(value) if isinstance(value, str) else value


def plain(text: str) -> str:
    """Return a text without what changes from run to run."""
    for pattern, word in MASKS:
        text = pattern.sub(word, text)
    return text.strip()


def excuse(command: str) -> str:
    """Return why what is said of a command may differ, "" when it may not."""
    return next((why for pattern, why in EXCUSED.items() if re.search(pattern, command)), "")


def difference(ours: tuple[int, str], theirs: tuple[int, str], command: str) -> str:
    """Return how two answers differ, "" when they agree; the exit code is never excused."""
    if ours[0] != theirs[0]:
        return f"exit code {ours[0]}, not {theirs[0]}: {ours[1][-300:]}"
    if excuse(command):
        return ""
    try:
        said, wanted = masked(json.loads(ours[1])), masked(json.loads(theirs[1]))
    except ValueError:
        said, wanted = (sorted(plain(text).splitlines()) for text in (ours[1], theirs[1]))
    return "; ".join(_unlike(said, wanted, ""))


def _unlike(said: Any, wanted: Any, path: str) -> list[str]:
    """Return the places where two values differ."""
    if isinstance(said, dict) and isinstance(wanted, dict):
        names = sorted({*said, *wanted})
        pairs = [(said.get(name), wanted.get(name), f"{path}.{name}") for name in names]
    elif isinstance(said, list) and isinstance(wanted, list) and len(said) == len(wanted):
        both = enumerate(zip(said, wanted, strict=True))
        pairs = [(a, b, f"{path}[{at}]") for at, (a, b) in both]
    else:
        return [] if said == wanted else [f"{path} is {said!s:.200}, not {wanted!s:.200}"]
    return [text for a, b, place in pairs for text in _unlike(a, b, place)]
