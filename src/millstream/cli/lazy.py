"""Commands that are imported when they are called, so that each one starts quickly."""

from importlib import import_module

import click

from millstream.cli.shown.near import nearest

Places = dict[str, tuple[str, str]]


class LazyGroup(click.Group):
    """A group that knows where its commands are: name → (``module:attribute``, one-line help).

    ``within`` is the package that the modules are in; ``also`` maps other names to commands.
    """

    def __init__(
        self,
        *,
        purpose: str,
        places: Places,
        within: str = "",
        also: dict[str, str] | None = None,
        name: str | None = None,
    ) -> None:
        settings = {"help_option_names": ["-h", "--help"]}
        super().__init__(name=name, help=purpose, context_settings=settings)
        self._places = places
        self._within = f"{within}." if within else ""
        self._also = also or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order they were given."""
        return list(self._places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command; None when there is none of that name."""
        cmd_name = self._also.get(cmd_name, cmd_name)
        if cmd_name not in self._places:
            return None
        module, _, attribute = self._places[cmd_name][0].partition(":")
        command = getattr(import_module(self._within + module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or name the one that was probably meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            near = nearest(args[0], self._places)
            hint = f"did you mean '{near}'?" if near else "see --help for the commands"
            raise click.UsageError(f"no command named '{args[0]}': {hint}", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._places.items()])
