"""The group `rmqha check`."""
import click

from rmqha.tools.check.controller import controller_check_command
from rmqha.tools.check.ha import ha_check_command
from rmqha.tools.check.server import server_check_command


@click.group("check")
def check_group() -> None:
    """Checks for monitoring: one line, exit code 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN."""


for _command in (ha_check_command, controller_check_command, server_check_command):
    check_group.add_command(_command)
