from msgspec.structs import replace

from millstream.cli.banner import banner
from millstream.server.facts import RecoveredStream, ServerFacts

FACTS = ServerFacts(
    data_dir="millstream-data",
    data_is_new=True,
    nats_url="nats://127.0.0.1:4222",
    http_url="http://127.0.0.1:8222",
    http_offers=("API", "/healthz"),
    ready_seconds=0.3141,
)


def test_banner_says_what_runs_where_how_safe_and_what_to_try() -> None:
    assert banner(FACTS, "./millstream").splitlines() == [
        "millstream 0.1.0   data ./millstream-data (new)   jetstream: fsync before ack",
        "  nats   nats://127.0.0.1:4222     any NATS client",
        "  http   http://127.0.0.1:8222     API, /healthz; topics made here: ack before fsync",
        "  auth   off, loopback only        (millstream user add … to open up)",
        "ready in 0.31 s.   Try:  ./millstream pub orders.new '{\"id\":1}' --create",
    ]


def test_banner_leaves_out_what_does_not_run() -> None:
    text = banner(replace(FACTS, http_url=None, durability=None, data_is_new=False))
    assert "http" not in text
    assert "jetstream" not in text
    assert "(new)" not in text


def test_what_to_try_names_a_server_that_is_not_the_default() -> None:
    text = banner(replace(FACTS, nats_url="nats://127.0.0.1:5222"))
    assert text.endswith("millstream pub -s nats://127.0.0.1:5222 orders.new '{\"id\":1}' --create")


def test_an_open_server_says_so() -> None:
    assert "off, OPEN" in banner(replace(FACTS, loopback_only=False))


def test_recovery_is_told_per_stream_and_summed_up_beyond_ten() -> None:
    streams = tuple(RecoveredStream(f"S{n}", 1003, lost=n) for n in range(12))
    lines = banner(replace(FACTS, recovered=streams, recovery_seconds=0.021)).splitlines()
    assert "recovered S0: 1,003 records, 0 lost, 0 torn, in 0.02 s" in lines
    assert "recovered S9: 1,003 records, 9 lost, 0 torn, in 0.02 s" in lines
    assert "recovered 2 more streams, in 0.02 s" in lines
    assert not any("S10" in line for line in lines)


def test_keys_are_told_where_only_http_clients_are_asked() -> None:
    text = banner(replace(FACTS, http_keys=True))
    assert "http: on, nats: off" in text
    assert "off, OPEN" in banner(replace(FACTS, http_keys=True, loopback_only=False))
