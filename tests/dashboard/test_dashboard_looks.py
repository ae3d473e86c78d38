"""What each page looks like and for whom: scoped keys, accessibility, every size and theme.

Screenshots go to ``MILLSTREAM_SHOTS``, where somebody wants to look at them. ``MILLSTREAM_AXE`` may
name a copy of axe-core, which is no part of this project: then that checks every page too.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dashboard_site import Sight, Site, browser, furnish, needs_browser, sight
from page_actions import PAGES

from support.broker import millstream

pytestmark = [needs_browser, pytest.mark.slow, pytest.mark.timeout(180)]

SHOTS = os.environ.get("MILLSTREAM_SHOTS", "")
AXE = os.environ.get("MILLSTREAM_AXE", "")
LOOKS = [("light", 1440), ("dark", 1440), ("light", 390), ("dark", 390)]

CHECK = (Path(__file__).parent / "accessible.js").read_text()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with millstream() as peer:
        made = Site(f"http://127.0.0.1:{peer.http_port}", peer.url)
        furnish(made)
        yield made


@pytest.mark.parametrize(("scheme", "width"), LOOKS)
def test_every_page_is_accessible_and_fits(
    scheme: str, width: int, chromium: Any, site: Site
) -> None:
    found = []
    with sight(chromium, site, color_scheme=scheme, bypass_csp=bool(AXE)) as seen:
        seen.page.set_viewport_size({"width": width, "height": 900})
        for page in PAGES:
            seen.go(page)
            seen.page.wait_for_timeout(60)
            found += [f"{page}: {wrong}" for wrong in seen.page.evaluate(CHECK)]
            wider = seen.page.evaluate("document.documentElement.scrollWidth - innerWidth")
            if wider > 0:
                found.append(f"{page}: {wider} pixels too wide at {width}")
            if AXE:
                found += axe(seen, page)
            if SHOTS:
                seen.page.wait_for_timeout(1200)
                name = f"{page.replace('/', '_')}-{scheme}-{width}.png"
                seen.page.screenshot(path=str(Path(SHOTS) / name))
    assert found == []


def axe(seen: Sight, page: str) -> list[str]:
    seen.page.evaluate(Path(AXE).read_text() + ";0")
    found = seen.page.evaluate("axe.run()")["violations"]
    return [f"{page}: {each['id']} {each['nodes'][0]['html'][:120]}" for each in found]


def test_the_keyboard_alone_is_enough(chromium: Any, site: Site) -> None:
    with sight(chromium, site) as seen:
        seen.go("overview")
        seen.page.locator(".skip").focus()
        order = []
        for _ in range(6):
            seen.page.keyboard.press("Tab")
            order.append(seen.page.evaluate("document.activeElement.textContent.trim()"))
        assert order[:4] == ["millstream", "Overview", "Flow", "Connections"]
        link = seen.page.get_by_role("link", name="Streams", exact=True)
        link.focus()
        seen.page.keyboard.press("Enter")
        seen.page.get_by_role("button", name="New stream").focus()
        seen.page.keyboard.press("Enter")
        assert seen.page.evaluate("document.activeElement.tagName") == "INPUT"
        seen.page.keyboard.press("Escape")
        seen.page.locator("dialog").wait_for(state="detached")


# --- who sees what


@pytest.fixture(scope="module")
def guarded() -> Iterator[tuple[Site, str]]:
    """A server with an operator's key and one for some names; its site and the second key."""
    keys = "boss,part:read:jobs|KV_settings"
    before = os.environ.get("MILLSTREAM_API_KEYS")
    os.environ["MILLSTREAM_API_KEYS"] = keys
    try:
        with millstream() as peer:
            made = Site(f"http://127.0.0.1:{peer.http_port}", peer.url, "boss")
            furnish(made)
            yield made, "part"
    finally:
        if before is None:
            del os.environ["MILLSTREAM_API_KEYS"]
        else:
            os.environ["MILLSTREAM_API_KEYS"] = before


def log_in(seen: Sight, key: str) -> None:
    seen.page.goto(seen.site.url)
    seen.page.get_by_label("API key").fill(key)
    seen.page.get_by_role("button", name="Log in").click()


def test_a_key_of_some_names_sees_only_its_own_on_every_page(
    chromium: Any, guarded: tuple[Site, str]
) -> None:
    site, key = guarded
    with sight(chromium, site) as seen:
        log_in(seen, key)
        seen.page.locator(".who", has_text="env-").wait_for()
        for page in PAGES:
            if "ORDERS" in page or page.startswith(("objects/", "publish")):
                continue
            seen.go(page)
            seen.page.wait_for_timeout(60)
            shown = seen.page.locator("main").inner_text()
            if not page.startswith("api"):
                assert "ORDERS" not in shown, page
                assert "report.csv" not in shown, page
            for words in ("Delete", "Purge", "Pause", "New stream", "Replay", "Close"):
                assert seen.page.get_by_role("button", name=words, exact=True).count() == 0, page
        seen.wrong.clear()
        seen.page.goto(f"{site.url}/#/stream/ORDERS")
        seen.page.locator(".problem", has_text="may not touch ORDERS").wait_for()
        # The browser's console notes the refusal itself; nothing else may be there.
        assert all("403" in each for each in seen.wrong)
        seen.wrong.clear()
    for path in ("/connz", "/v0/access", "/varz"):
        assert site.call("GET", path, key=key)["error"]["code"] == "forbidden", path
    refused = site.call("POST", "/v0/publish", {"subject": "$JS.API.INFO"}, key)
    assert refused["error"]["code"] == "forbidden"


def test_without_a_credential_there_is_a_login_and_nothing_else(
    chromium: Any, guarded: tuple[Site, str]
) -> None:
    site, _ = guarded
    with sight(chromium, site) as seen:
        log_in(seen, "wrong")
        seen.sees("not known here")
        assert "ORDERS" not in seen.page.content()
        seen.wrong.clear()  # the browser notes each 401


def test_changes_are_in_the_audit_log_with_who_made_them(
    chromium: Any, guarded: tuple[Site, str]
) -> None:
    site, key = guarded
    site.call("PUT", "/v0/topics/audited", {"cap_records": 5})
    assert site.call("DELETE", "/v0/topics/jobs", key=key)["error"]["code"] == "forbidden"
    with sight(chromium, site) as seen:
        log_in(seen, "boss")
        seen.page.locator(".rail").wait_for()
        seen.go("audit")
        row = seen.page.locator("tr", has_text="/v0/topics/audited").first
        row.wait_for()
        assert "key:env-" in row.inner_text()
        assert '"cap_records": 5' in row.inner_text()
    found = site.call("POST", "/v0/topics/millstream-audit/browse", {"limit": 500})["records"]
    assert not any("boss" in each["text"] for each in found)
    gone = site.call("POST", "/v0/topics/millstream-audit/delete", {"before_seq": 9})
    assert gone["error"]["code"] == "forbidden" or "not permitted" in gone["error"]["message"]
