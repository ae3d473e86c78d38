"""The metrics, boards and alerts as Debian's Prometheus and promtool see them on a real run."""

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import nats
from support.broker import millstream
from support.peers import free_port
from support.waiting import until

DEPLOY = Path(__file__).parents[2] / "deploy" / "monitoring"
RUNBOOK = Path(__file__).parents[2] / "docs" / "reference" / "runbook.md"
PROMTOOL, PROMETHEUS = shutil.which("promtool"), shutil.which("prometheus")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        PROMTOOL is None or PROMETHEUS is None,
        reason="no prometheus: `scripts/bootstrap.sh prometheus` installs it on Debian",
    ),
]
COMPARED = re.compile(r" ([<>]) ")


def ours(page: str) -> str:
    """Return our own metrics; the names that NATS boards use follow the exporter's habits."""
    return "".join(line + "\n" for line in page.splitlines() if "millstream_" in line)


def fetched(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return bytes(answer.read())


def post(url: str, body: object) -> Any:
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A server with traffic, and a Prometheus that reads it twice a second: their addresses."""
    with millstream() as peer:
        server = f"http://127.0.0.1:{peer.http_port}"
        place, port = tmp_path_factory.mktemp("prometheus"), free_port()
        config = {
            "global": {"scrape_interval": "500ms", "evaluation_interval": "1s"},
            "rule_files": [str(DEPLOY / "alerts.yml")],
            "scrape_configs": [
                {
                    "job_name": "millstream",
                    "static_configs": [{"targets": [server.removeprefix("http://")]}],
                }
            ],
        }
        (place / "prometheus.yml").write_text(yaml.safe_dump(config))
        assert PROMETHEUS is not None
        watcher = subprocess.Popen(
            [
                *(PROMETHEUS, f"--config.file={place / 'prometheus.yml'}"),
                *(f"--storage.tsdb.path={place / 'data'}",),
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield server, f"http://127.0.0.1:{port}"
        finally:
            watcher.kill()
            watcher.wait()


async def make_traffic(server: str, url: str) -> None:
    connection = await nats.connect(url)
    js = connection.jetstream()
    await js.add_stream(name="ORDERS", subjects=["orders.>"])
    for n in range(20):
        await js.publish("orders.new", b"%d" % n)
    subscription = await js.pull_subscribe("orders.>", durable="billing")
    await subscription.fetch(5)
    await connection.close()


def queried(watcher: str, expression: str) -> list[Any]:
    where = f"{watcher}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
    found = json.loads(fetched(where))
    assert found["status"] == "success", found
    return list(found["data"]["result"])


def panels() -> list[tuple[str, str]]:
    found = []
    for file in sorted(DEPLOY.glob("grafana-*.json")):
        for panel in json.loads(file.read_text())["panels"]:
            for target in panel["targets"]:
                text = target["expr"].replace("$instance", ".*").replace("$stream", ".*")
                found.append((f"{file.stem}: {panel['title']}", text))
    return found


def alerts() -> list[dict[str, Any]]:
    read = yaml.safe_load((DEPLOY / "alerts.yml").read_text())
    return [rule for group in read["groups"] for rule in group["rules"]]


def test_every_panel_and_every_alert_finds_a_series(site: tuple[str, str]) -> None:
    import asyncio

    server, watcher = site
    nats_url = json.loads(fetched(f"{server}/varz"))
    asyncio.run(make_traffic(server, f"nats://127.0.0.1:{nats_url['port']}"))
    post(f"{server}/v0/topics/ORDERS/hold", {"holder": "lake", "seq": 3, "seconds": 60})

    def answers(expression: str) -> bool:
        try:
            return bool(queried(watcher, expression))
        except OSError:  # it is still starting
            return False

    missing = []
    until(lambda: answers('millstream_reader_lag_records{stream="ORDERS"}'))
    until(lambda: answers("rate(millstream_stream_appended_records_total[1m])"))
    until(lambda: answers("deriv(millstream_consumer_lag_records[10m])"))
    until(lambda: answers("rate(millstream_connections_closed_total[5m])"))
    for name, expression in panels():
        if not answers(expression):
            missing.append(f"{name}: {expression}")
    for rule in alerts():
        shown = COMPARED.sub(r" \1 bool ", rule["expr"])  # a series also while all is well
        if not answers(shown):
            missing.append(f"{rule['alert']}: {shown}")
    assert missing == []
    rules = json.loads(fetched(f"{watcher}/api/v1/rules"))["data"]["groups"][0]["rules"]
    assert [rule["name"] for rule in rules if rule["health"] == "err"] == []
    assert len(rules) == len(alerts())


def test_our_own_metrics_pass_promtool_without_a_warning(site: tuple[str, str]) -> None:
    page = ours(fetched(f"{site[0]}/metrics").decode())
    assert page.count("# HELP") > 40
    checked = subprocess.run(
        [str(PROMTOOL), "check", "metrics"], input=page, capture_output=True, text=True, timeout=30
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    rules = [str(PROMTOOL), "check", "rules", str(DEPLOY / "alerts.yml")]
    assert subprocess.run(rules, capture_output=True, timeout=30).returncode == 0


def test_the_runbook_has_a_section_for_each_alert_and_names_each_metric(
    site: tuple[str, str],
) -> None:
    text = RUNBOOK.read_text()
    for rule in alerts():
        assert f"### {rule['alert']}\n" in text, rule["alert"]
    page = fetched(f"{site[0]}/metrics").decode()
    names = re.findall(r"^# HELP (millstream_\w+)", page, re.MULTILINE)
    assert [name for name in names if f"`{name}`" not in text] == []


def test_every_help_text_explains(site: tuple[str, str]) -> None:
    page = fetched(f"{site[0]}/metrics").decode()
    told = dict(re.findall(r"^# HELP (millstream_\w+) (.*)$", page, re.MULTILINE))
    assert [name for name, text in told.items() if len(text) < 20 or not text.endswith(".")] == []
