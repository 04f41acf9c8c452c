"""The cases of docs/reference/request-codes.md: valid and invalid calls of every request code.

`{name}` in a value is replaced by something that the servers under test know (a message id, an offset), `{n}` by the
number of the case, so that cases that create something do not affect each other.
"""
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

BROKER, NAMESRV = "broker", "namesrv"
TOPIC, GROUP, ONLINE, PRODUCERS, CLIENT = "Codes", "codes-group", "codes-online", "codes-producers", "codes-client"
MIB = 1 << 20


@dataclass(frozen=True)
class Field:
    """A header field: its valid value, and its invalid values by the kind of error."""

    right: str
    wrong: dict[str, str] = field(default_factory=dict)


def text(right: str) -> Field:
    """Return a field that may have any text."""
    return Field(right, {"empty": ""})


def topic(right: str = TOPIC) -> Field:
    """Return a field that is a topic's name."""
    return Field(right, {"empty": "", "unknown": "Nobody", "illegal": "../etc", "too long": "t" * 128,
                         "a system topic": "SCHEDULE_TOPIC_XXXX"})


def group(right: str = GROUP) -> Field:
    """Return a field that is a group's name."""
    return Field(right, {"empty": "", "unknown": "nobody"})


def int32(right: object, **more: str) -> Field:
    """Return a field that is a Java int."""
    return Field(str(right), {"empty": "", "no number": "one", "a fraction": "1.5", "negative": "-1",
                              "2^31 - 1": str(2**31 - 1), "2^31": str(2**31), **more})


def int64(right: object, **more: str) -> Field:
    """Return a field that is a Java long."""
    return Field(str(right), {"empty": "", "no number": "one", "negative": "-1", "2^63 - 1": str(2**63 - 1),
                              "2^63": str(2**63), **more})


def boolean(right: str = "false") -> Field:
    """Return a field that is a Java boolean."""
    return Field(right, {"empty": "", "no boolean": "maybe"})


@dataclass(frozen=True)
class Code:
    """A request code: its header fields, and the bodies of its valid and invalid calls."""

    server: str
    number: int
    name: str
    fields: dict[str, Field] = field(default_factory=dict)
    body: bytes = b""
    wrong_bodies: dict[str, bytes] = field(default_factory=dict)
    is_served: bool = True


@dataclass(frozen=True)
class Case:
    """One call. If `fields` is None, the header has no extFields."""

    code: Code
    what: str
    fields: dict[str, str] | None
    body: bytes = b""
    oneway: bool = False
    binary: bool = False

    @property
    def is_silent(self) -> bool:
        """True if the original does not answer. No such case changes anything."""
        code = self.code
        return self.oneway or code.number in (52, 54) or self.what == "commitOrRollback: none" or (
            code.server == NAMESRV and not code.is_served)


NOISE = b"\x00\xff noise {["
NO_JSON = {"no body": b"", "body of noise": NOISE, "body {}": b"{}", "body []": b"[]", "body null": b"null"}


def json_body(right: object, **wrong: object) -> dict[str, object]:
    """Return `body` and `wrong_bodies` of a code whose body is JSON, `wrong` included."""
    cut = json.dumps(right).encode()
    types = {key: [7] if not isinstance(value, list) else {"a": 7} for key, value in right.items()}
    bodies = {**NO_JSON, "body of wrong types": json.dumps(types).encode(), "body cut": cut[:-3]}
    bodies |= {what.replace("_", " "): json.dumps(body).encode() for what, body in wrong.items()}
    return {"body": cut, "wrong_bodies": bodies}


def batch_of(*bodies: bytes) -> bytes:
    """Return the body of a batch of messages without properties."""
    return b"".join(struct.pack(">iiiii", 22 + len(body), 0, 0, 0, len(body)) + body + struct.pack(">h", 0)
                    for body in bodies)


SEND = {"producerGroup": group("codes-sender"), "topic": topic("CodesSend"), "defaultTopic": text("TBW102"),
        "defaultTopicQueueNums": int32(4), "queueId": int32(0), "sysFlag": int32(0), "bornTimestamp": int64("{now}"),
        "flag": int32(0), "properties": Field("TAGS\x01TagA", {"empty": "", "noise": "\x01\x02\x01"}),
        "reconsumeTimes": int32(0), "unitMode": boolean(), "maxReconsumeTimes": int32(0), "batch": boolean()}
SHORT = dict(zip("abcdefghijklm", ("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId",
                                   "sysFlag", "bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode",
                                   "maxReconsumeTimes", "batch"), strict=True))
SEND_V2 = {short: SEND[long] for short, long in SHORT.items()}
BATCH = {**SEND_V2, "b": topic("CodesBatch"), "m": boolean("true")}
REPLY_PROPERTIES = text("CLUSTER\x01InteropCluster\x02CORRELATION_ID\x01c-1\x02REPLY_TO_CLIENT\x01nobody"
                        "\x02MSG_TYPE\x01reply")
REPLY = {**SEND, "topic": topic("InteropCluster_REPLY_TOPIC"), "properties": REPLY_PROPERTIES}
QUEUE = {"topic": topic(), "queueId": int32(0)}
PLACE = {"consumerGroup": group(), **QUEUE}
PULL = {**PLACE, "queueOffset": int64(0), "maxMsgNums": int32(32), "sysFlag": int32(4), "commitOffset": int64(0),
        "suspendTimeoutMillis": int64(0), "subscription": text("*"), "subVersion": int64(0),
        "expressionType": Field("TAG", {"empty": "", "unknown": "MAGIC"})}
SUBSCRIPTION = {"classFilterMode": False, "codeSet": [], "expressionType": "TAG", "subString": "*", "subVersion": 1,
                "tagsSet": [], "topic": TOPIC}


def heartbeat(client: str, consumers: list[str], producers: list[str]) -> dict[str, object]:
    """Return a HeartbeatData as JSON."""
    return {"clientID": client, "producerDataSet": [{"groupName": name} for name in producers],
            "consumerDataSet": [{"groupName": name, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
                                 "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "unitMode": False,
                                 "subscriptionDataSet": [SUBSCRIPTION]} for name in consumers]}


LOCK = {"consumerGroup": GROUP, "clientId": CLIENT,
        "mqSet": [{"brokerName": "broker-a", "queueId": 0, "topic": TOPIC}]}
SUBSCRIPTION_GROUP = {"groupName": "codes-made-{n}", "consumeEnable": True, "retryQueueNums": 1, "retryMaxTimes": 16,
                      "brokerId": 0, "whichBrokerWhenConsumeSlowly": 1}

_BROKER_CODES = [
    Code(BROKER, 10, "SEND_MESSAGE", SEND, b"body", {"no body": b""}),
    Code(BROKER, 310, "SEND_MESSAGE_V2", SEND_V2, b"body", {"no body": b""}),
    Code(BROKER, 320, "SEND_BATCH_MESSAGE", BATCH, batch_of(b"one", b"two"),
         {"no body": b"", "body of noise": NOISE, "body cut": batch_of(b"one", b"two")[:-5]}),
    Code(BROKER, 36, "CONSUMER_SEND_MSG_BACK", {
        "offset": int64("{offset}"), "group": group(), "delayLevel": int32(18), "originMsgId": text("{offsetId}"),
        "originTopic": topic(), "unitMode": boolean(), "maxReconsumeTimes": int32(16)}),
    Code(BROKER, 11, "PULL_MESSAGE", PULL),
    Code(BROKER, 324, "SEND_REPLY_MESSAGE", REPLY, b"body", {"no body": b""}),
    Code(BROKER, 325, "SEND_REPLY_MESSAGE_V2", {short: REPLY[long] for short, long in SHORT.items()}, b"body",
         {"no body": b""}),
    Code(BROKER, 12, "QUERY_MESSAGE", {"topic": topic(), "key": text("key1"), "maxNum": int32(8),
                                       "beginTimestamp": int64(0), "endTimestamp": int64("{later}"),
                                       "_UNIQUE_KEY_QUERY": boolean()}),
    Code(BROKER, 33, "VIEW_MESSAGE_BY_ID", {"offset": int64("{offset}", within_a_record="7")}),
    Code(BROKER, 37, "END_TRANSACTION", {
        "producerGroup": group(PRODUCERS), "tranStateTableOffset": int64("{halfQueueOffset}"),
        "commitLogOffset": int64("{halfOffset}", of_another_message="{offset}"),
        "commitOrRollback": int32(12, none="0"),
        "fromTransactionCheck": boolean(), "msgId": text("{halfId}"), "transactionId": text("{halfId}")}),
    Code(BROKER, 34, "HEART_BEAT", {}, **json_body(
        heartbeat("codes-{n}", ["codes-beat-{n}"], ["codes-beat-{n}"]),
        no_client=heartbeat(None, ["codes-beat-{n}"], []), empty_client=heartbeat("", ["codes-beat-{n}"], []),
        no_groups=heartbeat("codes-{n}", [], []), no_name=heartbeat("codes-{n}", [None], [None]))),
    Code(BROKER, 35, "UNREGISTER_CLIENT", {"clientID": text("codes-nobody"), "producerGroup": group(),
                                           "consumerGroup": group()}),
    Code(BROKER, 46, "CHECK_CLIENT_CONFIG", {}, **json_body(
        {"clientId": CLIENT, "group": GROUP, "subscriptionData": SUBSCRIPTION},
        unknown_type={"clientId": CLIENT, "group": GROUP,
                      "subscriptionData": {**SUBSCRIPTION, "expressionType": "MAGIC"}},
        SQL_while_it_is_off={"clientId": CLIENT, "group": GROUP,
                             "subscriptionData": {**SUBSCRIPTION, "expressionType": "SQL92", "subString": "a > 1"}})),
    Code(BROKER, 38, "GET_CONSUMER_LIST_BY_GROUP", {"consumerGroup": group(ONLINE)}),
    Code(BROKER, 15, "UPDATE_CONSUMER_OFFSET", {**PLACE, "consumerGroup": group("codes-commits"),
                                                "commitOffset": int64(1)}),
    Code(BROKER, 14, "QUERY_CONSUMER_OFFSET", PLACE),
    Code(BROKER, 17, "UPDATE_AND_CREATE_TOPIC", {
        "topic": topic("CodesMade{n}"), "defaultTopic": text("TBW102"), "readQueueNums": int32(4),
        "writeQueueNums": int32(4), "perm": int32(6), "topicFilterType": text("SINGLE_TAG"), "topicSysFlag": int32(0),
        "order": boolean()}),
    Code(BROKER, 215, "DELETE_TOPIC_IN_BROKER", {"topic": topic("CodesGone")}),
    Code(BROKER, 21, "GET_ALL_TOPIC_CONFIG"),
    Code(BROKER, 25, "UPDATE_BROKER_CONFIG", {}, b"defaultQueryMaxNum=32\n", {
        "no body": b"", "body of noise": NOISE, "no number": b"defaultQueryMaxNum=x\n", "unknown key": b"nobody=1\n",
        "black listed key": b"rocketmqHome=/\n", "no key": b"=\n", "bad escape": b"a=\\u00zz\n"}),
    Code(BROKER, 26, "GET_BROKER_CONFIG"),
    Code(BROKER, 28, "GET_BROKER_RUNTIME_INFO"),
    Code(BROKER, 29, "SEARCH_OFFSET_BY_TIMESTAMP", {**QUEUE, "timestamp": int64("{now}")}),
    Code(BROKER, 30, "GET_MAX_OFFSET", QUEUE),
    Code(BROKER, 31, "GET_MIN_OFFSET", QUEUE),
    Code(BROKER, 32, "GET_EARLIEST_MSG_STORETIME", QUEUE),
    Code(BROKER, 41, "LOCK_BATCH_MQ", {}, **json_body(LOCK, no_queues={**LOCK, "mqSet": []},
                                                      no_client={**LOCK, "clientId": None},
                                                      no_group={**LOCK, "consumerGroup": None},
                                                      empty_queue={**LOCK, "mqSet": [{}]})),
    Code(BROKER, 42, "UNLOCK_BATCH_MQ", {}, **json_body(LOCK, no_queues={**LOCK, "mqSet": []},
                                                        no_client={**LOCK, "clientId": None},
                                                        no_group={**LOCK, "consumerGroup": None})),
    Code(BROKER, 200, "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP", {}, **json_body(
        SUBSCRIPTION_GROUP, no_name={**SUBSCRIPTION_GROUP, "groupName": None},
        negative_retries={**SUBSCRIPTION_GROUP, "retryMaxTimes": -1})),
    Code(BROKER, 201, "GET_ALL_SUBSCRIPTIONGROUP_CONFIG"),
    Code(BROKER, 207, "DELETE_SUBSCRIPTIONGROUP", {"groupName": group("codes-gone"), "removeOffset": boolean("true")}),
    Code(BROKER, 202, "GET_TOPIC_STATS_INFO", {"topic": topic()}),
    Code(BROKER, 203, "GET_CONSUMER_CONNECTION_LIST", {"consumerGroup": group(ONLINE)}),
    Code(BROKER, 204, "GET_PRODUCER_CONNECTION_LIST", {"producerGroup": group(PRODUCERS)}),
    Code(BROKER, 328, "GET_ALL_PRODUCER_INFO"),
    Code(BROKER, 208, "GET_CONSUME_STATS", {"consumerGroup": group(), "topic": topic()}),
    Code(BROKER, 43, "GET_ALL_CONSUMER_OFFSET"),
    Code(BROKER, 45, "GET_ALL_DELAY_OFFSET"),
    Code(BROKER, 222, "INVOKE_BROKER_TO_RESET_OFFSET", {
        "topic": topic(), "group": group(ONLINE), "timestamp": int64(-1), "isForce": boolean("true")}),
    Code(BROKER, 223, "INVOKE_BROKER_TO_GET_CONSUMER_STATUS", {
        "topic": topic(), "group": group(ONLINE), "clientAddr": Field("", {"of nobody": "nobody"})}),
    Code(BROKER, 300, "QUERY_TOPIC_CONSUME_BY_WHO", {"topic": topic()}),
    Code(BROKER, 303, "QUERY_CONSUME_TIME_SPAN", {"topic": topic(), "group": group()}),
    Code(BROKER, 305, "GET_SYSTEM_TOPIC_LIST_FROM_BROKER"),
    Code(BROKER, 306, "CLEAN_EXPIRED_CONSUMEQUEUE"),
    Code(BROKER, 316, "CLEAN_UNUSED_TOPIC"),
    Code(BROKER, 329, "DELETE_EXPIRED_COMMITLOG"),
    Code(BROKER, 307, "GET_CONSUMER_RUNNING_INFO", {
        "consumerGroup": group(ONLINE), "clientId": group(CLIENT), "jstackEnable": boolean()}),
    Code(BROKER, 308, "QUERY_CORRECTION_OFFSET", {
        "filterGroups": text("codes-filtered"), "compareGroup": group(), "topic": topic()}),
    Code(BROKER, 309, "CONSUME_MESSAGE_DIRECTLY", {
        "consumerGroup": group(ONLINE), "clientId": group(CLIENT),
        "msgId": Field("{offsetId}", {"empty": "", "noise": "xyz", "of no message": "{offsetIdBeyond}"}),
        "brokerName": text("broker-a")}),
    Code(BROKER, 314, "CLONE_GROUP_OFFSET", {
        "srcGroup": group(), "destGroup": group("codes-clone"), "topic": topic(), "offline": boolean("true")}),
    Code(BROKER, 315, "VIEW_BROKER_STATS_DATA", {
        "statsName": Field("TOPIC_PUT_NUMS", {"empty": "", "unknown": "NOBODY"}),
        "statsKey": Field(TOPIC, {"empty": "", "unknown": "Nobody"})}),
    Code(BROKER, 317, "GET_BROKER_CONSUME_STATS", {"isOrder": boolean()}),
    Code(BROKER, 321, "QUERY_CONSUME_QUEUE", {
        "topic": topic(), "queueId": int32(0), "index": int64(0), "count": int32(2), "consumerGroup": group(ONLINE)}),
    Code(BROKER, 323, "RESUME_CHECK_HALF_MESSAGE", {
        "msgId": Field("{halfId}", {"empty": "", "noise": "xyz", "of no message": "{offsetIdBeyond}"})}),
    Code(BROKER, 50, "UPDATE_AND_CREATE_ACL_CONFIG", {
        "accessKey": text("codes"), "secretKey": text("12345678"), "whiteRemoteAddress": text(""),
        "admin": boolean(), "defaultTopicPerm": text("DENY"), "defaultGroupPerm": text("SUB"),
        "topicPerms": text("a=PUB"), "groupPerms": text("b=SUB")}),
    Code(BROKER, 51, "DELETE_ACL_CONFIG", {"accessKey": text("codes")}),
    Code(BROKER, 52, "GET_BROKER_CLUSTER_ACL_INFO"),
    Code(BROKER, 53, "UPDATE_GLOBAL_WHITE_ADDRS_CONFIG", {
        "globalWhiteAddrs": text("1.1.1.1"), "aclFileFullPath": text("")}),
    Code(BROKER, 54, "GET_BROKER_CLUSTER_ACL_CONFIG"),
    Code(BROKER, 30003, "GET_COMMIT_LOG_CHECKSUMS", {
        "offset": int64(0), "blockSize": int32(64, beyond_the_limit=str(MIB + 1)),
        "count": int32(3, beyond_the_limit="4097"), "withBytes": boolean()}),
    Code(BROKER, 30004, "GET_MESSAGE_HEADS", {
        "topic": topic(), "queueId": int32(0), "offset": int64(0), "count": int32(3, beyond_the_limit="1025"),
        "bodyBytes": int32(16, beyond_the_limit=str(64 * 1024 + 1)),
        "propertyBytes": int32(4096, beyond_the_limit="32768"), "backwards": boolean(), "tags": text("TagA || TagB"),
        "key": text("key"), "sql": Field("a > 1", {"empty": "", "noise": "a >"}), "text": text("x")}),
]

# Codes that change something are last, so that their effects are in no answer to another code.
CHANGING = {10, 310, 320, 36, 324, 325, 37, 34, 35, 15, 17, 215, 25, 41, 42, 200, 207, 222, 306, 316, 329, 308, 314,
            323, 50, 51, 53, 100, 102, 103, 104, 205, 327, 216, 318}
# Once the empty group has an offset, QUERY_CORRECTION_OFFSET ends in an exception in the original.
BROKER_CODES = sorted(_BROKER_CODES, key=lambda code: (code.number in CHANGING, code.number == 15))

TOPICS = {"Topic{n}": {"topicName": "Topic{n}", "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "order": False,
                       "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0}}
REGISTRATION = {"filterServerList": [], "topicConfigSerializeWrapper": {
    "topicConfigTable": TOPICS, "dataVersion": {"counter": 1, "timestamp": 1}}}
BROKER_FIELDS = {"brokerName": text("broker-{n}"), "brokerAddr": text("127.0.0.1:1{n}"),
                 "clusterName": text("CodesCluster"), "brokerId": int64(0)}
KEY = {"namespace": Field("codes", {"empty": "", "unknown": "nobody"}),
       "key": Field("key", {"empty": "", "unknown": "nobody"})}  # registered before

_NAMESRV_CODES = [
    Code(NAMESRV, 100, "PUT_KV_CONFIG", {"namespace": text("codes"), "key": text("key"), "value": text("value")}),
    Code(NAMESRV, 101, "GET_KV_CONFIG", KEY),
    Code(NAMESRV, 219, "GET_KVLIST_BY_NAMESPACE", {"namespace": KEY["namespace"]}),
    Code(NAMESRV, 102, "DELETE_KV_CONFIG", KEY),
    Code(NAMESRV, 103, "REGISTER_BROKER", {**BROKER_FIELDS, "haServerAddr": text("127.0.0.1:2"),
                                           "compressed": boolean(), "bodyCrc32": Field("0", {
                                               "empty": "", "wrong": "12345", "no number": "x"})},
         **json_body(REGISTRATION, no_version={"topicConfigSerializeWrapper": {"topicConfigTable": TOPICS}},
                     no_topics={"topicConfigSerializeWrapper": {"dataVersion": {"counter": 2, "timestamp": 2}}})),
    Code(NAMESRV, 104, "UNREGISTER_BROKER", BROKER_FIELDS),
    Code(NAMESRV, 105, "GET_ROUTEINFO_BY_TOPIC", {"topic": topic(), "acceptStandardJsonOnly": boolean("true")}),
    Code(NAMESRV, 106, "GET_BROKER_CLUSTER_INFO"),
    Code(NAMESRV, 205, "WIPE_WRITE_PERM_OF_BROKER", {"brokerName": group("broker-z")}),
    Code(NAMESRV, 327, "ADD_WRITE_PERM_OF_BROKER", {"brokerName": group("broker-z")}),
    Code(NAMESRV, 206, "GET_ALL_TOPIC_LIST_FROM_NAMESERVER"),
    Code(NAMESRV, 216, "DELETE_TOPIC_IN_NAMESRV", {"topic": topic("CodesRoute"), "clusterName": text("CodesCluster")}),
    Code(NAMESRV, 224, "GET_TOPICS_BY_CLUSTER", {"cluster": group("InteropCluster")}),
    Code(NAMESRV, 304, "GET_SYSTEM_TOPIC_LIST_FROM_NS"),
    Code(NAMESRV, 311, "GET_UNIT_TOPIC_LIST"),
    Code(NAMESRV, 312, "GET_HAS_UNIT_SUB_TOPIC_LIST"),
    Code(NAMESRV, 313, "GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST"),
    Code(NAMESRV, 318, "UPDATE_NAMESRV_CONFIG", {}, b"clusterTest=false\n", {
        "no body": b"", "body of noise": NOISE, "no boolean": b"clusterTest=x\n", "unknown key": b"nobody=1\n",
        "black listed key": b"rocketmqHome=/\n", "no key": b"=\n", "bad escape": b"a=\\u00zz\n"}),
    Code(NAMESRV, 319, "GET_NAMESRV_CONFIG"),
    Code(NAMESRV, 322, "QUERY_DATA_VERSION", BROKER_FIELDS, **json_body({"counter": 1, "timestamp": 1})),
]

NAMESRV_CODES = sorted(_NAMESRV_CODES, key=lambda code: code.number in CHANGING)

# Defined, but served by neither server. A code that is not defined is named "unknown".
UNSERVED = {13: "QUERY_BROKER_OFFSET", 22: "GET_TOPIC_CONFIG_LIST", 23: "GET_TOPIC_NAME_LIST",
            27: "TRIGGER_DELETE_FILES", 39: "CHECK_TRANSACTION_STATE", 40: "NOTIFY_CONSUMER_IDS_CHANGED",
            209: "SUSPEND_CONSUMER", 210: "RESUME_CONSUMER", 211: "RESET_CONSUMER_OFFSET_IN_CONSUMER",
            212: "RESET_CONSUMER_OFFSET_IN_BROKER", 213: "ADJUST_CONSUMER_THREAD_POOL", 214: "WHO_CONSUME_THE_MESSAGE",
            220: "RESET_CONSUMER_CLIENT_OFFSET", 221: "GET_CONSUMER_STATUS_FROM_CLIENT", 301: "REGISTER_FILTER_SERVER",
            302: "REGISTER_MESSAGE_FILTER_CLASS", 326: "PUSH_REPLY_MESSAGE_TO_CLIENT", 9999: "unknown",
            0: "unknown", -1: "unknown", 2**31 - 1: "unknown", -2**31: "unknown"}


def cases_of(code: Code) -> Iterator[Case]:
    """Yield the valid call, each field missing, each field invalid in every way, each body, another header, one-way."""
    right = {name: one.right for name, one in code.fields.items()}
    yield Case(code, "right", right, code.body)
    yield Case(code, "right, ROCKETMQ header", right, code.body, binary=True)
    for name, one in code.fields.items():
        yield Case(code, f"without {name}", {key: value for key, value in right.items() if key != name}, code.body)
        for what, value in one.wrong.items():
            yield Case(code, f"{name}: {what}", {**right, name: value}, code.body)
    if code.fields:
        yield Case(code, "no fields", {}, code.body)
        yield Case(code, "no extFields", None, code.body)
        yield Case(code, "no fields, ROCKETMQ header", {}, code.body, binary=True)
    for what, body in code.wrong_bodies.items():
        yield Case(code, what, right, body)
    if not code.wrong_bodies:
        yield Case(code, "an unasked-for body", right, NOISE)
    yield Case(code, "one-way", right, code.body, oneway=True)


def unserved() -> Iterator[Code]:
    """Yield the codes that this server does not know: unknown codes, and those of the other server."""
    for server, others in ((BROKER, NAMESRV_CODES), (NAMESRV, BROKER_CODES)):
        yield from (Code(server, other.number, other.name, is_served=False) for other in others)
        yield from (Code(server, number, name, is_served=False) for number, name in UNSERVED.items())


def all_cases() -> list[Case]:
    """Return all cases in the order in which they must be called."""
    served = [case for code in NAMESRV_CODES + BROKER_CODES for case in cases_of(code)]
    return served + [Case(code, "any call", {}) for code in unserved()]
