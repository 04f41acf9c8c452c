"""A cluster at a glance: sums over its brokers, its name servers, its controllers and all faults, from a picture."""
from collections.abc import Iterable
from dataclasses import dataclass

from rmqha.tools.admin.cluster_admin import Broker, ClusterAdmin
from rmqha.tools.manage.masters import on_each
from rmqha.tools.replication.controllers import Controllers, controllers_of
from rmqha.tools.replication.views import ControllerView, SlaveView
from rmqha.tools.view.snapshot import BrokerState, Picture, total


@dataclass(frozen=True)
class ClusterFacts:
    """A cluster's brokers together. Rates are per second, sizes in bytes; None or -1 when no broker reports them.

    `fullest` is the broker whose disk is the fullest, with the share that is used.
    """

    name: str
    masters: int
    slaves: int
    silent: tuple[str, ...]
    versions: tuple[str, ...]
    in_msgs: float | None
    out_msgs: float | None
    received: int
    delivered: int
    log_bytes: int
    fullest: tuple[str, float] | None


def cluster_facts(picture: Picture) -> list[ClusterFacts]:
    """Return the facts of each cluster of a picture, by name."""
    brokers = picture.snapshot.brokers
    return [_facts(picture, name, [each for each in brokers if each.cluster == name])
            for name in sorted({each.cluster for each in brokers})]


def _facts(picture: Picture, name: str, brokers: list[BrokerState]) -> ClusterFacts:
    masters, answering = [each for each in brokers if each.is_master], [each for each in brokers if not each.error]
    disks = [(f"{each.name} {each.broker_id}", each.disk_used) for each in answering if each.disk_used is not None]
    return ClusterFacts(
        name, len(masters), len(brokers) - len(masters),
        tuple(f"{each.name} {each.broker_id}" for each in brokers if each.error),
        tuple(sorted({each.version for each in answering if each.version})),
        total(picture.broker_rates(each.address).in_msgs for each in masters),
        total(picture.broker_rates(each.address).out_msgs for each in brokers),
        _sum(each.put_total for each in masters if not each.error), _sum(each.get_total for each in answering),
        sum(each.log_size for each in masters if not each.error),
        max(disks, key=lambda disk: disk[1], default=None))


def _sum(counts: Iterable[int]) -> int:
    """Return the sum of the known counts; -1 when all are unknown."""
    known = [count for count in counts if count >= 0]
    return sum(known) if known else -1


def slaves_of(picture: Picture) -> dict[str, SlaveView]:
    """Return the slaves by address."""
    return {slave.address: slave for each in picture.snapshot.replication for slave in each.slaves}


def controllers_named(admin: ClusterAdmin, picture: Picture) -> list[ControllerView]:
    """Return the controllers that the brokers' settings name, each as it answers; none without automatic failover."""
    brokers = [Broker(each.cluster, each.name, each.broker_id, each.address)
               for each in picture.snapshot.brokers if not each.error]
    configs = on_each(admin, brokers, lambda broker: admin.get_broker_config(broker.address))
    addresses = dict.fromkeys(address for config in configs.values.values() for address in controllers_of(config))
    return Controllers(admin).ask(list(addresses)) if addresses else []
