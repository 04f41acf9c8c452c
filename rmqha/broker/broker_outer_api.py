"""Requests of a broker to the name servers, to its master and to the controllers of automatic failover.

- `Registration`, `ToldStates`: which topics are sent to each name server: all of them, or those changed since the state
  that it last acknowledged.
- `BrokerOuterAPI`: name servers and the master. `ControllerApi`: controllers.

    caller --one task per name server--> brokerOutApi_thread_<n> --answers--> caller, at the latest after the time-out
"""
from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Generic, TypeVar

from rmqha.broker.broker_addresses import Place
from rmqha.common import mix_all, util_all
from rmqha.common.data_version import ChangeLog, DataVersion
from rmqha.common.lazy_tuples import NamedTuple
from rmqha.common.protocol import log_checksums, request_code, response_code, table_version
from rmqha.common.protocol.client_headers import ViewMessageRequestHeader
from rmqha.common.protocol.cluster_bodies import (
    ElectMasterResponseBody,
    RegisterBrokerBody,
    RegisterBrokerResult,
    SyncStateSet,
)
from rmqha.common.protocol.controller_headers import (
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    BrokerHeartbeatRequestHeader,
    BrokerHeartbeatResponseHeader,
    ElectMasterRequestHeader,
    ElectMasterResponseHeader,
    GetCommitLogChecksumsRequestHeader,
    GetCommitLogChecksumsResponseHeader,
    GetMetaDataResponseHeader,
    GetNextBrokerIdRequestHeader,
    GetNextBrokerIdResponseHeader,
    GetReplicaInfoRequestHeader,
    GetReplicaInfoResponseHeader,
    RegisterBrokerToControllerRequestHeader,
    RegisterBrokerToControllerResponseHeader,
)
from rmqha.common.protocol.namesrv_headers import (
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)
from rmqha.common.protocol.table_bodies import (
    ConsumerOffsetSerializeWrapper,
    KVTable,
    SubscriptionGroupWrapper,
    TopicConfigSerializeWrapper,
)
from rmqha.common.threads import NamedThreadPool, RejectedExecutionError
from rmqha.remoting.exception import RemotingException
from rmqha.remoting.interfaces import ResponseFuture, RPCHook
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.fastjson import FastjsonError
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_client import RemotingClient, WatchedClient
from rmqha.remoting.remoting_config import RemotingClientConfig

if TYPE_CHECKING:
    from rmqha.broker.shared_address import SharedAddress
    from rmqha.common.protocol.command_custom_header import CommandCustomHeader


Topics = Callable[[Iterable[str] | None], TopicConfigSerializeWrapper]


class Part(NamedTuple):
    """The contents of a registration for one name server."""

    wrapper: TopicConfigSerializeWrapper
    # The state of the name server to which these topics are changes; "": they are all topics, or a single one.
    since: str = ""
    # The state after these topics are applied.
    now: str = ""
    # The topic that an administrator created or changed; "": the registration has another cause.
    alone: str = ""


class Registration:
    """One registration with all name servers; `part` returns the contents for each of them. For any thread.

    `topics` returns the topics of the given names in the form in which they are registered; all topics for None.
    `alone` is the topic that an administrator created or changed; a name server of the original is sent only that one.
    """

    def __init__(self, changes: ChangeLog, topics: Topics, alone: str | None = None) -> None:
        # Take the mark before the topics are read: later changes are then sent with the next registration.
        self._now = changes.mark()
        self._changes = changes
        self._topics = topics
        self._alone = alone

    def part(self, told: str) -> Part:
        """Return the contents for a name server, given the state that it last reported; "" when that is unknown."""
        changed = self._changes.since(told)
        if changed is None and self._alone is not None:
            # Send the single topic, as the original does. A name server of ours checks that it has the state before
            # this change, and otherwise asks for everything.
            told = self._changes.before(self._alone)
            changed = [self._alone, *(self._changes.since(told) or ())]
        return self.everything() if changed is None else Part(self._topics(changed), told, self._now,
                                                              self._alone or "")

    def everything(self, as_another_version: bool = False) -> Part:
        """Return the contents for a name server that lacks the previous state: all topics.

        `as_another_version` is for a name server of the original that took a list of changes for the complete list. It
        accepts another list only under another version; the next registration sends it the right version.
        """
        wrapper = self._topics(None)
        if as_another_version and wrapper.dataVersion is not None:
            wrapper.dataVersion.counter -= 1  # it is a copy
        return Part(wrapper, "", self._now, self._alone or "")


class ToldStates:
    """The state of the topics that each name server of ours last reported, by its address. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: dict[str, str] = {}

    def of(self, namesrv_addr: str) -> str:
        """Return the last reported state; "" when it is unknown."""
        with self._lock:
            return self._states.get(namesrv_addr, "")

    def note(self, namesrv_addr: str, state: str) -> None:
        """Note the state that the name server reports; "": it reports none."""
        with self._lock:
            if state:
                self._states[namesrv_addr] = state
            else:
                self._states.pop(namesrv_addr, None)


log = logging.getLogger("RocketmqBroker")

T = TypeVar("T")

_TIMEOUT_MS = 3000
_MAX_THREADS = 10
_QUEUE_CAPACITY = 32


class BrokerAnswerException(RemotingException):
    """A name server or a master answered with an error.

    Java: org.apache.rocketmq.client.exception.MQBrokerException (4.9.8)
    """

    def __init__(self, code: int, remark: str | None, addr: str) -> None:
        super().__init__(f"CODE: {code}  DESC: {remark} BROKER: {addr}")
        self.response_code = code
        self.error_message = remark


class Told(NamedTuple, Generic[T]):
    """The response of a master to a request for a table."""

    # None: the table is unchanged since the known state.
    table: T | None
    # "": the master reports no states and always sends the whole table.
    state: str
    # True: the table holds only the entries that changed since the known state.
    only_changes: bool = False


class _Encoded(NamedTuple):
    """The encoded request of a registration, for any number of name servers."""

    part: Part
    header: RegisterBrokerRequestHeader
    body: bytes
    master_epoch: int = 0

    def request(self) -> RemotingCommand:
        """Return a new request with these contents."""
        request = RemotingCommand.create_request_command(request_code.REGISTER_BROKER, self.header)
        request.body = self.body
        request.add_ext_field(table_version.SINCE, self.part.since)
        request.add_ext_field(table_version.NOW, self.part.now)
        if self.part.alone:
            request.add_ext_field(table_version.ALONE, self.part.alone)
        if self.master_epoch:
            request.add_ext_field(table_version.EPOCH, str(self.master_epoch))
        return request


def _registration_result(response: RemotingCommand) -> RegisterBrokerResult:
    answer = response.decode_command_custom_header(RegisterBrokerResponseHeader)
    kv_table = remoting_serializable.from_json(KVTable, response.body) if response.body else None
    return RegisterBrokerResult(answer.haServerAddr, answer.masterAddr, kv_table)


class BrokerOuterAPI:
    """The requests to all name servers in parallel, and the requests of a slave to its master.

    Java: org.apache.rocketmq.broker.out.BrokerOuterAPI (4.9.8)
    """

    def __init__(self, client_config: RemotingClientConfig, rpc_hook: RPCHook | None = None) -> None:
        self.remoting_client = RemotingClient(client_config)
        if rpc_hook is not None:
            self.remoting_client.register_rpc_hook(rpc_hook)
        self._executor = NamedThreadPool("brokerOutApi_thread_", _MAX_THREADS, _QUEUE_CAPACITY)
        self.ws_addr = mix_all.get_ws_addr()  # URL of the address server
        self._name_srv_addr: str | None = None  # the address server's last answer
        self._told_states = ToldStates()
        # Set by a broker that registers an address which it shares as a master.
        self.shared: SharedAddress | None = None

    def start(self) -> None:
        """Open the client."""
        self.remoting_client.start()

    def shutdown(self) -> None:
        """Close the client and end the threads. Idempotent."""
        self.remoting_client.shutdown()
        self._executor.shutdown()

    def fetch_name_server_addr(self) -> str | None:
        """Ask the address server (HTTP) for the name servers, and use them."""
        # Imported here because it is heavy and address servers are rare.
        import urllib.request

        try:
            with urllib.request.urlopen(self.ws_addr, timeout=_TIMEOUT_MS / 1000) as answer:
                addrs = answer.read(1 << 16).decode("utf-8", "replace").strip()
        except OSError as failure:
            log.error("fetchNameServerAddr Exception: %s", failure)
            return self._name_srv_addr
        if addrs and addrs != self._name_srv_addr:
            log.info("name server address changed, old: %s new: %s", self._name_srv_addr, addrs)
            self.update_name_server_address_list(addrs)
            self._name_srv_addr = addrs
        return self._name_srv_addr

    def update_name_server_address_list(self, addrs: str) -> None:
        """Use the name servers of a `;` list."""
        self.remoting_client.update_name_server_address_list(
            [addr.strip() for addr in addrs.split(";") if addr.strip()])

    def register_broker_all(self, cluster_name: str, broker_addr: str, broker_name: str, broker_id: int,
                            ha_server_addr: str, registration: Registration, filter_server_list: list[str],
                            oneway: bool, timeout_mills: int, compressed: bool,
                            master_epoch: int = 0) -> list[RegisterBrokerResult]:
        """Register with all name servers, and return their responses in the order in which they arrive.

        Waits up to `timeout_mills`. With `oneway` it does not wait: a name server of ours responds nevertheless, and is
        sent everything when it lacks the previous state. `master_epoch`: for a shared address, see SharedAddress.

        Differs: a name server of ours is sent only the changes since the state that it reported; the original sends all
        topics.
        """
        def encode(part: Part) -> _Encoded:
            request_body = RegisterBrokerBody(part.wrapper, filter_server_list)
            body = request_body.encode_compressed() if compressed else remoting_serializable.encode(request_body)
            header = RegisterBrokerRequestHeader(
                brokerName=broker_name, brokerAddr=broker_addr, clusterName=cluster_name, haServerAddr=ha_server_addr,
                brokerId=broker_id, compressed=compressed, bodyCrc32=util_all.crc32(body))
            return _Encoded(part, header, body, master_epoch)

        def register(namesrv_addr: str) -> RegisterBrokerResult | None:
            if self.shared is not None and not self.shared.begins(namesrv_addr, place):
                return None
            request = encoded[states[namesrv_addr]].request()
            if not oneway:
                return complete(namesrv_addr, self._invoke(namesrv_addr, request, timeout_mills))
            if states[namesrv_addr]:
                self.remoting_client.invoke_async(namesrv_addr, request, timeout_mills,
                                                  lambda future: self._complete_later(complete, namesrv_addr, future))
            else:
                self.remoting_client.invoke_oneway(namesrv_addr, request, timeout_mills)
                log.info("register broker[%d]to name server %s OK", broker_id, namesrv_addr)
            return None

        def complete(namesrv_addr: str, response: RemotingCommand) -> RegisterBrokerResult:
            taken = (response.ext_fields or {}).get(table_version.TAKEN)
            part = encoded[states[namesrv_addr]].part
            if part.since and not taken and (taken is not None or states[namesrv_addr]):
                # A name server that no longer reports a state has been replaced by one of the original.
                everything = encode(registration.everything(as_another_version=taken is None))
                response = self._invoke(namesrv_addr, everything.request(), timeout_mills)
                taken = (response.ext_fields or {}).get(table_version.TAKEN)
            self._told_states.note(namesrv_addr, taken or "")
            if self.shared is not None:
                self.shared.ends(namesrv_addr, place)
            log.info("register broker[%d]to name server %s OK", broker_id, namesrv_addr)
            return _registration_result(response)

        place = Place(cluster_name, broker_addr, broker_name, broker_id)
        addresses = self.remoting_client.get_name_server_address_list() or []
        states = {namesrv_addr: self._told_states.of(namesrv_addr) for namesrv_addr in addresses}
        encoded = {state: encode(registration.part(state)) for state in set(states.values())}
        return self._ask_all(register, addresses, timeout_mills, "registerBroker Exception, %s: %s")

    def _complete_later(self, complete: Callable[[str, RemotingCommand], object], namesrv_addr: str,
                        future: ResponseFuture) -> None:
        """Process the response to a one-way registration, or its failure."""
        def run(namesrv_addr: str) -> None:
            try:
                if response is None:
                    raise RemotingException(f"no answer: {future.cause or 'the time is over, or the connection'}")
                if response.code != response_code.SUCCESS:
                    raise BrokerAnswerException(response.code, response.remark, namesrv_addr)
                complete(namesrv_addr, response)
            except (RemotingException, FastjsonError) as failure:
                log.warning("registerBroker Exception, %s: %s", namesrv_addr, failure)

        response = future.response_command
        # `run` may wait for another response, so it must not block the thread that reads responses.
        self._submit(run, namesrv_addr)

    def unregister_broker_all(self, cluster_name: str, broker_addr: str, broker_name: str, broker_id: int) -> None:
        """Unregister the broker from each name server."""
        for namesrv_addr in self.remoting_client.get_name_server_address_list() or ():
            if self.shared is not None:
                self.shared.leave_all(namesrv_addr, Place(cluster_name, broker_addr, broker_name, broker_id))
                continue
            try:
                self.unregister_broker(namesrv_addr, cluster_name, broker_addr, broker_name, broker_id)
                log.info("unregisterBroker OK, NamesrvAddr: %s", namesrv_addr)
            except RemotingException as failure:
                log.warning("unregisterBroker Exception, %s: %s", namesrv_addr, failure)

    def unregister_broker(self, namesrv_addr: str, cluster_name: str, broker_addr: str, broker_name: str,
                          broker_id: int, shared: str = "") -> None:
        """Unregister the broker from one name server, and a master from the address `shared`, as far as it was the last
        one that registered there. Raises RemotingException."""
        header = UnRegisterBrokerRequestHeader(brokerName=broker_name, brokerAddr=broker_addr,
                                               clusterName=cluster_name, brokerId=broker_id)
        request = RemotingCommand.create_request_command(request_code.UNREGISTER_BROKER, header)
        if shared:
            request.add_ext_field(table_version.SHARED, shared)
        self._invoke(namesrv_addr, request)

    def need_register(self, cluster_name: str, broker_addr: str, broker_name: str, broker_id: int,
                      version: DataVersion, timeout_mills: int) -> list[bool]:
        """Return True for each name server that lacks the topics of this version or does not respond."""
        header = QueryDataVersionRequestHeader(brokerName=broker_name, brokerAddr=broker_addr,
                                               clusterName=cluster_name, brokerId=broker_id)

        def query(namesrv_addr: str) -> bool | None:
            try:
                changed, known = self._query_data_version(namesrv_addr, header, version, timeout_mills)
            except (RemotingException, FastjsonError) as failure:
                log.error("Query data version from name server %s  Exception, %s", namesrv_addr, failure)
                return True
            log.info("Query data version from name server %s OK,changed %s, broker %s,name server %s", namesrv_addr,
                     changed, version, known or "")
            return True if changed else None

        addresses = self.remoting_client.get_name_server_address_list() or []
        return self._ask_all(query, addresses, timeout_mills, "query data version %s: %s")

    def get_all_topic_config(self, addr: str, known: str) -> Told[TopicConfigSerializeWrapper]:
        """Return the master's topics, requested on its fast port; see `_ask_for_table`."""
        return self._ask_for_table(TopicConfigSerializeWrapper, mix_all.broker_vip_channel(True, addr),
                                   request_code.GET_ALL_TOPIC_CONFIG, known)

    def get_all_consumer_offset(self, addr: str, known: str) -> Told[ConsumerOffsetSerializeWrapper]:
        """Return the master's consumer offsets; see `_ask_for_table`."""
        return self._ask_for_table(ConsumerOffsetSerializeWrapper, addr, request_code.GET_ALL_CONSUMER_OFFSET, known)

    def _ask_for_table(self, cls: type[T], addr: str, code: int, known: str) -> Told[T]:
        """Request a table from a master for a caller that has it in the state `known`; "": it does not have it.

        Raises RemotingException, FastjsonError.
        """
        request = RemotingCommand.create_request_command(code)
        request.add_ext_field(table_version.KNOWN, known)
        request.add_ext_field(table_version.CHANGES, "true")
        response = self._invoke(addr, request)
        fields = response.ext_fields or {}
        told = fields.get(table_version.TOLD, "")
        if told and told == known:
            return Told(None, told)
        table = remoting_serializable.from_json(cls, response.body or b"")
        return Told(table, told, table_version.CHANGES in fields)

    def get_all_delay_offset(self, addr: str) -> str:
        """Return the master's delay offsets as JSON. Raises RemotingException."""
        return bytes(self._ask(addr, request_code.GET_ALL_DELAY_OFFSET).body or b"").decode("utf-8", "replace")

    def get_commit_log_max_offset(self, addr: str) -> int:
        """Return the end of a broker's log, as an offset.

        Raises RemotingException, FastjsonError, or ValueError when the response does not contain it.
        """
        return self._runtime_number(addr, "commitLogMaxOffset")

    def get_commit_log_min_offset(self, addr: str) -> int:
        """Return the beginning of a broker's log, as an offset. Raises as `get_commit_log_max_offset` does."""
        return self._runtime_number(addr, "commitLogMinOffset")

    def _runtime_number(self, addr: str, key: str) -> int:
        return int(self.get_broker_runtime_info(addr).get(key, "not reported"))

    def get_broker_runtime_info(self, addr: str) -> dict[str, str]:
        """Return a broker's runtime information. Raises RemotingException, FastjsonError."""
        response = self._ask(addr, request_code.GET_BROKER_RUNTIME_INFO)
        return remoting_serializable.from_json(KVTable, response.body or b"").table or {}

    def get_broker_ha_fields(self, addr: str) -> dict[str, str]:
        """Return the fields about a broker's HA port, which accompany its replication status.

        Raises RemotingException.
        """
        return self._ask(addr, request_code.GET_BROKER_HA_STATUS).ext_fields or {}

    def view_record(self, addr: str, offset: int) -> bytes:
        """Return the bytes of a broker's record at a commit log offset. Raises RemotingException."""
        header = ViewMessageRequestHeader(offset=offset)
        request = RemotingCommand.create_request_command(request_code.VIEW_MESSAGE_BY_ID, header)
        return bytes(self._invoke(addr, request).body or b"")

    def get_commit_log_checksums(self, addr: str, offset: int, block_size: int, count: int,
                                 timeout_ms: int = _TIMEOUT_MS) -> log_checksums.LogChecksums | None:
        """Return the CRC32s of blocks of a broker's log; None when the broker does not know the request, as RocketMQ's.

        Raises RemotingException, or ValueError when the response is malformed.
        """
        request = RemotingCommand.create_request_command(
            request_code.GET_COMMIT_LOG_CHECKSUMS, GetCommitLogChecksumsRequestHeader(offset, block_size, count))
        try:
            response = self._invoke(addr, request, timeout_ms)
        except BrokerAnswerException as answer:
            if answer.response_code == response_code.REQUEST_CODE_NOT_SUPPORTED:
                return None
            raise
        header = response.decode_command_custom_header(GetCommitLogChecksumsResponseHeader)
        return log_checksums.LogChecksums(header.minOffset, header.maxOffset,
                                          log_checksums.decode(response.body or b"", count))

    def get_all_subscription_group_config(self, addr: str, known: str) -> Told[SubscriptionGroupWrapper]:
        """Return the master's consumer groups; see `_ask_for_table`."""
        return self._ask_for_table(SubscriptionGroupWrapper, addr, request_code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, known)

    def register_rpc_hook(self, rpc_hook: RPCHook) -> None:
        """Register a hook that is called with each request and response."""
        self.remoting_client.register_rpc_hook(rpc_hook)

    def _query_data_version(self, namesrv_addr: str, header: QueryDataVersionRequestHeader, version: DataVersion,
                            timeout_mills: int) -> tuple[bool, DataVersion | None]:
        request = RemotingCommand.create_request_command(request_code.QUERY_DATA_VERSION, header)
        request.body = remoting_serializable.encode(version)
        response = self.remoting_client.invoke_sync(namesrv_addr, request, timeout_mills)
        if response.code != response_code.SUCCESS:
            return False, None
        changed = response.decode_command_custom_header(QueryDataVersionResponseHeader).changed
        if not response.body:
            return changed, None
        known = remoting_serializable.from_json(DataVersion, response.body)
        return changed or known != version, known

    def _ask(self, addr: str, code: int) -> RemotingCommand:
        return self._invoke(addr, RemotingCommand.create_request_command(code))

    def _invoke(self, addr: str, request: RemotingCommand, timeout_mills: int = _TIMEOUT_MS) -> RemotingCommand:
        response = self.remoting_client.invoke_sync(addr, request, timeout_mills)
        if response.code != response_code.SUCCESS:
            raise BrokerAnswerException(response.code, response.remark, addr)
        return response

    def _ask_all(self, ask: Callable[[str], T | None], addresses: list[str], timeout_mills: int,
                 failure_text: str) -> list[T]:
        """Call `ask` for each address in the pool; return the results within the time-out, in order of arrival."""
        results: list[T] = []  # guarded by changed
        # Notified when a call is finished.
        changed = threading.Condition()
        # Addresses that have not responded; guarded by changed.
        waiting = set(addresses)

        def run(namesrv_addr: str) -> None:
            result = None
            try:
                result = ask(namesrv_addr)
            except (RemotingException, FastjsonError) as failure:
                log.warning(failure_text, namesrv_addr, failure)
            finally:
                with changed:
                    waiting.discard(namesrv_addr)
                    if result is not None:
                        results.append(result)
                    changed.notify()

        deadline = time.monotonic() + timeout_mills / 1000
        for namesrv_addr in dict.fromkeys(addresses):
            if not self._submit(run, namesrv_addr):
                with changed:
                    waiting.discard(namesrv_addr)
        with changed:
            while waiting:
                wait_s = deadline - time.monotonic()
                if wait_s <= 0:
                    # Differs: a name server that does not respond in time is logged; the original logs nothing
                    for namesrv_addr in waiting:
                        log.warning(failure_text, namesrv_addr, f"no answer within {timeout_mills} ms")
                    break
                changed.wait(wait_s)
            return list(results)

    def _submit(self, run: Callable[[str], None], namesrv_addr: str) -> bool:
        try:
            self._executor.submit(run, namesrv_addr)
        except RejectedExecutionError:
            log.warning("request to name server %s not sent: too many requests are pending, or the broker is shutting "
                        "down", namesrv_addr)
            return False
        return True


Header = TypeVar("Header", bound="CommandCustomHeader")


class ControllerApi:
    """The requests to controllers. Each call raises RemotingException or FastjsonError; an error response of the
    controller is a BrokerAnswerException with its code.

    Java: org.apache.rocketmq.broker.out.BrokerOuterAPI (5.1.4)
    """

    def __init__(self, client_config: RemotingClientConfig, before_close: Callable[[], None],
                 after_close: Callable[[], None]) -> None:
        self.remoting_client = WatchedClient(client_config, before_close, after_close)

    def register_rpc_hook(self, rpc_hook: RPCHook) -> None:
        """Register a hook that is called with each request and response."""
        self.remoting_client.register_rpc_hook(rpc_hook)

    def start(self) -> None:
        """Open the client."""
        self.remoting_client.start()

    def shutdown(self) -> None:
        """Close all connections and fail the pending calls. Idempotent."""
        self.remoting_client.shutdown()

    def close_all(self) -> None:
        """Close all connections; the next call opens a new one."""
        for address in list(self.remoting_client.channel_tables):
            self.remoting_client.close_channel(address)

    def close(self, address: str) -> None:
        """Close the connection to a controller."""
        self.remoting_client.close_channel(address)

    def get_controller_meta_data(self, address: str, timeout_ms: int = _TIMEOUT_MS) -> GetMetaDataResponseHeader:
        """Return which controller leads, as far as this one knows."""
        return self._ask(address, request_code.CONTROLLER_GET_METADATA_INFO, None, GetMetaDataResponseHeader,
                         timeout_ms)[0]

    def alter_sync_state_set(self, address: str, header: AlterSyncStateSetRequestHeader, members: Iterable[int],
                             epoch: int, timeout_ms: int = _TIMEOUT_MS) -> SyncStateSet:
        """Ask the controller to replace the sync-state set of `epoch`, and return the set that it has afterwards."""
        request = RemotingCommand.create_request_command(request_code.CONTROLLER_ALTER_SYNC_STATE_SET, header)
        request.body = remoting_serializable.encode(SyncStateSet(sorted(members), epoch))
        return _sync_state_set(self._invoke(address, request, timeout_ms))

    def broker_elect(self, address: str, cluster: str, name: str,
                     broker_id: int) -> tuple[ElectMasterResponseHeader, list[int]]:
        """Ask to be elected master. Returns the master after the election, and the sync-state set."""
        header = ElectMasterRequestHeader(cluster, name, broker_id, False)
        request = RemotingCommand.create_request_command(request_code.CONTROLLER_ELECT_MASTER, header)
        response = self.remoting_client.invoke_sync(address, request, _TIMEOUT_MS)
        if response.code not in (response_code.SUCCESS, response_code.CONTROLLER_MASTER_STILL_EXIST):
            raise BrokerAnswerException(response.code, response.remark, address)
        body = remoting_serializable.from_json(ElectMasterResponseBody, response.body or b"{}")
        return response.decode_command_custom_header(ElectMasterResponseHeader), body.syncStateSet or []

    def get_next_broker_id(self, address: str, cluster: str, name: str) -> int | None:
        """Return an id that is not in use."""
        header = GetNextBrokerIdRequestHeader(cluster, name)
        return self._ask(address, request_code.CONTROLLER_GET_NEXT_BROKER_ID, header,
                         GetNextBrokerIdResponseHeader)[0].nextBrokerId

    def apply_broker_id(self, address: str, header: ApplyBrokerIdRequestHeader) -> None:
        """Reserve an id for this replica."""
        self._invoke(address, RemotingCommand.create_request_command(request_code.CONTROLLER_APPLY_BROKER_ID, header))

    def register_broker_to_controller(self, address: str, header: RegisterBrokerToControllerRequestHeader) \
            -> tuple[RegisterBrokerToControllerResponseHeader, SyncStateSet]:
        """Register this broker's addresses. Returns the master and the sync-state set."""
        answer, response = self._ask(address, request_code.CONTROLLER_REGISTER_BROKER, header,
                                     RegisterBrokerToControllerResponseHeader)
        return answer, _sync_state_set(response)

    def get_replica_info(self, address: str, name: str,
                         timeout_ms: int = _TIMEOUT_MS) -> tuple[GetReplicaInfoResponseHeader, SyncStateSet]:
        """Return the master and the sync-state set."""
        answer, response = self._ask(address, request_code.CONTROLLER_GET_REPLICA_INFO,
                                     GetReplicaInfoRequestHeader(name), GetReplicaInfoResponseHeader, timeout_ms)
        return answer, _sync_state_set(response)

    def send_heartbeat(self, address: str, header: BrokerHeartbeatRequestHeader,
                       timeout_ms: int) -> BrokerHeartbeatResponseHeader:
        """Send a heartbeat and return the response; only a leading controller of rmqha fills in its fields.

        Differs: a broker waits for the controller's response to each heartbeat; 5.1.4 waits for none, so a master that
        no controller can hear keeps serving.
        """
        return self._ask(address, request_code.BROKER_HEARTBEAT, header, BrokerHeartbeatResponseHeader, timeout_ms)[0]

    def _ask(self, address: str, code: int, header: CommandCustomHeader | None, answer: type[Header],
             timeout_ms: int = _TIMEOUT_MS) -> tuple[Header, RemotingCommand]:
        response = self._invoke(address, RemotingCommand.create_request_command(code, header), timeout_ms)
        return response.decode_command_custom_header(answer), response

    def _invoke(self, address: str, request: RemotingCommand, timeout_ms: int = _TIMEOUT_MS) -> RemotingCommand:
        response = self.remoting_client.invoke_sync(address, request, timeout_ms)
        if response.code != response_code.SUCCESS:
            raise BrokerAnswerException(response.code, response.remark, address)
        return response


def _sync_state_set(response: RemotingCommand) -> SyncStateSet:
    return remoting_serializable.from_json(SyncStateSet, response.body or b"{}")
