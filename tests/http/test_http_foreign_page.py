"""A real browser with a page of another site open: it can neither read nor write here."""

import contextlib
import http.server
import json
import os
import queue
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.client.topics import Topics
from support.broker import millstream

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None, reason="no chromium: `scripts/bootstrap.sh browser` installs it on Debian"
    ),
]

PAGE = """<!doctype html><body><script>
const at = "SERVER", told = {};
const write = JSON.stringify({records: [{data: "forged"}]});
async function attempt(name, make) {
  try { told[name] = await make(); } catch (error) { told[name] = "failed: " + error.name; }
}
const asked = (path, init) =>
  fetch(at + path, init).then(r => r.type === "opaque" ? "opaque" : r.text());
const live = make => new Promise(done => {
  const one = make();
  one.onopen = () => done("open"); one.onmessage = m => done("heard " + m.data);
  one.onerror = () => done("failed");
});
(async () => {
  await attempt("read", () => asked("/v0/topics/victim/diff", {method: "POST"}));
  await attempt("list", () => asked("/v0/topics"));
  await attempt("list blindly", () => asked("/v0/topics", {mode: "no-cors"}));
  await attempt("monitoring", () => asked("/varz"));
  await attempt("write", () => asked("/v0/topics/victim", {
    method: "POST", body: write, headers: {"content-type": "application/json"}}));
  await attempt("write as text", () => asked("/v0/topics/victim", {
    method: "POST", body: write, mode: "no-cors", headers: {"content-type": "text/plain"}}));
  await attempt("write with cookies", () => asked("/v0/topics/new", {
    method: "POST", body: write, mode: "no-cors", credentials: "include"}));
  await attempt("delete", () => asked("/v0/topics/victim", {method: "DELETE"}));
  await attempt("create", () => asked("/v0/topics/new", {method: "PUT"}));
  await attempt("beacon", () => String(navigator.sendBeacon(at + "/v0/topics/victim",
    new Blob([write], {type: "text/plain"}))));
  await attempt("events", () =>
    live(() => new EventSource(at + "/v0/topics/victim/tail?from_seq=0")));
  await attempt("socket", () => live(() => new WebSocket(at.replace("http", "ws") + "/v0/ws")));
  const shown = (kind, path) => new Promise(done => {
    const one = document.createElement(kind);
    one.onload = () => done("loaded"); one.onerror = () => done("failed");
    one.src = at + path; document.body.append(one); setTimeout(() => done("waits"), 20000);
  });
  const work = "/v0/topics/jobs/work?node=evil&max=10";
  await attempt("image", () => shown("img", work));
  await attempt("script", () => shown("script", work));
  await attempt("frame", () => shown("iframe", work));
  await attempt("work blindly", () => asked(work, {mode: "no-cors"}));
  const form = document.createElement("form");
  form.method = "POST"; form.action = at + "/v0/topics/victim"; form.enctype = "text/plain";
  form.target = "hidden";
  const frame = document.createElement("iframe"); frame.name = "hidden";
  document.body.append(frame, form);
  await new Promise(done => { frame.onload = done; form.submit(); setTimeout(done, 2000); });
  await attempt("form", () =>
    frame.contentDocument ? frame.contentDocument.body.textContent : "hidden");
  await fetch("/told", {method: "POST", body: JSON.stringify(told)});
})();
</script></body>"""


def command(profile: Path, *more: str) -> list[str]:
    """Return the browser's command line; it asks nothing of the network by itself."""
    assert CHROMIUM is not None
    return [
        *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *("--disable-quic", "--no-first-run", "--disable-background-networking"),
        *("--disable-component-update", "--disable-sync", f"--user-data-dir={profile}", *more),
    ]


def dom(url: str, profile: Path, *more: str) -> str:
    """Return a page as the browser has it."""
    asked = command(profile, *more, "--dump-dom", url)
    return subprocess.run(asked, capture_output=True, timeout=100, check=True).stdout.decode()


@contextlib.contextmanager
def visiting(url: str, profile: Path) -> Iterator[None]:
    """Have the browser at a page until the block ends."""
    browser = subprocess.Popen(
        command(profile, url),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        os.killpg(browser.pid, signal.SIGKILL)
        browser.wait()


@contextlib.contextmanager
def foreign(page: str, told: "queue.SimpleQueue[bytes]") -> Iterator[str]:
    """Serve a page from an origin of its own, and keep what it tells its own server."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(page.encode())

        def do_POST(self) -> None:
            told.put(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *details: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://localhost:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_page_of_another_origin_can_neither_read_nor_write(tmp_path: Path) -> None:
    with millstream() as peer:
        url = f"http://127.0.0.1:{peer.http_port}"
        with Topics(url) as topics:
            topics.topic("victim").append("secret")
            topics.topic("jobs").put(type="queue", max_deliveries=1, dead_letter="dead")
            topics.topic("jobs").append("job")
            # The browser itself works: a person who goes there sees what there is.
            assert "victim" in dom(f"{url}/v0/topics", tmp_path / "one")
            heard: queue.SimpleQueue[bytes] = queue.SimpleQueue()
            page = PAGE.replace("SERVER", url)
            with foreign(page, heard) as site, visiting(site, tmp_path / "two"):
                found = heard.get(timeout=100)
            told = json.loads(found)
            assert b"secret" not in found
            assert b"victim" not in found
            for name in ("read", "list", "monitoring", "write", "delete", "create"):
                assert told[name].startswith("failed"), (name, told)
            assert told["list blindly"] == "opaque"
            assert (told["events"], told["socket"]) == ("failed", "failed")
            assert [each["topic"] for each in topics.list()] == ["jobs", "victim"]
            assert (told["image"], told["script"]) == ("failed", "failed")
            (job,) = topics.topic("jobs").claim("worker")
            assert (job.data, job.deliveries) == ("job", 1)
            assert [record.data for record in topics.topic("victim").diff()] == ["secret"]


def test_a_page_whose_name_is_pointed_here_later_reads_nothing(tmp_path: Path) -> None:
    with millstream() as peer:
        with Topics(f"http://127.0.0.1:{peer.http_port}") as topics:
            topics.topic("victim").append("secret")
        mapped = "--host-resolver-rules=MAP evil.test 127.0.0.1"
        for path in ("/v0/topics", "/varz", "/v0/topics/victim", "/metrics"):
            page = dom(f"http://evil.test:{peer.http_port}{path}", tmp_path / "p", mapped)
            assert "victim" not in page
            assert "forbidden" in page
