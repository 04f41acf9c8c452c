"""The group `rmqha ha`, with its commands that change roles: `switch`, `rejoin`, `promote` and `follow`.

- `ha switch`: a planned change of the master, which a controller decides:

    wait until a controller leads and the replica is in sync
    --> the master stops accepting messages, and answers when the replica holds everything
    --> the controller elects the replica --> wait until it reports that it is the master

- `ha rejoin`: lets a slave whose log has diverged from its master's follow again.
- `ha promote`, `ha follow`: set the master of replicas that change roles (enableAutoSwitchHA).

A planned switch must be short and must not lose an acknowledged message. It is not enough that the replica is in sync:
while the old master accepts messages, the replica is always a little behind. So the old master pauses first. It refuses
messages, and answers the handover request only when the replica has acknowledged the end of its log and every earlier
send is answered. Now both logs are equal, and the election can't lose anything. Without the pause, the old master would
acknowledge messages during the election that the new master does not have.

The pause expires by the clock: after _HANDOVER_MS for the replica to catch up, plus 1 s for the election. So if this
program dies or the controller refuses, the old master accepts messages again without help. That is also why a failed
election is retried only after _AGAIN_S: each try begins with a new handover, and clients are served in between.
"""
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import click

from rmqha.common.program import examples
from rmqha.common.protocol import response_code
from rmqha.common.protocol.admin_headers import NotifyBrokerRoleChangedRequestHeader
from rmqha.common.protocol.cluster_bodies import EpochEntryCache
from rmqha.tools.admin.cluster_admin import (
    DEFAULT_TIMEOUT_MS,
    ClusterAdmin,
    NoAnswerError,
    RefusedError,
    own_address,
    parsed_address,
)
from rmqha.tools.connection import connected, namesrv_option
from rmqha.tools.local_cluster import layout as cluster_folder
from rmqha.tools.local_cluster.cluster_command import folder_options
from rmqha.tools.replication.controllers import Controllers, controllers_of, split_addresses
from rmqha.tools.replication.reader import controller_option
from rmqha.tools.replication.receive import receive_command
from rmqha.tools.replication.status import status_command
from rmqha.tools.replication.views import FailoverView, ReplicaView
from rmqha.tools.terminal import CannotAnswerError, WorkFailedError, duration_type, emit, output_option, put

_HANDOVER_MS = 1_000
# Time for the new master to report its role.
_ROLE_S = 10.0
_LOOK_S, _LOOK_AT_ROLE_S = 0.1, 0.01
# Between two handovers: the master accepts messages again meanwhile.
_AGAIN_S = 1.5
# The controller leads no longer, or leases granted by the previous leader may still be valid.
_FOR_A_MOMENT = (response_code.CONTROLLER_NOT_LEADER, response_code.CONTROLLER_ELECT_MASTER_FAILED)


@dataclass(frozen=True)
class Switched:
    """The result of a switch; `seconds` is from the handover request until the new master reports its role."""

    broker: str
    old_master: str
    new_master: str
    epoch: int
    seconds: float


def switch(admin: ClusterAdmin, address: str, given: list[str], timeout_s: float,
           tell: Callable[[str], None]) -> Switched | None:
    """Make the replica at an address the master; return None when it already is.

    WorkFailedError or CannotAnswerError when that fails; the master is then unchanged unless the error says otherwise.
    """
    config = admin.get_broker_config(address)
    name, cluster = config.get("brokerName", ""), config.get("brokerClusterName", "")
    addresses = given or controllers_of(config)
    if not addresses:
        raise CannotAnswerError(f"no controller decides the role of {address}: its configuration does not have "
                                "enableControllerMode=true. `rmqha ha promote` changes roles without a controller")
    wait = _Wait(timeout_s, tell)
    while True:
        view, replica = _wait_until_ready(admin, name, address, addresses, wait)
        if replica.is_master:
            return None
        begin = time.monotonic()
        if view.master:
            _hand_over(admin, view, replica, tell)
        try:
            elected, _ = admin.elect_master(view.leader, cluster, name, replica.broker_id)
            break
        except CannotAnswerError as error:
            if not (isinstance(error, RefusedError) and error.code in _FOR_A_MOMENT and wait.goes_on(
                    f"waiting for the controller: {error.message}", _AGAIN_S)):
                raise WorkFailedError(
                    f"the controller did not elect {address}: {error.message}. The master accepts messages again "
                    "within 1 s, unless the controller has chosen another one (see `rmqha ha status`)") from error
    _wait_until_master(admin, address)
    return Switched(name, view.master, address, elected.masterEpoch or 0, time.monotonic() - begin)


class _Wait:
    """A time limit for the whole operation; each reason for waiting is reported once."""

    def __init__(self, timeout_s: float, tell: Callable[[str], None] = lambda _why: None) -> None:
        self.timeout_s = timeout_s
        self._deadline, self._tell, self._told = time.monotonic() + timeout_s, tell, ""

    def goes_on(self, why: str, pause_s: float = _LOOK_S) -> bool:
        """Pause and return True, or return False when the time limit is reached."""
        if time.monotonic() > self._deadline:
            return False
        if why != self._told:
            self._tell(why)
            self._told = why
        time.sleep(pause_s)
        return True


def _wait_until_ready(admin: ClusterAdmin, name: str, address: str, controllers: list[str],
                      wait: _Wait) -> tuple[FailoverView, ReplicaView]:
    """Wait until a controller leads and the replica is in sync; return the view and the replica."""
    while True:
        view = Controllers(admin).look_at(name, controllers)
        if not view.leader or any(each.error for each in view.controllers if each.address == view.leader):
            errors = "; ".join(each.error for each in view.controllers if each.error)
            why = ("no controller leads" if not view.leader else "the controllers are changing") + (
                f": {errors}" if errors else "")
            if not wait.goes_on(f"waiting for a controller: {why}"):
                raise CannotAnswerError(f"{why}, after waiting {wait.timeout_s:g} s; nothing was changed")
            continue
        replica = _replica(view, name, address)
        if replica.is_master or replica.alive and replica.in_sync:
            return view, replica
        if not wait.goes_on(f"waiting for {address}: {replica.why_not}"):
            raise WorkFailedError(f"{address} may not become the master: {replica.why_not}, after waiting "
                                  f"{wait.timeout_s:g} s; nothing was changed")


def _replica(view: FailoverView, name: str, address: str) -> ReplicaView:
    for each in view.replicas:
        if each.address == address:
            return each
    known = ", ".join(each.address for each in view.replicas)
    raise CannotAnswerError(f"controller {view.leader} knows no replica of {name} at {address}"
                            + (f"; it knows {known}" if known else ""))


def _hand_over(admin: ClusterAdmin, view: FailoverView, replica: ReplicaView, tell: Callable[[str], None]) -> None:
    try:
        admin.handover_master(view.master, replica.broker_id, _HANDOVER_MS)
    except NoAnswerError as error:
        raise WorkFailedError(f"{error.message}. The controller replaces a failed master automatically; nothing was "
                              "changed") from error
    except RefusedError as error:
        if error.code != response_code.REQUEST_CODE_NOT_SUPPORTED:
            raise WorkFailedError(f"{error.message}. Nothing was changed") from error
        tell(f"{view.master} is a RocketMQ broker and does not support handover: sends during the change may fail")


def _wait_until_master(admin: ClusterAdmin, address: str) -> None:
    wait = _Wait(_ROLE_S)
    while (info := admin.ha_runtime_info(address)) is None or not info.master:
        if not wait.goes_on("", _LOOK_AT_ROLE_S):
            raise WorkFailedError(f"the controller has elected {address}, but after {_ROLE_S:g} s that is not the "
                                  "master yet: see its log")


def _address(node: str, folder: str | None, name: str | None) -> str:
    """Return the address of a node: `host:port` as given, or by the name of a server of `rmqha up`."""
    if ":" in node:
        parsed_address(node, "NODE")
        return node
    layout = cluster_folder.load(cluster_folder.chosen(folder, name))
    for each in layout.nodes:
        if each.name == node and each.is_broker:
            return each.address
    names = ", ".join(each.name for each in layout.nodes if each.is_broker)
    raise CannotAnswerError(f"no broker {node!r} in this cluster; its brokers are {names}. Give any other as host:port")


@click.command("switch", short_help="Ask the controller to make a replica the master.", epilog=examples(
    "rmqha ha switch broker-a-s",
    "rmqha ha switch 10.0.0.2:10911 --controller 10.0.0.9:9878"))
@click.argument("node")
@folder_options
@controller_option
@click.option("--timeout", "timeout_s", default="30s", show_default=True, type=duration_type(0, 3600),
              help="How long to wait until NODE is in sync and a controller leads.")
@output_option
def switch_command(node: str, folder: str | None, name: str | None, controller: str | None, timeout_s: float,
                   output: str) -> None:
    """Make NODE the master: the address of a replica, host:port, or the name of a server of `rmqha up`.

    For brokers whose master is chosen by a controller. The command waits until NODE is in sync. Then the old master
    stops accepting messages during the change, and becomes a slave. No acknowledged message is lost. Exit code 1 when
    the switch failed.
    """
    address = _address(node, folder, name)
    with connected(None, DEFAULT_TIMEOUT_MS / 1000) as admin:
        done = switch(admin, address, split_addresses(controller or ""), timeout_s,
                      lambda line: click.echo(line, err=True))
    if output != "table":
        emit({"switched": done is not None, **(asdict(done) if done is not None else {"newMaster": address})}, output)
    elif done is None:
        put(f"{address} is already the master")
    else:
        put(f"{address} is the master of epoch {done.epoch}" + (f" in place of {done.old_master}" if done.old_master
            else "") + f", after {done.seconds:.3f} s")


_STEP_S = 0.2
_DIVERGED = "DIVERGED"
# Its value: the offset of the cut, the previous end of the log, the file with the bytes.
_CUT = "haCutOff"


def _wait_until_cut(admin: ClusterAdmin, broker: str, before: str | None, wait_s: float) -> dict[str, str]:
    """Wait until the slave has truncated its log and follows again; return its runtime table."""
    wait = _Wait(wait_s)
    while True:
        table = admin.runtime_info(broker)
        if table.get(_CUT) not in (None, before) and table.get("haClientState") in ("TRANSFER", _DIVERGED):
            return table
        if not wait.goes_on("", _STEP_S):
            raise CannotAnswerError(f"{broker} is still {table.get('haClientState', 'without a master')} after "
                                    f"{wait_s:g} s: {table.get('haClientLastError') or 'it gives no reason'}. It "
                                    "keeps trying; see rmqha ha status")


@click.command("rejoin", short_help="Let a slave that has diverged follow its master again.", epilog=examples(
    "rmqha ha rejoin -b 10.0.0.2:10911 --wait 2m"))
@click.option("-b", "--broker", required=True, help="The address of the slave, host:port.")
@click.option("--wait", "wait_s", default="60s", show_default=True, type=duration_type(1, 3600),
              help="How long to wait until it follows its master again.")
@click.option("--timeout", "timeout_s", default=f"{DEFAULT_TIMEOUT_MS // 1000}s", show_default=True,
              type=duration_type(0.1, 600), help="How long to wait for each answer.")
def rejoin_command(broker: str, wait_s: float, timeout_s: float) -> None:
    """Let a slave that has diverged (state DIVERGED) follow its master again.

    The slave truncates its log, queues and index to the last common offset with its master. The truncated bytes were
    never on the master's disk, or were lost there; they are kept in a file in `diverged` in the slave's store, named
    after their offset. haTruncateDivergedTail=true in the slave's configuration does the same whenever it diverges.
    """
    parsed_address(broker, "--broker")
    with connected(None, timeout_s) as admin:
        before = admin.runtime_info(broker).get(_CUT)
        admin.rejoin_master(broker)
        table = _wait_until_cut(admin, broker, before, wait_s)
    offset, end, path = table[_CUT].split(",", 2)
    click.echo(f"{broker}: truncated {int(end) - int(offset)} bytes from offset {offset}, saved to {path}")
    if table["haClientState"] == _DIVERGED:
        raise CannotAnswerError(f"{broker} is still DIVERGED: {table.get('haDivergedReason', '')}")
    click.echo(f"{broker} follows {table.get('haMasterAddress', 'its master')} again")


F = TypeVar("F", bound=Callable[..., Any])

# A role change closes connections and dispatches the rest of the log.
_CHANGE_TIMEOUT_S = 60


def tell_role(admin: ClusterAdmin, address: str, master: str, master_id: int, epoch: int,
              ha_address: str | None = None) -> None:
    """Notify the replica at `address` that `master`, with the id `master_id`, is the master of `epoch`."""
    admin.notify_broker_role_changed(address, NotifyBrokerRoleChangedRequestHeader(
        masterAddress=master, masterEpoch=epoch, syncStateSetEpoch=epoch, masterBrokerId=master_id,
        masterHaAddress=ha_address))


def last_epoch(cache: EpochEntryCache) -> int:
    """Return the newest epoch, or 0 without one."""
    return max((entry.epoch for entry in cache.epochList or ()), default=0)


def role_options(command: F) -> F:
    """Add --broker and --timeout."""
    for option in (
            click.option("--timeout", "timeout_s", default=f"{_CHANGE_TIMEOUT_S:g}s", show_default=True,
                         type=duration_type(0.1, 600), help="How long to wait for each answer."),
            click.option("-b", "--broker", required=True, help="The address of the broker to change, host:port.")):
        command = option(command)
    return command


@click.command("promote", short_help="Make a broker the master, without a controller.", epilog=examples(
    "rmqha ha promote -b 10.0.0.2:10911 -n 10.0.0.9:9876"))
@role_options
@namesrv_option
@click.option("--epoch", type=click.IntRange(1, (1 << 31) - 1),
              help="The new epoch; by default the greatest known epoch plus 1.")
@click.option("--force", is_flag=True, help="Promote the broker even if the master reports it as not in sync.")
def promote_command(broker: str, namesrv: str | None, epoch: int | None, force: bool, timeout_s: float) -> None:
    """Make a broker the master of its replicas.

    The other replicas stop accepting messages first. Messages that only they hold are truncated when they follow the
    new master. If allAckInSyncStateSet=true, and the promoted broker is in sync, none of the truncated messages got
    SEND_OK. Without that key a master may send SEND_OK before its replicas have the message, and such a message can be
    lost.
    """
    parsed_address(broker, "--broker")
    with connected(namesrv, timeout_s) as admin:
        for line in promote(admin, broker, epoch, force):
            click.echo(line)


def promote(admin: ClusterAdmin, broker: str, epoch: int | None, force: bool) -> Iterator[str]:
    """Promote a broker and yield the steps as lines. CannotAnswerError when acknowledged messages would be lost."""
    _check_no_controller(admin, broker)
    target, others = admin.get_broker_epoch_cache(broker), _reachable(admin, broker)
    if not force:
        _check_in_sync(admin, broker, target, others)
    epoch = epoch or 1 + max(map(last_epoch, (target, *others.values())))
    for other in others:
        tell_role(admin, other, broker, target.brokerId, epoch)
        others[other] = admin.get_broker_epoch_cache(other)
    tell_role(admin, broker, broker, target.brokerId, epoch)
    end = admin.get_broker_epoch_cache(broker).epochList[-1].startOffset
    yield f"{broker} is the master of epoch {epoch}, from commit log offset {end}"
    for other in others:
        # Now the name server knows the master's address.
        tell_role(admin, other, broker, target.brokerId, epoch)
        behind = others[other].maxOffset - end
        yield f"{other} follows" + (f"; its last {behind} bytes are truncated" if behind > 0 else "")


def _reachable(admin: ClusterAdmin, broker: str) -> dict[str, EpochEntryCache]:
    """Return the other replicas that answer, with their epochs, by their own addresses."""
    found = {}
    for other in admin.others(broker):
        try:
            address = _own_address(admin, broker, other)
            found[address] = admin.get_broker_epoch_cache(address)
        except NoAnswerError as error:
            click.echo(f"warning: {error.message}. Messages that only it holds are truncated when it returns", err=True)
    return found


def _own_address(admin: ClusterAdmin, broker: str, other: str) -> str:
    """Return the own address of a replica that is registered at `other`.

    It may be registered at a proxy's address, as any master of its name is (masterAddress). Once roles change, another
    broker answers there. If none answers, the own address is that of the master that the broker follows.
    """
    if other != admin.get_broker_config(broker).get("masterAddress"):
        return other
    try:
        return own_address(admin.get_broker_config(other), other)
    except NoAnswerError:
        host, _colon, ha_port = admin.runtime_info(broker).get("haMasterAddress", "").rpartition(":")
        if not host or not ha_port.isdecimal():
            raise
        return f"{host}:{int(ha_port) - 1}"


def _check_no_controller(admin: ClusterAdmin, broker: str) -> None:
    """Refuse when a controller decides roles: an epoch that it does not know would cause two masters."""
    controllers = controllers_of(admin.get_broker_config(broker))
    if controllers:
        raise CannotAnswerError(f"a controller decides the role of {broker} ({', '.join(controllers)}): "
                                f"`rmqha ha switch {broker}` makes it the master")


def _check_in_sync(admin: ClusterAdmin, broker: str, target: EpochEntryCache,
                   others: dict[str, EpochEntryCache]) -> None:
    """Refuse when the master reports that the broker is behind, or, without a master, when others hold more."""
    host = parsed_address(broker, "--broker")[0]
    for other, cache in others.items():
        info = admin.ha_runtime_info(other)
        if info is not None and info.master:
            in_sync = [each for each in info.haConnectionInfo or () if each.inSync]
            if not any((each.addr or "").rpartition(":")[0] == host for each in in_sync):
                raise CannotAnswerError(
                    f"the master {other} has no in-sync connection from {host}: acknowledged messages may be lost. "
                    f"Wait until {broker} has caught up, or use --force")
        elif (last_epoch(cache), cache.maxOffset) > (last_epoch(target), target.maxOffset):
            raise CannotAnswerError(
                f"{other} ends at {cache.maxOffset} of epoch {last_epoch(cache)}, and {broker} at {target.maxOffset} "
                f"of epoch {last_epoch(target)}: acknowledged messages may be lost. Promote the other, or use --force")


@click.command("follow", short_help="Make a broker follow a master, without a controller.", epilog=examples(
    "rmqha ha follow -b 10.0.0.1:10911 --master 10.0.0.2:10911"))
@role_options
@click.option("--master", required=True, help="The master to follow, host:port (not its HA port).")
@click.option("--ha", "ha_address", help="The master's HA address, host:port; by default from the name server.")
def follow_command(broker: str, master: str, ha_address: str | None, timeout_s: float) -> None:
    """Make a broker follow a master, and truncate its log to their last common offset."""
    for text, what in ((broker, "--broker"), (master, "--master"), (ha_address, "--ha")):
        if text is not None:
            parsed_address(text, what)
    with connected(None, timeout_s) as admin:
        _check_no_controller(admin, broker)
        leader, follower = admin.get_broker_epoch_cache(master), admin.get_broker_epoch_cache(broker)
        if leader.brokerId == follower.brokerId:
            raise CannotAnswerError(f"{broker} and {master} are the same broker, or have the same identity "
                                    f"{leader.brokerId} (brokerIdentity in storePathRootDir)")
        tell_role(admin, broker, master, leader.brokerId, max(last_epoch(leader), 1), ha_address)
        click.echo(f"{broker} follows {master}, the master of epoch {last_epoch(leader)}")


@click.group("ha")
def ha_group() -> None:
    """Show replication, receive a log, rejoin a slave, change roles."""


for _command in (status_command, receive_command, rejoin_command, switch_command, promote_command, follow_command):
    ha_group.add_command(_command)
