"""Commands that are imported when they are called, so that each one starts quickly."""

from importlib import import_module

import click


class LazyGroup(click.Group):
    """A group that knows where its commands are: name → (``module:attribute``, one-line help)."""

    def __init__(self, *, purpose: str, places: dict[str, tuple[str, str]]) -> None:
        super().__init__(help=purpose, context_settings={"help_option_names": ["-h", "--help"]})
        self._places = places

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order they were given."""
        return list(self._places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command; None when there is none of that name."""
        if cmd_name not in self._places:
            return None
        module, _, attribute = self._places[cmd_name][0].partition(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or name the one that was probably meant."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            from difflib import get_close_matches  # only a mistake needs it

            near = get_close_matches(args[0], self._places, n=1)
            hint = f"did you mean '{near[0]}'?" if near else "see --help for the commands"
            raise click.UsageError(f"no command named '{args[0]}': {hint}", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._places.items()])
