"""/healthz by nats-server's rules, with the version and the uptime beside."""

from typing import TYPE_CHECKING, Any

import msgspec

from millstream import __version__
from millstream.monitor import parameters
from millstream.monitor.facts import Facts, JetStreamAccount
from millstream.monitor.parameters import Query

if TYPE_CHECKING:
    from millstream.streams.stream import Stream


class HealthQuery(msgspec.Struct, frozen=True):
    """What to look at: the server alone, or one account, stream or consumer."""

    server_only: bool = False
    enabled_only: bool = False
    account: str = ""
    stream: str = ""
    consumer: str = ""
    details: bool = False

    @classmethod
    def of(cls, query: Query) -> "HealthQuery":
        """Read an HTTP query."""
        parameters.flag(query, "js-meta-only")  # there is no meta group to look at
        old_name = parameters.flag(query, "js-enabled")
        return cls(
            server_only=parameters.flag(query, "js-server-only"),
            enabled_only=parameters.flag(query, "js-enabled-only") or old_name,
            account=query.get("account", ""),
            stream=query.get("stream", ""),
            consumer=query.get("consumer", ""),
            details=parameters.flag(query, "details"),
        )


class Problem(msgspec.Struct, frozen=True):
    """Something that is wrong: the HTTP status it means, nats-server's words for it."""

    code: int
    status: str
    type: str
    error: str


def describe(facts: Facts, options: HealthQuery) -> tuple[int, dict[str, Any]]:
    """Return the HTTP status and the object that /healthz answers."""
    problem = find_problem(facts, options)
    answer: dict[str, Any] = {"status": "ok" if problem is None else problem.status}
    if problem is not None and options.details:
        answer = {"status": "error", "errors": [_detail(problem, options)]}
    elif problem is not None:
        answer["error"] = problem.error
    answer["version"] = __version__
    answer["uptime_ms"] = (facts.clock.time_ns() - facts.started_ns) // 1_000_000
    return 200 if problem is None else problem.code, answer


def find_problem(facts: Facts, options: HealthQuery) -> Problem | None:
    """Return the first thing that is wrong with what was asked about."""
    if options.stream and not options.account:
        return _unclear('"account" must not be empty when checking stream health')
    if options.consumer and not options.stream:
        return _unclear('"stream" must not be empty when checking consumer health')
    problems = facts.health()
    if problems:
        return Problem(503, "unavailable", "JETSTREAM", "; ".join(problems))
    if options.server_only or options.enabled_only or facts.jetstream is None:
        return None
    return _find_missing(facts.jetstream.accounts(), options)


def _find_missing(accounts: Any, options: HealthQuery) -> Problem | None:
    if not options.account:
        return None
    account: JetStreamAccount | None = None
    account = next((a for a in accounts if a.account == options.account), None)
    if account is None:
        return _missing("ACCOUNT", f'JetStream account "{options.account}" not found')
    if not options.stream:
        return None
    place = f'on account "{options.account}"'
    stream: Stream | None = None
    stream = next((s for s in account.streams() if s.name == options.stream), None)
    if stream is None:
        return _missing("STREAM", f'JetStream stream "{options.stream}" not found {place}')
    names = [consumer.name for consumer in account.consumers.of(stream)]
    if options.consumer and options.consumer not in names:
        what = f'"{options.consumer}" not found for stream "{options.stream}" {place}'
        return _missing("CONSUMER", f"JetStream consumer {what}")
    return None


def _unclear(error: str) -> Problem:
    return Problem(400, "error", "BAD_REQUEST", error)


def _missing(kind: str, error: str) -> Problem:
    return Problem(404, "unavailable", kind, error)


def _detail(problem: Problem, options: HealthQuery) -> dict[str, str]:
    shown = {"type": problem.type}
    for name in ("account", "stream", "consumer"):
        value = getattr(options, name)
        if value and problem.type != "BAD_REQUEST":
            shown[name] = value
    return {**shown, "error": problem.error}
