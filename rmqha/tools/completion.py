"""`rmqha completion`: what a shell evaluates so that Tab completes commands and options."""
import click
from click.shell_completion import get_completion_class

from rmqha.tools.dialect.exit_codes import CannotAnswerError
from rmqha.tools.dialect.output import put

_WHERE = {"bash": 'add  eval "$(rmqha completion bash)"  to ~/.bashrc',
          "zsh": 'add  eval "$(rmqha completion zsh)"  to ~/.zshrc',
          "fish": "save it as ~/.config/fish/completions/rmqha.fish"}


@click.command("completion", epilog="; ".join(f"{shell}: {text}" for shell, text in _WHERE.items()))
@click.argument("shell", type=click.Choice(list(_WHERE)))
@click.pass_context
def completion_command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell."""
    kind = get_completion_class(shell)
    if kind is None:
        raise CannotAnswerError(f"this version of click has no completion for {shell}")
    put(kind(ctx.find_root().command, {}, "rmqha", "_RMQHA_COMPLETE").source())
