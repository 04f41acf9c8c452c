"""A master's registration under an address that it shares with the other replicas (masterAddress): that of a proxy.

    BrokerOuterAPI, for each name server: begins --> register --> ends

The address is the same whichever replica is the master. So a name server can't see from it which broker registered, or
whose registration a request is to end. But both RocketMQ's name server and ours note with each address the connection
of its last registration, and remove the address when that connection ends. Three rules follow, which keep an old master
from removing or replacing the registration of the new one:

1. A slave that becomes the master registers the shared address through a new connection. Then it unregisters its own
   address, and closes the old connection. If its own address stayed, or returned with a request that a slow name server
   serves late, the name server would remove it after two minutes of silence, and close the connection that registered
   it. So this must not be the connection of the shared address.
2. A master that becomes a slave, or shuts down, ends its registration by closing the connection. This removes the
   shared address only if no other broker has registered it since. RocketMQ's name server would remove it in any case
   after a request to unregister, because it looks at address and id only. Before closing, a request with the field
   SHARED is sent. A name server of ours honours it from the connection that registered the address last, and does not
   report the master as missing then. For any other name server, the request names an address and an id of no broker.
3. A registration may have waited, for a name server or for a thread. So the role is compared again right before it is
   sent. It also carries the master's epoch: a name server of ours refuses one with an older epoch. With another name
   server, a registration that overtakes the check stands until the new master registers again.
"""
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from rmqha.remoting.exception import RemotingException

if TYPE_CHECKING:
    from rmqha.broker.broker_addresses import Place
    from rmqha.remoting.channel import Channel

log = logging.getLogger("RocketmqBroker")

# Of no broker.
_NO_ADDRESS, _NO_ID = "-", -1


class Unregister(Protocol):
    """A function that sends a request to unregister a broker. It raises RemotingException."""

    def __call__(self, namesrv_addr: str, cluster_name: str, broker_addr: str, broker_name: str, broker_id: int,
                 shared: str = "") -> None: ...


class Connections(Protocol):
    """The connections to name servers, by address: a RemotingClient."""

    def close_channel(self, addr: str) -> None: ...

    def detach_channel(self, addr: str) -> "Channel | None": ...


class SharedAddress:
    """The places under which name servers may have this broker, and the way out of them. Any thread.

    `is_current` returns whether the broker may register in a place now.
    """

    def __init__(self, address: str, is_current: "Callable[[Place], bool]", unregister: Unregister,
                 connections: Connections) -> None:
        self.address = address
        self._is_current = is_current
        self._unregister, self._connections = unregister, connections
        self._lock = threading.Lock()
        # By name server; guarded by _lock.
        self._places: dict[str, set[Place]] = {}
        # The connections through which this broker registered as a slave, by name server; guarded by _lock.
        self._old: dict[str, list[Channel]] = {}

    def begins(self, namesrv_addr: str, place: "Place") -> bool:
        """Prepare a registration; return False if it is outdated, and must not be sent."""
        with self._lock:
            places = self._places.setdefault(namesrv_addr, set())
            is_new = place not in places
            # Before the check: a thread that registers another place after a role change finds this one, and leaves it.
            places.add(place)
        if not self._is_current(place):
            log.info("not registered at %s as %s: the role has changed", namesrv_addr, place)
            if is_new:
                self._forget(namesrv_addr, place)
            return False
        for left in self._others(namesrv_addr, place, are_shared=True):
            self._leave(namesrv_addr, left)
        if self._others(namesrv_addr, place, are_shared=False):
            old = self._connections.detach_channel(namesrv_addr)
            if old is not None:
                with self._lock:
                    self._old.setdefault(namesrv_addr, []).append(old)
        return True

    def ends(self, namesrv_addr: str, place: "Place") -> None:
        """Handle the response of a name server that has registered a place."""
        if not self._is_current(place):
            # The next registration leaves it.
            with self._lock:
                self._places.setdefault(namesrv_addr, set()).add(place)
            return
        for left in self._others(namesrv_addr, place, are_shared=False):
            self._leave(namesrv_addr, left)
        with self._lock:
            old = self._old.pop(namesrv_addr, [])
        for channel in old:
            channel.close()

    def leave_all(self, namesrv_addr: str, place: "Place") -> None:
        """Unregister from a name server, whose registration is, as far as it is not known, `place`."""
        with self._lock:
            places = sorted(self._places.get(namesrv_addr, set()) or {place})
        # Closing the connection comes last.
        for left in sorted(places, key=self._is_shared):
            self._leave(namesrv_addr, left)

    def _is_shared(self, place: "Place") -> bool:
        return place.address == self.address

    def _others(self, namesrv_addr: str, place: "Place", are_shared: bool) -> "list[Place]":
        with self._lock:
            return [other for other in self._places.get(namesrv_addr, ())
                    if other.address != place.address and self._is_shared(other) is are_shared]

    def _forget(self, namesrv_addr: str, place: "Place") -> None:
        with self._lock:
            self._places.get(namesrv_addr, set()).discard(place)

    def _leave(self, namesrv_addr: str, place: "Place") -> None:
        """End a registration, except that of another broker under the shared address."""
        is_shared = self._is_shared(place)
        try:
            if is_shared:
                self._unregister(namesrv_addr, place.cluster, _NO_ADDRESS, place.name, _NO_ID, self.address)
            else:
                self._unregister(namesrv_addr, *place)
        except RemotingException as failure:
            log.warning("unregisterBroker Exception, %s: %s", namesrv_addr, failure)
            if not is_shared:
                return
        else:
            log.info("unregisterBroker OK, NamesrvAddr: %s", namesrv_addr)
        self._forget(namesrv_addr, place)
        if is_shared:
            self._connections.close_channel(namesrv_addr)
