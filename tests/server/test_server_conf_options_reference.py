"""The real nats-server's configuration check says the same of each of these files, or a reason."""

import subprocess
from pathlib import Path

import pytest

from millstream.accounts import nkeys
from millstream.accounts.nkeys import Role
from millstream.server.conf.document import from_block
from millstream.server.conf.setting import BadConfiguration
from millstream.server.conf.syntax import ConfError, parse
from millstream.server.options.options_check import contradictions
from support.peers import nats_server_path

USER = nkeys.encode(Role.USER, bytes(range(32)))
ACCOUNT = nkeys.encode(Role.ACCOUNT, bytes(range(32)))
OPERATOR = "eyJ0eXAiOiJqd3QiLCJhbGciOiJlZDI1NTE5In0.eyJqdGkiOiJQ"  # cut off: no valid JWT

SAME = [
    "",
    "# nothing but a comment\n",
    "port: 4222",
    "port: -1",
    "port: '4222'",
    "listen: 4222",
    'listen: "127.0.0.1:-1"',
    "listen: 127.0.0.1",
    "listen: localhost:abc",
    "listen: true",
    "net: 127.0.0.1\nPort: 4333",
    "host: 12",
    "server_name: one",
    'server_name: "one two"',
    "server_name: 7",
    "prot: 4222",
    "PORT = 4222; Host = localhost",
    "client_advertise: here:4222",
    "debug: true\ntrace: yes\nlogtime: off",
    "debug: 1",
    "trace_verbose: true\ntrace_headers: false",
    "log_file: /tmp/x.log\nlog_size_limit: 1MB\nlogfile_max_num: 3",
    "log_file: 3",
    "pid_file: /tmp/x.pid\nports_file_dir: /tmp",
    "max_payload: 1MB",
    'max_payload: "1MB"',
    "max_payload: 3000000000",
    "max_pending: 128MB\nmax_payload: 1024",
    "max_control_line: 512\nmax_connections: 100\nmax_subs: 10",
    "max_conn: many",
    "max_sub_tokens: 16",
    "max_sub_tokens: 0",
    "max_sub_tokens: 300",
    "ping_interval: '30s'\nping_max: 3",
    "ping_interval: 30",
    "ping_interval: fast",
    "write_deadline: '5s'",
    "write_deadline: 5",
    "write_timeout: close",
    "write_timeout: maybe",
    "lame_duck_duration: '60s'\nlame_duck_grace_period: '5s'",
    "lame_duck_duration: '10s'",
    "lame_duck_duration: 60",
    "lame_duck_grace_period: '-5s'",
    "http: 8222",
    "http: localhost:8222",
    "http: localhost",
    "http_port: 8222\nhttp_base_path: nats",
    "monitor_port: '8222'",
    "authorization { user: a, pass: b }",
    "authorization { user: a, token: b }",
    "authorization { user: 1, pass: b }",
    "authorization { token: secret, timeout: 3.5 }",
    "authorization { token: secret, timeout: '3s' }",
    "authorization { token: secret, timeout: slow }",
    "authorization { token: secret, timeout: 90 }",
    "authorization { usr: a }",
    "authorization: open",
    "authorization { users: [] }",
    "authorization { users: [ {user: a, pass: b}, {user: c, password: d} ] }",
    "authorization { users: [ {user: a, pass: b} ], user: c, pass: d }",
    "authorization { users: [ {user: a, pass: b} ], token: c }",
    "authorization { users: [ {user: a}, {user: a} ] }",
    "authorization { users: [ {pass: a} ] }",
    "authorization { users: [ a, b ] }",
    "authorization { users: { user: a } }",
    "authorization { users: [ {nkey: USER} ] }",
    "authorization { users: [ {nkey: USER, user: a} ] }",
    "authorization { users: [ {nkey: UABC} ] }",
    "authorization { users: [ {nkey: ACCOUNT} ] }",
    "authorization { users: [ {user: a, clients: [standard, WEBSOCKET]} ] }",
    "authorization { users: [ {user: a, clients: [carrier_pigeon]} ] }",
    "authorization { users: [ {user: a, colour: red} ] }",
    "P = { publish: foo }\nauthorization { users: [ {user: a, permissions: $P} ] }",
    "authorization { users: [ {user: a, permissions: { publish: foo, subscribe: [a, 'b q'] }} ] }",
    "authorization { users: [ {user: a, permissions: { publish: 'foo q' }} ] }",
    "authorization { users: [ {user: a, permissions: { publish: 'foo..bar' }} ] }",
    "authorization { users: [ {user: a, permissions: { publish: { allow: a, deny: [b] } }} ] }",
    "authorization { users: [ {user: a, permissions: { publish: { permit: a } }} ] }",
    "authorization { users: [ {user: a, permissions: { pub: 7 }} ] }",
    "authorization { users: [ {user: a, permissions: { allow_responses: true }} ] }",
    "authorization { users: [ {user: a, permissions: "
    "{ allow_responses: { max: 2, expires: '1m' } }} ] }",
    "authorization { users: [ {user: a, permissions: { allow_responses: { expires: 7 } }} ] }",
    "authorization { users: [ {user: a, permissions: { allow_responses: perhaps }} ] }",
    "authorization { users: [ {user: a, permissions: { read: a }} ] }",
    "authorization { default_permissions: { sub: '>' }, users: [ {user: a} ] }",
    "accounts: [A, B]",
    "accounts: [A, A]",
    "accounts: { $G: {} }",
    "accounts: { A: 3 }",
    "accounts: { A { users: [ {user: a, pass: b} ] } }",
    "accounts: { A { users: [ {user: a} ] }, B { users: [ {user: a} ] } }",
    "accounts: { A { users: [ {user: a} ] } }\nauthorization { user: b, pass: c }",
    "accounts: { A { nkey: ACCOUNT } }",
    "accounts: { A { nkey: USER } }",
    "accounts: { A { colour: red } }",
    "accounts: { A { jetstream: enabled } }",
    "accounts: { A { jetstream: perhaps } }",
    "accounts: { A { jetstream: { max_mem: 1G, max_file: 2G, max_streams: 3 } } }",
    "accounts: { A { jetstream: { max_mem: '1G' } } }",
    "accounts: { A { jetstream: { max_stream_bytes: true, max_ack_pending: 10 } } }",
    "accounts: { A { jetstream: { max_stream_bytes: 10 } } }",
    "accounts: { A { jetstream: { max_stremas: 3 } } }",
    "accounts: { A { limits: { max_conn: 3, max_subs: 4, max_payload: 5 } } }",
    "accounts: { A { limits: { max_fun: 3 } } }",
    "accounts: { A { exports: [ {stream: 'a.>'}, {service: 'b.*', response_type: stream} ] } }",
    "accounts: { A { exports: [ {stream: a, response_type: stream} ] } }",
    "accounts: { A { exports: [ {service: a, response_type: sometimes} ] } }",
    "accounts: { A { exports: [ {service: a, threshold: '1m', latency: lat.a} ] } }",
    "accounts: { A { exports: [ {service: a, latency: { sampling: '50%', subject: lat } } ] } }",
    "accounts: { A { exports: [ {service: a, latency: { sampling: 500, subject: lat } } ] } }",
    "accounts: { A { exports: [ {service: a, latency: { sampling: 50 } } ] } }",
    "accounts: { A { exports: [ {service: a, threshold: 60} ] } }",
    "accounts: { A { exports: [ {stream: a, service: b} ] } }",
    "accounts: { A { exports: [ {stream: a, accounts: [B]} ] } }",
    "accounts: { A { exports: [ {stream: a, accounts: [B]} ] }, B {} }",
    "accounts: { A { exports: [ {stream: 'a.*', account_token_position: 2} ] } }",
    "accounts: { A { exports: [ {stream: 'a.b', account_token_position: 2} ] } }",
    "accounts: { A { exports: a } }",
    "accounts: { A { exports: [ {stream: a} ] }, B { imports: [ {stream: {account: A, "
    "subject: a}} ] } }",
    "accounts: { A {}, B { imports: [ {stream: {account: A, subject: a}} ] } }",
    "accounts: { B { imports: [ {stream: {account: A, subject: a}} ] } }",
    "accounts: { A { exports: [ {stream: 'a.>'} ] }, B { imports: [ {stream: {account: A, "
    "subject: 'a.b'}, prefix: from.a} ] } }",
    "accounts: { A { exports: [ {stream: 'a.>'} ] }, B { imports: [ {stream: {account: A, "
    "subject: 'a.b'}, prefix: 'from.*'} ] } }",
    "accounts: { A { exports: [ {stream: 'a.*'} ] }, B { imports: [ {stream: {account: A, "
    "subject: 'a.*'}, to: 'x.$1'} ] } }",
    "accounts: { A { exports: [ {service: 'a.*'} ] }, B { imports: [ {service: {account: A, "
    "subject: 'a.*'}, to: 'x.$1'} ] } }",
    "accounts: { A { exports: [ {service: '$JS.API.>'} ] }, B { imports: [ {service: {account: A, "
    "subject: '$JS.API.>'}, to: '$JS.ofA.API.>'} ] } }",
    "accounts: { A { exports: [ {stream: '$KV.*'} ] }, B { imports: [ {stream: {account: A, "
    "subject: '$KV.*'}, to: 'of.$KV.*'} ] } }",
    "accounts: { A { exports: [ {service: a} ] }, B { imports: [ {service: {account: A, "
    "subject: a}, to: b, share: true} ] } }",
    "accounts: { A { exports: [ {service: a} ] }, B { imports: [ {service: {account: A, "
    "subject: a}}, {service: {account: A, subject: a}} ] } }",
    "accounts: { A { exports: [ {service: a} ] }, B { imports: [ {stream: {account: A, "
    "subject: a}} ] } }",
    "accounts: { A { exports: [ {service: a} ] }, B { imports: [ {service: {account: A}} ] } }",
    "accounts: { A { exports: [ {service: a} ] }, B { imports: [ {service: a} ] } }",
    "accounts: { A { exports: [ {service: a, accounts: [C]} ] }, C {}, B { imports: [ "
    "{service: {account: A, subject: a}} ] } }",
    "accounts: { A { exports: [ {service: a} ], imports: [ {service: {account: B, subject: a}} ] },"
    " B { exports: [ {service: a} ], imports: [ {service: {account: A, subject: a}} ] } }",
    "accounts: { A { exports: [ {stream: a} ], imports: [ {stream: {account: B, subject: a}} ] },"
    " B { exports: [ {stream: a} ], imports: [ {stream: {account: A, subject: a}} ] } }",
    "accounts: { A { mappings: { a: b } } }",
    "mappings: { a: b, 'c.*': 'd.$1' }",
    "mappings: { 'c.*': 'd.{{wildcard(2)}}' }",
    "mappings: { 'a..b': c }",
    "mappings: { a: [ {dest: b, weight: 50%}, {dest: c, weight: 50} ] }",
    "mappings: { a: [ {dest: b, weight: 60%}, {dest: c, weight: 50} ] }",
    "mappings: { a: [ {dest: b, weight: 120%} ] }",
    "mappings: { a: [ {dest: b} ] }",
    "mappings: { a: {dest: b, weight: '100%'} }",
    "mappings: { a: [ {dest: b, weight: 10%}, {dest: b, weight: 10%} ] }",
    "mappings: { a: 7 }",
    "mappings: { a: [ {target: b, weight: 10} ] }",
    "jetstream: true",
    "jetstream: enabled",
    "jetstream: sometimes",
    "jetstream: [1]",
    "jetstream { store_dir: /tmp/x, max_mem: 1G, max_file: 2G, domain: hub }",
    "jetstream { max_mem: '1G' }",
    "jetstream { max_mem: '1X' }",
    "jetstream { max_mem: true }",
    "jetstream { sync_interval: always }",
    "jetstream { key: secret, cipher: aes }",
    "jetstream { ek: secret, prev_key: old, cipher: chachapoly }",
    "jetstream { key: secret, cipher: rot13 }",
    "jetstream { sync_interval: '2m' }",
    "jetstream { sync_interval: 5 }",
    "jetstream { strict: false, unique_tag: az, max_outstanding_catchup: 32M }",
    "jetstream { strict: maybe }",
    "jetstream { max_memory: 3 }",
    "jetstream { limits: { max_ack_pending: 10, duplicate_window: '1m' } }",
    "jetstream { limits: { max_ack: 10 } }",
    "jetstream { limits: { batch: { max_msgs: 10, timeout: '1s' } } }",
    "jetstream { store_dir: /tmp/x }\nstore_dir: /tmp/y",
    "store_dir: /tmp/y\njetstream: on",
    "jetstream { max_concurrent_io: 2 }",
    "jetstream { max_concurrent_io: 64 }",
    "websocket { port: 9222, no_tls: true, compression: true, same_origin: true }",
    "websocket { listen: 'localhost:9222', no_tls: true, handshake_timeout: '3s' }",
    "websocket { port: 9222, no_tls: true, allowed_origins: [ 'https://a.example' ] }",
    "websocket { port: 9222, no_tls: true, headers: { 'X-A': b } }",
    "websocket { port: 9222, no_tls: true, headers: { 'X-A': 3 } }",
    "websocket { port: 9222, no_tls: true, authorization: { user: a, pass: b } }",
    "websocket { port: 9222, no_tls: true, colour: red }",
    "websocket: 9222",
    "websocket { port: 9222, no_tls: true, ping_interval: 5 }",
    "ws { port: 9222, no_tls: true, token_cookie: tok, handshake_timeout: true }",
    "tls { cert_file: CERT, key_file: KEY }",
    "tls { cert_file: CERT, key_file: KEY, ca_file: CERT, verify: true, timeout: 3 }",
    "tls { cert_file: CERT }",
    "tls { key_file: KEY }",
    "tls { cert_file: KEY, key_file: CERT }",
    "tls { cert_file: /nowhere, key_file: KEY }",
    "tls { cert_file: CERT, key_file: KEY, ca_file: KEY }",
    "tls { cert_file: CERT, key_file: KEY, verify: 1 }",
    "tls { cert_file: CERT, key_file: KEY, timeout: '2s', handshake_first: auto }",
    "tls { cert_file: CERT, key_file: KEY, handshake_first: '100ms' }",
    "tls { cert_file: CERT, key_file: KEY, handshake_first: soon }",
    "tls { cert_file: CERT, key_file: KEY, min_version: '1.3' }",
    "tls { cert_file: CERT, key_file: KEY, min_version: '1.1' }",
    "tls { cert_file: CERT, key_file: KEY, min_version: 1.3 }",
    "tls { cert_file: CERT, key_file: KEY, pinned_certs: [ 'DIGEST' ] }",
    "tls { cert_file: CERT, key_file: KEY, pinned_certs: [ 'abc' ] }",
    "tls { cert_file: CERT, key_file: KEY, cipher_suites: [ TLS_AES_128_GCM_SHA256 ] }",
    "tls { cert_file: CERT, key_file: KEY, cipher_suites: [ TLS_RSA_WITH_RC4_128_SHA ] }",
    "tls { cert_file: CERT, key_file: KEY, cipher_suites: [ TLS_ROT13 ] }",
    "tls { cert_file: CERT, key_file: KEY, cipher_suites: [] }",
    "tls { cert_file: CERT, key_file: KEY, curve_preferences: [ CurveP256, X25519 ] }",
    "tls { cert_file: CERT, key_file: KEY, curve_preferences: [ round ] }",
    "tls { certs: [ { cert_file: CERT, key_file: KEY } ] }",
    "tls { certs: [ { cert_file: CERT } ] }",
    "tls { certs: [ { cert_file: CERT, key_file: KEY } ], cert_file: CERT, key_file: KEY }",
    "tls { cert_file: CERT, key_file: KEY, verify_and_map: true }",
    "tls { cert_file: CERT, key_file: KEY, verify_cert_and_check_known_urls: true }",
    "tls { cert_file: CERT, key_file: KEY, colour: red }",
    "tls: true",
    "allow_non_tls: true",
    "operator: /nowhere.jwt",
    "operator: 'OPERATOR'",
    "operator: 7",
    "resolver: MEMORY",
    "resolver: URL(http://localhost:9090/jwt/v1/accounts/)",
    "resolver: elsewhere",
    "resolver: 7",
    "resolver: { type: full, dir: DIR }",
    "resolver: { type: full }",
    "resolver: { type: cache, dir: DIR, ttl: '1h' }",
    "resolver: { type: cache, dir: DIR, interval: '1m' }",
    "resolver: { type: full, dir: DIR, ttl: '1h' }",
    "resolver: { type: full, dir: DIR, hard_delete: true }",
    "resolver: { type: full, dir: DIR, limit: many }",
    "resolver_preload: { A: 'eyJ' }",
    "resolver_preload: 7",
    "trusted_keys: [ OABC ]",
    "trusted: 7",
    "system_account: SYS\naccounts: { SYS {} }",
    "system_account: 7",
    "no_sys_acc: true",
    "server_tags: [a, b]",
    "server_tags: a",
    "server_tags: [1]",
    "server_metadata: { region: eu }",
    "server_metadata: 7",
    "disable_sublist_cache: true",
    "no_fast_producer_stall: true\nmax_closed_clients: 5",
    "no_header_support: true",
    "feature_flags: { a: true }",
    "feature_flags: { a: 3 }",
    "connect_error_reports: 5\nprof_port: 0",
    "cluster { name: one }",
    'cluster { name: "one two" }',
    "cluster { colour: red }",
    "cluster: one",
    "leafnodes {}",
    "cluster { listen: 'localhost:6222' }",
    "leafnodes { port: 7422 }",
    "leafnodes { remotes [ { url: 'nats://h:7422', deny_imports: [a] } ] }",
    "syslog: false",
    "accounts: { A { msg_trace: dest } }",
    "accounts: { A { msg_trace: 'a.*' } }",
    "accounts: { A { msg_trace: { dest: d, sampling: 5 } } }",
    "accounts: { A { msg_trace: { dest: d, sampling: '5%' } } }",
    "accounts: { A { trace_dest: { dest: d, sampling: 0 } } }",
    "authorization { auth_callout { issuer: ACCOUNT, users: [a] } }",
    "authorization { auth_callout { issuer: x, users: [a] } }",
    "authorization { auth_callout { issuer: ACCOUNT } }",
    "authorization { auth_callout { issuer: ACCOUNT, users: [a], xkey: x } }",
    "syslog: true",
    "remote_syslog: 'udp://localhost:514'",
    "proxy_protocol: true",
    "proxy_protocol: false",
    "ocsp: false",
    "port: $PORT_NOBODY_SET",
    "ours = 4333\nport: $ours",
    "include '/nowhere.conf'",
    "port 4222 host 1",
    "accounts {",
    "users = [",
]

# What nats-server's own check lets pass, and why we do not.
STRICTER = {
    "max_payload: -1": "a payload without bound is no limit we can keep",
    "max_payload: 60MB\nmax_pending: 1MB": "nats-server finds this when it starts",
    "max_payload: 512MB\nmax_pending: 1GB": "a larger payload than 64 MiB is not supported",
    "no_auth_user: nobody": "nats-server finds this when it starts",
    "lame_duck_duration: '30s'\nlame_duck_grace_period: '30s'": "found when it starts",
    "websocket { port: 9222 }": "nats-server finds the missing tls block when it starts",
    "websocket { port: 9222, no_tls: true, jwt_cookie: c }": "found when it starts",
    "http: 8222\nhttps: 8223": "nats-server finds this when it starts",
    "https: 8223": "nats-server finds the missing tls block when it starts",
    "accounts: 7": "nats-server forgets the accounts without a word",
    "port: 4222k": "nats-server finds this when it listens",
    "port = 4222 }": "a brace too many is a mistake to be told",
    "port: 70000": "nats-server finds this when it listens",
    "system_account: SYS\naccounts: { A {} }": "nats-server finds this when it starts",
    "leafnodes { remotes [ { account: A } ] }": "nats-server finds this when it starts",
    "gateway { name: A, port: 7222 }": "not supported",
    "mqtt { port: 1883 }": "not supported",
    "ocsp: true": "not supported",
    "write_timeout: retry": "not supported",
    "default_sentinel: x": "not supported",
    "authorization { users: [ {user: a, proxy_required: true} ] }": "not supported",
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    directory = tmp_path_factory.mktemp("conf")
    cert, key = directory / "cert.pem", directory / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=localhost"],
        check=True,
        capture_output=True,
    )  # fmt: skip
    resolver = directory / "accounts"
    resolver.mkdir()
    return {
        "CERT": str(cert),
        "KEY": str(key),
        "DIR": str(resolver),
        "DIGEST": "ab" * 32,
        "USER": USER,
        "ACCOUNT": ACCOUNT,
        "OPERATOR": OPERATOR,
    }


def ours(text: str) -> str:
    """Return what we have against a file, in words; empty when it is fine."""
    try:
        read = from_block(parse(text, "test.conf", read=lambda path: Path(path).read_text()))
    except (ConfError, BadConfiguration) as error:
        return str(error)
    return "\n".join(
        [*map(str, read.warnings), *(found.text for found in contradictions(read.options))]
    )


def theirs(text: str, directory: Path) -> str:
    file = directory / "nats.conf"
    file.write_text(text)
    done = subprocess.run(
        [nats_server_path(), "-t", "-c", str(file)],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    return "" if done.returncode == 0 else done.stderr


def filled(text: str, files: dict[str, str]) -> str:
    for name, path in files.items():
        text = text.replace(name, path)
    return text


@pytest.mark.parametrize("text", SAME)
def test_the_verdict_is_that_of_nats_server(
    text: str, files: dict[str, str], tmp_path: Path
) -> None:
    text = filled(text, files)
    assert bool(ours(text)) == bool(theirs(text, tmp_path)), (ours(text), theirs(text, tmp_path))


@pytest.mark.parametrize("text", STRICTER)
def test_where_we_are_stricter_nats_server_lets_it_pass(
    text: str, files: dict[str, str], tmp_path: Path
) -> None:
    text = filled(text, files)
    assert ours(text)
    assert not theirs(text, tmp_path)
