"""`ha promote` and `ha follow`: who is the master of replicas that change roles (enableAutoSwitchHA)."""
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click

from rmqha.client.exception import MQBrokerException
from rmqha.common.mix_all import NAMESRV_ADDR_ENV
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.admin_headers import NotifyBrokerRoleChangedRequestHeader
from rmqha.common.protocol.cluster_bodies import EpochEntryCache
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.tools.dialect.unit_types import duration_type
from rmqha.tools.ha.broker_admin import BrokerAdmin, NoAnswerError, ReplicationToolError, chosen, parsed_address
from rmqha.tools.ha.controllers import controllers_of

F = TypeVar("F", bound=Callable[..., Any])

# A role change ends connections and dispatches what is left.
_CHANGE_TIMEOUT_S = 60


class RoleAdmin(BrokerAdmin):
    """Tells replicas who is the master."""

    def tell(self, address: str, master: str, master_id: int, epoch: int, ha_address: str | None = None) -> None:
        """`master`, with the id `master_id`, is the master of `epoch`."""
        header = NotifyBrokerRoleChangedRequestHeader(masterAddress=master, masterEpoch=epoch, syncStateSetEpoch=epoch,
                                                      masterBrokerId=master_id, masterHaAddress=ha_address)
        self._asked(f"broker {address}",
                    lambda: self._request(address, request_code.NOTIFY_BROKER_ROLE_CHANGED, header))

    def _request(self, address: str, code: int, header: NotifyBrokerRoleChangedRequestHeader | None) -> RemotingCommand:
        request = RemotingCommand.create_request_command(code, header)
        response = self._api.remoting_client.invoke_sync(address, request, self.timeout_ms)
        if response.code != response_code.SUCCESS:
            raise MQBrokerException(response.code, response.remark, address)
        return response

    def others(self, address: str) -> list[str]:
        """The other brokers of the same name, as the name server lists them; none without a name server."""
        if not self.namesrv:
            return []
        return [each.address for each in chosen(self.brokers(), None, address) if each.address != address]


def last_epoch(cache: EpochEntryCache) -> int:
    """The newest epoch; 0 when there is none."""
    return max((entry.epoch for entry in cache.epochList or ()), default=0)


def role_options(command: F) -> F:
    """--broker, --timeout."""
    for option in (
            click.option("--timeout", "timeout_s", default=_CHANGE_TIMEOUT_S, show_default=True,
                         type=duration_type(0.1, 600), help="Seconds to wait for each answer."),
            click.option("-b", "--broker", required=True, help="The broker to change, host:port.")):
        command = option(command)
    return command


@click.command("promote")
@role_options
@click.option("-n", "--namesrv", envvar=NAMESRV_ADDR_ENV, metavar="HOST:PORT",
              help="Name servers, host:port, separated by semicolons: the broker's other replicas are told too.")
@click.option("--epoch", type=click.IntRange(1, (1 << 31) - 1),
              help="The epoch to begin; by default one above all that the replicas know.")
@click.option("--force", is_flag=True, help="Also when the present master says that the broker is not in sync.")
def promote_command(broker: str, namesrv: str | None, epoch: int | None, force: bool, timeout_s: float) -> None:
    """Make a broker the master of its replicas.

    The others stop taking messages first. What only they hold was never acknowledged by all, and is cut off when they
    follow.
    """
    parsed_address(broker, "--broker")
    with RoleAdmin(namesrv, timeout_s * 1000) as admin:
        for line in promote(admin, broker, epoch, force):
            click.echo(line)


def promote(admin: RoleAdmin, broker: str, epoch: int | None, force: bool) -> Iterator[str]:
    """Do it; what has happened, line by line. ReplicationToolError when it would lose what is acknowledged."""
    _check_no_controller(admin, broker)
    target, others = admin.epochs(broker), _reachable(admin, broker)
    if not force:
        _check_in_sync(admin, broker, target, others)
    epoch = epoch or 1 + max(map(last_epoch, (target, *others.values())))
    for other in others:
        admin.tell(other, broker, target.brokerId, epoch)
        others[other] = admin.epochs(other)
    admin.tell(broker, broker, target.brokerId, epoch)
    end = admin.epochs(broker).epochList[-1].startOffset
    yield f"{broker} is the master of epoch {epoch}, from commit log offset {end} on"
    for other in others:
        admin.tell(other, broker, target.brokerId, epoch)  # now the name server knows where the master is
        behind = others[other].maxOffset - end
        yield f"{other} follows" + (f"; its last {behind} bytes are cut off" if behind > 0 else "")


def _reachable(admin: RoleAdmin, broker: str) -> dict[str, EpochEntryCache]:
    """The other replicas that answer, with their epochs."""
    found = {}
    for other in admin.others(broker):
        try:
            found[other] = admin.epochs(other)
        except NoAnswerError as error:
            click.echo(f"warning: {error.message}. What only this one holds is cut off when it comes back", err=True)
    return found


def _check_no_controller(admin: RoleAdmin, broker: str) -> None:
    """Where a controller decides, an epoch of which it does not know would make two masters."""
    controllers = controllers_of(admin.config(broker))
    if controllers:
        raise ReplicationToolError(f"a controller decides the role of {broker} ({', '.join(controllers)}): "
                                   f"`rmqha ha switch {broker}` makes it the master")


def _check_in_sync(admin: RoleAdmin, broker: str, target: EpochEntryCache, others: dict[str, EpochEntryCache]) -> None:
    """Refuse when the present master says that the broker is behind; without a master, when others have more."""
    host = parsed_address(broker, "--broker")[0]
    for other, cache in others.items():
        info = admin.ha_runtime_info(other)
        if info is not None and info.master:
            in_sync = [each for each in info.haConnectionInfo or () if each.inSync]
            if not any((each.addr or "").rpartition(":")[0] == host for each in in_sync):
                raise ReplicationToolError(
                    f"the master {other} has no connection in sync from {host}: messages that it has acknowledged "
                    f"may be lost. Wait until {broker} has caught up, or say --force")
        elif (last_epoch(cache), cache.maxOffset) > (last_epoch(target), target.maxOffset):
            raise ReplicationToolError(
                f"{other} ends at {cache.maxOffset} of epoch {last_epoch(cache)}, and {broker} at {target.maxOffset} "
                f"of epoch {last_epoch(target)}: acknowledged messages may be lost. Promote the other, or say --force")


@click.command("follow")
@role_options
@click.option("--master", required=True, help="The master to follow, host:port (not its HA port).")
@click.option("--ha", "ha_address", help="host:port of the master's HA port; by default what the name server says.")
def follow_command(broker: str, master: str, ha_address: str | None, timeout_s: float) -> None:
    """Make a broker follow a master: what its log has beyond their last common point is cut off."""
    for text, what in ((broker, "--broker"), (master, "--master"), (ha_address, "--ha")):
        if text is not None:
            parsed_address(text, what)
    with RoleAdmin(None, timeout_s * 1000) as admin:
        _check_no_controller(admin, broker)
        leader, follower = admin.epochs(master), admin.epochs(broker)
        if leader.brokerId == follower.brokerId:
            raise ReplicationToolError(f"{broker} and {master} are the same broker, or have the same identity "
                                       f"{leader.brokerId} (brokerIdentity in storePathRootDir)")
        admin.tell(broker, master, leader.brokerId, max(last_epoch(leader), 1), ha_address)
        click.echo(f"{broker} follows {master}, the master of epoch {last_epoch(leader)}")
