"""``millstream man``: the manual page, made from the commands themselves."""

from collections.abc import Iterator

import click

from millstream import __version__
from millstream.cli.command import Command, ServerOption, command


@command("millstream man | man -l -", "millstream man > /usr/local/share/man/man1/millstream.1")
@click.option("--markdown", is_flag=True, help="Print a page of the manual instead.")
def man(markdown: bool) -> None:
    """Print the manual page of every command, for man(1)."""
    root = click.get_current_context().find_root()
    if markdown:
        click.echo(as_markdown(root.command, root), nl=False)
        return
    lines = [
        f'.TH MILLSTREAM 1 "" "millstream {__version__}" "User Commands"',
        ".SH NAME",
        r"millstream \- a durable message broker: one log for NATS clients, HTTP and Spark",
        ".SH SYNOPSIS",
        ".B millstream",
        r"\fICOMMAND\fR [\fIOPTIONS\fR] [\fIARGUMENTS\fR]",
        ".SH COMMANDS",
        *_group(root.command, root, ""),
        ".SH EXIT STATUS",
        "0 done; 1 failed, and a line on standard error says why and what to do; 2 the command",
        "line was wrong; 130 interrupted.  \\fBserver check\\fR: 0 fine, 1 warning, 2 critical,",
        "3 unknown.  \\fBfsck\\fR and \\fBscrub\\fR: 3 damage, 4 unusable.",
    ]
    click.echo("\n".join(lines))


def walk(
    group: click.Command, context: click.Context, name: str
) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Return every command and group below a group, each with its whole name."""
    assert isinstance(group, click.Group)
    for each in group.list_commands(context):
        try:
            found = group.get_command(context, each)
        except click.ClickException:
            continue  # its packages are not installed here
        assert found is not None
        whole = f"{name} {each}".strip()
        inner = click.Context(found, parent=context, info_name=each)
        yield whole, found, inner
        if isinstance(found, click.Group):
            yield from walk(found, inner, whole)


def _group(group: click.Command, context: click.Context, name: str) -> Iterator[str]:
    for whole, found, inner in walk(group, context, name):
        if isinstance(found, click.Group):
            continue
        pieces = " ".join(found.collect_usage_pieces(inner))
        yield from (".TP", rf"\fB{_plain(whole)}\fR {_plain(pieces)}", _plain(found.help or ""))
        for param in found.get_params(inner):
            record = param.get_help_record(inner)
            if record is not None and _is_told(param):
                yield from (".RS", ".TP", rf"\fB{_plain(record[0])}\fR", _plain(record[1]), ".RE")
        if isinstance(found, Command):
            for example in found.examples:
                yield from (".RS", ".PP", rf"Example: \fI{_plain(example)}\fR", ".RE")


def _is_told(param: click.Parameter) -> bool:
    """Whether a page lists it: every option but the one for help."""
    return isinstance(param, click.Option) and "--help" not in param.opts


def _plain(text: str) -> str:
    words = " ".join(text.split()).replace("\\", r"\e").replace("-", r"\-")
    return words.replace("'", r"\(aq")


def as_markdown(root: click.Command, context: click.Context) -> str:
    """Return the page that lists every command with its options."""
    lines = ["# Every command", ""]
    lines += ["`millstream man --markdown` writes this page: run it after a change.", ""]
    shared: dict[str, str] = {}
    for whole, found, inner in walk(root, context, ""):
        if not isinstance(found, click.Group):
            lines += _section(whole, found, inner, shared)
    lines += ["## Options of the connection", ""]
    lines += ["Commands that talk to a server take those of these that fit:", ""]
    lines += [f"- `{flags}`: {text}" for flags, text in sorted(shared.items())]
    return "\n".join(lines) + "\n"


def _section(
    whole: str, found: click.Command, inner: click.Context, shared: dict[str, str]
) -> Iterator[str]:
    pieces = " ".join(each for each in found.collect_usage_pieces(inner) if each != "[OPTIONS]")
    yield from (f"## {whole}", "", f"    millstream {whole} {pieces}".rstrip(), "")
    yield from ("\n\n".join(" ".join(p.split()) for p in (found.help or "").split("\n\n")), "")
    listed = []
    for param in found.get_params(inner):
        record = param.get_help_record(inner)
        if record is None or not _is_told(param):
            continue
        if isinstance(param, ServerOption):
            shared[record[0]] = record[1]
        else:
            listed.append(f"- `{record[0]}`: {' '.join(record[1].split())}")
    yield from ([*listed, ""] if listed else [])
    if isinstance(found, Command) and found.examples:
        yield from (*(f"    {example}" for example in found.examples), "")
