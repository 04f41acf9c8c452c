"""`ha switch`: another replica becomes the master, planned, with a controller that decides it.

    wait until a controller leads and it is in sync
    --> the master stops taking messages, and answers when the replica holds all
    --> the controller elects it --> wait until it says that it is the master
"""
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import click

from rmqha.common.protocol import response_code
from rmqha.tools.cluster import cluster_folder
from rmqha.tools.cluster.cluster_command import folder_options
from rmqha.tools.dialect.exit_codes import WorkFailedError
from rmqha.tools.dialect.options import output_option
from rmqha.tools.dialect.output import emit, put
from rmqha.tools.dialect.unit_types import duration_type
from rmqha.tools.ha.broker_admin import (
    DEFAULT_TIMEOUT_MS,
    BrokerAdmin,
    NoAnswerError,
    RefusedError,
    ReplicationToolError,
    parsed_address,
)
from rmqha.tools.ha.controllers import Controllers, controllers_of, split_addresses
from rmqha.tools.ha.options import controller_option
from rmqha.tools.ha.views import FailoverView, ReplicaView

_HANDOVER_MS = 1_000
_ROLE_S = 10.0  # for the new master to say that it is
_LOOK_S, _LOOK_AT_ROLE_S = 0.1, 0.01
_AGAIN_S = 1.5  # between two handovers: the master takes messages again meanwhile
# the controller leads no more, or leases of the one that led before may hold for a moment
_FOR_A_MOMENT = (response_code.CONTROLLER_NOT_LEADER, response_code.CONTROLLER_ELECT_MASTER_FAILED)


@dataclass(frozen=True)
class Switched:
    """What has happened; `seconds` from when the old master was asked until the new one is it."""

    broker: str
    old_master: str
    new_master: str
    epoch: int
    seconds: float


def switch(admin: BrokerAdmin, address: str, given: list[str], timeout_s: float,
           tell: Callable[[str], None]) -> Switched | None:
    """Make the replica at an address the master; None when it is already.

    WorkFailedError or ReplicationToolError when it can't be, and then the master is as before unless they say so.
    """
    config = admin.config(address)
    name, cluster = config.get("brokerName", ""), config.get("brokerClusterName", "")
    addresses = given or controllers_of(config)
    if not addresses:
        raise ReplicationToolError(f"no controller decides the role of {address}: its configuration lacks "
                                   "enableControllerMode=true. `rmqha ha promote` changes roles without one")
    wait = _Wait(timeout_s, tell)
    while True:
        view, replica = _wait_until_ready(admin, name, address, addresses, wait)
        if replica.is_master:
            return None
        begin = time.monotonic()
        if view.master:
            _hand_over(admin, view, replica, tell)
        try:
            elected = admin.elect_master(view.leader, cluster, name, replica.broker_id)
            break
        except ReplicationToolError as error:
            if not (isinstance(error, RefusedError) and error.code in _FOR_A_MOMENT and wait.goes_on(
                    f"waiting for the controller: {error.message}", _AGAIN_S)):
                raise WorkFailedError(
                    f"the controller did not elect {address}: {error.message}. The master takes messages again within "
                    "a second unless the controller has chosen another (`rmqha ha status`)") from error
    _wait_until_master(admin, address)
    return Switched(name, view.master, address, elected.masterEpoch or 0, time.monotonic() - begin)


class _Wait:
    """How long is waited, in all; each reason is told once."""

    def __init__(self, timeout_s: float, tell: Callable[[str], None]) -> None:
        self.timeout_s = timeout_s
        self._deadline, self._tell, self._told = time.monotonic() + timeout_s, tell, ""

    def goes_on(self, why: str, pause_s: float = _LOOK_S) -> bool:
        """Wait for a moment, unless the time is over."""
        if time.monotonic() > self._deadline:
            return False
        if why != self._told:
            self._tell(why)
            self._told = why
        time.sleep(pause_s)
        return True


def _wait_until_ready(admin: BrokerAdmin, name: str, address: str, controllers: list[str],
                      wait: _Wait) -> tuple[FailoverView, ReplicaView]:
    """Until a controller leads and the replica is in sync."""
    while True:
        view = Controllers(admin).look_at(name, controllers)
        if not view.leader or any(each.error for each in view.controllers if each.address == view.leader):
            errors = "; ".join(each.error for each in view.controllers if each.error)
            why = ("no controller leads" if not view.leader else "the controllers are changing") + (
                f": {errors}" if errors else "")
            if not wait.goes_on(f"waiting for a controller: {why}"):
                raise ReplicationToolError(f"{why}. Waited {wait.timeout_s:g} s; nothing was changed")
            continue
        replica = _replica(view, name, address)
        if replica.is_master or replica.alive and replica.in_sync:
            return view, replica
        if not wait.goes_on(f"waiting for {address}: {replica.why_not}"):
            raise WorkFailedError(f"{address} may not become the master: {replica.why_not}. Waited {wait.timeout_s:g} "
                                  "s; nothing was changed")


def _replica(view: FailoverView, name: str, address: str) -> ReplicaView:
    for each in view.replicas:
        if each.address == address:
            return each
    known = ", ".join(each.address for each in view.replicas)
    raise ReplicationToolError(f"the controller {view.leader} knows no replica of {name} at {address}"
                               + (f"; it knows {known}" if known else ""))


def _hand_over(admin: BrokerAdmin, view: FailoverView, replica: ReplicaView, tell: Callable[[str], None]) -> None:
    try:
        admin.hand_over(view.master, replica.broker_id, _HANDOVER_MS)
    except NoAnswerError as error:
        raise WorkFailedError(f"{error.message}. The controller replaces a master that is gone by itself; nothing was "
                              "changed") from error
    except RefusedError as error:
        if error.code != response_code.REQUEST_CODE_NOT_SUPPORTED:
            raise WorkFailedError(f"{error.message}. Nothing was changed") from error
        tell(f"{view.master} is RocketMQ's own, which knows no handover: what is sent during the change may be refused")


def _wait_until_master(admin: BrokerAdmin, address: str) -> None:
    deadline = time.monotonic() + _ROLE_S
    while True:
        info = admin.ha_runtime_info(address)
        if info is not None and info.master:
            return
        if time.monotonic() > deadline:
            raise WorkFailedError(f"the controller has elected {address}, which is not the master after {_ROLE_S:g} s: "
                                  "its log says why")
        time.sleep(_LOOK_AT_ROLE_S)


def _address(node: str, folder: str | None, name: str | None) -> str:
    """`host:port`, or the address of a server of `rmqha up`."""
    if ":" in node:
        parsed_address(node, "NODE")
        return node
    layout = cluster_folder.load(cluster_folder.chosen(folder, name))
    for each in layout.nodes:
        if each.name == node and each.is_broker:
            return each.address
    names = ", ".join(each.name for each in layout.nodes if each.is_broker)
    raise ReplicationToolError(f"no broker {node!r} in this cluster; it has {names}. One elsewhere is host:port")


@click.command("switch")
@click.argument("node")
@folder_options
@controller_option
@click.option("--timeout", "timeout_s", default=30.0, show_default=True, type=duration_type(0, 3600),
              help="Seconds to wait until it is in sync, and a controller leads.")
@output_option
def switch_command(node: str, folder: str | None, name: str | None, controller: str | None, timeout_s: float,
                   output: str) -> None:
    """Make NODE the master: the address of a replica, host:port, or the name of a server of `rmqha up`.

    For brokers whose master a controller chooses. It waits until NODE is in sync; then the master stops taking messages
    for the moment that the change takes, and follows. No acknowledged message is lost.
    """
    address = _address(node, folder, name)
    with BrokerAdmin(None, DEFAULT_TIMEOUT_MS) as admin:
        done = switch(admin, address, split_addresses(controller or ""), timeout_s,
                      lambda line: click.echo(line, err=True))
    if output != "table":
        emit({"switched": done is not None, **(asdict(done) if done is not None else {"newMaster": address})}, output)
    elif done is None:
        put(f"{address} is the master already")
    else:
        put(f"{address} is the master of epoch {done.epoch}" + (f" in place of {done.old_master}" if done.old_master
            else "") + f", after {done.seconds:.3f} s")
