"""What the page needs of the API: browse, messages, consumers, flow, connections."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from dashboard_site import Site, furnish

from support.broker import millstream


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with millstream() as peer:
        made = Site(f"http://127.0.0.1:{peer.http_port}", peer.url)
        furnish(made)
        yield made


def browse(site: Site, topic: str = "ORDERS", **wish: Any) -> Any:
    return site.call("POST", f"/v0/topics/{topic}/browse", wish)


def seqs(page: Any) -> list[int]:
    return [each["seq"] for each in page["records"]]


def test_pages_go_down_and_up_and_meet_all_of_it(site: Site) -> None:
    for order in ("newest", "oldest"):
        found, next_seq = list[int](), None
        while True:
            more = {} if next_seq is None else {"from_seq": next_seq}
            page = browse(site, order=order, limit=7, **more)
            found += seqs(page)
            next_seq = page["next_seq"]
            if next_seq is None:
                break
        assert sorted(found) == list(range(1, 45))
        assert found == sorted(found, reverse=order == "newest")


@pytest.mark.parametrize(
    ("wish", "found"),
    [
        ({"subject": "orders.packed"}, [43]),
        ({"subject": "orders.*", "text": "onerror"}, [41]),
        ({"header": {"name": "nats-msg-id", "value": "39"}}, [40]),
        ({"json": {"path": "$.id", "op": "gt", "value": 37}}, [40, 39]),
        ({"json": {"path": "$.customer.email", "op": "contains", "value": "@example"}}, None),
        ({"json": {"path": "id", "value": 3}}, [4]),
        ({"until": 1}, []),
        ({"order": "oldest", "from_seq": 44}, [44]),
        ({"text": "nothing like it"}, []),
    ],
)
def test_a_search_finds_what_matches(site: Site, wish: Any, found: list[int] | None) -> None:
    page = browse(site, limit=50, **wish)
    assert seqs(page) == (list(range(40, 0, -1)) if found is None else found)
    assert page["next_seq"] is None


def test_a_look_that_takes_long_ends_and_goes_on_where_it_was(site: Site) -> None:
    first = browse(site, text="nothing like it", max_scan=10)
    assert (first["records"], first["scanned"]) == ([], 10)
    rest = browse(site, text="nothing like it", from_seq=first["next_seq"])
    assert first["scanned"] + rest["scanned"] == rest["last_seq"]


def test_a_payload_is_shown_as_it_is_and_cut_where_asked(site: Site) -> None:
    (whole,) = browse(site, subject="orders.bytes")["records"]
    assert base64.b64decode(whole["base64"]) == bytes(range(256))
    (cut,) = browse(site, subject="orders.hostile", preview_bytes=5)["records"]
    assert (cut["text"], cut["cut"]) == ("<img ", True)


def test_the_newest_of_each_subject_is_what_a_bucket_shows(site: Site) -> None:
    page = browse(site, "KV_settings", last_per_subject=True)
    assert {each["subject"]: each["text"] for each in page["records"]} == {
        "$KV.settings.theme": "light",
        "$KV.settings.limit": "100",
    }


@pytest.mark.parametrize(
    "wish",
    [
        {"subject": "a..b"},
        {"json": {"path": "$..x"}},
        {"json": {"path": "x", "op": "like"}},
        {"from_seq": -1},
        {"order": "random"},
    ],
)
def test_a_search_that_makes_no_sense_is_refused(site: Site, wish: Any) -> None:
    assert browse(site, **wish)["error"]["code"] == "invalid_request"


def test_a_message_is_published_and_acked(site: Site) -> None:
    body = {"subject": "orders.http", "data": {"a": 1}, "headers": {"A": ["1", "2"]}, "ack": True}
    ack = site.call("POST", "/v0/publish", body)["ack"]
    (stored,) = browse(site, subject="orders.http")["records"]
    assert (stored["seq"], json.loads(stored["text"])) == (ack["seq"], {"a": 1})
    assert stored["headers"] == [["A", "1"], ["A", "2"]]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"subject": "nobody.here", "ack": True}, "no_responders"),
        ({"subject": "a.*"}, "invalid_request"),
        ({"subject": "a", "text": "x", "base64": "eA=="}, "invalid_request"),
        ({"subject": "a", "base64": "!"}, "invalid_request"),
        ({"subject": "a", "headers": {"A": "b\r\nC: d"}}, "invalid_request"),
        ({"subject": "a", "headers": {"A:": "b"}}, "invalid_request"),
        ({"subject": "a", "text": "x" * 2_000_000}, "invalid_request"),
    ],
)
def test_what_cannot_be_published_is_refused(site: Site, body: Any, code: str) -> None:
    assert site.call("POST", "/v0/publish", body)["error"]["code"] == code


def test_a_request_returns_what_others_answer(site: Site) -> None:
    said = site.call("POST", "/v0/request", {"subject": "$JS.API.STREAM.NAMES"})
    assert "ORDERS" in json.loads(said["replies"][0]["text"])["streams"]
    silent = {"subject": "_INBOX.x", "timeout_ms": 20}
    assert site.call("POST", "/v0/request", silent)["error"]["code"] == "no_responders"


def test_a_consumer_lives_its_life_over_http(site: Site) -> None:
    at = "/v0/topics/ORDERS/consumers/short-lived"
    made = site.call("PUT", at, {"filter_subject": "orders.new"})
    assert (made["num_pending"], made["reason"]) == (40, "nobody_pulls")
    assert site.call("POST", f"{at}/pause", {"seconds": 60})["paused"] is True
    assert "paused" not in site.call("POST", f"{at}/pause", {"seconds": 0})
    assert site.call("POST", f"{at}/reset", {"seq": 31})["num_pending"] == 10
    listed = site.call("GET", "/v0/topics/ORDERS/consumers")["consumers"]
    assert "short-lived" in [each["name"] for each in listed]
    assert site.call("DELETE", at)["deleted"] is True
    assert "error" in site.call("GET", at)


@pytest.mark.parametrize("config", [{"ack_policy": "loud"}, {"nonsense": 1}, {"ack_wait": "long"}])
def test_a_consumer_that_makes_no_sense_is_refused(site: Site, config: Any) -> None:
    answer = site.call("PUT", "/v0/topics/ORDERS/consumers/odd", config)
    assert answer["error"]["code"] == "invalid_request"


def test_all_consumers_come_in_pages(site: Site) -> None:
    first = site.call("GET", "/v0/consumers?page_size=1")
    second = site.call("GET", f"/v0/consumers?page_size=5&cursor={first['next_cursor']}")
    names = [each["name"] for each in first["consumers"] + second["consumers"]]
    assert names == ["billing", "lake", "shipping"]


def test_the_flow_shows_every_way(site: Site) -> None:
    edges = site.call("GET", "/v0/flow")["edges"]
    assert {(each["kind"], each["from"], each["to"]) for each in edges} == {
        ("router", "jobs", "jobs-copy"),
        ("mirror", "ORDERS", "ORDERS-COPY"),
        ("dead letters", "jobs", "jobs-dead"),
    }
    (reader,) = site.call("GET", "/v0/pipelines")["readers"]
    assert (reader["name"], reader["reader"]) == ("lake", "spark")


def test_only_a_connection_that_is_there_can_be_closed(site: Site) -> None:
    assert site.call("DELETE", "/connz/99999")["error"]["code"] == "not_found"
    assert site.call("DELETE", "/connz/x")["error"]["code"] == "invalid_request"
