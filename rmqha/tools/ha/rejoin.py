"""`ha rejoin`: the way back for a slave whose log has diverged from its master's."""
import time

import click

from rmqha.common.protocol import request_code
from rmqha.tools.dialect.unit_types import duration_type
from rmqha.tools.ha.broker_admin import DEFAULT_TIMEOUT_MS, BrokerAdmin, ReplicationToolError, parsed_address

_STEP_S = 0.2
_DIVERGED = "DIVERGED"
_CUT = "haCutOff"  # offset, where the log had ended, the file


class RejoinAdmin(BrokerAdmin):
    """Asks a slave to cut off what its master does not have."""

    def rejoin(self, address: str) -> None:
        """At its next handshake."""
        self._asked(f"broker {address}", lambda: self._invoke(address, request_code.REJOIN_MASTER))


def _wait(admin: RejoinAdmin, broker: str, before: str | None, wait_s: float) -> dict[str, str]:
    """The slave's runtime table once it has cut something off and follows again."""
    deadline = time.monotonic() + wait_s
    while True:
        table = admin.runtime_info(broker)
        if table.get(_CUT) not in (None, before) and table.get("haClientState") in ("TRANSFER", _DIVERGED):
            return table
        if time.monotonic() > deadline:
            raise ReplicationToolError(f"{broker} is still {table.get('haClientState', 'without a master')} after "
                                       f"{wait_s:g} s: {table.get('haClientLastError') or 'it tells no reason'}. It "
                                       "goes on trying; see rmqha ha status")
        time.sleep(_STEP_S)


@click.command("rejoin")
@click.option("-b", "--broker", required=True, help="The slave, host:port.")
@click.option("--wait", "wait_s", default=60.0, show_default=True, type=duration_type(1, 3600),
              help="Seconds until it must follow its master again.")
@click.option("--timeout", "timeout_s", default=DEFAULT_TIMEOUT_MS / 1000, show_default=True,
              type=duration_type(0.1, 600), help="Seconds to wait for each answer.")
def rejoin_command(broker: str, wait_s: float, timeout_s: float) -> None:
    """Let a slave that has diverged (state DIVERGED) follow its master again.

    The slave cuts its log, queues and index off where its log is no longer the master's. What it cuts off was never on
    the master's disk, or was lost there; it is kept in a file of `diverged` in the slave's store, named after its
    offset. haTruncateDivergedTail=true in the slave's configuration does the same whenever it diverges.
    """
    parsed_address(broker, "--broker")
    with RejoinAdmin(None, timeout_s * 1000) as admin:
        before = admin.runtime_info(broker).get(_CUT)
        admin.rejoin(broker)
        table = _wait(admin, broker, before, wait_s)
    offset, end, path = table[_CUT].split(",", 2)
    click.echo(f"{broker}: {int(end) - int(offset)} bytes from {offset} on were cut off, and are in {path}")
    if table["haClientState"] == _DIVERGED:
        raise ReplicationToolError(f"{broker} is still DIVERGED: {table.get('haDivergedReason', '')}")
    click.echo(f"{broker} follows {table.get('haMasterAddress', 'its master')} again")
