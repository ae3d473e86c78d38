import pytest

from millstream.server.conf.document import from_block
from millstream.server.conf.syntax import parse
from millstream.server.options.options import LoggingOptions, Options
from millstream.server.options.serve_config import ConfigError
from millstream.server.options.unsupported import refuse_missing, without_effect


def options(text: str) -> Options:
    return from_block(parse(text)).options


def test_what_is_there_is_not_refused() -> None:
    refuse_missing(Options())
    refuse_missing(options("authorization { token: t }\njetstream: on\nhttp: 8222"))


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        (
            "trusted_keys: OBQDG7NAIOX7TG5UGNSKCMYP7TGYOBRJZU4V5PNW5BBV6LE64TIXDKAR\n"
            'resolver: URL("http://127.0.0.1:1/jwt/")',
            "account resolvers other than MEMORY",
        ),
    ],
)
def test_what_is_not_there_is_refused_by_name(text: str, missing: str) -> None:
    with pytest.raises(ConfigError, match=f"not supported: {missing}"):
        refuse_missing(options(text))


def test_plain_options_leave_nothing_out() -> None:
    assert without_effect(Options()) == []
    assert without_effect(options("jetstream: on\naccounts { A { jetstream: on } }")) == []


def test_what_is_left_out_is_named() -> None:
    assert without_effect(Options(log=LoggingOptions(trace=True, trace_verbose=True))) == [
        "'-VV' is taken as '-V': what the server tells itself is not traced"
    ]
