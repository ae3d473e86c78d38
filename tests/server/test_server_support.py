from millstream.server.conf.document import from_block
from millstream.server.conf.syntax import parse
from millstream.server.options.options import LoggingOptions, Options
from millstream.server.options.unsupported import without_effect


def options(text: str) -> Options:
    return from_block(parse(text)).options


def test_plain_options_leave_nothing_out() -> None:
    assert without_effect(Options()) == []
    assert without_effect(options("jetstream: on\naccounts { A { jetstream: on } }")) == []


def test_what_is_left_out_is_named() -> None:
    assert without_effect(Options(log=LoggingOptions(trace=True, trace_verbose=True))) == [
        "'-VV' is taken as '-V': what the server tells itself is not traced"
    ]
