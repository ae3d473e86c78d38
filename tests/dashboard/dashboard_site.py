"""A server with something of everything on it, and a real browser to look at its page."""

import asyncio
import contextlib
import json
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from nats.js.api import ConsumerConfig, StreamConfig, StreamSource

import nats

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
playwright_api = pytest.importorskip(
    "playwright.sync_api", reason="no playwright: `pip install playwright`"
)
needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium: `scripts/bootstrap.sh browser` installs it on Debian"
)

HOSTILE = "<img src=x onerror=document.title='broken'><script>document.title='broken'</script>"
TURNED = "\u202e\u0007gnp.exe\u0000"


@dataclass
class Site:
    """Where a server is, with a client of its HTTP API that is not the page."""

    url: str
    nats_url: str
    key: str = ""

    def call(self, method: str, path: str, body: object = None, key: str = "") -> Any:
        """Send a request; returns what it answered, also where it refused."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, method=method, data=data)
        if data is not None:
            request.add_header("content-type", "application/json")
        if key or self.key:
            request.add_header("authorization", f"Bearer {key or self.key}")
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return json.load(error)

    def on_nats(self, work: Any) -> Any:
        """Run ``work(connection)`` as a client over NATS."""

        async def run() -> Any:
            connection = await nats.connect(self.nats_url, name="other-client")
            try:
                return await work(connection)
            finally:
                await connection.close()

        # The browser's driver keeps a loop in this thread.
        with ThreadPoolExecutor(1) as apart:
            return apart.submit(asyncio.run, run()).result()


def furnish(site: Site) -> None:
    """Have streams, consumers, buckets, objects, queues, routers and readers there."""
    site.on_nats(_over_nats)
    queue = {"type": "queue", "max_deliveries": 1, "dead_letter": "jobs-dead", "lease_ms": 60_000}
    site.call("PUT", "/v0/topics/jobs", queue)
    site.call("PUT", "/v0/routers/copies", {"source": "jobs", "dest": "jobs-copy"})
    site.call("POST", "/v0/topics/jobs", {"records": [{"data": {"job": n}} for n in range(6)]})
    for _ in range(2):  # the second claim finds the first two delivered once too often
        got = site.call("POST", "/v0/topics/jobs/claim", {"node": "w", "max": 2})["claimed"]
        seqs = [each["$seq"] for each in got]
        site.call("POST", "/v0/topics/jobs/nack", {"node": "w", "seqs": seqs})
    site.call("POST", "/v0/topics/ORDERS/hold", {"holder": "lake", "seq": 5, "seconds": 60})


async def _over_nats(connection: Any) -> None:
    js = connection.jetstream()
    await js.add_stream(name="ORDERS", subjects=["orders.>"])
    for n in range(40):
        order = {"id": n, "total": n * 10, "customer": {"email": "ann@example.org"}}
        await js.publish("orders.new", json.dumps(order).encode(), headers={"Nats-Msg-Id": str(n)})
    await js.publish("orders.hostile", HOSTILE.encode(), headers={"X-Evil": HOSTILE})
    await js.publish("orders.turned", TURNED.encode())
    packed = msgspec.msgpack.encode({"packed": True, "list": [1, 2, 3]})
    await js.publish("orders.packed", packed)
    await js.publish("orders.bytes", bytes(range(256)))
    for name in ("billing", "shipping"):
        await js.add_consumer("ORDERS", ConsumerConfig(durable_name=name, ack_policy="explicit"))
    mirror = StreamSource(name="ORDERS")
    await js.add_stream(StreamConfig(name="ORDERS-COPY", mirror=mirror))
    bucket = await js.create_key_value(bucket="settings", history=5)
    for key, value in (("theme", "dark"), ("theme", "light"), ("limit", "100")):
        await bucket.put(key, value.encode())
    store = await js.create_object_store(bucket="files")
    await store.put("report.csv", b"a,b\n1,2\n" * 100)


@dataclass
class Sight:
    """A browser's page, and everything that went wrong in it."""

    page: Any
    site: Site
    wrong: list[str] = field(default_factory=list)

    def go(self, where: str) -> None:
        """Open a page of the dashboard and wait until it shows what it has."""
        self.page.goto(f"{self.site.url}/#/{where}")
        self.page.wait_for_function(
            "where => location.hash === '#/' + where && document.querySelector('[data-ready]')",
            arg=where,
        )

    def sees(self, text: str) -> None:
        """Wait until a text is on the page."""
        self.page.get_by_text(text).first.wait_for()

    def toast(self, text: str) -> None:
        """Wait for the note about what was done."""
        self.page.locator(".toast", has_text=text).first.wait_for()


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """A Chromium without a window; it asks nothing of the network by itself."""
    with playwright_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=CHROMIUM,
            args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"],
        )
        try:
            yield started
        finally:
            started.close()


@contextlib.contextmanager
def sight(started: Any, site: Site, **how: Any) -> Iterator[Sight]:
    """A fresh page; a test that saw an error of the console fails when it ends."""
    context = started.new_context(viewport={"width": 1440, "height": 900}, **how)
    context.set_default_timeout(20_000)
    page = context.new_page()
    seen = Sight(page, site)
    page.on("pageerror", lambda error: seen.wrong.append(f"error: {error}"))
    page.on(
        "console",
        lambda message: (
            seen.wrong.append(f"console: {message.text}")
            if message.type in ("error", "warning")
            else None
        ),
    )
    try:
        yield seen
    finally:
        context.close()
    assert seen.wrong == []
