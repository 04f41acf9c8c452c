"""Bodies of requests and answers about brokers: clusters, registration, replication and the controller.

- `ClusterInfo`, `ClusterAclVersionInfo`: the brokers of a cluster, and the versions of a broker's account files.
- `SyncStateSet` to `BrokerReplicasInfo`: exchanged by brokers, tools and the controller of automatic failover (5.1.4).
- `DepartedBroker`: a broker that left without unregistering, or that another one replaced. A GET_BROKER_CLUSTER_INFO
  request with the field `askDepartedBrokers` gets an answer with the field `departedBrokers`, a JSON list. Without the
  field the answer is that of 4.9; a name server of 4.9 ignores the field.
- `ConfigFileReport`: a broker's config file, compared with the running broker. A GET_BROKER_CONFIG request with the
  field `askConfigFile` gets an answer with the field `configFile`, a JSON object; everything else in the answer is the
  same with and without it.
- `HARuntimeInfo`, `EpochEntryCache`: the state of replication, and the epochs of a replica's log.

`RegisterBrokerBody` has two forms. Uncompressed, it is the JSON of remoting's serializer. Compressed, it is a zlib
stream of the following, in which topics lose topicSysFlag and order:

    4 bytes length, the DataVersion as JSON
    4 bytes number of topics; for each 4 bytes length, `name read write perm filterType`
    4 bytes length, the filter servers as a JSON array
"""
import json
import struct
import zlib
from typing import Any

from rmqha.common.data_version import DataVersion
from rmqha.common.lazy_dataclasses import dataclass, field, fields
from rmqha.common.protocol.table_bodies import KVTable, TopicConfigSerializeWrapper
from rmqha.common.protocol.topic_route_data import BrokerData
from rmqha.common.texts import JsonTextError, parse_json, text_hash
from rmqha.common.topics import TopicConfig


@dataclass(slots=True)
class ClusterInfo:
    """Brokers by name, and their names by cluster (answer of GET_BROKER_CLUSTER_INFO).

    Java: org.apache.rocketmq.common.protocol.body.ClusterInfo (4.9.8)
    """

    brokerAddrTable: dict[str, BrokerData] = field(default_factory=dict)
    clusterAddrTable: dict[str, set[str]] = field(default_factory=dict)

    def retrieve_all_addr_by_cluster(self, cluster: str) -> list[str]:
        """Return the addresses of all brokers of a cluster, masters and slaves."""
        names = self.clusterAddrTable.get(cluster, ())
        return [address for name in names if name in self.brokerAddrTable
                for address in self.brokerAddrTable[name].brokerAddrs.values()]

    def retrieve_all_cluster_names(self) -> list[str]:
        """Return the names of the clusters."""
        return list(self.clusterAddrTable)


@dataclass(slots=True)
class ClusterAclVersionInfo:
    """The versions of a broker's account files. aclConfigDataVersion, a single version, is retired.

    Java: org.apache.rocketmq.common.protocol.body.ClusterAclVersionInfo (4.9.8)
    """

    brokerName: str | None = None
    brokerAddr: str | None = None
    aclConfigDataVersion: DataVersion | None = None
    allAclConfigDataVersion: dict[str, DataVersion] | None = None
    clusterName: str | None = None


@dataclass(slots=True)
class SyncStateSet:
    """The ids of the replicas that hold all acknowledged messages, and the number of changes of that set.

    Java: org.apache.rocketmq.remoting.protocol.body.SyncStateSet (5.1.4)
    """

    syncStateSet: list[int] = field(default_factory=list)
    syncStateSetEpoch: int = 0


@dataclass(slots=True)
class BrokerMemberGroup:
    """The replicas of one broker name: addresses by id.

    Java: org.apache.rocketmq.remoting.protocol.body.BrokerMemberGroup (5.1.4)
    """

    cluster: str | None = None
    brokerName: str | None = None
    brokerAddrs: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class ElectMasterResponseBody:
    """The replicas, and the ids of those in sync with the new master.

    Java: org.apache.rocketmq.remoting.protocol.body.ElectMasterResponseBody (5.1.4)
    """

    brokerMemberGroup: BrokerMemberGroup | None = None
    syncStateSet: list[int] = field(default_factory=list)


@dataclass(slots=True)
class ReplicaIdentity:
    """One replica, and whether the controller receives its heartbeats.

    Java: org.apache.rocketmq.remoting.protocol.body.BrokerReplicasInfo$ReplicaIdentity (5.1.4)
    """

    brokerName: str | None = None
    brokerId: int | None = None
    brokerAddress: str | None = None
    alive: bool | None = None


@dataclass(slots=True)
class ReplicasInfo:
    """The master, the epochs and the replicas of one broker name.

    Java: org.apache.rocketmq.remoting.protocol.body.BrokerReplicasInfo$ReplicasInfo (5.1.4)
    """

    masterBrokerId: int | None = None
    masterAddress: str | None = None
    masterEpoch: int = 0
    syncStateSetEpoch: int = 0
    inSyncReplicas: list[ReplicaIdentity] = field(default_factory=list)
    notInSyncReplicas: list[ReplicaIdentity] = field(default_factory=list)


@dataclass(slots=True)
class BrokerReplicasInfo:
    """The replicas by broker name (answer of CONTROLLER_GET_SYNC_STATE_DATA).

    Java: org.apache.rocketmq.remoting.protocol.body.BrokerReplicasInfo (5.1.4)
    """

    replicasInfoTable: dict[str, ReplicasInfo] = field(default_factory=dict)


ASK_DEPARTED_BROKERS = "askDepartedBrokers"
DEPARTED_BROKERS = "departedBrokers"


@dataclass(frozen=True, order=True)
class DepartedBroker:
    """A departed broker, as it registered; `since_ms`: the ms since it left, or -1 for a broker that was replaced.

    A replaced broker still registers, but another broker registers with the same brokerName and brokerId.
    """

    cluster: str = ""
    name: str = ""
    broker_id: int = 0
    address: str = ""
    since_ms: int = -1

    def __hash__(self) -> int:
        return text_hash(self.cluster, self.name, self.broker_id, self.address, self.since_ms)


def encode_departed(brokers: list[DepartedBroker]) -> str:
    """Return the text of the field `departedBrokers`."""
    return json.dumps([{item.name: getattr(each, item.name) for item in fields(each)} for each in brokers])


def decode_departed(text: str | None) -> list[DepartedBroker]:
    """Decode the text of `encode_departed`; an empty list for None. ValueError for anything else."""
    try:
        told = parse_json(text or "[]", "the field")
        brokers = [DepartedBroker(**each) for each in told]
    except TypeError as error:
        raise ValueError(f"not a list of brokers: {error}") from error
    for each in brokers:
        texts, numbers = (each.cluster, each.name, each.address), (each.broker_id, each.since_ms)
        if not all(isinstance(text, str) for text in texts) or not all(type(number) is int for number in numbers):
            raise ValueError(f"not a valid broker: {each}")
    return brokers


ASK_CONFIG_FILE = "askConfigFile"
CONFIG_FILE = "configFile"
# A config file that is longer, or whose report has more of these characters, is not reported: a header is limited in
# length and elements.
MAX_FILE_BYTES = 1 << 16
_REPORT_MARKS = '{[,:"'
MAX_REPORT_MARKS = 40_000


@dataclass
class ConfigFileReport:
    """A broker's config file compared with the running broker; without secret keys.

    `path` is the file that updates are written to, and `read_at_start` whether the broker has read it (option -c).
    `values` are its current keys; empty with an `error`, which says why the file can't be read. `changed` are the keys
    that requests have changed since the start, with their values at the start. `edited` are the keys whose values in
    the file are neither those at the start nor those that requests have written.
    """

    path: str = ""
    read_at_start: bool = False
    error: str = ""
    values: dict[str, str] = field(default_factory=dict)
    changed: dict[str, str] = field(default_factory=dict)
    edited: list[str] = field(default_factory=list)

    def encode(self) -> str:
        """Return the text of the field `configFile`; a report of an error if it does not fit in a header."""
        text = json.dumps({item.name: getattr(self, item.name) for item in fields(self)})
        # Within the header, a backslash becomes two.
        if sum(map(text.count, _REPORT_MARKS)) + 2 * text.count("\\") <= MAX_REPORT_MARKS:
            return text
        return ConfigFileReport(self.path, self.read_at_start, "it has too many keys or special characters").encode()


def decode_report(text: str | None) -> ConfigFileReport | None:
    """Decode the text of `encode`; None for None, from a broker without this extension. ValueError for anything else.

    Unknown fields are ignored, so that a later version may add some.
    """
    if text is None:
        return None
    told = parse_json(text, "the field configFile")
    if not isinstance(told, dict):
        raise ValueError("the field configFile is not an object")
    known = {item.name: told[item.name] for item in fields(ConfigFileReport) if item.name in told}
    report = ConfigFileReport(**known)
    texts = [report.path, report.error, *_texts(report.values), *_texts(report.changed)]
    texts += report.edited if isinstance(report.edited, list) else [None]
    if not all(isinstance(each, str) for each in texts) or not isinstance(report.read_at_start, bool):
        raise ValueError("the field configFile has a value of a wrong type")
    return report


def _texts(table: object) -> list[object]:
    return [*table.keys(), *table.values()] if isinstance(table, dict) else [None]


BEST_COMPRESSION = 9
# Differs: the body of a registration is refused if it inflates beyond a limit, if a length leads beyond its end, or if
# it has too many topics or filter servers; Java inflates any body.
MAX_INFLATED_SIZE = 32 * 1024 * 1024
# Allowed for a body of any length.
FREE_INFLATED_SIZE = 256 * 1024
# Inflated bytes per compressed byte. Lists of topics have a ratio of 10 to 20.
MAX_RATIO = 64
MAX_TOPICS = 200_000
# Each in the data version and in the list of filter servers.
MAX_JSON_MARKS = 10_000

_LENGTH = struct.Struct(">i")


class RegisterBrokerBodyError(ValueError):
    """Bytes that are not a valid compressed RegisterBrokerBody."""


@dataclass(slots=True)
class RegisterBrokerBody:
    """The topics and filter servers of one broker (body of REGISTER_BROKER).

    Java: org.apache.rocketmq.common.protocol.body.RegisterBrokerBody (4.9.8)
    """

    topicConfigSerializeWrapper: TopicConfigSerializeWrapper = field(default_factory=TopicConfigSerializeWrapper)
    filterServerList: list[str] = field(default_factory=list)

    def encode_compressed(self) -> bytes:
        """Return the compressed form."""
        version = self.topicConfigSerializeWrapper.dataVersion
        topics = list(self.topicConfigSerializeWrapper.topicConfigTable.values())
        parts = [_block(f'{{"counter":{version.counter},"timestamp":{version.timestamp}}}'), _LENGTH.pack(len(topics))]
        parts += [_block(topic.encode()) for topic in topics]
        parts.append(_block(json.dumps(self.filterServerList, ensure_ascii=False, separators=(",", ":"))))
        return zlib.compress(b"".join(parts), BEST_COMPRESSION)

    @staticmethod
    def decode_compressed(data: bytes | bytearray | memoryview) -> "RegisterBrokerBody":
        """Decode the compressed form; RegisterBrokerBodyError for anything else."""
        reader = _Reader(_inflate(data))
        body = RegisterBrokerBody()
        wrapper = body.topicConfigSerializeWrapper
        wrapper.dataVersion = _data_version(reader.json())
        topics = reader.count()
        if topics > MAX_TOPICS:
            raise RegisterBrokerBodyError(f"{topics} topics, the limit is {MAX_TOPICS}")
        for _ in range(topics):
            topic = _topic(reader.text())
            wrapper.topicConfigTable[topic.topicName] = topic
        filter_servers = reader.json()
        if not isinstance(filter_servers, list) or not all(isinstance(server, str) for server in filter_servers):
            raise RegisterBrokerBodyError("the filter servers are not a list of texts")
        body.filterServerList = filter_servers
        return body


def _block(text: str) -> bytes:
    data = text.encode("utf-8", "replace")
    return _LENGTH.pack(len(data)) + data


def _inflate(data: bytes | bytearray | memoryview) -> bytes:
    limit = min(MAX_INFLATED_SIZE, FREE_INFLATED_SIZE + MAX_RATIO * len(data))
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(data, limit)
    except zlib.error as error:
        raise RegisterBrokerBodyError(f"not a zlib stream: {error}") from error
    if len(plain) >= limit:
        raise RegisterBrokerBodyError(f"the body of {len(data)} bytes inflates to {limit} bytes and more")
    return plain


def _data_version(fields: Any) -> DataVersion:
    if not isinstance(fields, dict):
        raise RegisterBrokerBodyError("the data version is not an object")
    timestamp, counter = fields.get("timestamp", 0), fields.get("counter", 0)
    if type(timestamp) is not int or type(counter) is not int:
        raise RegisterBrokerBodyError("the data version's fields are not numbers")
    return DataVersion(timestamp, counter)


def _topic(text: str) -> TopicConfig:
    topic = TopicConfig()
    try:
        decoded = topic.decode(text)
    except ValueError as error:
        raise RegisterBrokerBodyError(f"topic {text[:100]!r}: {error}") from error
    if not decoded:
        raise RegisterBrokerBodyError(f"topic {text[:100]!r} does not have five parts")
    return topic


class _Reader:
    """Reads the blocks of the inflated form in order."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def count(self) -> int:
        """Read a number, which must be between 0 and the number of remaining bytes."""
        end = self._position + _LENGTH.size
        if end > len(self._data):
            raise RegisterBrokerBodyError("End of compressed data has reached")
        value: int = _LENGTH.unpack_from(self._data, self._position)[0]
        if not 0 <= value <= len(self._data) - end:
            raise RegisterBrokerBodyError(f"a length of {value}, but only {len(self._data) - end} bytes are left")
        self._position = end
        return value

    def text(self) -> str:
        """Read a block of UTF-8."""
        length = self.count()
        start, self._position = self._position, self._position + length
        return str(self._data[start:self._position], "utf-8", "replace")

    def json(self) -> Any:
        """Read a block of JSON."""
        text = self.text()
        marks = sum(map(text.count, "{[,:\\"))
        if marks > MAX_JSON_MARKS:
            raise RegisterBrokerBodyError(f"{marks} elements of JSON, the limit is {MAX_JSON_MARKS}")
        try:
            return parse_json(text, "a block")
        except JsonTextError as error:
            raise RegisterBrokerBodyError(f"not valid JSON: {error.reason}") from error


@dataclass(slots=True)
class RegisterBrokerResult:
    """A slave's master, and the order topics (answer of REGISTER_BROKER).

    Java: org.apache.rocketmq.common.namesrv.RegisterBrokerResult (4.9.8)
    """

    haServerAddr: str | None = None
    masterAddr: str | None = None
    kvTable: KVTable | None = None


@dataclass(slots=True)
class HAConnectionRuntimeInfo:
    """One slave of a master: offsets and `diff` in bytes of the commit log, the rate in bytes in the last second.

    Java: org.apache.rocketmq.remoting.protocol.body.HARuntimeInfo$HAConnectionRuntimeInfo (5.1.4)
    """

    addr: str | None = None  # ip:port of the slave's end
    slaveAckOffset: int = 0
    diff: int = 0
    inSync: bool = False
    transferredByteInSecond: int = 0
    transferFromWhere: int = 0


@dataclass(slots=True)
class HAClientRuntimeInfo:
    """The slave's side of a connection. Times are ms since 1970, 0 for never.

    The last three fields are extensions of rmqha. `state` is the state of the connection (HAConnectionState), or
    DIVERGED when this slave's log or queues differ from its master's, whatever the state of the connection.
    `divergedOffset` is the commit log offset from which on they differ, -1 if no difference is known; `divergedReason`
    says why. The runtime table has them as haClientState, haDivergedOffset and haDivergedReason, and also
    haDivergedCount, the number of records that did not fit into their queue.

    Java: org.apache.rocketmq.remoting.protocol.body.HARuntimeInfo$HAClientRuntimeInfo (5.1.4)
    """

    # The ip:port of the master's HA port.
    masterAddr: str | None = None
    transferredByteInSecond: int = 0
    maxOffset: int = 0
    lastReadTimestamp: int = 0
    lastWriteTimestamp: int = 0
    masterFlushOffset: int = 0
    state: str | None = None  # None: not reported (5.1.4)
    divergedOffset: int = -1
    divergedReason: str | None = None


@dataclass(slots=True)
class HARuntimeInfo:
    """A master's slaves, or a slave's connection to its master (answer of GET_BROKER_HA_STATUS).

    Java: org.apache.rocketmq.remoting.protocol.body.HARuntimeInfo (5.1.4)
    """

    master: bool = False
    masterCommitLogMaxOffset: int = 0
    inSyncSlaveNums: int = 0
    haConnectionInfo: list[HAConnectionRuntimeInfo] = field(default_factory=list)
    haClientRuntimeInfo: HAClientRuntimeInfo = field(default_factory=HAClientRuntimeInfo)


@dataclass(slots=True)
class EpochEntry:
    """One epoch: its master wrote the log from `startOffset` to `endOffset`, which is 2^63-1 for the last epoch.

    Java: org.apache.rocketmq.remoting.protocol.EpochEntry (5.1.4)
    """

    epoch: int = 0
    startOffset: int = 0
    endOffset: int = (1 << 63) - 1


@dataclass(slots=True)
class EpochEntryCache:
    """A replica's id, its epochs, and the end of its log (answer of GET_BROKER_EPOCH_CACHE).

    Java: org.apache.rocketmq.remoting.protocol.body.EpochEntryCache (5.1.4)
    """

    clusterName: str | None = None
    brokerName: str | None = None
    brokerId: int = 0
    epochList: list[EpochEntry] = field(default_factory=list)
    maxOffset: int = 0
