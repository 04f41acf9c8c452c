"""Each request code that a broker serves, called on something of one's own and on another's.

`{topic}`, `{group}` ... in a field or body stand for the names and places of whose things are meant, see Things.
"""
import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.interop.acl_requests import heartbeat, pull_fields, send_fields, send_v2_fields

OWN_GROUP_2 = "ownGroup2"


@dataclass
class Things:
    """What somebody has at the broker: a topic with a message in it, a group, a half message."""

    topic: str
    group: str
    offset: int = 0  # commit log offset of the message
    msg_id: str = ""
    half_queue_offset: int = 0
    half_offset: int = 0
    half_msg_id: str = ""

    def fill(self, text: object) -> str:
        """`text` with the names in it."""
        filled = str(text)
        for name, value in vars(self).items():
            filled = filled.replace("{" + name + "}", str(value))
        return filled


@dataclass(frozen=True)
class Case:
    """One call. `record`: the right that the processor asks for when it has found the record, for the table."""

    code: int
    what: str = ""
    fields: dict[str, object] = field(default_factory=dict)
    body: bytes | Callable[["Things"], bytes] = b""
    record: str = ""
    ends_half: bool = False

    def fields_of(self, things: Things) -> dict[str, str]:
        """The header's fields for these things."""
        return {name: things.fill(value) for name, value in self.fields.items()}

    def body_of(self, things: Things) -> bytes:
        """The body for these things."""
        return self.body(things) if callable(self.body) else self.body


def as_json(**values: object) -> Callable[[Things], bytes]:
    """A body with names in it."""
    return lambda things: things.fill(json.dumps(values)).encode()


def batch(properties: str = "") -> Callable[[Things], bytes]:
    """The body of a batch of one message."""
    def build(things: Things) -> bytes:
        body, tail = b"of a batch", things.fill(properties).encode()
        head = struct.pack(">iiiii", 22 + len(body) + len(tail), 0, 0, 0, len(body))
        return head + body + struct.pack(">h", len(tail)) + tail

    return build


FURTHER = "INNER_MULTI_DISPATCH\x01{topic}"
QUEUE = {"topic": "{topic}", "brokerName": "broker-a", "queueId": 0}
LOCKS = as_json(consumerGroup="{group}", clientId="c", mqSet=[QUEUE])
SUBSCRIPTION = {"topic": "{topic}", "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 1,
                "expressionType": "TAG"}
NO_TOPIC = {"topic": "NoTopicAtAll", "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"}
PLACE = {"topic": "{topic}", "queueId": 0}
IN_TOPIC = {"topic": "{topic}", "group": "{group}"}
OPEN_TOPIC = "RMQ_SYS_TRACE_TOPIC"

CASES = [
    Case(10, "", send_fields("{topic}"), b"x"),
    Case(10, "to a retry topic", send_fields("%RETRY%{group}"), b"x"),
    Case(10, "to a further queue", {**send_fields(OPEN_TOPIC), "properties": FURTHER}, b"x"),
    Case(11, "", pull_fields("{topic}", "{group}")),
    Case(11, "of a retry topic", pull_fields("%RETRY%{group}", "{group}")),
    Case(11, "of a dead letter topic", pull_fields("%DLQ%{group}", "{group}")),
    Case(12, "", {"topic": "{topic}", "key": "key", "maxNum": 9, "beginTimestamp": 0, "endTimestamp": 1 << 50}),
    Case(14, "", {"consumerGroup": "{group}", **PLACE}),
    Case(15, "", {"consumerGroup": "{group}", **PLACE, "commitOffset": 0}),
    Case(17, "", NO_TOPIC),
    Case(21),
    Case(25, "", {}, b"regionId=DefaultRegion\n"),
    Case(26),
    Case(28),
    Case(29, "", {**PLACE, "timestamp": 0}),
    Case(30, "", PLACE),
    Case(31, "", PLACE),
    Case(32, "", PLACE),
    Case(33, "", {"offset": "{offset}"}, record="SUB on the message's topic"),
    Case(34, "of a consumer", {}, lambda things: heartbeat(things.group, things.topic)),
    Case(34, "of a producer", {}, as_json(clientID="p", producerDataSet=[{"groupName": "producers"}],
                                          consumerDataSet=[])),
    Case(35, "of a consumer", {"clientID": "c", "consumerGroup": "{group}"}),
    Case(35, "of a producer", {"clientID": "c", "producerGroup": "producers"}),
    Case(36, "", {"offset": "{offset}", "group": "{group}", "delayLevel": 0, "originMsgId": "x", "unitMode": "false",
                  "originTopic": "{topic}", "maxReconsumeTimes": 16}, record="SUB on the message's topic"),
    Case(37, "", {"producerGroup": "producers", "tranStateTableOffset": "{half_queue_offset}", "msgId": "x",
                  "commitLogOffset": "{half_offset}", "commitOrRollback": 8, "fromTransactionCheck": "false"},
         record="PUB on the topic that the half message is meant for", ends_half=True),
    Case(38, "", {"consumerGroup": "{group}"}),
    Case(41, "", {}, LOCKS),
    Case(42, "", {}, LOCKS),
    Case(43),
    Case(45),
    Case(46, "", {}, as_json(clientId="c", group="{group}", subscriptionData=SUBSCRIPTION)),
    Case(50, "", {"accessKey": "short", "secretKey": "x"}),
    Case(51, "", {"accessKey": "nobodysKey"}),
    Case(52),
    Case(53),
    Case(200, "", {}, as_json(groupName="madeGroup")),
    Case(201),
    Case(202, "", {"topic": "{topic}"}),
    Case(203, "", {"consumerGroup": "{group}"}),
    Case(204, "", {"producerGroup": "producers"}),
    Case(207, "", {"groupName": "madeGroup"}),
    Case(208, "of a topic", {"consumerGroup": "{group}", "topic": "{topic}"}),
    Case(208, "of all topics", {"consumerGroup": "{group}"}, record="SUB on each topic that the group has read"),
    Case(215, "", {"topic": "NoTopicAtAll"}),
    Case(222, "", {**IN_TOPIC, "timestamp": -1, "isForce": "true"}),
    Case(223, "", IN_TOPIC),
    Case(300, "", {"topic": "{topic}"}),
    Case(303, "", IN_TOPIC),
    Case(305),
    Case(306),
    Case(307, "", {"consumerGroup": "{group}", "clientId": "c", "jstackEnable": "false"}),
    Case(308, "", {"topic": "{topic}", "compareGroup": "{group}"}),
    Case(309, "", {"consumerGroup": "{group}", "clientId": "c", "msgId": "{msg_id}", "brokerName": "broker-a"},
         record="SUB on the message's topic"),
    Case(310, "", send_v2_fields("{topic}", "producers"), b"x"),
    Case(310, "to a retry topic", send_v2_fields("%RETRY%{group}", "CLIENT_INNER_PRODUCER"), b"x"),
    Case(310, "to a further queue", {**send_v2_fields(OPEN_TOPIC, "producers"), "i": FURTHER}, b"x"),
    Case(314, "of a topic", {"srcGroup": "{group}", "destGroup": OWN_GROUP_2, "topic": "{topic}"}),
    Case(314, "of all topics", {"srcGroup": "{group}", "destGroup": OWN_GROUP_2},
         record="SUB on each topic that the group has read"),
    Case(315, "", {"statsName": "TOPIC_PUT_NUMS", "statsKey": "{topic}"}),
    Case(315, "of a group", {"statsName": "GROUP_GET_NUMS", "statsKey": "{topic}@{group}"}),
    Case(315, "of the broker", {"statsName": "BROKER_PUT_NUMS", "statsKey": "DefaultCluster"}),
    Case(316),
    Case(317, "", {"isOrder": "false"}),
    Case(320, "", send_v2_fields("{topic}", "producers", True), batch()),
    Case(320, "with a further queue", send_v2_fields(OPEN_TOPIC, "producers", True), batch(FURTHER)),
    Case(321, "", {**PLACE, "index": 0, "count": 1}),
    Case(321, "for a group", {**PLACE, "index": 0, "count": 1, "consumerGroup": "{group}"}),
    Case(323, "", {"msgId": "{half_msg_id}"}, record="PUB on the topic that the half message is meant for",
         ends_half=True),
    Case(324, "", send_fields("{topic}"), b"x"),
    Case(325, "", send_v2_fields("{topic}", "producers"), b"x"),
    Case(328),
    Case(329),
    Case(907),
    Case(1007),
    Case(1008, "", {"masterAddress": "x", "masterHaAddress": "x", "masterBrokerId": 0, "masterEpoch": 1,
                    "syncStateSetEpoch": 1}),
    Case(30001),
    Case(30002, "", {"brokerId": "1"}),
    Case(30003, "", {"offset": 0, "blockSize": 4096, "count": 1}),
]
