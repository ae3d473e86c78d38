from msgspec.structs import replace

from millstream.server.options.auth_options import (
    AccountOptions,
    Authorization,
    MapDestination,
    MappingOptions,
    PermissionOptions,
    SubjectRules,
    UserOptions,
)
from millstream.server.options.options import (
    JetStreamOptions,
    LimitOptions,
    LoggingOptions,
    Options,
    TlsOptions,
)
from millstream.server.reload.reload import (
    Aspect,
    ReloadPlan,
    ReloadRefusal,
    carry_out,
    dropped_users,
    plan,
)

OLD = Options(authorization=Authorization(users=(UserOptions("a", "1"), UserOptions("b", "2"))))


class Recorder:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def set_limits(self, options: Options) -> None:
        self.told.append(options.limits)

    def set_log(self, log: LoggingOptions) -> None:
        self.told.append(log)

    def set_credentials(self, options: Options) -> None:
        self.told.append(options.users)

    def set_tls(self, tls: TlsOptions | None) -> None:
        self.told.append(tls)

    def set_mappings(self, options: Options) -> None:
        self.told.append(options.mappings)

    def set_about(self, options: Options) -> None:
        self.told.append(options.advertise)

    def set_files(self, options: Options) -> None:
        self.told.append(options.pid_file)

    def show(self, options: Options) -> None:
        """Monitoring is told of everything, so that nothing is learned here."""


def test_the_same_options_change_nothing() -> None:
    assert plan(OLD, replace(OLD)) == ReloadPlan(OLD)


def test_allowed_hosts_wait_for_a_start() -> None:
    new = replace(OLD, monitor=replace(OLD.monitor, allowed_hosts=("mill.example",)))
    (refused,) = plan(OLD, new).refused
    assert refused.setting == "monitor.allowed_hosts"
    assert "when it opens" in refused.reason


def test_each_changed_setting_is_named() -> None:
    new = replace(OLD, limits=LimitOptions(max_connections=9, ping_max=1), advertise="h:1")
    planned = plan(OLD, new)
    assert planned.applied == ("advertise", "limits.max_connections", "limits.ping_max")
    assert planned.aspects == {Aspect.LIMITS, Aspect.ABOUT}
    assert planned.options == new
    assert planned.refused == ()


def test_what_cannot_change_stays_and_says_why() -> None:
    new = replace(OLD, port=9, jetstream=JetStreamOptions(), limits=LimitOptions(ping_max=1))
    planned = plan(OLD, new)
    assert planned.refused == (
        ReloadRefusal("port", "a listener keeps its address until the server is started again"),
        ReloadRefusal("jetstream", "the store is opened once"),
    )
    assert planned.applied == ("limits.ping_max",)
    assert planned.options == replace(OLD, limits=LimitOptions(ping_max=1))


def test_a_limit_can_be_fixed_while_its_neighbours_change() -> None:
    planned = plan(OLD, replace(OLD, limits=LimitOptions(max_pending=5, max_connections=4)))
    assert [refusal.setting for refusal in planned.refused] == ["limits.max_pending"]
    assert planned.options.limits == LimitOptions(max_connections=4)


def test_gone_and_changed_users_are_dropped() -> None:
    new = replace(OLD, authorization=Authorization(users=(UserOptions("a", "other"),)))
    planned = plan(OLD, new)
    assert planned.dropped_users == {"a", "b"}
    assert planned.recheck


def test_other_permissions_do_not_drop_anyone() -> None:
    silent = PermissionOptions(publish=SubjectRules(allow=()))
    users = (UserOptions("a", "1", permissions=silent), UserOptions("b", "2"))
    planned = plan(OLD, replace(OLD, authorization=Authorization(users=users)))
    assert planned.dropped_users == frozenset()
    assert planned.recheck


def test_a_user_that_moves_to_another_account_is_dropped() -> None:
    user = UserOptions("u", "p")
    one = Options(accounts=(AccountOptions("A", users=(user,)), AccountOptions("B")))
    two = Options(accounts=(AccountOptions("A"), AccountOptions("B", users=(user,))))
    assert dropped_users(one, two) == {"u"}


def test_a_single_user_counts_too() -> None:
    one = Options(authorization=Authorization(user="a", password="1"))
    two = Options(authorization=Authorization(user="a", password="2"))
    assert dropped_users(one, two) == {"a"}
    assert dropped_users(one, replace(one)) == frozenset()


def test_certificates_are_read_again_even_when_nothing_changed() -> None:
    with_tls = Options(tls=TlsOptions())
    planned = plan(with_tls, replace(with_tls))
    assert planned.applied == ()
    assert planned.aspects == {Aspect.TLS}


def test_every_part_is_told_its_own_change_and_no_other() -> None:
    mapped = (MappingOptions("a", (MapDestination("b"),)),)
    new = replace(
        OLD,
        log=LoggingOptions(debug=True),
        limits=LimitOptions(ping_max=1),
        mappings=mapped,
        pid_file="p",
        advertise="h:1",
        authorization=Authorization(users=(UserOptions("a", "1"),)),
    )
    parts = Recorder()
    carry_out(plan(OLD, new), parts)
    assert parts.told == [
        LoggingOptions(debug=True),
        LimitOptions(ping_max=1),
        (UserOptions("a", "1"),),
        mapped,
        "h:1",
        "p",
    ]
    parts = Recorder()
    carry_out(plan(OLD, replace(OLD)), parts)
    assert parts.told == []


def test_every_option_is_either_reloadable_or_says_why_not() -> None:
    from millstream.server.reload import reload

    known = {*reload._ASPECTS, *(path.partition(".")[0] for path in reload._FIXED)}
    assert {*Options.__struct_fields__} - {"config_file", "config_digest"} == known
