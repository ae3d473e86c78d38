"""/metrics: names that boards know, label values escaped, nothing without bound."""

import re

import pytest
from monitor_facts import busy_server, facts, text

from millstream.http.exposition import Family, Sample, gauge, histogram, legal_name, render
from millstream.http.request import Request
from millstream.http.response import Response
from millstream.monitor.answers import counted
from millstream.store.wal.meter import WalMeter

LINE = re.compile(
    r'^[a-zA-Z_:][a-zA-Z0-9_:]*(\{[a-z_]+="(?:[^"\\\n]|\\[\\"n])*"'
    r'(?:,[a-z_]+="(?:[^"\\\n]|\\[\\"n])*")*\})? -?[0-9.e+-]+$'
)


def test_every_line_of_the_page_is_well_formed_and_every_family_told_once() -> None:
    page = render(
        [
            Family("a", "gauge", "one\ntwo", [Sample(1.5), Sample(-2, {"x": 'q"\\\n'})]),
            Family("empty", "gauge", "", []),
            histogram("h", "times", [1, 2.5], [3, 0, 1], 9.0),
        ]
    ).decode()
    assert page == (
        "# HELP a one\\ntwo\n# TYPE a gauge\na 1.5\n"
        'a{x="q\\"\\\\\\n"} -2\n'
        "# HELP h times\n# TYPE h histogram\n"
        'h_bucket{le="1"} 3\nh_bucket{le="2.5"} 3\nh_bucket{le="+Inf"} 4\nh_sum 9\nh_count 4\n'
    )


def test_names_are_made_legal() -> None:
    assert legal_name("http_req_stats_/varz") == "http_req_stats_varz"
    assert gauge(legal_name("a b"), "", 1).name == "a_b"


async def test_the_servers_figures_have_the_usual_names() -> None:
    server = busy_server()
    server.traffic = lambda: {"connections": 3, "in_msgs": 7}
    server.open_totals = lambda: {"num_connections": 3, "in_msgs": 12}
    page = await text(server, "/metrics")
    for line in page.splitlines():
        assert line.startswith("# ") or LINE.match(line), line
    assert 'gnatsd_varz_in_msgs{server_id="NID"} 7' in page
    assert 'gnatsd_varz_version{server_id="NID",value="2.15.1"} 1' in page
    assert 'gnatsd_varz_start{server_id="NID"} 1700000000000' in page
    assert 'gnatsd_varz_slow_consumer_stats_clients{server_id="NID"} 0' in page
    assert 'gnatsd_connz_num_connections{server_id="NID"} 3' in page
    assert 'gnatsd_connz_in_msgs{server_id="NID"} 12' in page
    assert 'gnatsd_healthz_status{server_id="NID"} 0' in page
    assert 'millstream_connections_closed_total{reason="Stale Connection"} 1' in page
    names = re.findall(r"^# TYPE (\S+)", page, re.MULTILINE)
    assert len(names) == len(set(names))


async def test_boards_with_another_prefix_ask_for_it() -> None:
    page = await text(facts(), "/metrics", "prefix=nats")
    assert 'nats_varz_connections{server_id="NID"} 0' in page
    assert "gnatsd_" not in page


async def test_subjects_never_become_labels() -> None:
    assert "orders" not in await text(busy_server(), "/metrics")


async def test_ill_health_shows_as_one() -> None:
    page = await text(facts(health=lambda: ["no"]), "/metrics")
    assert 'gnatsd_healthz_status{server_id="NID"} 1' in page
    assert 'gnatsd_healthz_status_value{server_id="NID",value="unavailable"} 0' in page


async def test_answers_are_counted_by_status() -> None:
    statuses: dict[int, int] = {}

    async def app(request: Request) -> Response:
        return Response(404 if request.path == "/no" else 200)

    counting = counted(app, statuses, {})
    for path in ("/", "/no", "/"):
        await counting(Request("GET", path))
    assert statuses == {200: 2, 404: 1}
    page = await text(facts(statuses=statuses), "/metrics")
    assert 'millstream_http_requests_total{status="404"} 1' in page


async def test_sync_times_fall_into_buckets() -> None:
    meter = WalMeter()
    for seconds in (0.00005, 0.00006, 0.2):
        meter.synced(seconds)
    page = await text(facts(wal=meter), "/metrics")
    assert 'millstream_wal_sync_seconds_bucket{le="5e-05"} 1' in page
    assert 'millstream_wal_sync_seconds_bucket{le="0.0001"} 2' in page
    assert 'millstream_wal_sync_seconds_bucket{le="+Inf"} 3' in page
    assert "millstream_wal_sync_seconds_count 3" in page


@pytest.mark.parametrize("reason", ['quote " and \\ back', "line\nbreak"])
async def test_label_values_are_escaped(reason: str) -> None:
    page = await text(facts(closed_by_reason=lambda: {reason: 1}), "/metrics")
    for line in page.splitlines():
        assert line.startswith("# ") or LINE.match(line), line
