"""What the name servers list: each is asked, since one that is dead or stale must not speak for all."""
from collections import defaultdict
from dataclasses import dataclass, field

from rmqha.common.protocol.cluster_bodies import DepartedBroker
from rmqha.tools.check.check_base import Status
from rmqha.tools.ha.answers import in_parallel
from rmqha.tools.ha.broker_admin import Broker, BrokerAdmin, NoAnswerError, ReplicationToolError
from rmqha.tools.ha.views import Fault
from rmqha.tools.store.output import seconds_text


@dataclass
class NameServers:
    """What each name server lists, by its address; `errors` of those that could not be asked."""

    lists: dict[str, set[Broker]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    departed: set[DepartedBroker] = field(default_factory=set)  # that any of them misses

    @property
    def brokers(self) -> list[Broker]:
        """All that any of them lists, sorted."""
        return sorted(set().union(*self.lists.values()))

    def missing(self) -> list[tuple[DepartedBroker, Fault]]:
        """Brokers that should be there, or that another one of the same id has replaced, and what to say of them."""
        places = {(each.cluster, each.name, each.broker_id): each.address for each in self.brokers}
        found = []
        for each in sorted(self.departed):
            there = places.get((each.cluster, each.name, each.broker_id))
            who = f"{each.name} {each.broker_id}"
            if each.since_ms >= 0 and there is None:
                found.append((each, Fault(Status.CRITICAL, f"{who} at {each.address} is gone, without unregistering, "
                                          f"for {seconds_text(each.since_ms / 1000)}", each.address)))
            elif each.since_ms < 0 and there not in (None, each.address):
                found.append((each, Fault(Status.CRITICAL, f"{who} is registered by {each.address} and by {there}: two "
                                          "brokers of one brokerName and brokerId", each.address)))
        return found

    def faults(self) -> list[Fault]:
        """Those that give no answer, and where their lists differ."""
        found = [Fault(Status.WARNING, error) for error in self.errors.values()]
        everything = self.brokers
        for address, listed in self.lists.items():
            found += [Fault(Status.WARNING, f"the name server {address} does not know {each.name} {each.broker_id} at "
                            f"{each.address}, another name server does") for each in everything if each not in listed]
        return found


def ask_name_servers(namesrv: str, timeout_ms: float) -> NameServers:
    """Ask all of "host:port;host:port" at the same time; the error of one of them when none gives an answer."""
    addresses = [part.strip() for part in namesrv.split(";") if part.strip()]
    answers = in_parallel(lambda address: _listed(address, timeout_ms), addresses, timeout_ms, lambda address: (
        NoAnswerError(f"the name server {address} gives no answer within {timeout_ms / 1000:g} s")))
    asked = NameServers()
    for address, answer in answers.items():
        if isinstance(answer, ReplicationToolError):
            asked.errors[address] = answer.message
        else:
            asked.lists[address], departed = answer
            asked.departed |= departed
    if not asked.lists:
        raise next(answer for answer in answers.values() if isinstance(answer, ReplicationToolError))
    return asked


def _listed(address: str, timeout_ms: float) -> tuple[set[Broker], set[DepartedBroker]] | ReplicationToolError:
    try:
        with BrokerAdmin(address, timeout_ms) as admin:
            return set(admin.brokers()), set(admin.departed_brokers())
    except ReplicationToolError as error:
        return error


def same_ids(brokers: list[Broker]) -> dict[tuple[str, str, int], set[str]]:
    """(cluster, name, id) that is listed with several addresses."""
    places: dict[tuple[str, str, int], set[str]] = defaultdict(set)
    for each in brokers:
        places[each.cluster, each.name, each.broker_id].add(each.address)
    return {key: addresses for key, addresses in places.items() if len(addresses) > 1}
