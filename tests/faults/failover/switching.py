"""A planned change of the master, as a person does it: `rmqha ha switch`."""
from click.testing import CliRunner

from rmqha.tools.rmqha_command import rmqha
from tests.faults.failover.cluster import Cluster, Replica
from tests.faults.verdict import Violation


def warm_up() -> None:
    """Import what the command needs, so that its time is its own."""
    CliRunner().invoke(rmqha, ["ha", "switch", "--help"])


def switch(cluster: Cluster, target: Replica) -> None:
    """Make `target` the master; Violation when the command fails."""
    controllers = ";".join(controller.address for controller in cluster.controllers)
    result = CliRunner().invoke(rmqha, ["ha", "switch", target.address, "--controller", controllers])
    if result.exit_code != 0:
        raise Violation(f"L: ha switch {target.name}: code {result.exit_code}: {result.output} {result.exception!r}")
