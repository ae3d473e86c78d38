"""Every command explains itself, and the manual lists every command with every option."""

import subprocess
import sys
from pathlib import Path

import click
import pytest

from millstream.cli.command import Command
from millstream.cli.commands import cli
from millstream.cli.operator.man import as_markdown, walk

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "commands.md"
ROOT = click.Context(cli, info_name="millstream")
COMMANDS = list(walk(cli, ROOT, ""))


def test_every_command_has_a_help_text_and_an_example_of_itself() -> None:
    poor = [
        name
        for name, found, context in COMMANDS
        if not isinstance(found, click.Group)
        and not (
            isinstance(found, Command)
            and found.help
            and any(f"millstream {name}" in example for example in found.examples)
        )
    ]
    assert poor == []
    assert len(COMMANDS) > 150


def test_the_manual_lists_what_there_is_and_nothing_else() -> None:
    assert PAGE.read_text() == as_markdown(cli, ROOT), "run: millstream man --markdown"


def test_every_example_can_be_parsed() -> None:
    import shlex

    for name, known, _ in COMMANDS:
        if not isinstance(known, Command) or name == "nats-server":
            continue
        for example in known.examples:
            words = shlex.split(example.partition(" | ")[0].partition(" < ")[0], comments=True)
            if words[0] != "millstream":
                continue
            rest: list[str] = words[1:]
            command: click.Command = cli
            while isinstance(command, click.Group):
                _, found, rest = command.resolve_command(ROOT, rest)
                assert found is not None
                command = found
            rest = rest[: rest.index(">")] if ">" in rest else rest
            try:
                command.make_context(name, list(rest), parent=ROOT)
            except click.BadParameter as error:
                if "does not exist" not in error.message:  # a file that only the reader has
                    raise AssertionError(f"{example}: {error}") from error


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands(shell: str) -> None:
    script = subprocess.run(
        [sys.executable, "-m", "millstream", "completion", shell],
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip
    assert "_MILLSTREAM_COMPLETE" in script


def test_completion_knows_the_commands_of_groups() -> None:
    from click.shell_completion import ShellComplete

    found = ShellComplete(cli, {}, "millstream", "_MILLSTREAM_COMPLETE")
    names = {each.value for each in found.get_completions(["stream"], "b")}
    assert names == {"backup"}
    assert "--max-age" in {each.value for each in found.get_completions(["stream", "add"], "--max")}


def test_a_command_that_is_mistyped_is_named() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "millstream", "steam", "ls"],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean 'stream'?" in done.stderr
