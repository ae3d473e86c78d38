"""``millstream completion``: completion for bash, zsh and fish."""

import click

from millstream.cli.command import command

HOW = {
    "bash": 'eval "$(millstream completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(millstream completion zsh)"   # in ~/.zshrc',
    "fish": "millstream completion fish > ~/.config/fish/completions/millstream.fish",
}


@command('eval "$(millstream completion bash)"', "millstream completion fish")
@click.argument("shell", type=click.Choice(list(HOW)))
def completion(shell: str) -> None:
    """Print the script that completes commands and options in SHELL.

    Put its output where your shell reads it: eval "$(millstream completion bash)" in ~/.bashrc.
    """
    from click.shell_completion import get_completion_class

    root = click.get_current_context().find_root().command
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(root, {}, "millstream", "_MILLSTREAM_COMPLETE").source())
