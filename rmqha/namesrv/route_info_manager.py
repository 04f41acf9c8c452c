"""The route table of a name server: clusters, brokers, their topics, and which brokers are alive.

    request threads   --register, unregister, wipe, query--> [the five tables, one lock]
    event thread      --a channel ended-------------------->
    NSScheduledThread --every 10 s, remove silent brokers-->

A broker whose connection ends is removed from all routes at once, and its name from the tables. `DepartedBrokers`
keeps the brokers that left without unregistering; `RouteInfoManager.departed_brokers` adds those that were replaced by
another broker. Without them, a tool that watches a cluster could not detect that a broker is missing.
"""
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from rmqha.common import sys_flags
from rmqha.common.data_version import DataVersion, follows
from rmqha.common.java import hash_map_order, int32
from rmqha.common.lazy_dataclasses import dataclass
from rmqha.common.lazy_tuples import NamedTuple
from rmqha.common.mix_all import MASTER_ID
from rmqha.common.protocol.cluster_bodies import ClusterInfo, DepartedBroker, RegisterBrokerResult
from rmqha.common.protocol.table_bodies import TopicConfigSerializeWrapper, TopicList
from rmqha.common.protocol.topic_route_data import BrokerData, QueueData, TopicRouteData
from rmqha.common.sys_flags import PERM_READ, PERM_WRITE
from rmqha.common.topics import TopicConfig
from rmqha.namesrv.registrations import (
    MAX_BROKERS,
    MAX_FILTER_SERVERS,
    ChangedHere,
    RegistrationError,
    RegistrationLimits,
    check_names,
)

if TYPE_CHECKING:
    from rmqha.remoting.channel import Channel


MAX_DEPARTED = 1000
_REMEMBERED_MS = 7 * 24 * 3_600_000


class DepartedBrokers:
    """The brokers that left without unregistering: at most 1,000, for 7 days.

    Guarded by its owner's lock. `clock` returns monotonic ms.
    """

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._gone: dict[tuple[str, str, int], tuple[str, int]] = {}  # (cluster, name, id) -> (address, gone at)

    def gone(self, cluster: str, name: str, broker_id: int, address: str) -> None:
        """Note a broker that left without unregistering."""
        self._gone.pop((cluster, name, broker_id), None)
        while len(self._gone) >= MAX_DEPARTED:
            del self._gone[next(iter(self._gone))]
        self._gone[cluster, name, broker_id] = address, self._clock()

    def forget(self, cluster: str, name: str, broker_id: int) -> None:
        """Forget a broker that returned, was replaced by another one, or unregistered."""
        self._gone.pop((cluster, name, broker_id), None)

    def all(self) -> list[DepartedBroker]:
        """Return the brokers that are still missing."""
        now = self._clock()
        self._gone = {key: gone for key, gone in self._gone.items() if now - gone[1] < _REMEMBERED_MS}
        return [DepartedBroker(*key, address, now - at) for key, (address, at) in self._gone.items()]


log = logging.getLogger("RocketmqNamesrv")

BROKER_CHANNEL_EXPIRED_TIME = 1000 * 60 * 2
# Topics of a change before readers are let in; they take some milliseconds.
PIECE = 500
_LET_IN = 0.0002  # seconds

_T = TypeVar("_T")


@dataclass
class BrokerLiveInfo:
    """The last registration of a broker address, and its time (monotonic ms).

    Java: org.apache.rocketmq.namesrv.routeinfo.BrokerLiveInfo (4.9.8)
    """

    last_update_timestamp: int
    data_version: DataVersion | None
    channel: "Channel | None"
    ha_server_addr: str | None
    place: tuple[str, str, int] = ("", "", 0)  # cluster, brokerName, brokerId
    # The state of its topics, if all of them are known here; "": not all are, or the broker reports no state.
    topics_state: str = ""
    # Of a master that shares its address with other replicas; 0: of any other broker.
    master_epoch: int = 0


class LiveBroker(NamedTuple):
    """A registered broker."""

    cluster: str
    name: str
    broker_id: int
    address: str
    age_ms: int  # since its last registration


@dataclass(frozen=True)
class BrokerRegistration:
    """One registration, as received."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: int
    ha_server_addr: str
    topic_config_wrapper: TopicConfigSerializeWrapper
    filter_server_list: list[str] | None
    channel: "Channel | None"
    # The state after this registration; "": the broker reports none.
    topics_state: str = ""
    # The state to which the topics are changes; "": they are all topics, or a single one from a broker without states.
    topics_since: str = ""
    # The topic that an administrator created or changed; "": the registration has another cause.
    topic_alone: str = ""
    # Of a master that shares its address with other replicas; 0: of any other broker.
    master_epoch: int = 0

    @property
    def place(self) -> tuple[str, str, int]:
        """The cluster, brokerName and brokerId."""
        return self.cluster_name, self.broker_name, self.broker_id

    def live_info(self, now_ms: int) -> BrokerLiveInfo:
        """Return the part of the registration that is kept."""
        return BrokerLiveInfo(now_ms, self.topic_config_wrapper.dataVersion, self.channel, self.ha_server_addr,
                              self.place, self.topics_state, self.master_epoch)


class RegistrationGap(Exception):
    """A registration contains only changes, but the state before them is not known here."""


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class RouteInfoManager:
    """The routes, in memory only: brokers register again every 30 s.

    `clock` returns monotonic milliseconds.

    Java: org.apache.rocketmq.namesrv.routeinfo.RouteInfoManager (4.9.8)
    """

    def __init__(self, clock: Callable[[], int] = _monotonic_ms) -> None:
        # Differs: brokers expire by monotonic time; Java's wall clock expires all brokers when it is set forward
        self._clock = clock
        # Held during a change; acquired before `_lock`.
        self._changes = threading.Lock()
        # Guards all tables and their entries; a long change releases it in between.
        self._lock = threading.RLock()
        self._topic_queue_table: dict[str, dict[str, QueueData]] = {}  # topic -> broker name -> queues
        self._broker_addr_table: dict[str, BrokerData] = {}  # broker name -> addresses by broker id
        self._cluster_addr_table: dict[str, set[str]] = {}  # cluster -> broker names
        self._broker_live_table: dict[str, BrokerLiveInfo] = {}  # broker address -> life
        self._filter_server_table: dict[str, list[str]] = {}  # broker address -> filter servers
        # The reverse tables, since one connection may register 1,000 brokers, among 10,000 others.
        self._names_of_addr: dict[str, set[str]] = {}  # broker address -> broker names
        self._clusters_of_name: dict[str, set[str]] = {}  # broker name -> clusters
        self._changed_here = ChangedHere()
        self._departed = DepartedBrokers(clock)
        self._limits = RegistrationLimits()
        # Log lines of the current change.
        self._lines: list[tuple[int, str, tuple[object, ...]]] = []

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold both locks during a change, and write its log lines after releasing them.

        A broker may have thousands of topics, each with log lines; other threads should not wait for these.
        """
        lines: list[tuple[int, str, tuple[object, ...]]] = []
        try:
            with self._changes, self._lock:
                try:
                    yield
                finally:
                    lines, self._lines = self._lines, []
        finally:
            for level, text, args in lines:
                log.log(level, text, *args)

    def _in_pieces(self, items: Iterable[_T]) -> Iterator[_T]:
        """Yield the items of a long change, and let readers in after each piece of them."""
        # Differs: requests for routes are answered in the middle of a change of many topics; in the original they wait
        # until it is complete
        for number, item in enumerate(items, 1):
            yield item
            if number % PIECE == 0:
                self._lock.release()
                try:
                    # Without the sleep, this thread would acquire the lock again before a waiting thread wakes up.
                    time.sleep(_LET_IN)
                finally:
                    self._lock.acquire()

    def _note(self, text: str, *args: object, level: int = logging.INFO) -> None:
        self._lines.append((level, text, args))

    def get_all_cluster_info(self) -> ClusterInfo:
        """Return a copy of the clusters and brokers."""
        with self._lock:
            brokers = {name: _copy(self._broker_addr_table[name]) for name in hash_map_order(self._broker_addr_table)}
            clusters = {cluster: set(self._cluster_addr_table[cluster])
                        for cluster in hash_map_order(self._cluster_addr_table)}
        return ClusterInfo(brokerAddrTable=brokers, clusterAddrTable=clusters)

    def departed_brokers(self) -> list[DepartedBroker]:
        """Return the brokers that left without unregistering, and those that still register but whose id another
        address has taken."""
        # Differs: a name server remembers the brokers that left without unregistering, and reports those whose id
        # another address has taken; 4.9 does neither
        with self._lock:
            replaced = [DepartedBroker(*info.place, addr) for addr, info in self._broker_live_table.items()
                        if self._addr_at(info.place) not in (None, addr)]
            return self._departed.all() + replaced

    def _addr_at(self, place: tuple[str, str, int]) -> str | None:
        broker_data = self._broker_addr_table.get(place[1])
        return None if broker_data is None else broker_data.brokerAddrs.get(place[2])

    def delete_topic(self, topic: str, cluster_name: str | None = None) -> None:
        """Remove a topic from the routes: on all brokers, or on those of one cluster."""
        with self._changing():
            if not cluster_name:
                for broker_name, queue_data in self._topic_queue_table.pop(topic, {}).items():
                    self._limits.topic_removed(broker_name, topic)
                    self._note_changed_here(broker_name, topic, queue_data)
                return
            queue_data_map = self._topic_queue_table.get(topic)
            if queue_data_map is None:
                return
            for broker_name in self._cluster_addr_table.get(cluster_name, ()):
                removed = queue_data_map.pop(broker_name, None)
                if removed is not None:
                    self._limits.topic_removed(broker_name, topic)
                    self._note_changed_here(broker_name, topic, removed)
                    self._note("deleteTopic, remove one broker's topic %s %s %s", broker_name, topic, removed)
            if not queue_data_map:
                self._note("deleteTopic, remove the topic all queue %s %s", cluster_name, topic)
                del self._topic_queue_table[topic]

    def get_all_topic_list(self) -> TopicList:
        """Return all topics."""
        with self._lock:
            return TopicList(topicList=set(self._topic_queue_table))

    def register_broker(self, registration: BrokerRegistration) -> RegisterBrokerResult:
        """Register a broker, or refresh its registration. Topics are accepted only from a master, if their version
        changed.

        The result contains a slave's master. Raises RegistrationError for an invalid registration, with nothing
        changed, and RegistrationGap when its topics are changes to a state that is not known here.
        """
        _check(registration)
        with self._changing():
            self._check_epoch(registration)
            self._check_gap(registration)
            self._check_room(registration)
            addr = registration.broker_addr
            known = self._broker_live_table.get(addr)
            state = self._state_of(registration)
            is_first = self._put_broker_addr(registration) or known is None
            info = registration.live_info(self._clock())
            if known is None:
                self._note("new broker registered, %s HAServer: %s", addr, registration.ha_server_addr)
            if known is not None and not is_first and _is_overtaken(registration, known, state):
                info.data_version, info.topics_state = known.data_version, known.topics_state
            elif registration.broker_id == MASTER_ID:
                is_news = known is None or known.data_version != info.data_version
                self._take_topics(registration, is_first, is_news, state)
            self._departed.forget(*registration.place)
            self._broker_live_table[addr] = info
            if registration.filter_server_list:
                self._filter_server_table[addr] = registration.filter_server_list
            elif registration.filter_server_list is not None:
                self._filter_server_table.pop(addr, None)
            return self._master_of(registration)

    def _check_epoch(self, registration: BrokerRegistration) -> None:
        """Refuse an old master under an address that the present one has registered."""
        # Differs: of two masters that share an address, the one with the higher epoch stays registered; the original
        # takes them for one broker
        known = self._broker_live_table.get(registration.broker_addr)
        if known is not None and known.place == registration.place \
                and 0 < registration.master_epoch < known.master_epoch:
            raise RegistrationError(f"the mastership of epoch {registration.master_epoch} is over: the master of epoch "
                                    f"{known.master_epoch} has registered {registration.broker_addr}")

    def _check_gap(self, registration: BrokerRegistration) -> None:
        if registration.topics_since and not follows(registration.topics_since, self._state_of(registration)):
            raise RegistrationGap(f"{registration.broker_addr} has to register all its topics")

    def _state_of(self, registration: BrokerRegistration) -> str:
        """Return the state of the broker's topics in the table; "" if it is unknown, or they are another broker's."""
        known = self._broker_live_table.get(registration.broker_addr)
        is_there = (known is not None and known.place == registration.place
                    and self._addr_at(registration.place) == registration.broker_addr)
        return known.topics_state if known is not None and is_there else ""

    def _take_topics(self, registration: BrokerRegistration, is_first: bool, is_news: bool, state: str) -> None:
        """Enter a master's topics, with the result that the original has after a registration of all topics, or of one.

        Changes that an administrator made here stay until the broker registers all topics under another version. A
        registration of one topic affects only that topic.
        """
        name, changed_here = registration.broker_name, self._changed_here
        table = registration.topic_config_wrapper.topicConfigTable or {}
        # The registration contains all topics.
        if not registration.topics_since and (len(table) > 1 or registration.topics_state):
            topics = {config.topicName for config in table.values()}
            changed_here.forget_all_but(name, topics, self._limits.topics_of(name))
        if is_first or is_news and not registration.topic_alone:
            if registration.topics_since:
                for topic, queue_data in self._in_pieces(changed_here.of(name)):
                    self._put_queue_data(topic, queue_data)
                changed_here.forget(name)
            for topic_config in self._in_pieces(table.values()):
                changed_here.forget_topic(name, topic_config.topicName)
                self._create_and_update_queue_data(name, topic_config)
        elif registration.topic_alone or registration.topics_state and registration.topics_state != state:
            # Differs: a broker of rmqha names the state of its topics besides their version. 4.9 compares only the
            # version, which a registration of one topic also sets; it then never accepts the other topics of that
            # version
            for topic_config in self._in_pieces(table.values()):
                topic = topic_config.topicName
                queue_data = _queue_data(name, topic_config)
                if topic == registration.topic_alone or changed_here.is_other(name, topic, queue_data):
                    changed_here.forget_topic(name, topic)
                    self._put_queue_data(topic, queue_data)

    def _check_room(self, registration: BrokerRegistration) -> None:
        name, addr = registration.broker_name, registration.broker_addr
        for table, key in ((self._broker_addr_table, name), (self._broker_live_table, addr)):
            if key not in table and len(table) >= MAX_BROKERS:
                raise RegistrationError(f"too many brokers: {MAX_BROKERS} are registered already")
        if registration.broker_id == MASTER_ID:
            # These may be restored to their registered values.
            changed = self._changed_here.of(name) if registration.topics_since else []
            self._limits.check_topics(name, registration.topic_config_wrapper.topicConfigTable or {},
                                      (topic for topic, _queue_data in changed))
        self._limits.take_place(registration.channel, (*registration.place, addr))

    def _put_broker_addr(self, registration: BrokerRegistration) -> bool:
        """Enter the address under its name and id; return whether the name had no address under this id."""
        name, addr, broker_id = registration.broker_name, registration.broker_addr, registration.broker_id
        self._cluster_addr_table.setdefault(registration.cluster_name, set()).add(name)
        self._clusters_of_name.setdefault(name, set()).add(registration.cluster_name)
        broker_data = self._broker_addr_table.get(name)
        if broker_data is None:
            broker_data = BrokerData(cluster=registration.cluster_name, brokerName=name, brokerAddrs={})
            self._broker_addr_table[name] = broker_data
        # After a slave became master, its address must be under one id only.
        for other_id in [i for i, other in broker_data.brokerAddrs.items() if other == addr and i != broker_id]:
            log.debug("remove entry %s=%s from brokerData", other_id, addr)
            del broker_data.brokerAddrs[other_id]
        old_addr = broker_data.brokerAddrs.get(broker_id)
        if old_addr is not None:
            self._take_addr(broker_data, name, broker_id)
        broker_data.brokerAddrs[broker_id] = addr
        self._names_of_addr.setdefault(addr, set()).add(name)
        if broker_id == MASTER_ID and old_addr != addr:
            self._note("cluster [%s] brokerName [%s] master address change from %s to %s",
                       broker_data.cluster, broker_data.brokerName, old_addr, addr)
        return old_addr is None

    def _take_addr(self, broker_data: BrokerData, name: str, broker_id: int) -> None:
        """Remove the address with this id from the table."""
        addr = broker_data.brokerAddrs.pop(broker_id)
        names = self._names_of_addr[addr]
        names.discard(name)
        if not names:
            del self._names_of_addr[addr]

    def _master_of(self, registration: BrokerRegistration) -> RegisterBrokerResult:
        result = RegisterBrokerResult()
        if registration.broker_id != MASTER_ID:
            master_addr = self._broker_addr_table[registration.broker_name].brokerAddrs.get(MASTER_ID)
            info = self._broker_live_table.get(master_addr) if master_addr is not None else None
            if info is not None:
                result.haServerAddr = info.ha_server_addr
                result.masterAddr = master_addr
        return result

    def is_broker_topic_config_changed(self, broker_addr: str, data_version: DataVersion | None) -> bool:
        """Return True unless the broker is registered with this version of its topics."""
        prev = self.query_broker_topic_config(broker_addr)
        return prev is None or prev != data_version

    def query_broker_topic_config(self, broker_addr: str) -> DataVersion | None:
        """Return the version of the broker's topics; None for an unknown broker."""
        with self._lock:
            prev = self._broker_live_table.get(broker_addr)
            return None if prev is None else prev.data_version

    def update_broker_info_update_timestamp(self, broker_addr: str) -> None:
        """Note that the broker is alive now."""
        with self._lock:
            prev = self._broker_live_table.get(broker_addr)
            if prev is not None:
                prev.last_update_timestamp = self._clock()

    def _create_and_update_queue_data(self, broker_name: str, topic_config: TopicConfig) -> None:
        self._put_queue_data(topic_config.topicName, _queue_data(broker_name, topic_config))

    def _put_queue_data(self, topic: str, queue_data: QueueData) -> None:
        broker_name = queue_data.brokerName
        self._limits.topic_added(broker_name, topic)
        queue_data_map = self._topic_queue_table.get(topic)
        if queue_data_map is None:
            self._topic_queue_table[topic] = {broker_name: queue_data}
            self._note("new topic registered, %s %s", topic, queue_data)
            return
        old = queue_data_map.get(broker_name)
        queue_data_map[broker_name] = queue_data
        if old is not None and old != queue_data:
            self._note("topic changed, %s OLD: %s NEW: %s", topic, old, queue_data)

    def wipe_write_perm_of_broker_by_lock(self, broker_name: str) -> int:
        """Remove the write permission from all topics of a broker; return the number of topics.

        Lasts until the broker registers all topics under another version, after a send created a topic or one was
        deleted. A topic that an administrator creates or changes does not affect the others.
        """
        return self._operate_write_perm_of_broker(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_perm_of_broker_by_lock(self, broker_name: str) -> int:
        """Allow reads and writes of all topics of a broker; return the number of topics."""
        return self._operate_write_perm_of_broker(broker_name, lambda perm: PERM_READ | PERM_WRITE)

    def _operate_write_perm_of_broker(self, broker_name: str, operate: Callable[[int], int]) -> int:
        with self._changing():
            found = [(topic, queue_data_map[broker_name]) for topic, queue_data_map in self._topic_queue_table.items()
                     if broker_name in queue_data_map]
            for topic, queue_data in found:
                self._note_changed_here(broker_name, topic, _copy_queue(queue_data))
                queue_data.perm = operate(queue_data.perm)
            return len(found)

    def _note_changed_here(self, broker_name: str, topic: str, registered: QueueData) -> None:
        if self._changed_here.note(broker_name, topic, registered):
            return
        # There are too many changes to keep, so the broker has to register all its topics again.
        self._changed_here.forget(broker_name)
        broker_data = self._broker_addr_table.get(broker_name)
        for addr in broker_data.brokerAddrs.values() if broker_data is not None else ():
            if addr in self._broker_live_table:
                self._broker_live_table[addr].topics_state = ""

    def unregister_broker(self, cluster_name: str, broker_addr: str, broker_name: str, broker_id: int,
                          only_of: "Channel | None" = None) -> None:
        """Unregister a broker. Its topics are removed with the last address of its name.

        `only_of`: nothing happens if another connection registered the address last.
        """
        with self._changing():
            info = self._broker_live_table.get(broker_addr)
            if only_of is not None and info is not None and info.channel is not only_of:
                self._note("unregisterBroker, another broker has registered %s since", broker_addr)
                return
            self._departed.forget(cluster_name, broker_name, broker_id)
            # Differs: when a broker unregisters, its address stays until it expires if it is registered under another
            # name or id; in the original it is no longer checked, and stays for ever
            found = info is not None and info.place[1:] == (broker_name, broker_id)
            if found:
                del self._broker_live_table[broker_addr]
                self._filter_server_table.pop(broker_addr, None)
            self._note("unregisterBroker, remove from brokerLiveTable %s, %s", "OK" if found else "Failed", broker_addr)
            broker_data = self._broker_addr_table.get(broker_name)
            if broker_data is None:
                return
            # Differs: a broker that unregisters removes only its own address; Java removes any address with this id, so
            # an old master that stops removes the new one
            found = broker_data.brokerAddrs.get(broker_id) == broker_addr
            if found:
                self._take_addr(broker_data, broker_name, broker_id)
            self._note("unregisterBroker, remove addr from brokerAddrTable %s, %s", "OK" if found else "Failed",
                     broker_addr)
            if broker_data.brokerAddrs:
                return
            del self._broker_addr_table[broker_name]
            self._note("unregisterBroker, remove name from brokerAddrTable OK, %s", broker_name)
            self._remove_from_clusters(broker_name, "because it unregistered")
            self._remove_topic_by_broker_name(broker_name, "because it unregistered")

    def _remove_from_clusters(self, broker_name: str, why: str) -> None:
        for cluster_name in self._clusters_of_name.pop(broker_name, ()):
            names = self._cluster_addr_table[cluster_name]
            names.discard(broker_name)
            self._note("remove brokerName[%s], clusterName[%s] from clusterAddrTable, %s", broker_name, cluster_name,
                       why)
            if not names:
                del self._cluster_addr_table[cluster_name]
                self._note("remove the clusterName[%s] from clusterAddrTable, %s and no broker in this cluster",
                         cluster_name, why)

    def _remove_topic_by_broker_name(self, broker_name: str, why: str) -> None:
        self._changed_here.forget_broker(broker_name)
        for topic in self._in_pieces(self._limits.topics_of(broker_name)):
            queue_data_map = self._topic_queue_table[topic]
            old = queue_data_map.pop(broker_name, None)
            self._limits.topic_removed(broker_name, topic)
            self._note("remove topic[%s %s], from topicQueueTable, %s", topic, old, why)
            if not queue_data_map:
                del self._topic_queue_table[topic]
                self._note("remove topic[%s] all queue, from topicQueueTable, %s", topic, why)

    def pickup_topic_route_data(self, topic: str) -> TopicRouteData | None:
        """Return a copy of the topic's route; None unless it has queues and a registered broker."""
        with self._lock:
            queue_data_map = self._topic_queue_table.get(topic, {})
            names = hash_map_order(queue_data_map)
            queue_datas = [_copy_queue(queue_data_map[name]) for name in names]
            broker_datas = [_copy(self._broker_addr_table[name]) for name in names if name in self._broker_addr_table]
            addrs = [addr for broker_data in broker_datas for addr in broker_data.brokerAddrs.values()]
            filter_servers = {addr: list(self._filter_server_table[addr]) for addr in addrs
                              if addr in self._filter_server_table}
        if not broker_datas:
            return None
        return TopicRouteData(queueDatas=queue_datas, brokerDatas=broker_datas, filterServerTable=filter_servers)

    def scan_not_active_broker(self) -> int:
        """Remove the brokers that were silent for 120 s, and close their connections; return the number of brokers."""
        with self._changing():
            oldest = self._clock() - BROKER_CHANNEL_EXPIRED_TIME
            expired = [(addr, info) for addr, info in self._broker_live_table.items()
                       if info.last_update_timestamp < oldest]
            for addr, _info in expired:
                self._note("The broker channel expired, %s %dms", addr, BROKER_CHANNEL_EXPIRED_TIME,
                           level=logging.WARNING)
                self._remove_broker_addr(addr)
        # Outside the lock, because closing a channel calls listeners.
        for _addr, info in expired:
            if info.channel is not None:
                info.channel.close()
        return len(expired)

    def on_channel_destroy(self, remote_addr: str, channel: "Channel | None") -> None:
        """Remove the brokers that registered through `channel`, or else the broker with the address `remote_addr`."""
        with self._changing():
            addrs = [addr for addr in self._limits.channel_gone(channel)
                     if addr in self._broker_live_table and self._broker_live_table[addr].channel is channel]
            for addr in addrs:
                self._note("the broker's channel destroyed, %s, clean it's data structure at once", addr)
            for addr in addrs or [remote_addr]:
                self._remove_broker_addr(addr)

    def _remove_broker_addr(self, broker_addr: str) -> None:
        self._broker_live_table.pop(broker_addr, None)
        self._filter_server_table.pop(broker_addr, None)
        why = "because channel destroyed"
        for name in list(self._names_of_addr.get(broker_addr, ())):
            broker_data = self._broker_addr_table[name]
            for broker_id in [number for number, addr in broker_data.brokerAddrs.items() if addr == broker_addr]:
                self._take_addr(broker_data, name, broker_id)
                self._departed.gone(broker_data.cluster or "", name, broker_id, broker_addr)
                self._note("remove brokerAddr[%s, %s] from brokerAddrTable, %s", broker_id, broker_addr, why)
            if not broker_data.brokerAddrs:
                del self._broker_addr_table[name]
                self._note("remove brokerName[%s] from brokerAddrTable, %s", name, why)
                self._remove_from_clusters(name, why)
                self._remove_topic_by_broker_name(name, why)

    def live_brokers(self) -> list[LiveBroker]:
        """Return the registered brokers."""
        with self._lock:
            now = self._clock()
            return [LiveBroker(cluster, name, broker_id, addr, now - info.last_update_timestamp)
                    for addr, info in self._broker_live_table.items() for cluster, name, broker_id in (info.place,)]

    def topic_count(self) -> int:
        """Return the number of topics with a route."""
        return len(self._topic_queue_table)

    def print_all_periodically(self) -> None:
        """Log all tables."""
        tables: dict[str, Mapping[str, object]] = {
            "topicQueueTable Topic": self._topic_queue_table, "brokerAddrTable brokerName": self._broker_addr_table,
            "brokerLiveTable brokerAddr": self._broker_live_table,
            "clusterAddrTable clusterName": self._cluster_addr_table}
        with self._lock:
            keys = {title: list(table) for title, table in tables.items()}
        log.info("--------------------------------------------------------")
        for title in tables:
            log.info("%s SIZE: %d", title.split()[0], len(keys[title]))
        for title, table in tables.items():
            for key in keys[title]:
                # Lock for one entry at a time: there may be thousands.
                with self._lock:
                    text = str(table[key]) if key in table else "is gone"
                log.info("%s: %s %s", title, key, text)

    def get_system_topic_list(self) -> TopicList:
        """Return the topics that are named like clusters and brokers, and one broker's address."""
        with self._lock:
            topic_list = TopicList(topicList=set(self._cluster_addr_table).union(*self._cluster_addr_table.values()))
            for name in hash_map_order(self._broker_addr_table):
                addrs = self._broker_addr_table[name].brokerAddrs
                topic_list.brokerAddr = addrs[min(addrs)]
                break
        return topic_list

    def get_topics_by_cluster(self, cluster: str) -> TopicList:
        """Return the topics on the brokers of a cluster; empty for an unknown cluster."""
        with self._lock:
            if cluster not in self._cluster_addr_table:
                log.error("getAllTopicList Exception: no cluster %s", cluster)
            names = self._cluster_addr_table.get(cluster, set())
            return TopicList(topicList={topic for topic, queue_data_map in self._topic_queue_table.items()
                                        if not names.isdisjoint(queue_data_map)})

    def get_unit_topics(self) -> TopicList:
        """Return the topics of units."""
        return self._topic_queue_table_iter(sys_flags.has_unit_flag)

    def get_has_unit_sub_topic_list(self) -> TopicList:
        """Return the topics that units subscribe to."""
        return self._topic_queue_table_iter(sys_flags.has_unit_sub_flag)

    def get_has_unit_sub_un_unit_topic_list(self) -> TopicList:
        """Return the topics that units subscribe to and that do not belong to a unit."""
        return self._topic_queue_table_iter(
            lambda flag: not sys_flags.has_unit_flag(flag) and sys_flags.has_unit_sub_flag(flag))

    def _topic_queue_table_iter(self, pick_condition: Callable[[int], bool]) -> TopicList:
        """Return the topics whose flag at the first broker satisfies the condition."""
        with self._lock:
            flags = {topic: _first(queue_data_map).topicSysFlag
                     for topic, queue_data_map in self._topic_queue_table.items()}
        return TopicList(topicList={topic for topic, flag in flags.items() if pick_condition(flag)})


def _check(registration: BrokerRegistration) -> None:
    # Differs: a registration with a missing or invalid part is refused as a whole; Java applies part of it before it
    # fails, logs the failure and answers SUCCESS
    for name in ("cluster_name", "broker_addr", "broker_name"):
        if not getattr(registration, name):
            raise RegistrationError(f"{name} of a broker registration is empty")
    check_names(registration.cluster_name, registration.broker_addr, registration.broker_name,
                registration.ha_server_addr, registration.topics_state, registration.topic_alone,
                *(registration.filter_server_list or ()))
    if len(registration.filter_server_list or ()) > MAX_FILTER_SERVERS:
        raise RegistrationError(f"{registration.broker_name} has more than {MAX_FILTER_SERVERS} filter servers")
    if registration.broker_id < 0:
        raise RegistrationError(f"brokerId {registration.broker_id} of {registration.broker_name} is negative")
    wrapper = registration.topic_config_wrapper
    if wrapper is None or wrapper.dataVersion is None:
        raise RegistrationError(f"the registration of {registration.broker_name} has no data version")
    for topic, config in (wrapper.topicConfigTable or {}).items():
        if config is None or not config.topicName:
            raise RegistrationError(f"topic {topic!r} of {registration.broker_name} has no config or no name")
        numbers = (config.readQueueNums, config.writeQueueNums, config.perm, config.topicSysFlag)
        if any(number != int32(number) for number in numbers):
            raise RegistrationError(f"topic {topic!r} of {registration.broker_name} has a number that exceeds 32 bits")


def _is_overtaken(registration: BrokerRegistration, known: BrokerLiveInfo, state: str) -> bool:
    """Return whether a later registration arrived earlier and already contained this one."""
    return registration.topics_state != "" and follows(registration.topics_state, state) and (
        registration.topics_state != state or known.data_version == registration.topic_config_wrapper.dataVersion)


def _queue_data(broker_name: str, topic_config: TopicConfig) -> QueueData:
    return QueueData(brokerName=broker_name, readQueueNums=topic_config.readQueueNums,
                     writeQueueNums=topic_config.writeQueueNums, perm=topic_config.perm,
                     topicSysFlag=topic_config.topicSysFlag)


def _first(queue_data_map: dict[str, QueueData]) -> QueueData:
    name = next(iter(queue_data_map)) if len(queue_data_map) == 1 else hash_map_order(queue_data_map)[0]
    return queue_data_map[name]


def _copy(broker_data: BrokerData) -> BrokerData:
    addrs = {broker_id: broker_data.brokerAddrs[broker_id] for broker_id in sorted(broker_data.brokerAddrs)}
    return BrokerData(cluster=broker_data.cluster, brokerName=broker_data.brokerName, brokerAddrs=addrs)


def _copy_queue(queue_data: QueueData) -> QueueData:
    return QueueData(brokerName=queue_data.brokerName, readQueueNums=queue_data.readQueueNums,
                     writeQueueNums=queue_data.writeQueueNums, perm=queue_data.perm,
                     topicSysFlag=queue_data.topicSysFlag)
