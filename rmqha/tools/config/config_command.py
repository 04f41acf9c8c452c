"""The group `rmqha config`."""
import click

from rmqha.tools.config.check import check_command
from rmqha.tools.config.explain import explain_command
from rmqha.tools.config.files import init_command, path_command


@click.group("config")
def config_group() -> None:
    """Explain config keys, check config files, copy those that rmqha comes with."""


for _command in (explain_command, check_command, init_command, path_command):
    config_group.add_command(_command)
