"""The group `rmqha ha`."""
import click

from rmqha.tools.ha.receive import receive_command
from rmqha.tools.ha.rejoin import rejoin_command
from rmqha.tools.ha.status import status_command
from rmqha.tools.ha.switch import switch_command
from rmqha.tools.ha_role import follow_command, promote_command


@click.group("ha")
def ha_group() -> None:
    """See how replication stands, receive a master's log, bring a slave back, change roles."""


for _command in (status_command, receive_command, rejoin_command, switch_command, promote_command, follow_command):
    ha_group.add_command(_command)
