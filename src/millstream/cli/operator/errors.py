"""``millstream errors``: what a code means, and what to do about it."""

from typing import Any

import click

from millstream.cli.access.options import json_option
from millstream.cli.command import command
from millstream.cli.operator.error_table import HTTP, JETSTREAM
from millstream.cli.shown.near import hint
from millstream.cli.shown.output import tell_rows

Json = dict[str, Any]


@command("millstream errors 10059", "millstream errors topic_not_found", "millstream errors mirror")
@click.argument("code", required=False)
@json_option
def errors(code: str | None, as_json: bool) -> None:
    """Say what CODE means: a number of the JetStream API, a word of the HTTP API, or any word.

    Without CODE it lists them all.
    """
    known = _all()
    found = known if code is None else [each for each in known if each["code"] == code]
    if code is not None and not found:
        found = [
            each for each in known if code.lower() in f"{each['means']} {each['code']}".lower()
        ]
    if not found:
        assert code is not None
        raise click.ClickException(
            f"no error {code!r}{hint(code, [str(each['code']) for each in known])}; "
            "`millstream errors` lists them"
        )
    rows = [(each["code"], each["api"], each["means"], each["fix"]) for each in found]
    tell_rows(found, as_json, ("CODE", "API", "MEANS", "WHAT TO DO"), rows, "")


def _all() -> list[Json]:
    numbers: list[Json] = [
        {"code": str(number), "api": "JetStream", "means": means, "fix": fix}
        for number, (means, fix) in sorted(JETSTREAM.items())
    ]
    return numbers + [
        {"code": word, "api": f"HTTP {status}", "means": means, "fix": fix}
        for word, (status, means, fix) in sorted(HTTP.items())
    ]
