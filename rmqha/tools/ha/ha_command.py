"""The group `rmqha ha`."""
import click

from rmqha.tools.ha.receive import receive_command
from rmqha.tools.ha.status import status_command


@click.group("ha")
def ha_group() -> None:
    """See how replication stands, and receive a master's log."""


for _command in (status_command, receive_command):
    ha_group.add_command(_command)
