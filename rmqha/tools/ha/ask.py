"""Asking name servers and brokers, many at a time.

What the tools ask of name servers and brokers, rmqha's and Java's, with errors that say what to do.

What brokers answer when all are asked at the same time: one that stands still holds up nobody else's answer.
"""
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Self, TypeVar

import click

from rmqha.client.client_config import ClientConfig
from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.client.impl.mq_client_api_impl import MQClientAPIImpl
from rmqha.common.config_keys import address_hint, is_host_and_port
from rmqha.common.configuration import nearest_key
from rmqha.common.message import message_decoder
from rmqha.common.message.message import Message
from rmqha.common.message.message_layout import MessageDecodeError
from rmqha.common.mix_all import MASTER_ID
from rmqha.common.protocol import cluster_bodies, request_code, response_code
from rmqha.common.protocol.admin_headers import HandoverMasterRequestHeader
from rmqha.common.protocol.client_headers import SendMessageRequestHeaderV2, ViewMessageRequestHeader
from rmqha.common.protocol.cluster_bodies import (
    ClusterInfo,
    DepartedBroker,
    EpochEntryCache,
    HARuntimeInfo,
    ReplicasInfo,
)
from rmqha.common.protocol.command_custom_header import CommandCustomHeader
from rmqha.common.protocol.controller_headers import ElectMasterResponseHeader, GetMetaDataResponseHeader
from rmqha.common.protocol.table_bodies import ConsumeStatsList
from rmqha.common.texts import LONG, whole
from rmqha.common.threads import NamedThreadPool
from rmqha.common.topics import AUTO_CREATE_TOPIC_KEY_TOPIC, RMQ_SYS_BENCHMARK_TOPIC
from rmqha.remoting.addresses import string2_socket_address
from rmqha.remoting.exception import RemotingConnectException, RemotingException
from rmqha.remoting.interfaces import RPCHook
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_config import RemotingClientConfig

DEFAULT_TIMEOUT_MS = 3000
_PROBE_GROUP, _PROBE_BODY = "CLIENT_INNER_PRODUCER", b"rmqha check ha --probe"
_OTHER_TOPIC = (response_code.NO_PERMISSION, response_code.TOPIC_NOT_EXIST)  # another may do
_MAX_TOPICS = 500  # asked one by one for the time of their last message

T = TypeVar("T")

# How RocketMQ fails to tell of itself in the first second after its start, when its statistics have no sample.
_NO_SAMPLE = "java.util.NoSuchElementException"
_STARTING_S = 5
_STARTING_STEP_S = 0.2
_NO_NUMBER = LONG[0]


class ReplicationToolError(click.ClickException):
    """What can't be answered, why, and what to do about it."""

    exit_code = 2


class NoAnswerError(ReplicationToolError):
    """A server can't be reached, or does not answer."""


class RefusedError(ReplicationToolError):
    """A server answered with an error; `code` is its response code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, order=True)
class Broker:
    """A broker as a name server lists it; `address` is host:port."""

    cluster: str
    name: str
    broker_id: int
    address: str

    @property
    def is_master(self) -> bool:
        """Whether its id is a master's."""
        return self.broker_id == MASTER_ID


class BrokerAdmin:
    """Admin requests over one client; a context manager. `namesrv`: "host:port", several separated by semicolons."""

    def __init__(self, namesrv: str | None = None, timeout_ms: float = DEFAULT_TIMEOUT_MS,
                 rpc_hook: RPCHook | None = None) -> None:
        self.namesrv = namesrv
        self.timeout_ms = timeout_ms
        config = ClientConfig(namesrv_addr=namesrv)
        namesrv = config.get_namesrv_addr() if namesrv else None  # without http://, as every client takes it
        self._api = MQClientAPIImpl(
            RemotingClientConfig(clientCallbackExecutorThreads=1, connectTimeoutMillis=int(timeout_ms),
                                 useTLS=config.use_tls), config, rpc_hook)
        for address in (namesrv or "").split(";"):
            if address.strip():
                parsed_address(address.strip(), "the name server")
        if namesrv:
            self._api.update_name_server_address_list(namesrv)

    def __enter__(self) -> Self:
        self._api.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._api.shutdown()

    def cluster_info(self) -> ClusterInfo:
        """All brokers that the name server knows."""
        if not self.namesrv:
            raise ReplicationToolError("no name server: give it with -n host:port, or in NAMESRV_ADDR")
        return self._asked(f"name server {self.namesrv}", lambda: self._api.get_broker_cluster_info(self.timeout_ms))

    def departed_brokers(self) -> list[DepartedBroker]:
        """Those that the name server misses; one of RocketMQ does not tell."""
        def ask() -> list[DepartedBroker]:
            request = RemotingCommand.create_request_command(request_code.GET_BROKER_CLUSTER_INFO)
            request.add_ext_field(cluster_bodies.ASK_DEPARTED_BROKERS, "true")
            response = self._api.remoting_client.invoke_sync(None, request, self.timeout_ms)
            return cluster_bodies.decode_departed((response.ext_fields or {}).get(cluster_bodies.DEPARTED_BROKERS))
        return self._asked(f"name server {self.namesrv}", ask)

    def brokers(self) -> list[Broker]:
        """All brokers that the name server knows, sorted."""
        table = self.cluster_info().brokerAddrTable
        return sorted(Broker(data.cluster or "", name, broker_id, address) for name, data in table.items()
                      for broker_id, address in data.brokerAddrs.items())

    def runtime_info(self, address: str) -> dict[str, str]:
        """The broker's runtime table. A broker that has just started is given time for its first sample."""
        deadline = time.monotonic() + _STARTING_S
        while True:
            try:
                table = self._asked(f"broker {address}",
                                    lambda: self._api.get_broker_runtime_info(address, self.timeout_ms))
                return table.table or {}
            except RefusedError as refusal:
                if _NO_SAMPLE not in refusal.message or time.monotonic() > deadline:
                    raise
            time.sleep(_STARTING_STEP_S)

    def config(self, address: str) -> dict[str, str]:
        """All settings of a broker."""
        return self._asked(f"broker {address}", lambda: self._api.get_broker_config(address, self.timeout_ms))

    def ha_runtime_info(self, address: str) -> HARuntimeInfo | None:
        """How replication stands; None when the broker does not know the request, as 4.9."""
        try:
            response = self._asked(f"broker {address}",
                                   lambda: self._invoke(address, request_code.GET_BROKER_HA_STATUS))
        except RefusedError as refusal:
            if refusal.code == response_code.REQUEST_CODE_NOT_SUPPORTED:
                return None
            raise
        return self._asked(f"broker {address}",
                           lambda: remoting_serializable.from_json(HARuntimeInfo, response.body or b"{}"))

    def newest_store_timestamp(self, address: str, deadline: float | None = None) -> int | None:
        """When the newest message in any of a broker's queues was stored (ms); None when it can't be told.

        Nor when it takes longer than to `deadline`, a monotonic time.
        """
        wrapper = self._asked(f"broker {address}", lambda: self._api.get_all_topic_config(address, self.timeout_ms))
        topics = list(wrapper.topicConfigTable or ())
        if len(topics) > _MAX_TOPICS:
            return None
        newest = 0
        for topic in topics:
            if deadline is not None and time.monotonic() > deadline:
                return None
            try:
                stats = self._asked(f"broker {address}", partial(
                    self._api.get_topic_stats_info, address, topic, self.timeout_ms))
            except RefusedError:  # a topic that has gone meanwhile
                continue
            newest = max([newest, *(each.lastUpdateTimestamp for each in stats.offsetTable.values())])
        return newest or None

    def consume_stats(self, address: str) -> ConsumeStatsList:
        """How far all groups of a broker have come."""
        return self._asked(f"broker {address}",
                           lambda: self._api.fetch_consume_stats_in_broker(address, False, self.timeout_ms))

    def epochs(self, address: str) -> EpochEntryCache:
        """A replica's id, its epochs and the end of its log; RefusedError when its role does not change."""
        return self._asked(f"broker {address}", lambda: self._api.get_broker_epoch_cache(address, self.timeout_ms))

    def controller_meta_data(self, address: str) -> GetMetaDataResponseHeader:
        """The group of a controller, and who leads."""
        return self._asked(f"controller {address}",
                           lambda: self._api.get_controller_meta_data(address, self.timeout_ms))

    def controller_config(self, address: str) -> dict[str, str]:
        """All settings of a controller."""
        return self._asked(f"controller {address}", lambda: self._api.get_controller_config(address, self.timeout_ms))

    def replicas_info(self, address: str, broker_names: list[str]) -> dict[str, ReplicasInfo]:
        """What the leader that a controller names has of broker names; those that it does not know are left out."""
        return self._asked(f"controller {address}", lambda: self._api.get_in_sync_state_data(
            address, broker_names, self.timeout_ms).replicasInfoTable)

    def elect_master(self, address: str, cluster: str, broker_name: str, broker_id: int) -> ElectMasterResponseHeader:
        """Have the leader that a controller names make that replica the master."""
        return self._asked(f"controller {address}", lambda: self._api.elect_master(
            address, cluster, broker_name, broker_id, self.timeout_ms)[0])

    def hand_over(self, address: str, broker_id: int, timeout_ms: int) -> None:
        """Have a master stop taking messages until that replica holds all; RefusedError when it does not get there."""
        header = HandoverMasterRequestHeader(brokerId=broker_id, timeoutMillis=timeout_ms)
        self._asked(f"broker {address}", lambda: self._invoke(address, request_code.HANDOVER_MASTER, header))

    def record_at(self, address: str, offset: int) -> bytes:
        """The record that begins at a commit log offset; RefusedError when none does."""
        header = ViewMessageRequestHeader(offset=offset)
        response = self._asked(f"broker {address}",
                               lambda: self._invoke(address, request_code.VIEW_MESSAGE_BY_ID, header))
        return bytes(response.body or b"")

    def put_probe(self, broker: Broker) -> int:
        """Send one small message to a topic that each broker of 4.9 has from its start; its offset in the log.

        That of its name, as mqadmin sendMsgStatus; with brokerTopicEnable=false that of its cluster, or the one for
        benchmarks. SELF_TEST_TOPIC, which is there too, takes no messages from 4.9 on.
        """
        refusals = []
        for topic in dict.fromkeys(filter(None, (broker.name, broker.cluster, RMQ_SYS_BENCHMARK_TOPIC))):
            header = SendMessageRequestHeaderV2(a=_PROBE_GROUP, b=topic, c=AUTO_CREATE_TOPIC_KEY_TOPIC, d=1, e=0, f=0,
                                                g=int(time.time() * 1000), h=0, i="", j=0)
            message = Message(topic, _PROBE_BODY)
            try:
                sent = self._asked(f"broker {broker.address}", partial(
                    self._api.send_message, broker.address, broker.name, message, header, _PROBE_BODY, self.timeout_ms))
            except RefusedError as error:
                if error.code not in _OTHER_TOPIC:
                    raise
                refusals.append(error)
            else:
                return _offset_of(sent.offset_msg_id or "", broker)
        raise refusals[0]

    def _invoke(self, address: str, code: int, header: CommandCustomHeader | None = None) -> RemotingCommand:
        response = self._api.remoting_client.invoke_sync(
            address, RemotingCommand.create_request_command(code, header), self.timeout_ms)
        if response.code != response_code.SUCCESS:
            raise MQBrokerException(response.code, response.remark, address)
        return response

    def _asked(self, whom: str, ask: Callable[[], T]) -> T:
        """What `ask` gives; its failures as errors for people."""
        try:
            return ask()
        except RemotingConnectException:
            raise NoAnswerError(f"the {whom} can't be reached: nobody listens there, or a firewall is between. Is it "
                                "running, and are address and port right?") from None
        except RemotingException as error:
            raise NoAnswerError(f"the {whom} gives no answer within {self.timeout_ms / 1000:g} s: {error}. Is it "
                                "stopped, overloaded, or no RocketMQ port at all? --timeout waits longer") from None
        except MQBrokerException as error:
            if error.response_code == response_code.NO_PERMISSION:
                raise RefusedError(f"the {whom} refuses, no permission: {error.error_message}. Ask with an account "
                                   "that it lets administer, or from an address of its white list",
                                   error.response_code) from None
            raise RefusedError(f"the {whom} answers with error {error.response_code}: {error.error_message}",
                               error.response_code) from None
        except MQClientException as error:
            raise RefusedError(f"the {whom} answers with error {error.response_code}: {error.error_message}",
                               error.response_code) from None
        except ValueError as error:  # FastjsonError, UnicodeDecodeError
            raise ReplicationToolError(f"the {whom} answers with something that is no such answer: {error}. Is it a "
                                       "RocketMQ broker or name server?") from None


def number(table: dict[str, str], key: str, address: str, default: int = 0) -> int:
    """A number that the broker at `address` tells; an error for people when it is not one."""
    text = table.get(key)
    if text is None:
        return default
    value = whole(text, _NO_NUMBER, least=_NO_NUMBER + 1)
    if value == _NO_NUMBER:
        raise ReplicationToolError(f"the broker {address} tells {key}={text[:50]!r}, which is no number of 64 bits. Is "
                                   "it a RocketMQ broker?")
    return value


def parsed_address(text: str, what: str) -> tuple[str, int]:
    """(host, port) of "host:port"; an error for people when it has another form."""
    if not is_host_and_port(text):
        hint = address_hint(text)
        raise ReplicationToolError(f"{what}: {text!r} is no host:port" + (f": {hint}" if hint else ""))
    return string2_socket_address(text)


def chosen(brokers: list[Broker], cluster: str | None, broker: str | None) -> list[Broker]:
    """The brokers of a cluster, or those that share the name of `broker`, which is a name or an address."""
    if cluster is not None:
        clusters = {each.cluster for each in brokers}
        if cluster not in clusters:
            raise ReplicationToolError(f"no cluster {cluster!r} at the name server{_instead(cluster, clusters)}")
        brokers = [each for each in brokers if each.cluster == cluster]
    if broker is not None:
        names = {each.name for each in brokers if broker in (each.name, each.address)}
        if not names:
            known = {each.name for each in brokers} | {each.address for each in brokers}
            raise ReplicationToolError(f"no broker {broker!r} at the name server{_instead(broker, known)}")
        brokers = [each for each in brokers if each.name in names]
    return brokers


def _instead(name: str, known: set[str]) -> str:
    near = nearest_key(name, known)
    if near:
        return f"; did you mean {near}?"
    return f"; it knows {', '.join(sorted(known)[:20])}" if known else "; it knows none"


def _offset_of(message_id: str, broker: Broker) -> int:
    """Where a message is in the log of the broker that gave it this id."""
    try:
        return message_decoder.decode_message_id(message_id).offset
    except MessageDecodeError as error:
        raise ReplicationToolError(f"the broker {broker.address} answers the probe with a bad message id: {error}"
                                   ) from error


K = TypeVar("K")
V = TypeVar("V")

_MAX_ASKED_AT_ONCE = 32
_MARGIN_S = 0.5  # for the threads to notice that their time is up
_OF_SCRUBBING = frozenset({
    "haScrubPosition", "haScrubRoundBegin", "haScrubRoundEnd", "haScrubUnscrubbedMs", "haScrubRounds",
    "haScrubComparedBytes", "haScrubDifferences", "haScrubFirstDifference", "haVerifiedBytes", "haVerifyFailures",
    "haVerifyFailedOffset"})


@dataclass(frozen=True)
class Told:
    """What one broker has answered at one look; `error` says why it has not."""

    broker: Broker
    config: dict[str, str] = field(default_factory=dict)
    table: dict[str, str] = field(default_factory=dict)
    info: HARuntimeInfo | None = None  # None: it does not know the question, as 4.9
    error: str = ""
    alive: bool = True  # False: it gave no answer; an answer that is an error is one

    @property
    def answered(self) -> bool:
        """Whether there is anything to judge by."""
        return not self.error

    @property
    def max_offset(self) -> int:
        """The end of its log."""
        return max(0, self.number("commitLogMaxOffset"))

    @property
    def min_offset(self) -> int:
        """The beginning of its log; it tells -1 when there is no file."""
        return max(0, self.number("commitLogMinOffset"))

    @property
    def role(self) -> str:
        """Its brokerRole; what it is at the moment, with roles that change by request."""
        moving = self.table.get("haRole")
        if moving is not None:
            return "SLAVE" if moving == "slave" else self.config.get("brokerRole", "").replace("SLAVE", "ASYNC_MASTER")
        return self.config.get("brokerRole", "")

    @property
    def waits_for_role(self) -> bool:
        """Whether its role is given by others, and nobody has: it is no master, and follows nobody."""
        return self.table.get("haRole") == "slave" and not self.table.get("haMasterAddress")

    @property
    def ha_address(self) -> str:
        """Where it tells its slaves to connect."""
        return f"{self.config.get('brokerIP2', '')}:{self.config.get('haListenPort', '')}"

    @property
    def follows(self) -> str:
        """The master's HA address that it uses; "" when it does not tell."""
        client = self.info.haClientRuntimeInfo if self.info is not None and not self.info.master else None
        return (self.table.get("haMasterAddress") or (client.masterAddr if client is not None else None)
                or self.config.get("haMasterAddress") or "")

    def number(self, key: str, default: int = 0) -> int:
        """A number of its runtime table; an error for people when it is not a number."""
        return number(self.table, key, self.broker.address, default)

    def check_numbers(self) -> None:
        """ReplicationToolError when a number that all are judged by is not one."""
        told = [key for key in self.table if "SilenceMs" in key or "Retransmits" in key or key in _OF_SCRUBBING]
        for key in ("commitLogMaxOffset", "commitLogMinOffset", *told):
            self.number(key)
        for key in ("brokerId", "haSlaveFallbehindMax", "haSendHeartbeatInterval", "totalReplicas", "inSyncReplicas",
                    "mappedFileSizeCommitLog", "haScrubPromise"):
            self.setting(key, 0)

    def setting(self, key: str, default: int) -> int:
        """A number of its config."""
        return number(self.config, key, self.broker.address, default)


Look = dict[Broker, Told]


def ask_all(admin: BrokerAdmin, brokers: Iterable[Broker], before: Look | None = None) -> Look:
    """Ask each broker of itself; of those in `before` the config is known. Ends within the time-out of one answer."""
    known = before or {}
    return in_parallel(lambda broker: _ask(admin, broker, known.get(broker)), list(brokers), admin.timeout_ms,
                       lambda broker: _late(broker, admin.timeout_ms))


def in_parallel(ask: Callable[[K], V], keys: list[K], timeout_ms: float, late: Callable[[K], V]) -> dict[K, V]:
    """`ask` of each key, at the same time; `late` of those that are not there in time."""
    answers: dict[K, V] = {}
    changed = threading.Condition()  # announces: an answer more; guards answers

    def run(key: K) -> None:
        answer = ask(key)
        with changed:
            answers[key] = answer
            changed.notify()
    pool = NamedThreadPool("AskThread_", min(len(keys), _MAX_ASKED_AT_ONCE))
    deadline = time.monotonic() + timeout_ms / 1000 + _MARGIN_S
    try:
        for key in keys:
            pool.submit(run, key)
        with changed:
            while len(answers) < len(keys) and (left := deadline - time.monotonic()) > 0:
                changed.wait(left)
            there = dict(answers)
    finally:
        pool.shutdown(0)
    return {key: there[key] if key in there else late(key) for key in keys}


def _ask(admin: BrokerAdmin, broker: Broker, before: Told | None) -> Told:
    try:
        config = before.config if before is not None else admin.config(broker.address)
        info = admin.ha_runtime_info(broker.address)
        told = Told(broker, config, admin.runtime_info(broker.address), info)
        told.check_numbers()
    except NoAnswerError as error:
        return Told(broker, error=error.message, alive=False)
    except ReplicationToolError as error:
        return Told(broker, error=error.message)
    return told


def _late(broker: Broker, timeout_ms: float) -> Told:
    return Told(broker, error=f"the broker {broker.address} answers too slowly: not all within {timeout_ms / 1000:g} s."
                              " Is it overloaded? --timeout waits longer", alive=False)
