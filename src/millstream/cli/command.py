"""Command: one command of the tree, with an example in its help and its server options apart."""

from collections.abc import Callable
from typing import Any

import click


class ServerOption(click.Option):
    """An option that says which server, and as whom: many commands have it, so it comes last."""


class Command(click.Command):
    """A command whose help ends with examples."""

    def __init__(self, *arguments: Any, examples: tuple[str, ...] = (), **more: Any) -> None:
        more.setdefault("context_settings", {}).setdefault("help_option_names", ["-h", "--help"])
        super().__init__(*arguments, **more)
        self.examples = examples

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the command's own options, then those of the connection."""
        for title, is_server in (("Options", False), ("Server", True)):
            listed = [
                record
                for param in self.get_params(ctx)
                if isinstance(param, ServerOption) is is_server
                and (record := param.get_help_record(ctx)) is not None
            ]
            if listed:
                with formatter.section(title):
                    formatter.write_dl(listed)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Show the examples as they are typed."""
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write(f"  {example}\n")


def command(*examples: str, **more: Any) -> Callable[[Callable[..., Any]], Command]:
    """Make a function a command; ``examples`` are whole command lines."""
    return click.command(cls=Command, examples=examples, **more)
