"""Each action of each page, done in a real browser, and its effect seen by another client."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dashboard_site import HOSTILE, Sight, Site, browser, furnish, needs_browser, sight
from page_actions import ACTIONS, PAGES, Action

import nats
from support.broker import millstream
from support.peers import free_port
from support.waiting import until

pytestmark = [needs_browser, pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with millstream() as peer:
        made = Site(f"http://127.0.0.1:{peer.http_port}", peer.url)
        furnish(made)
        for name in ("to-edit", "to-purge", "to-delete"):
            made.call("POST", f"/v0/topics/{name}", {"records": [{"data": 1}]})
        yield made


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as started:
        yield started


@pytest.fixture
def seen(chromium: Any, site: Site) -> Iterator[Sight]:
    with sight(chromium, site) as made:
        yield made


class Guest:
    """A client that stays connected until somebody sends it away."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._here = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._stay()))

    def __enter__(self) -> "Guest":
        self._thread.start()
        assert self._here.wait(20)
        return self

    def __exit__(self, *exc: object) -> None:
        self._thread.join(30)

    async def _stay(self) -> None:
        gone = asyncio.Event()

        async def left() -> None:
            gone.set()

        await nats.connect(self._url, name="to-be-closed", allow_reconnect=False, closed_cb=left)
        self._here.set()
        await asyncio.wait_for(gone.wait(), 60)


@pytest.mark.parametrize("action", ACTIONS, ids=lambda a: f"{a.page}: {a.name}")
def test_an_action_is_done_and_another_client_sees_its_effect(
    action: Action, seen: Sight, site: Site
) -> None:
    if action.name == "close":
        with Guest(site.nats_url):
            seen.go(action.page)
            action.do(seen)
    else:
        seen.go(action.page)
        action.do(seen)
    until(lambda: action.effect(site))


def test_every_page_has_an_action_or_only_shows() -> None:
    shows = {"overview", "flow", "pipelines", "access", "audit"}
    acted = {action.page.split("/")[0] for action in ACTIONS}
    assert {page.split("/")[0] for page in PAGES} == acted | shows


def test_a_message_published_elsewhere_shows_up_by_itself(seen: Sight, site: Site) -> None:
    seen.go("stream/ORDERS")
    seen.page.locator(".messages li").first.wait_for()

    async def publish(connection: Any) -> None:
        await connection.jetstream().publish("orders.elsewhere", b"from elsewhere")

    site.on_nats(publish)
    seen.page.locator(".messages li", has_text="orders.elsewhere").wait_for()


def test_hostile_content_is_text_on_every_page_that_shows_it(seen: Sight, site: Site) -> None:
    site.call("PUT", "/v0/topics/%3Cimg%20src=x%20onerror=document.title=1%3E", {})
    site.call("POST", "/v0/publish", {"subject": "$KV.settings.evil", "text": HOSTILE, "ack": True})
    big = {"subject": "orders.big", "text": '{"a":"' + "<b>" * 300_000 + '"}', "ack": True}
    site.call("POST", "/v0/publish", big)
    for page in ("stream/ORDERS", "kv/settings", "kv/settings/evil", "streams", "overview"):
        seen.go(page)
        seen.page.wait_for_timeout(50)
        assert seen.page.locator("main script, main img, main b").count() == 0, page
        assert "broken" not in seen.page.title()
    seen.go("stream/ORDERS")
    seen.page.locator(".messages li", has_text="orders.hostile").locator("button.line").click()
    seen.page.locator(".payload", has_text="<script>").wait_for()
    seen.page.locator("dd", has_text="onerror=").first.wait_for()
    turned = seen.page.locator(".messages li", has_text="orders.turned")
    turned.locator("button.line").click()
    seen.page.locator(".payload", has_text="\\u202e").wait_for()
    assert seen.page.locator("main script, main img").count() == 0


def test_a_leafnode_shows_up_in_the_flow_with_what_it_carries(
    chromium: Any, tmp_path: Path
) -> None:
    port = free_port()
    hub = tmp_path / "hub.conf"
    hub.write_text(f'server_name: hub\nleafnodes {{ listen: "127.0.0.1:{port}" }}\n')
    edge = tmp_path / "edge.conf"
    remote = f'{{ url: "nats-leaf://127.0.0.1:{port}" }}'
    edge.write_text(f"server_name: edge\nleafnodes {{ remotes: [ {remote} ] }}\n")
    with (
        millstream(extra=["-c", str(hub)]) as peer,
        millstream(extra=["-c", str(edge)]) as other,
    ):
        site = Site(f"http://127.0.0.1:{peer.http_port}", peer.url)
        until(lambda: site.call("GET", "/leafz")["leafnodes"] == 1)
        far = Site(f"http://127.0.0.1:{other.http_port}", other.url)

        async def chatter(connection: Any) -> None:
            here = await nats.connect(site.nats_url)
            await here.subscribe("talk")
            await here.flush()
            for _ in range(2000):
                if site.call("GET", "/leafz")["leafs"][0]["in_msgs"] >= 20:
                    break
                await connection.publish("talk", b"x")
                await connection.flush()
            await here.close()

        with sight(chromium, site) as seen:
            seen.go("flow")
            far.on_nats(chatter)
            row = seen.page.locator("tr", has_text="edge").filter(has_text="link").nth(1)
            row.wait_for()
            until(lambda: int(row.locator("td").last.inner_text().replace(",", "")) >= 20)


def test_ten_megabytes_of_json_are_shown_as_far_as_they_go(chromium: Any) -> None:
    item = '{"id":12345,"html":"<b>x</b>","deep":[[[[1]]]]},'
    big = "[" + item * (10_000_000 // len(item)) + "1]"
    with millstream(extra=["--max-payload", str(16 << 20)]) as peer:
        site = Site(f"http://127.0.0.1:{peer.http_port}", peer.url)

        async def publish(connection: Any) -> None:
            await connection.jetstream().add_stream(name="BIG", subjects=["big.>"])
            await connection.jetstream().publish("big.json", big.encode(), timeout=30)

        site.on_nats(publish)
        with sight(chromium, site) as seen:
            seen.go("stream/BIG")
            seen.page.locator(".messages li", has_text="big.json").locator("button.line").click()
            seen.page.locator(".notice", has_text="Only the first 8 MiB are shown").wait_for()
            seen.page.locator(".payload", has_text="<b>x</b>").wait_for()
            assert seen.page.locator("main b").count() == 0
            seen.go("overview")  # and the page still answers


def test_the_page_comes_with_a_strict_policy_and_is_not_sent_twice(site: Site) -> None:
    import urllib.request

    with urllib.request.urlopen(site.url + "/") as answer:
        policy, tag = answer.headers["Content-Security-Policy"], answer.headers["ETag"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    again = urllib.request.Request(site.url + "/", headers={"If-None-Match": tag})
    with pytest.raises(urllib.error.HTTPError, match="304"):
        urllib.request.urlopen(again)
