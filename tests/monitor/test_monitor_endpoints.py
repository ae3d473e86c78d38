"""The monitoring endpoints tell the truth, and turn red with the store."""

from typing import Any

import pytest
from monitor_facts import busy_server, facts, get, text

from millstream.accounts.account import Export, Import
from millstream.monitor.facts import AccountFacts
from millstream.monitor.machine import CpuMeter
from millstream.monitor.times import uptime
from millstream.wire.times import rfc3339


async def test_healthz_is_ok_with_version_and_uptime() -> None:
    assert await get(facts(), "/healthz") == (
        200,
        {"status": "ok", "version": "0.1.0", "uptime_ms": 61_000},
    )


async def test_healthz_turns_red_with_the_store() -> None:
    sick = facts(health=lambda: ["shard 0 is read-only: EIO"])
    status, body = await get(sick, "/healthz")
    assert (status, body["status"], body["error"]) == (
        503,
        "unavailable",
        "shard 0 is read-only: EIO",
    )


@pytest.mark.parametrize("query", ["stream=x", "consumer=x"])
async def test_healthz_of_a_part_needs_the_whole_it_belongs_to(query: str) -> None:
    status, body = await get(facts(), "/healthz", query)
    assert (status, body["status"]) == (400, "error")


async def test_healthz_lists_errors_where_details_are_wanted() -> None:
    status, body = await get(facts(health=lambda: ["disk full"]), "/healthz", "details=1")
    assert status == 503
    assert body["status"] == "error"
    assert body["errors"] == [{"type": "JETSTREAM", "error": "disk full"}]


async def test_varz_shows_identity_uptime_and_known_counters() -> None:
    counted = facts(traffic=lambda: {"connections": 3, "in_msgs": 7, "secret": 1})
    status, body = await get(counted, "/varz")
    assert status == 200
    assert body["server_name"] == "mill"
    assert body["version"] == "2.15.1"
    assert body["start"] == "2023-11-14T22:13:20Z"
    assert body["uptime"] == "1m1s"
    assert (body["connections"], body["in_msgs"], body["in_client_msgs"]) == (3, 7, 7)
    assert "secret" not in body
    assert isinstance(body["mem"], int)
    assert body["mem"] > 1_000_000


async def test_varz_leaves_out_what_is_not_set_and_counts_requests() -> None:
    asked = facts()
    _, first = await get(asked, "/varz")
    assert not {"auth_required", "tls_required", "tags", "connect_urls"} & set(first)
    await get(asked, "/connz")
    _, body = await get(asked, "/varz")
    assert body["http_req_stats"] == {"/connz": 1, "/varz": 2}
    assert body["jetstream"] == {}


async def test_varz_tells_stale_connections_from_other_endings() -> None:
    _, body = await get(busy_server(), "/varz")
    assert body["stale_connections"] == 1
    assert body["stale_connection_stats"]["clients"] == 1
    assert body["subscriptions"] == 4


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/connz", "subs=maybe"),
        ("/connz", "limit=x"),
        ("/connz", "cid=1e3"),
        ("/connz", "state=ajar"),
        ("/connz", "sort=size"),
        ("/connz", "sort=stop"),
        ("/connz", "sort=reason&state=all"),
        ("/subsz", "offset=%C2%B2"),
        ("/subsz", "test=a.*"),
        ("/subsz", "test=a..b"),
        ("/accountz", "acc=nobody"),
        ("/accstatz", "unused=2"),
        ("/routez", "subs=x"),
        ("/leafz", "subs=x"),
        ("/gatewayz", "accs=x"),
        ("/jsz", "raft=x"),
        ("/jsz", "limit=99999999999999999999"),
        ("/healthz", "details=x"),
        ("/metrics", "prefix=a-b"),
    ],
)
async def test_a_parameter_that_cannot_be_read_is_refused(path: str, query: str) -> None:
    status, body = await get(facts(), path, query)
    assert (status, body["error"]["code"]) == (400, "invalid_request")


async def test_links_that_do_not_exist_are_truly_empty() -> None:
    assert (await get(facts(), "/routez"))[1]["routes"] == []
    assert (await get(facts(), "/leafz"))[1]["leafs"] == []
    assert (await get(facts(), "/gatewayz"))[1]["outbound_gateways"] == {}
    assert (await get(facts(), "/jsz"))[1]["disabled"] is True


async def test_the_page_at_the_root_leads_everywhere() -> None:
    page = await text(facts(), "/")
    for path in ("varz", "connz", "subsz", "jsz", "accountz", "healthz", "metrics"):
        assert f'href="{path}"' in page


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0s"),
        (59, "59s"),
        (60, "1m0s"),
        (3600, "1h0m0s"),
        (90_061, "1d1h1m1s"),
        (365 * 86_400, "1y0d0h0m0s"),
    ],
)
def test_uptime_reads_as_nats_server_writes_it(seconds: int, shown: str) -> None:
    assert uptime(seconds * 1_000_000_000) == shown


@pytest.mark.parametrize(
    ("ns", "shown"),
    [(0, "1970-01-01T00:00:00Z"), (1_500_000_000, "1970-01-01T00:00:01.5Z")],
)
def test_times_have_as_many_digits_as_they_need(ns: int, shown: str) -> None:
    assert rfc3339(ns) == shown


def test_processor_use_is_measured_over_at_least_a_second() -> None:
    meter = CpuMeter(100.0, 5.0)
    assert meter.measure(100.5, 5.5) == 0.0
    assert meter.measure(102.0, 6.0) == 50.0
    assert meter.measure(102.5, 6.5) == 50.0


async def test_accountz_names_accounts_and_details_one() -> None:
    _, body = await get(busy_server(), "/accountz")
    assert (body["accounts"], body["system_account"]) == (["$G", "A", "$SYS"], "$SYS")
    _, body = await get(busy_server(), "/accountz", "acc=$SYS")
    detail: dict[str, Any] = body["account_detail"]
    assert (detail["is_system"], detail["jetstream_enabled"]) == (True, False)
    _, body = await get(busy_server(), "/accountz", "acc=A")
    detail = body["account_detail"]
    assert (detail["account_name"], detail["client_connections"]) == ("A", 1)


async def test_accstatz_shows_accounts_without_clients_only_if_asked() -> None:
    _, body = await get(busy_server(), "/accstatz")
    assert [each["acc"] for each in body["account_statz"]] == ["$G", "A"]
    _, body = await get(busy_server(), "/accstatz", "unused=1")
    assert len(body["account_statz"]) == 3


async def test_accountz_shows_what_accounts_share() -> None:
    shop = AccountFacts(
        "shop",
        label="The Shop",
        exports=(Export("prices.>"), Export("buy", service=True, accounts=("A",))),
        imports=(Import("A", "pay", service=True, to="shop.pay"),),
    )
    _, body = await get(facts(accounts=lambda: [shop]), "/accountz", "acc=shop")
    detail = body["account_detail"]
    assert detail["name_tag"] == "The Shop"
    assert detail["exports"] == [
        {"subject": "prices.>", "type": "stream"},
        {
            "subject": "buy",
            "type": "service",
            "response_type": "Singleton",
            "approved_accounts": ["A"],
        },
    ]
    assert detail["imports"] == [
        {
            "subject": "pay",
            "account": "A",
            "to": "shop.pay",
            "local_subject": "shop.pay",
            "type": "service",
            "invalid": False,
            "share": False,
            "tracking": False,
        }
    ]


async def test_varz_tells_http_from_https() -> None:
    _, plain = await get(facts(http_port=8222), "/varz")
    _, secure = await get(facts(http_port=8443, is_https=True), "/varz")
    assert (plain["http_port"], plain["https_port"]) == (8222, 0)
    assert (secure["http_port"], secure["https_port"]) == (0, 8443)
