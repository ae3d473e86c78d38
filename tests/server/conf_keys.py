"""Every key of a configuration file, and what becomes of it.

A key *acts* (the options that come of a file with it differ, and somebody reads them), it is
*warned* of at start by name, or it is *refused* by name. There is nothing else. ``%`` in the text
of a block is where its keys stand; a key's value is what it is tried with.
"""

from typing import NamedTuple

from millstream.accounts import nkeys
from millstream.accounts.nkeys import Role
from support.jwt_makers import Operator

OPERATOR = Operator()
ACCOUNT = OPERATOR.account("main")
USER = nkeys.encode(Role.USER, bytes(range(32)))
CURVE = nkeys.encode(Role.CURVE, bytes(range(32)))


class Acts(NamedTuple):
    """What a key is tried with, and what stands beside it where it needs company."""

    value: str
    beside: str = ""


class Warned(NamedTuple):
    """A value that is taken, and a word of the reason why it changes nothing."""

    value: str
    reason: str
    beside: str = ""


class Refused(NamedTuple):
    """A value that is refused, and a word of the reason or the remedy."""

    value: str
    reason: str
    beside: str = ""


class Block(NamedTuple):
    """Where a table of keys stands: module, variable, and the text around its keys."""

    module: str
    table: str
    text: str


Fate = Acts | Warned | Refused


def each(fate: Fate, *keys: str) -> dict[str, Fate]:
    return dict.fromkeys(keys, fate)


BLOCKS = {
    "": Block("document", "_TOP", "%"),
    "authorization": Block("users", "_AUTHORIZATION", "authorization { % }"),
    "user": Block("users", "_USER", "authorization { users: [ { user: u }, { % } ] }"),
    "permissions": Block(
        "permissions",
        "_PERMISSIONS",
        "authorization { users: [ { user: u, permissions: { % } } ] }",
    ),
    "publish": Block(
        "permissions",
        "_PUBLISH",
        "authorization { users: [ { user: u, permissions: { publish: { % } } } ] }",
    ),
    "subscribe": Block(
        "permissions",
        "_SUBSCRIBE",
        "authorization { users: [ { user: u, permissions: { subscribe: { % } } } ] }",
    ),
    "allow_responses": Block(
        "permissions",
        "_RESPONSES",
        "authorization { users: [ { user: u, permissions: { allow_responses: { % } } } ] }",
    ),
    "account": Block("accounts", "_ACCOUNT", "accounts { A { % } }"),
    "account limits": Block("accounts", "_LIMITS", "accounts { A { limits { % } } }"),
    "account jetstream": Block("accounts", "_JETSTREAM", "accounts { A { jetstream { % } } }"),
    "export": Block("exports", "_EXPORT", "accounts { A { exports: [ { % } ] }, B {} }"),
    "latency": Block(
        "exports",
        "_LATENCY",
        "accounts { A { exports: [ { service: q, latency: { % } } ] } }",
    ),
    "import": Block(
        "exports",
        "_IMPORT",
        "accounts { O { exports: [ { stream: 's.>' }, { service: q } ] }, "
        "A { imports: [ { % } ] } }",
    ),
    "import source": Block(
        "exports",
        "_REMOTE",
        "accounts { O { exports: [ { stream: s } ] }, P { exports: [ { stream: s } ] }, "
        "A { imports: [ { stream: { % } } ] } }",
    ),
    "account trace": Block("accounts", "_TRACE", "accounts { A { msg_trace { % } } }"),
    "mapping": Block("mappings", "_DESTINATION", "mappings { a: [ { % } ] }"),
    "tls": Block("tls", "_TLS", "tls { % }"),
    "tls certificate": Block("tls", "_PAIR", "tls { certs: [ { % } ] }"),
    "websocket": Block("websocket", "_WEBSOCKET", "websocket { % }"),
    "websocket authorization": Block(
        "users", "_SIMPLE", "websocket { port: 9222, no_tls: true, authorization { % } }"
    ),
    "jetstream": Block("jetstream", "_JETSTREAM", "jetstream { % }"),
    "jetstream limits": Block("jetstream", "_LIMITS", "jetstream { limits { % } }"),
    "jetstream batch": Block("jetstream", "_BATCH", "jetstream { limits { batch { % } } }"),
    "jetstream cold": Block("jetstream", "_COLD", "jetstream { cold { % } }"),
    "fleet": Block("fleet", "_FLEET", "jetstream: on, fleet { url: 'file:///f', % }"),
    "resolver": Block(
        "trust", "_DIRECTORY", f"trusted_keys: [{OPERATOR.public}]\nresolver {{ % }}"
    ),
    "auth callout": Block(
        "users", "_CALLOUT", "authorization { users: [ { user: a } ], auth_callout { % } }"
    ),
    "cluster": Block("cluster", "_CLUSTER", "cluster { % }"),
    "leafnodes": Block("leafnodes", "_LEAFNODES", "leafnodes { % }"),
    "leafnodes authorization": Block(
        "leafnodes", "_AUTHORIZATION", "leafnodes { port: 7, authorization { % } }"
    ),
    "leafnodes user": Block(
        "leafnodes", "_USER", "leafnodes { port: 7, authorization { users: [ { % } ] } }"
    ),
    "leafnodes remote": Block("leafnodes", "_REMOTE", "leafnodes { remotes: [ { % } ] }"),
}
PARTS = {
    *(("users", name) for name in ("_NAME", "_PASSWORD", "_SINGLE")),
    *(("leafnodes", name) for name in ("_NAME", "_PASSWORD")),
}  # tables that only make up others

_PAIR = "cert_file: CERT, key_file: KEY"
_PORT = "port: 9222, no_tls: true"
_STREAM, _SERVICE = "stream: 's.*'", "service: q"
_FROM = "stream: { account: O, subject: s.a }"
_MEMORY = "resolver: MEMORY"
_TRUST = f"{_MEMORY}\nresolver_preload {{ {ACCOUNT.public}: {ACCOUNT.token} }}"
_URL = "url: 'nats://h:7'"
_ONE_ROUTE = "one route to each member"
_PLAIN = "not compressed here"
_OWN_STORE = "own way of keeping files"
_ONE = "this server is one"
_FULL = "type: full, dir: DIR"

KEYS: dict[str, dict[str, Fate]] = {
    "": {
        **each(Acts("4333"), "port"),
        **each(Acts("'127.0.0.1:4333'"), "listen"),
        **each(Acts("127.0.0.2"), "host", "net"),
        **each(Acts("one"), "server_name"),
        **each(Acts("'h:1'"), "client_advertise"),
        **each(Acts("[a]"), "server_tags"),
        **each(Acts("{ a: b }"), "server_metadata"),
        **each(Acts("true"), "no_header_support", "no_fast_producer_stall", "allow_non_tls"),
        **each(Acts("7"), "max_connections", "max_conn", "max_subscriptions", "max_subs"),
        **each(Acts("7"), "max_sub_tokens", "max_subscription_tokens", "max_closed_clients"),
        **each(Acts("7"), "ping_max", "max_traced_msg_len", "max_control_line"),
        **each(Acts("7"), "logfile_size_limit", "log_size_limit", "logfile_max_num", "log_max_num"),
        **each(Acts("7000"), "max_payload", "max_pending"),
        **each(Acts("'7s'"), "ping_interval", "write_deadline"),
        "write_timeout": Refused("retry", "a client that does not read is closed"),
        **each(Acts("'h:8222'"), "http"),
        **each(Acts("'h:8223'", f"tls {{ {_PAIR} }}"), "https"),
        **each(Acts("8222"), "http_port", "monitor_port"),
        **each(Acts("8223", f"tls {{ {_PAIR} }}"), "https_port"),
        **each(Acts("x"), "http_base_path"),
        **each(Acts("[a.example]"), "allowed_hosts"),
        **each(Acts("fsync"), "http_durability"),
        **each(Acts("{ A { subjects: a } }"), "streams"),
        **each(Acts("{ token: t }"), "authorization"),
        **each(Acts("{ A {} }"), "accounts"),
        **each(Acts("{ a: b }"), "mappings", "maps"),
        **each(Acts("u", "authorization { users: [ { user: u } ] }"), "no_auth_user"),
        **each(Acts("A", "accounts { A {} }"), "system_account", "system"),
        **each(Acts("true"), "no_system_account", "no_system", "no_sys_acc"),
        **each(
            Acts(OPERATOR.token, _TRUST),
            *("operator", "operators", "roots", "root", "root_operators", "root_operator"),
        ),
        **each(Acts(f"[{OPERATOR.public}]", _TRUST), "trusted", "trusted_keys"),
        **each(Acts("MEMORY"), "resolver", "account_resolver", "accounts_resolver"),
        **each(Acts(f"{{ {ACCOUNT.public}: {ACCOUNT.token} }}"), "resolver_preload"),
        **each(
            Acts(f"[{ACCOUNT.public}]", f"operator: {OPERATOR.token}\n{_TRUST}"),
            "resolver_pinned_accounts",
        ),
        "resolver_tls": Refused("{}", "the system's authorities"),
        "default_sentinel": Refused("x", "a JWT of its own"),
        **each(Acts(f"{{ {_PAIR} }}"), "tls"),
        **each(Acts(f"{{ {_PORT} }}"), "websocket", "ws"),
        "ocsp": Refused("true", "without OCSP"),
        "ocsp_cache": Refused("true", "without OCSP"),
        "proxy_protocol": Acts("true"),
        "proxy_protocol_trusted": Acts("['10.0.0.0/8']"),
        "proxies": Refused("{}", "signs for it"),
        **each(Acts("{ store_dir: d }"), "jetstream"),
        **each(Acts("d", "jetstream: on"), "store_dir", "storedir"),
        "fleet": Acts("{ url: 'file:///f' }", "jetstream: on"),
        "default_js_domain": Acts("{ A: b }"),
        **each(Acts("{ name: c }"), "cluster"),
        **each(Acts("{ port: 7422 }"), "leaf", "leafnodes"),
        "gateway": Refused("{}", "joins no super-cluster"),
        "mqtt": Refused("{}", "MQTT clients cannot connect"),
        **each(
            Warned("7", "connects to no other"), "connect_error_reports", "reconnect_error_reports"
        ),
        **each(Acts("true"), "debug", "trace", "trace_headers", "logtime_utc"),
        "trace_verbose": Warned("true", "is taken as 'trace'"),
        "logtime": Acts("false"),
        **each(Acts("f"), "logfile", "log_file", "pidfile", "pid_file", "ports_file_dir"),
        "syslog": Acts("true"),
        "remote_syslog": Acts("'udp://localhost:514'"),
        **each(Warned("7", "no Go program"), "prof_port", "prof_block_rate"),
        **each(Acts("true"), "disable_sublist_cache", "no_sublist_cache"),
        "lame_duck_duration": Acts("'70s'"),
        "lame_duck_grace_period": Acts("'7s'"),
        "feature_flags": Warned("{ a: true }", "another server"),
    },
    "authorization": {
        **each(Acts("u"), "user", "username"),
        **each(Acts("p", "user: u"), "pass", "password"),
        "token": Acts("t"),
        "timeout": Acts("7"),
        "users": Acts("[ { user: u } ]"),
        **each(
            Acts("{ publish: a }", "users: [ { user: u } ]"),
            *("default_permission", "default_permissions", "permissions"),
        ),
        **each(
            Acts(f"{{ issuer: {ACCOUNT.public}, users: [a] }}", "users: [ { user: a } ]"),
            *("auth_callout", "auth_hook"),
        ),
        "proxy_required": Refused("true", "no trusted proxies"),
    },
    "user": {
        **each(Acts("v", "pass: p"), "user", "username"),
        **each(Acts("p", "user: v"), "pass", "password"),
        "nkey": Acts(USER),
        **each(Acts("{ publish: a }", "user: v"), "permission", "permissions", "authorization"),
        **each(
            Acts("[STANDARD]", "user: v"),
            *("allowed_connection_types", "connection_types", "clients"),
        ),
        "proxy_required": Refused("true", "no trusted proxies", "user: v"),
    },
    "permissions": {
        **each(Acts("a"), "pub", "publish", "import", "sub", "subscribe", "export"),
        **each(Acts("true"), "publish_allow_responses", "allow_responses"),
    },
    "publish": each(Acts("a"), "allow", "deny"),
    "subscribe": each(Acts("a"), "allow", "deny"),
    "allow_responses": {
        **each(Acts("7"), "max", "max_msgs", "max_messages", "max_responses"),
        **each(Acts("'7s'"), "expires", "expiration", "ttl"),
    },
    "account": {
        "nkey": Acts(ACCOUNT.public),
        "users": Acts("[ { user: u } ]"),
        "default_permissions": Acts("{ publish: a }", "users: [ { user: u } ]"),
        "exports": Acts("[ { stream: a } ]"),
        "imports": Acts(
            "[ { stream: { account: A, subject: b } } ]",
            "exports: [ { stream: b } ] }, B { users: []",
        ),
        **each(Acts("{ a: b }"), "mappings", "maps"),
        "jetstream": Acts("on"),
        "limits": Acts("{ max_conn: 7 }"),
        **each(Acts("d"), "msg_trace", "trace_dest"),
    },
    "account limits": {
        **each(Acts("7"), "max_connections", "max_conn", "max_subscriptions", "max_subs"),
        **each(Acts("7"), "max_payload", "max_pay"),
        **each(Acts("7"), "max_leafnodes", "max_leafs"),
    },
    "account jetstream": {
        **each(Acts("7"), "max_memory", "max_mem", "mem", "memory"),
        **each(Acts("7"), "max_store", "max_file", "max_disk", "store", "disk"),
        **each(Acts("7"), "max_streams", "streams", "max_consumers", "consumers"),
        **each(Acts("true"), "max_bytes_required", "max_stream_bytes", "max_bytes"),
        **each(Acts("7"), "mem_max_stream_bytes", "memory_max_stream_bytes"),
        **each(Acts("7"), "disk_max_stream_bytes", "store_max_stream_bytes", "max_ack_pending"),
        "cluster_traffic": Warned("owner", _ONE),
    },
    "export": {
        **each(Acts("a"), "stream", "service"),
        **each(Acts("stream", _SERVICE), "response", "response_type"),
        **each(
            Acts("'7s'", _SERVICE),
            *("threshold", "response_threshold", "response_max_time", "response_time"),
        ),
        "accounts": Acts("[B]", _STREAM),
        "latency": Acts("l", _SERVICE),
        "account_token_position": Acts("2", _STREAM),
        "allow_trace": Acts("true", _SERVICE),
    },
    "latency": {"subject": Acts("l"), "sampling": Acts("7", "subject: l")},
    "import": {
        "stream": Acts("{ account: O, subject: s.a }"),
        "service": Acts("{ account: O, subject: q }"),
        **each(Acts("x", _FROM), "prefix", "to"),
        "share": Acts("true", "service: { account: O, subject: q }"),
        "allow_trace": Acts("true", _FROM),
    },
    "import source": {
        "account": Acts("P", "subject: s"),
        "subject": Acts("s", "account: O"),
    },
    "mapping": {
        **each(Acts("b", "weight: 7"), "dest", "destination"),
        "weight": Acts("7", "dest: b"),
        "cluster": Acts("c", "dest: b, weight: 7"),
    },
    "tls": {
        "cert_file": Acts("CERT", "key_file: KEY"),
        "key_file": Acts("KEY", "cert_file: CERT"),
        "ca_file": Acts("CERT", _PAIR),
        "insecure": Warned("true", "clients check this server", _PAIR),
        **each(Acts("true", _PAIR), "verify", "verify_and_map"),
        **each(Acts("true", _PAIR), "handshake_first", "first", "immediate"),
        "verify_cert_and_check_known_urls": Refused("true", "the authority", _PAIR),
        "allow_insecure_cipher_suites": Acts(
            "true", f"{_PAIR}, cipher_suites: [ TLS_RSA_WITH_AES_128_GCM_SHA256 ]"
        ),
        "cipher_suites": Acts("[ TLS_AES_128_GCM_SHA256 ]", _PAIR),
        "curve_preferences": Acts("[ X25519 ]", _PAIR),
        **each(Acts("7", _PAIR), "timeout", "connection_rate_limit"),
        "pinned_certs": Acts(f"[ '{'ab' * 32}' ]", _PAIR),
        **each(Acts(f"[ {{ {_PAIR} }} ]"), "certs", "certificates"),
        "min_version": Acts("'1.3'", _PAIR),
        "ocsp_peer": Refused("true", "without OCSP", _PAIR),
        **each(
            Refused("x", "on Windows only", _PAIR),
            *("cert_store", "cert_match", "cert_match_by", "cert_match_skip_invalid"),
            "ca_certs_match",
        ),
    },
    "tls certificate": {
        "cert_file": Acts("CERT", "key_file: KEY"),
        "key_file": Acts("KEY", "cert_file: CERT"),
    },
    "websocket": {
        "listen": Acts("'127.0.0.2:9222'", "no_tls: true"),
        "port": Acts("9222", "no_tls: true"),
        **each(Acts("127.0.0.2", _PORT), "host", "net"),
        **each(Acts("h", _PORT), "advertise", "user_cookie", "pass_cookie", "token_cookie"),
        "no_tls": Acts("true", "port: 9222"),
        "tls": Acts(f"{{ {_PAIR} }}", "port: 9222"),
        "same_origin": Acts("true", _PORT),
        **each(
            Acts("[ 'https://a.example' ]", _PORT),
            *("allowed_origins", "allowed_origin", "allow_origins", "allow_origin"),
            *("origins", "origin"),
        ),
        "handshake_timeout": Acts("'7s'", _PORT),
        **each(Acts("true", _PORT), "compress", "compression"),
        **each(Acts("{ token: t }", _PORT), "authorization", "authentication"),
        "jwt_cookie": Acts("c", _PORT),
        "no_auth_user": Acts("u", _PORT),
        "headers": Acts("{ 'X-A': b }", _PORT),
        "ping_interval": Acts("'7s'", _PORT),
    },
    "websocket authorization": {
        **each(Acts("u"), "user", "username"),
        **each(Acts("p", "user: u"), "pass", "password"),
        "token": Acts("t"),
        "timeout": Acts("7"),
    },
    "jetstream": {
        **each(Acts("false"), "enable", "enabled"),
        **each(Acts("d"), "store", "store_dir", "storedir", "domain"),
        **each(Acts("'7s'"), "sync", "sync_interval"),
        **each(Acts("7"), "max_memory_store", "max_mem_store", "max_mem"),
        **each(Acts("7"), "max_file_store", "max_file"),
        "wal_shards": Acts("7"),
        "strict": Acts("false"),
        "limits": Acts("{ max_ack_pending: 7 }"),
        "unique_tag": Warned("az", _ONE),
        **each(Acts("k"), "key", "ek", "encryption_key", "key_file"),
        **each(Acts("k"), "prev_key", "prev_ek", "prev_encryption_key", "prev_key_file"),
        "cipher": Acts("chacha"),
        "tpm": Refused("{}", "give the key itself or a file"),
        "rewrite_ratio": Acts("0.7"),
        "cold": Acts("{ place: p }"),
        "extension_hint": Warned("x", _ONE),
        **each(Warned("7", _ONE), "max_outstanding_catchup", "meta_compact", "meta_compact_size"),
        "meta_compact_sync": Warned("true", _ONE),
        **each(Warned("7", _OWN_STORE), "max_buffered_size", "max_buffered_msgs"),
        **each(Warned("7", _OWN_STORE), "request_queue_limit", "info_queue_limit"),
        "max_concurrent_io": Warned("7", _OWN_STORE),
    },
    "jetstream limits": {
        **each(Acts("7"), "max_ack_pending", "max_request_batch", "default_max_consumers"),
        "max_ha_assets": Warned("7", _ONE),
        "duplicate_window": Acts("'7s'"),
        "batch": Acts("{ max_msgs: 7 }"),
    },
    "jetstream batch": {
        **each(Acts("7"), "max_inflight_per_stream", "max_inflight_total", "max_msgs"),
        "timeout": Acts("'7s'"),
    },
    "jetstream cold": {
        **each(Acts("p"), "place"),
        **each(Acts("7"), "hot_segments", "hot_bytes", "cache_bytes"),
        "parquet": Acts("none"),
    },
    "fleet": {
        "url": Acts("'file:///g'"),
        "shards": Refused("3", "several shards need routing"),
    },
    "resolver": {
        "type": Acts("full", "dir: DIR"),
        "dir": Acts("DIR", "type: full"),
        "allow_delete": Acts("true", _FULL),
        "hard_delete": Acts("true", f"{_FULL}, allow_delete: true"),
        "limit": Acts("7", _FULL),
        "ttl": Acts("'7s'", "type: cache, dir: DIR"),
        "interval": Warned("'7s'", "no other servers", _FULL),
        "timeout": Acts("'7s'", "type: cache, dir: DIR"),
    },
    "account trace": {"dest": Acts("d"), "sampling": Acts("7", "dest: d")},
    "auth callout": {
        "issuer": Acts(ACCOUNT.public, "users: [a]"),
        **each(Acts("A", f"issuer: {ACCOUNT.public}, users: [a]"), "account", "acc"),
        **each(Acts("[a]", f"issuer: {ACCOUNT.public}"), "auth_users", "users"),
        **each(Acts(CURVE, f"issuer: {ACCOUNT.public}, users: [a]"), "xkey", "key"),
        "allowed_accounts": Acts("[A]", f"issuer: {ACCOUNT.public}, users: [a]"),
    },
    "cluster": {
        "name": Acts("c"),
        **each(Acts("'127.0.0.1:7'", "name: c"), "listen"),
        "port": Acts("7", "name: c"),
        **each(Acts("h", "port: 7"), "host", "net"),
        "authorization": Acts("{ user: u, password: p }", "port: 7"),
        "routes": Acts("[ 'nats://u:p@h:7' ]"),
        "tls": Acts(f"{{ {_PAIR} }}", "port: 7"),
        **each(Acts("x", "port: 7"), "cluster_advertise", "advertise"),
        **each(Acts("true", "port: 7"), "no_advertise", "connect_backoff"),
        **each(Acts("7", "port: 7"), "connect_retries", "ping_max"),
        "ping_interval": Acts("'7s'", "port: 7"),
        "permissions": Acts("{ import: a, export: { allow: b, deny: c } }", "port: 7"),
        "pool_size": Warned("7", _ONE_ROUTE),
        "accounts": Warned("[ A ]", _ONE_ROUTE),
        "write_deadline": Warned("'7s'", "the clients' write_deadline"),
        "write_timeout": Warned("retry", "is closed"),
        "compression": Warned("off", _PLAIN),
    },
    "leafnodes": {
        **each(Acts("'127.0.0.1:7'"), "listen"),
        "port": Acts("7"),
        **each(Acts("h", "port: 7"), "host", "net"),
        "authorization": Acts("{ user: u, password: p }", "port: 7"),
        "remotes": Acts("[ { url: 'nats://h:7' } ]"),
        **each(Acts("'7s'", "port: 7"), "reconnect", "reconnect_delay", "reconnect_interval"),
        "dial_timeout": Acts("'7s'", "port: 7"),
        "tls": Acts(f"{{ {_PAIR} }}", "port: 7"),
        **each(Acts("x", "port: 7"), "leafnode_advertise", "advertise"),
        "no_advertise": Acts("true", "port: 7"),
        **each(Acts("2.9.0", "port: 7"), "min_version", "minimum_version"),
        **each(Acts("true", "port: 7"), "isolate_leafnode_interest", "isolate"),
        "write_deadline": Warned("'7s'", "the clients' write_deadline"),
        "write_timeout": Warned("retry", "is closed"),
        "compression": Warned("off", _PLAIN),
    },
    "leafnodes authorization": {
        **each(Acts("u"), "user", "username"),
        **each(Acts("p", "user: u"), "pass", "password"),
        "nkey": Acts(USER),
        "timeout": Acts("7"),
        "users": Acts("[ { user: u, password: p, account: A } ]"),
        "account": Acts("A", "user: u"),
        "proxy_required": Refused("true", "no trusted proxies"),
    },
    "leafnodes user": {
        **each(Acts("u"), "user", "username"),
        **each(Acts("p", "user: u"), "pass", "password"),
        "account": Acts("A", "user: u"),
        "proxy_required": Refused("true", "no trusted proxies"),
    },
    "leafnodes remote": {
        **each(Acts("'nats://h:7'"), "url"),
        **each(Acts("[ 'nats://h:7', 'nats://i:7' ]"), "urls"),
        **each(Acts("true", _URL), "no_randomize", "dont_randomize", "hub", "disabled"),
        **each(Acts("A", _URL), "account", "local"),
        **each(Acts("x", _URL), "creds", "credentials", "nkey", "seed"),
        "tls": Acts("{ ca_file: CERT }", _URL),
        **each(Acts("[ a, b ]", _URL), "deny_imports", "deny_import"),
        **each(Acts("[ a, b ]", _URL), "deny_exports", "deny_export"),
        **each(Acts("true", _URL), "isolate_leafnode_interest", "isolate", "request_isolation"),
        "ignore_discovered_servers": Acts("true", _URL),
        "first_info_timeout": Acts("'7s'", _URL),
        "dial_timeout": Warned("'7s'", "for all remotes", _URL),
        "proxy": Refused("{}", "called directly", _URL),
        "compression": Warned("off", _PLAIN, _URL),
        **each(Warned("true", "no leader", _URL), "jetstream_cluster_migrate"),
        **each(Warned("true", "no leader", _URL), "js_cluster_migrate"),
        **each(
            Warned("true", "not called over WebSocket", _URL),
            *("ws_compress", "ws_compression", "websocket_compress", "websocket_compression"),
            *("ws_no_masking", "websocket_no_masking"),
        ),
    },
}

# What nats-server 2.15 knows at the top and in each block that is not refused as a whole.
NATS_SERVER: dict[str, str] = {
    "": """listen client_advertise port server_name host net debug trace trace_verbose trace_headers
        logtime logtime_utc mappings maps disable_sublist_cache no_sublist_cache accounts
        default_sentinel authorization http https http_port monitor_port https_port http_base_path
        cluster gateway leaf leafnodes store_dir storedir jetstream logfile log_file
        logfile_size_limit log_size_limit logfile_max_num log_max_num syslog remote_syslog pidfile
        pid_file ports_file_dir prof_port prof_block_rate max_control_line max_payload max_pending
        proxy_protocol max_connections max_conn max_traced_msg_len max_subscriptions max_subs
        max_sub_tokens max_subscription_tokens ping_interval ping_max tls ocsp allow_non_tls
        write_deadline write_timeout lame_duck_duration lame_duck_grace_period operator operators
        roots root root_operators root_operator resolver account_resolver accounts_resolver
        resolver_tls resolver_preload resolver_pinned_accounts no_auth_user system_account system
        no_system_account no_system no_sys_acc no_header_support trusted trusted_keys
        connect_error_reports reconnect_error_reports websocket ws mqtt server_tags server_metadata
        feature_flags default_js_domain ocsp_cache no_fast_producer_stall max_closed_clients
        proxies""",
    "authorization": """user username pass password token timeout users default_permission
        default_permissions permissions auth_callout auth_hook proxy_required""",
    "user": """nkey user username pass password permission permissions authorization
        allowed_connection_types connection_types clients proxy_required""",
    "permissions": """pub publish import sub subscribe export publish_allow_responses
        allow_responses""",
    "publish": "allow deny",
    "subscribe": "allow deny",
    "allow_responses": "max max_msgs max_messages max_responses expires expiration ttl",
    "account": """nkey imports exports jetstream users default_permissions mappings maps limits
        msg_trace trace_dest""",
    "account limits": """max_connections max_conn max_subscriptions max_subs max_payload max_pay
        max_leafnodes max_leafs""",
    "account jetstream": """max_memory max_mem mem memory max_store max_file max_disk store disk
        max_streams streams max_consumers consumers max_bytes_required max_stream_bytes max_bytes
        mem_max_stream_bytes memory_max_stream_bytes disk_max_stream_bytes store_max_stream_bytes
        max_ack_pending cluster_traffic""",
    "export": """stream service response response_type threshold response_threshold
        response_max_time response_time accounts latency account_token_position allow_trace""",
    "import": "stream service prefix to share allow_trace",
    "import source": "account subject",
    "mapping": "dest destination weight cluster",
    "tls": """cert_file key_file ca_file insecure verify verify_and_map
        verify_cert_and_check_known_urls allow_insecure_cipher_suites cipher_suites
        curve_preferences timeout connection_rate_limit pinned_certs cert_store cert_match_by
        cert_match ca_certs_match handshake_first first immediate cert_match_skip_invalid ocsp_peer
        certs certificates min_version""",
    "tls certificate": "cert_file key_file",
    "websocket": """listen port host net advertise no_tls tls same_origin allowed_origins
        allowed_origin allow_origins allow_origin origins origin handshake_timeout compress
        compression authorization authentication jwt_cookie user_cookie pass_cookie token_cookie
        no_auth_user headers ping_interval""",
    "websocket authorization": "user username pass password token timeout",
    "jetstream": """strict store store_dir storedir sync sync_interval max_memory_store
        max_mem_store max_mem max_file_store max_file domain enable enabled key ek encryption_key
        prev_key prev_ek prev_encryption_key cipher extension_hint limits tpm unique_tag
        max_outstanding_catchup max_buffered_size max_buffered_msgs request_queue_limit
        info_queue_limit meta_compact meta_compact_size meta_compact_sync max_concurrent_io""",
    "jetstream limits": """max_ack_pending max_ha_assets max_request_batch duplicate_window batch
        default_max_consumers""",
    "jetstream batch": "max_inflight_per_stream max_inflight_total max_msgs timeout",
    "account trace": "dest sampling",
    "auth callout": "issuer account acc auth_users users xkey key allowed_accounts",
    "resolver": "dir type allow_delete hard_delete limit ttl interval timeout",
    "cluster": """name listen port host net authorization routes tls cluster_advertise advertise
        no_advertise connect_retries connect_backoff permissions pool_size accounts compression
        ping_interval ping_max write_deadline write_timeout""",
    "leafnodes": """listen port host net authorization remotes reconnect reconnect_delay
        reconnect_interval dial_timeout tls leafnode_advertise advertise no_advertise min_version
        minimum_version compression isolate_leafnode_interest isolate write_deadline
        write_timeout""",
    "leafnodes authorization": """user username pass password nkey timeout users account
        proxy_required""",
    "leafnodes user": "user username pass password account proxy_required",
    "leafnodes remote": """no_randomize dont_randomize url urls account local creds credentials nkey
        seed tls hub deny_imports deny_import deny_exports deny_export ws_compress ws_compression
        websocket_compress websocket_compression ws_no_masking websocket_no_masking
        jetstream_cluster_migrate js_cluster_migrate isolate_leafnode_interest isolate
        request_isolation compression first_info_timeout dial_timeout disabled proxy
        ignore_discovered_servers""",
}
