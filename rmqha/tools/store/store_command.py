"""The group `rmqha store`."""
import click

from rmqha.tools.store.diff import diff_command
from rmqha.tools.store.du import du_command
from rmqha.tools.store.dump import dump_command
from rmqha.tools.store.rebuild import rebuild_command
from rmqha.tools.store.repair import repair_command
from rmqha.tools.store.verify import verify_command


@click.group("store")
def store_group() -> None:
    """Look at a store on disk, its broker running or not. Nothing is changed but by `rebuild --apply`
    and `repair --apply`."""


for _command in (dump_command, verify_command, diff_command, rebuild_command, repair_command, du_command):
    store_group.add_command(_command)
