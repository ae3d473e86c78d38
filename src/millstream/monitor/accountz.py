"""/accountz and /accstatz: the accounts, and what each of them moves."""

from typing import Any

from millstream.accounts.account import GLOBAL_ACCOUNT, Export, Import, ResponseType
from millstream.errors import BadRequest
from millstream.monitor.facts import AccountFacts, Facts
from millstream.monitor.subsz import interest_stats
from millstream.wire.times import rfc3339

_RESPONSES = {
    ResponseType.SINGLETON: "Singleton",
    ResponseType.STREAM: "Streamed",
    ResponseType.CHUNKED: "Chunked",
}

# What the system account offers to everybody.
_SYSTEM_EXPORTS = (
    Export("$JS.API.>", service=True),
    Export("$SYS.DEBUG.SUBSCRIBERS", service=True),
    Export("$SYS.REQ.USER.*.INFO", service=True),
    Export("$SYS.REQ.ACCOUNT.*.CONNZ", service=True, response_type=ResponseType.STREAM),
    Export("$SYS.REQ.ACCOUNT.*.STATZ", service=True, response_type=ResponseType.STREAM),
)


def describe(facts: Facts, account: str = "") -> dict[str, Any]:
    """Return the object that /accountz answers: all names, or one account in detail."""
    accounts = {each.name: each for each in facts.accounts()}
    shown: dict[str, Any] = {
        "server_id": facts.server_id,
        "now": rfc3339(facts.clock.time_ns()),
    }
    if facts.system_account:
        shown["system_account"] = facts.system_account
    if not account:
        return {**shown, "accounts": list(accounts)}
    if account not in accounts:
        raise BadRequest(f"Account {account} does not exist")
    return {**shown, "account_detail": _detail(facts, accounts[account])}


def _detail(facts: Facts, account: AccountFacts) -> dict[str, Any]:
    clients = sum(c.account == account.name for c in facts.connections())
    shown: dict[str, Any] = {
        "account_name": account.name,
        "update_time": rfc3339(facts.started_ns),
    }
    if account.is_system:
        shown["is_system"] = True
    return {
        **shown,
        "expired": False,
        "complete": True,
        "jetstream_enabled": account.has_jetstream and facts.jetstream is not None,
        "leafnode_connections": 0,
        "client_connections": clients,
        "subscriptions": account.interest.get("num_subscriptions", 0),
        **_shared(facts, account),
        "name_tag": account.label or account.name,
        "sublist_stats": interest_stats([account.interest]),
    }


def _shared(facts: Facts, account: AccountFacts) -> dict[str, Any]:
    """Return what the account offers to others and takes from them, where it does."""
    shown: dict[str, Any] = {}
    if account.mappings:
        shown["mappings"] = {
            mapping.source: [
                {"subject": to.subject, "weight": to.weight} for to in mapping.destinations
            ]
            for mapping in account.mappings
        }
    exports = [*account.exports, *(_SYSTEM_EXPORTS if account.is_system else ())]
    if exports:
        shown["exports"] = [_export(each) for each in exports]
    imports = [*account.imports, *_built_in(facts.system_account, account)]
    if imports:
        shown["imports"] = [_import(each) for each in imports]
    return shown


def _built_in(system: str, account: AccountFacts) -> list[Import]:
    """Return what every account takes from the system account, as the reference lists it."""
    if not system:
        return []
    user = Import(
        system, f"$SYS.REQ.USER.{account.name}.INFO", True, "$SYS.REQ.USER.INFO", share=True
    )
    if account.is_system:
        return [user]
    asked = (("ACCOUNT", "CONNZ"), ("SERVER", "CONNZ"), ("ACCOUNT", "STATZ"))
    taken = [
        Import(
            system, f"$SYS.REQ.ACCOUNT.{account.name}.{what}", True, f"$SYS.REQ.{who}.PING.{what}"
        )
        for who, what in asked
    ]
    if account.has_jetstream or account.name == GLOBAL_ACCOUNT:
        taken.append(Import(system, "$JS.API.>", True, "$JS.API.>", share=True))
    return [*taken, user]


def _export(export: Export) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "subject": export.subject,
        "type": "service" if export.service else "stream",
    }
    if export.service:
        shown["response_type"] = _RESPONSES[export.response_type]
        if export.latency is not None:
            told = export.latency
            shown["latency"] = {"sampling": told.sampling, "results": told.subject}
    if export.accounts is not None:
        shown["approved_accounts"] = list(export.accounts)
    return shown


def _import(wanted: Import) -> dict[str, Any]:
    return {
        "subject": wanted.subject,
        "account": wanted.account,
        **({"to": wanted.local} if wanted.service else {}),
        "local_subject": wanted.local,
        "type": "service" if wanted.service else "stream",
        "invalid": False,
        "share": wanted.share,
        "tracking": False,
    }


def describe_statistics(facts: Facts, unused: bool = False) -> dict[str, Any]:
    """Return the object that /accstatz answers; accounts without clients only if asked."""
    figures = [account.figures() for account in facts.accounts()]
    return {
        "server_id": facts.server_id,
        "now": rfc3339(facts.clock.time_ns()),
        "account_statz": [each for each in figures if each["conns"] or unused],
    }
