from pathlib import Path

import pytest

from millstream.accounts import nkeys
from millstream.accounts.account import Latency, StreamLimits
from millstream.accounts.nkeys import Role
from millstream.server.conf.document import FileOptions, from_block
from millstream.server.conf.setting import BadConfiguration
from millstream.server.conf.syntax import parse
from millstream.server.options.auth_options import (
    Authorization,
    DirectoryResolver,
    ExportOptions,
    ImportOptions,
    MapDestination,
    MappingOptions,
    MemoryResolver,
    PermissionOptions,
    ResponseRules,
    SubjectRules,
    UrlResolver,
    UserOptions,
)
from millstream.server.options.options import (
    JetStreamLimits,
    JetStreamOptions,
    LimitOptions,
    LoggingOptions,
    MonitorOptions,
    Options,
    WebsocketOptions,
)

USER = nkeys.encode(Role.USER, bytes(32))


def read(text: str) -> FileOptions:
    return from_block(parse(text, "s.conf"), "s.conf")


def options(text: str) -> Options:
    return read(text).options


def complaints(text: str) -> list[str]:
    with pytest.raises(BadConfiguration) as failure:
        read(text)
    return str(failure.value).splitlines()


def test_a_file_changes_only_what_it_names() -> None:
    assert options("port: 4333") == Options(port=4333, config_file="s.conf")


def test_an_address_may_be_a_port_a_pair_or_two_settings() -> None:
    assert options("listen: 4333").port == 4333
    assert (o := options('listen: "[::1]:4333"')).host == "::1"
    assert o.port == 4333
    assert (o := options("host: 127.0.0.1\nport: 4333")).host == "127.0.0.1"
    assert o.port == 4333


@pytest.mark.parametrize(("written", "port"), [("-1", 0), ("0", 4222), ("4333", 4333)])
def test_port_minus_one_is_any_and_zero_the_default(written: str, port: int) -> None:
    assert options(f"port: {written}").port == port


def test_monitoring_is_off_until_asked_for() -> None:
    assert options("http: '127.0.0.1:-1'").monitor == MonitorOptions("127.0.0.1", 0)
    assert options("http_port: 8222\nhttp_base_path: nats/").monitor == MonitorOptions(
        port=8222, base_path="/nats"
    )
    assert options("http_port: 0").monitor.port is None
    assert options("https: 8443").monitor.tls_port == 8443


def test_limits_are_read_in_bytes_and_seconds() -> None:
    assert options(
        "max_payload: 2MB\nmax_pending: 10MB\nmax_connections: 10\nmax_subs: 3\n"
        "max_control_line: 512\nping_interval: '30s'\nping_max: 4\nwrite_deadline: '1m'\n"
        "max_sub_tokens: 8\nno_fast_producer_stall: true\nmax_closed_clients: 5"
    ).limits == LimitOptions(
        max_connections=10,
        max_subscriptions=3,
        max_subject_tokens=8,
        max_payload=2 << 20,
        max_pending=10 << 20,
        max_control_line=512,
        max_closed_clients=5,
        ping_interval=30.0,
        ping_max=4,
        write_deadline=60.0,
        no_fast_producer_stall=True,
    )


def test_a_limit_of_zero_is_the_default_except_for_connections_where_it_is_nobody() -> None:
    limits = options("max_payload: 0\nping_interval: '0s'\nmax_connections: 0").limits
    assert limits == LimitOptions(max_connections=0)


def test_log_settings_go_together() -> None:
    assert options(
        "debug: true\ntrace_verbose: on\nlogtime: no\nlogtime_utc: yes\nlog_file: x.log\n"
        "log_size_limit: 1k\nlogfile_max_num: 2\nmax_traced_msg_len: 9"
    ).log == LoggingOptions(
        debug=True,
        trace=True,
        time=False,
        utc=True,
        file="x.log",
        size_limit=1000,
        max_files=2,
        max_traced_message=9,
    )


def test_a_single_user_or_a_token_may_stand_alone() -> None:
    assert options("authorization { user: a, password: b, timeout: 3 }").authorization == (
        Authorization(user="a", password="b", timeout=3.0)
    )
    assert options("authorization { token: t }").authorization == Authorization(token="t")


def test_users_carry_permissions_and_defaults_fill_the_gaps() -> None:
    file = """
    authorization {
      default_permissions { publish: "all.>" }
      users: [
        { user: a, pass: b }
        { nkey: %s, permissions { subscribe { allow: "x.>", deny: ["x.y q", z] } } }
        { user: c, connection_types: [standard], permissions { allow_responses: true } }
      ]
    }"""
    assert options(file.replace("%s", USER)).authorization.users == (
        UserOptions("a", "b", permissions=PermissionOptions(publish=SubjectRules(("all.>",)))),
        UserOptions(
            nkey=USER,
            permissions=PermissionOptions(subscribe=SubjectRules(("x.>",), ("x.y q", "z"))),
        ),
        UserOptions(
            "c",
            connection_types=("STANDARD",),
            permissions=PermissionOptions(
                publish=SubjectRules(allow=()), responses=ResponseRules()
            ),
        ),
    )


def test_an_empty_list_of_users_is_not_no_list() -> None:
    assert options("authorization { users: [] }").authorization.users == ()
    assert options("authorization { timeout: 1 }").authorization.users is None


def test_answers_may_be_counted_and_timed() -> None:
    file = "authorization { users: [{user: a, permissions { %s }}] }"
    answers = "allow_responses { max: 5, expires: '10s' }"
    [user] = options(file.replace("%s", answers)).users
    assert user.permissions == PermissionOptions(
        publish=SubjectRules(allow=()), responses=ResponseRules(5, 10.0)
    )


def test_variables_are_no_settings() -> None:
    file = "rules = { publish: a }\nauthorization { users: [{user: u, permissions: $rules}] }"
    [user] = options(file).users
    assert user.permissions == PermissionOptions(publish=SubjectRules(("a",)))


def test_accounts_hold_users_limits_and_what_they_share() -> None:
    a, b = options(
        """
    accounts {
      A {
        users: [{user: a, pass: b}]
        jetstream { max_mem: 1K, max_file: 2K, max_streams: 3, max_consumers: 4,
                    max_stream_bytes: true, max_ack_pending: 5 }
        limits { max_connections: 6 }
        exports: [
          { stream: "s.>", accounts: [B] }
          { service: "q.*", response_type: stream, threshold: "5s", account_token_position: 2 }
          { service: "t", latency { sampling: 50%, subject: lat } }
        ]
        mappings { old: new }
      }
      B {
        imports: [
          { stream { account: A, subject: "s.x" }, prefix: from.a }
          { service { account: A, subject: t }, to: ours, share: true }
        ]
        jetstream: enabled
      }
    }"""
    ).accounts
    assert a.users == (UserOptions("a", "b"),)
    assert a.jetstream == StreamLimits(1000, 2000, 3, 4, max_ack_pending=5, max_bytes_required=True)
    assert a.limits.max_connections == 6
    assert a.exports == (
        ExportOptions("s.>", accounts=("B",)),
        ExportOptions(
            "q.*",
            service=True,
            response_type="stream",
            response_threshold=5.0,
            account_token_position=2,
        ),
        ExportOptions("t", service=True, latency=Latency("lat", 50)),
    )
    assert a.mappings == (MappingOptions("old", (MapDestination("new"),)),)
    assert b.jetstream == StreamLimits()
    assert b.imports == (
        ImportOptions("A", "s.x", prefix="from.a"),
        ImportOptions("A", "t", service=True, to="ours", share=True),
    )


def test_mappings_carry_weights() -> None:
    text = "mappings { a: [{dest: b, weight: 40%}, {destination: c, weight: 20, cluster: x}] }"
    assert options(text).mappings == (
        MappingOptions("a", (MapDestination("b", 40), MapDestination("c", 20, "x"))),
    )


def test_jetstream_is_off_unless_written() -> None:
    assert options("port: 1").jetstream is None
    assert options("jetstream: disabled").jetstream is None
    assert options("jetstream { enabled: false }").jetstream is None
    assert options("jetstream {}").jetstream == JetStreamOptions()


def test_jetstream_settings_are_read() -> None:
    assert options(
        "jetstream { store_dir: d, max_mem: 1Gi, max_file: '2G', domain: hub, strict: false,"
        " sync_interval: '10s', unique_tag: AZ, limits { max_ack_pending: 7,"
        " duplicate_window: '1m', batch { max_msgs: 8 } } }"
    ).jetstream == JetStreamOptions(
        store_dir="d",
        max_memory=1 << 30,
        max_store=2 << 30,
        domain="hub",
        sync_interval=10.0,
        strict=False,
        limits=JetStreamLimits(max_ack_pending=7, duplicate_window=60.0, max_batch_size=8),
    )


def test_the_store_directory_may_stand_outside() -> None:
    assert options("store_dir: d\njetstream: true").jetstream == JetStreamOptions(store_dir="d")


def test_sync_always_means_before_the_acknowledgement() -> None:
    stream = options("jetstream { sync_interval: always, wal_shards: 3 }").jetstream
    assert stream is not None
    assert (stream.sync_interval, stream.wal_shards) == (None, 3)


def test_websocket_settings_are_read() -> None:
    assert options(
        "websocket { listen: 'localhost:9222', no_tls: true, compression: true,"
        " same_origin: true, allowed_origins: ['http://a'], handshake_timeout: '3s',"
        " jwt_cookie: j, user_cookie: u, pass_cookie: p, token_cookie: t, no_auth_user: n,"
        " headers { X-A: b }, authorization { token: s }, ping_interval: '5s' }"
    ).websocket == WebsocketOptions(
        port=9222,
        host="localhost",
        no_tls=True,
        compression=True,
        same_origin=True,
        allowed_origins=("http://a",),
        handshake_timeout=3.0,
        jwt_cookie="j",
        user_cookie="u",
        pass_cookie="p",
        token_cookie="t",
        no_auth_user="n",
        headers=(("X-A", "b"),),
        authorization=Authorization(token="s"),
        ping_interval=5.0,
    )


def test_allowed_hosts_are_names_without_scheme_and_port() -> None:
    assert options("allowed_hosts: mill.example").monitor.allowed_hosts == ("mill.example",)
    made = options("allowed_hosts: ['Mill.example', '10.0.0.1', '[::2]']")
    assert made.monitor.allowed_hosts == ("mill.example", "10.0.0.1", "::2")
    (complaint,) = complaints("port: 1\nallowed_hosts: ['https://mill.example']")
    assert "'allowed_hosts' must name hosts, without scheme and port" in complaint


def test_a_websocket_without_a_port_does_not_listen() -> None:
    assert options("websocket { no_tls: true }").websocket is None


def test_resolvers_come_in_three_kinds(tmp_path: Path) -> None:
    assert options("resolver: MEMORY").trust.resolver == MemoryResolver()
    assert options("resolver: URL(http://h/a/)").trust.resolver == UrlResolver("http://h/a/")
    full = f"resolver {{ type: full, dir: '{tmp_path}', limit: 10, interval: '1m' }}"
    assert options(full).trust.resolver == DirectoryResolver("FULL", str(tmp_path), limit=10)


def test_the_rest_finds_its_place() -> None:
    made = options(
        "server_name: one\nclient_advertise: a:1\nserver_tags: [x, y]\n"
        "server_metadata { region: eu }\npid_file: p\nports_file_dir: d\nno_header_support: true\n"
        "disable_sublist_cache: true\nno_auth_user: u\nsystem_account: S\ncluster { name: c }\n"
        "lame_duck_duration: '40s'\nlame_duck_grace_period: '5s'\nallow_non_tls: true"
    )
    assert made.server_name == "one"
    assert made.advertise == "a:1"
    assert made.tags == ("x", "y")
    assert made.metadata == (("region", "eu"),)
    assert (made.pid_file, made.ports_file_dir) == ("p", "d")
    assert not made.headers
    assert not made.sublist_cache
    assert (made.no_auth_user, made.system_account) == ("u", "S")
    assert made.cluster_name == "c"
    assert (made.lame_duck.duration, made.lame_duck.grace_period) == (40.0, 5.0)
    assert made.allow_non_tls


def test_every_mistake_is_told_with_its_line_and_remedy() -> None:
    assert complaints("prot: 1\n\nmax_payload: '1MB'\nauthorization {\n  user: 7\n}\n") == [
        "s.conf:1: 'prot' is not a known setting: did you mean 'port'?",
        "s.conf:3: 'max_payload' must be a whole number, without quotes, not the string '1MB'",
        "s.conf:5: 'user' must be a string: put it in quotes, not 7",
    ]


def test_what_we_do_not_have_is_refused_by_name() -> None:
    assert complaints("ocsp: true") == [
        "s.conf:1: 'ocsp' is not supported: certificates are served without OCSP"
    ]


def test_a_seconds_number_is_taken_with_a_warning() -> None:
    made = read("ping_interval: 20")
    assert made.options.limits.ping_interval == 20.0
    assert [str(warning) for warning in made.warnings] == [
        "s.conf:1: 'ping_interval' should be a duration: write '20s'"
    ]


def test_what_changes_nothing_here_is_noted() -> None:
    assert [str(note) for note in read("prof_port: 6060").notes] == [
        "s.conf:1: 'prof_port' has no effect: there is no Go program to profile"
    ]
