"""The admin client of the `rmqha` commands: DefaultMQAdminExt with errors that say what to do.

Also the choice of the brokers that a command asks.
"""
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Self, TypeVar

from rmqha.client.exception import MQBrokerException, MQClientException
from rmqha.common.config_keys import address_hint, is_host_and_port
from rmqha.common.configuration import nearest_key
from rmqha.common.message import message_decoder
from rmqha.common.message.message import Message
from rmqha.common.message.message_layout import MessageDecodeError
from rmqha.common.mix_all import MASTER_ID
from rmqha.common.protocol import response_code
from rmqha.common.protocol.admin_headers import NotifyBrokerRoleChangedRequestHeader
from rmqha.common.protocol.client_headers import SendMessageRequestHeaderV2
from rmqha.common.protocol.cluster_bodies import (
    BrokerMemberGroup,
    BrokerReplicasInfo,
    ClusterInfo,
    DepartedBroker,
    EpochEntryCache,
    HARuntimeInfo,
)
from rmqha.common.protocol.controller_headers import ElectMasterResponseHeader, GetMetaDataResponseHeader
from rmqha.common.protocol.log_checksums import LogChecksums
from rmqha.common.protocol.table_bodies import ConsumeStatsList
from rmqha.common.texts import LONG, whole
from rmqha.common.topics import AUTO_CREATE_TOPIC_KEY_TOPIC, RMQ_SYS_BENCHMARK_TOPIC
from rmqha.remoting.addresses import string2_socket_address
from rmqha.remoting.exception import RemotingConnectException, RemotingException
from rmqha.remoting.interfaces import RPCHook
from rmqha.remoting.tls_system_config import TlsSystemConfig
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.terminal import CannotAnswerError

if TYPE_CHECKING:
    from rmqha.common.protocol.message_heads import GetMessageHeadsRequestHeader, MessageHeads

DEFAULT_TIMEOUT_MS = 3000
_PROBE_GROUP, _PROBE_BODY = "CLIENT_INNER_PRODUCER", b"rmqha check ha --probe"
_OTHER_TOPIC = (response_code.NO_PERMISSION, response_code.TOPIC_NOT_EXIST)  # another topic may work
# topics are asked one by one for the time of their last message
_MAX_TOPICS = 500

P = ParamSpec("P")
T = TypeVar("T")

# RocketMQ's error to a request for its runtime table in the first second after its start, before its statistics have a
# sample.
_NO_SAMPLE = "java.util.NoSuchElementException"
_STARTING_S = 5
_STARTING_STEP_S = 0.2
_NO_NUMBER = LONG[0]
# A broker's access control refuses with the name of its exception, the reason, and the place in its source.
_REFUSED_ACCOUNT = re.compile(r"\bAclException: (.*?)(?:, [\w.$]+\([\w.]+:\d+\))?$", re.DOTALL)


class NoAnswerError(CannotAnswerError):
    """A server can't be reached or does not answer."""


class RefusedError(CannotAnswerError):
    """A server answered with an error; `code` is its response code, NO_PERMISSION for any refusal of an account."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, order=True)
class Broker:
    """A broker as a name server lists it. `address` is host:port."""

    cluster: str
    name: str
    broker_id: int
    address: str

    @property
    def is_master(self) -> bool:
        """True if the broker's id is a master's."""
        return self.broker_id == MASTER_ID


def own_address(config: Mapping[str, str], address: str) -> str:
    """Return the own address of the broker that answered at `address` with these settings.

    It is another one if the broker registers, as the master, the address of a proxy (masterAddress).
    """
    ip, port = config.get("brokerIP1"), config.get("listenPort")
    is_shared = address == config.get("masterAddress") and ip and port not in (None, "0")
    return f"{ip}:{port}" if is_shared else address


class ClusterAdmin(DefaultMQAdminExt):
    """A client for single requests, whose failures are NoAnswerError, RefusedError or CannotAnswerError.

    A context manager. `namesrv_addr`: "host:port", several separated by semicolons; the environment is ignored.
    """

    def __init__(self, namesrv_addr: str | None = None, timeout_millis: float = DEFAULT_TIMEOUT_MS,
                 rpc_hook: RPCHook | None = None, tls: TlsSystemConfig | None = None) -> None:
        super().__init__(None, rpc_hook, timeout_millis, requests_only=True, tls=tls)
        # Returns what to add to a refusal of an unsigned request.
        self.unsigned_note: Callable[[], str] = str
        self.client_config.namesrv_addr = namesrv_addr or None
        for address in (self.client_config.get_namesrv_addr() or "").split(";"):  # without http://
            if address.strip():
                parsed_address(address.strip(), "the name server")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.shutdown()

    def another(self, namesrv_addr: str) -> "ClusterAdmin":
        """Return a client for another name server, with the same time-out, account and TLS settings."""
        return ClusterAdmin(namesrv_addr, self.timeout_millis, self.rpc_hook, self.client_config.tls)

    # ---- name servers

    def examine_broker_cluster_info(self) -> ClusterInfo:
        """Return all brokers registered at the name server."""
        if not self.namesrv_addr:
            raise CannotAnswerError("no name server: give it with -n host:port, in NAMESRV_ADDR, or as a context "
                                    "(`rmqha context add`)")
        return self.asked(f"name server {self.namesrv_addr}", super().examine_broker_cluster_info)

    def fetch_departed_brokers(self) -> list[DepartedBroker]:
        """Return the brokers that the name server expects but that are not registered."""
        return self.asked(f"name server {self.namesrv_addr}", super().fetch_departed_brokers)

    def brokers(self) -> list[Broker]:
        """Return all brokers registered at the name server, sorted."""
        table = self.examine_broker_cluster_info().brokerAddrTable
        return sorted(Broker(data.cluster or "", name, broker_id, address) for name, data in table.items()
                      for broker_id, address in data.brokerAddrs.items())

    def others(self, address: str) -> list[str]:
        """Return the other brokers of the same name that the name server lists; empty without a name server."""
        if not self.namesrv_addr:
            return []
        return [each.address for each in chosen(self.brokers(), None, address) if each.address != address]

    # ---- brokers

    def get_broker_config(self, broker_addr: str) -> dict[str, str]:
        """Return all settings of a broker."""
        return self.ask_broker(broker_addr, super().get_broker_config)

    def runtime_info(self, address: str) -> dict[str, str]:
        """Return the broker's runtime table. A broker that has just started is given time for its first sample."""
        deadline = time.monotonic() + _STARTING_S
        while True:
            try:
                return self.ask_broker(address, self.fetch_broker_runtime_stats).table or {}
            except RefusedError as refusal:
                if _NO_SAMPLE not in refusal.message or time.monotonic() > deadline:
                    raise
            time.sleep(_STARTING_STEP_S)

    def ha_runtime_info(self, address: str) -> HARuntimeInfo | None:
        """Return the state of replication; None when the broker does not know the request, like 4.9."""
        try:
            return self.ask_broker(address, self.get_broker_ha_status)
        except RefusedError as refusal:
            if refusal.code == response_code.REQUEST_CODE_NOT_SUPPORTED:
                return None
            raise

    def newest_store_timestamp(self, address: str, deadline: float | None = None) -> int | None:
        """Return the store time (ms) of the newest message in a broker's queues, or None when it is unknown.

        Also None when there are too many topics, or when the answers take beyond `deadline`, a monotonic time.
        """
        who, api = f"broker {address}", self.api
        topics = list(self.asked(who, api.get_all_topic_config, address, self.timeout_millis).topicConfigTable or ())
        if len(topics) > _MAX_TOPICS:
            return None
        newest = 0
        for topic in topics:
            if deadline is not None and time.monotonic() > deadline:
                return None
            try:
                stats = self.asked(who, api.get_topic_stats_info, address, topic, self.timeout_millis)
            except RefusedError:  # the topic was deleted meanwhile
                continue
            newest = max([newest, *(each.lastUpdateTimestamp for each in stats.offsetTable.values())])
        return newest or None

    def fetch_consume_stats_in_broker(
        self, broker_addr: str, is_order: bool, timeout_millis: float
    ) -> ConsumeStatsList:
        """Return the consume progress of all groups of a broker."""
        return self.ask_broker(broker_addr, super().fetch_consume_stats_in_broker, is_order, timeout_millis)

    def put_probe(self, broker: Broker) -> int:
        """Send one small message to a topic that each 4.9 broker creates at its start; return its offset in the log.

        The topic is the one named after the broker, as with mqadmin sendMsgStatus; with brokerTopicEnable=false, the
        one named after the cluster, or the one for benchmarks. SELF_TEST_TOPIC exists, too, but refuses messages since
        4.9.
        """
        refusals = []
        for topic in dict.fromkeys(filter(None, (broker.name, broker.cluster, RMQ_SYS_BENCHMARK_TOPIC))):
            header = SendMessageRequestHeaderV2(a=_PROBE_GROUP, b=topic, c=AUTO_CREATE_TOPIC_KEY_TOPIC, d=1, e=0, f=0,
                                                g=int(time.time() * 1000), h=0, i="", j=0)
            message = Message(topic, _PROBE_BODY)
            try:
                sent = self.ask_broker(broker.address, self.api.send_message, broker.name, message, header, _PROBE_BODY,
                                       self.timeout_millis)
            except RefusedError as error:
                if error.code not in _OTHER_TOPIC:
                    raise
                refusals.append(error)
            else:
                return _offset_of(sent.offset_msg_id or "", broker)
        raise refusals[0]

    # ---- logs and roles

    def view_record(self, broker_addr: str, offset: int) -> bytes:
        """Return the record that begins at a commit log offset; raise RefusedError when none begins there."""
        return self.ask_broker(broker_addr, super().view_record, offset)

    def get_commit_log_checksums(
        self, broker_addr: str, offset: int, block_size: int, count: int
    ) -> LogChecksums | None:
        """Return the checksums of blocks of a broker's log; None when the broker does not know the request."""
        return self.ask_broker(broker_addr, super().get_commit_log_checksums, offset, block_size, count)

    def get_commit_log_bytes(self, broker_addr: str, offset: int, size: int) -> bytes | None:
        """Return at most MAX_BYTES of a broker's log; b"" when it does not hold them all.

        None when it does not know the request.
        """
        return self.ask_broker(broker_addr, super().get_commit_log_bytes, offset, size)

    def get_message_heads(self, broker_addr: str, header: "GetMessageHeadsRequestHeader") -> "MessageHeads | None":
        """Return messages of a queue without their bodies; None when the broker does not know the request."""
        return self.ask_broker(broker_addr, super().get_message_heads, header)

    def get_broker_epoch_cache(self, broker_addr: str) -> EpochEntryCache:
        """Return a replica's id, its epochs and the end of its log; raise RefusedError when its role is fixed."""
        return self.ask_broker(broker_addr, super().get_broker_epoch_cache)

    def notify_broker_role_changed(self, broker_addr: str, header: NotifyBrokerRoleChangedRequestHeader) -> None:
        """Notify a replica which broker is the master."""
        self.ask_broker(broker_addr, super().notify_broker_role_changed, header)

    def handover_master(self, broker_addr: str, broker_id: int, timeout_millis: int) -> None:
        """Make a master refuse messages until that replica holds all; RefusedError if it does not catch up in time."""
        self.ask_broker(broker_addr, super().handover_master, broker_id, timeout_millis)

    def rejoin_master(self, broker_addr: str) -> None:
        """Make a slave truncate, at its next handshake, what its master does not have."""
        self.ask_broker(broker_addr, super().rejoin_master)

    # ---- controllers

    def get_controller_meta_data(self, controller_addr: str) -> GetMetaDataResponseHeader:
        """Return the group of a controller and its leader."""
        return self.asked(f"controller {controller_addr}", super().get_controller_meta_data, controller_addr)

    def get_controller_config(self, controllers: list[str]) -> dict[str, dict[str, str]]:
        """Return all settings of controllers, by address."""
        return self.asked(f"controller {', '.join(controllers)}", super().get_controller_config, controllers)

    def get_in_sync_state_data(self, controller_addr: str, broker_names: list[str]) -> BrokerReplicasInfo:
        """Return the leading controller's state of broker names; names that it does not know are left out."""
        return self.asked(f"controller {controller_addr}", super().get_in_sync_state_data, controller_addr,
                           broker_names)

    def elect_master(
        self, controller_addr: str, cluster_name: str, broker_name: str, broker_id: int
    ) -> tuple[ElectMasterResponseHeader, BrokerMemberGroup | None]:
        """Make the leading controller elect that replica as master."""
        return self.asked(f"controller {controller_addr}", super().elect_master, controller_addr, cluster_name,
                           broker_name, broker_id)

    def ask_broker(self, address: str, ask: Callable[Concatenate[str, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `ask` with the address of a broker and the other arguments; otherwise like `asked`."""
        return self.asked(f"broker {address}", ask, address, *args, **kwargs)

    def asked(self, whom: str, ask: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call `ask` and return its result; raise its failures as errors for users. `whom`: "broker HOST:PORT"."""
        try:
            return ask(*args, **kwargs)
        except RemotingConnectException:
            raise NoAnswerError(f"the {whom} can't be reached: nothing is listening there, or a firewall is in the "
                                "way. Is it running, and are address and port right?") from None
        except RemotingException as error:
            raise NoAnswerError(f"the {whom} did not answer within {self.timeout_millis / 1000:g} s: {error}. Is it "
                                "stopped, overloaded, or not a RocketMQ port? Use --timeout to wait longer") from None
        except MQBrokerException as error:
            refusal = _REFUSED_ACCOUNT.search(error.error_message or "")
            if refusal or error.response_code == response_code.NO_PERMISSION:
                why = refusal[1] if refusal else error.error_message
                raise RefusedError(f"the {whom} refused the request, no permission: {why}. Use an account that may do "
                                   "this there (`rmqha context add --access-key`, or conf/tools.yml), or an address on "
                                   f"its white list{self.unsigned_note() if refusal and self.rpc_hook is None else ''}",
                                   response_code.NO_PERMISSION) from None
            raise RefusedError(f"the {whom} returned error {error.response_code}: {error.error_message}",
                               error.response_code) from None
        except MQClientException as error:
            raise RefusedError(f"the {whom} returned error {error.response_code}: {error.error_message}",
                               error.response_code) from None
        except ValueError as error:  # FastjsonError, UnicodeDecodeError
            raise CannotAnswerError(f"the {whom} sent an answer that can't be read: {error}. Is it a RocketMQ broker "
                                    "or name server?") from None


def number(table: dict[str, str], key: str, address: str, default: int = 0) -> int:
    """Return a number from a table of the broker at `address`; raise CannotAnswerError when it is not a number."""
    text = table.get(key)
    if text is None:
        return default
    value = whole(text, _NO_NUMBER, least=_NO_NUMBER + 1)
    if value == _NO_NUMBER:
        raise CannotAnswerError(f"the broker {address} reports {key}={text[:50]!r}, which is not a 64-bit number. Is "
                                "it a RocketMQ broker?")
    return value


def parsed_address(text: str, what: str) -> tuple[str, int]:
    """Return (host, port) of "host:port"; raise CannotAnswerError when it has another form."""
    if not is_host_and_port(text):
        hint = address_hint(text)
        raise CannotAnswerError(f"{what}: {text!r} is not a valid host:port" + (f": {hint}" if hint else ""))
    return string2_socket_address(text)


def chosen(brokers: list[Broker], cluster: str | None, broker: str | None) -> list[Broker]:
    """Return the brokers of a cluster, or those that share the name of `broker`, which is a name or an address."""
    if cluster is not None:
        clusters = {each.cluster for each in brokers}
        if cluster not in clusters:
            raise CannotAnswerError(f"no cluster {cluster!r} at the name server{_instead(cluster, clusters)}")
        brokers = [each for each in brokers if each.cluster == cluster]
    if broker is not None:
        names = {each.name for each in brokers if broker in (each.name, each.address)}
        if not names:
            known = {each.name for each in brokers} | {each.address for each in brokers}
            raise CannotAnswerError(f"no broker {broker!r} at the name server{_instead(broker, known)}")
        brokers = [each for each in brokers if each.name in names]
    return brokers


def _instead(name: str, known: set[str]) -> str:
    near = nearest_key(name, known)
    if near:
        return f"; did you mean {near}?"
    return f"; it knows {', '.join(sorted(known)[:20])}" if known else "; it knows none"


def _offset_of(message_id: str, broker: Broker) -> int:
    """Return the log offset of a message on the broker that gave it this id."""
    try:
        return message_decoder.decode_message_id(message_id).offset
    except MessageDecodeError as error:
        raise CannotAnswerError(f"the broker {broker.address} answered the probe with an invalid message id: {error}"
                                ) from error
