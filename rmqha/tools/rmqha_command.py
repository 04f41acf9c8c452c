"""The command `rmqha`: one root, a group for each kind of work."""
import errno
import logging
from typing import Any

import click

from rmqha import __version__
from rmqha.common.interrupts import INTERRUPTED, Interruptible
from rmqha.tools.cannot_answer import CannotAnswerError
from rmqha.tools.check.check_command import check_group
from rmqha.tools.cluster.cluster_command import down_command, ps_command, up_command
from rmqha.tools.cluster.logs_command import logs_command
from rmqha.tools.conf_command import conf_group
from rmqha.tools.doctor.doctor_command import doctor_command
from rmqha.tools.ha.ha_command import ha_group
from rmqha.tools.lazy_group import LazyGroup
from rmqha.tools.store.store_command import store_group

PIPELINE = LazyGroup("pipeline", "rmqha.pipeline.pipeline_command:pipeline_group", "spark",
                     "Jobs on Spark: audit, rebuild, archive, restore, report, replay.")
QUICKSTART = LazyGroup("quickstart", "rmqha.tools.quickstart:main", None,
                       "Start 2 masters and 2 slaves, send, kill a master, consume everything.")
GROUPS = (QUICKSTART, up_command, down_command, ps_command, logs_command, conf_group, store_group, ha_group,
          check_group, doctor_command, PIPELINE)


class RootGroup(click.Group):
    """Says in one line what the system refused, with exit code 2; Ctrl-C ends with 130."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. What the client logs is told by the commands themselves."""
        if not logging.getLogger().handlers:
            logging.getLogger().addHandler(logging.NullHandler())
        try:
            with Interruptible():
                return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            raise click.exceptions.Exit(INTERRUPTED) from interrupt
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            where = f"{error.filename}: " if error.filename else ""
            raise CannotAnswerError(f"{where}{error.strerror or error}") from error


@click.group("rmqha", cls=RootGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rmqha")
def rmqha() -> None:
    """Tools for RocketMQ stores and their replication."""


for _group in GROUPS:
    rmqha.add_command(_group)


def main() -> None:
    """Entry point."""
    rmqha(prog_name="rmqha")


if __name__ == "__main__":
    main()
