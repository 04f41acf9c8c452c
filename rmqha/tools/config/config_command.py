"""The group `rmqha config`."""
import click

from rmqha.tools.config.check import check_command
from rmqha.tools.config.explain import explain_command


@click.group("config")
def config_group() -> None:
    """Explain config keys, check config files."""


for _command in (explain_command, check_command):
    config_group.add_command(_command)
