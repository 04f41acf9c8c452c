"""Requests of many kinds, the accounts that try them, and those that the original allows and rmqha denies."""
import json
import struct
import time

RETRY = "%RETRY%"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"


def send_fields(topic: str) -> dict[str, object]:
    """Return the fields of SEND_MESSAGE (10) as a Java producer fills them."""
    return {"producerGroup": "acl-producer", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": 1,
            "queueId": 0, "sysFlag": 0, "bornTimestamp": int(time.time() * 1000), "flag": 0, "properties": "",
            "reconsumeTimes": 0, "unitMode": "false", "maxReconsumeTimes": 16, "batch": "false"}


def send_v2_fields(topic: str, group: str, batch: bool = False) -> dict[str, object]:
    """Return the fields of SEND_MESSAGE_V2 (310) and SEND_BATCH_MESSAGE (320)."""
    return {"a": group, "b": topic, "c": "TBW102", "d": 1, "e": 0, "f": 0, "g": int(time.time() * 1000), "h": 0,
            "i": "", "j": 0, "k": "false", "l": 16, "m": str(batch).lower()}


def batch_body() -> bytes:
    """Return the body of a batch of one message."""
    body = b"of a batch"
    return struct.pack(f">iiiii{len(body)}sh", 22 + len(body), 0, 0, 0, len(body), body, 0)


def heartbeat(group: str, topic: str) -> bytes:
    """Return the body of a consumer's heartbeat."""
    return json.dumps({
        "clientID": "127.0.0.1@acl", "producerDataSet": [{"groupName": "acl-producer"}],
        "consumerDataSet": [{
            "groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "unitMode": False,
            "subscriptionDataSet": [{"topic": topic, "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 1,
                                     "classFilterMode": False, "expressionType": "TAG"}]}]}).encode()


def pull_fields(topic: str, group: str) -> dict[str, object]:
    """Return the fields of PULL_MESSAGE (11) of a queue that does not exist. Pulls of other queues depend on timing."""
    return {"consumerGroup": group, "topic": topic, "queueId": 7, "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 4,
            "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0, "expressionType": "TAG"}


def topic_requests(topic: str) -> dict[str, tuple[int, dict, bytes]]:
    """Return name -> (code, fields, body) of the requests on a topic."""
    return {
        f"send {topic}": (10, send_fields(topic), b"x"),
        f"send v2 {topic}": (310, send_v2_fields(topic, "acl-producer"), b"x"),
        f"query {topic}": (12, {"topic": topic, "key": "none", "maxNum": 1, "beginTimestamp": 0,
                                "endTimestamp": 1 << 50}, b""),
    }


def group_requests(topic: str, group: str) -> dict[str, tuple[int, dict, bytes]]:
    """Return name -> (code, fields, body) of the requests on a group, some of which also name a topic."""
    return {
        f"pull {topic} {group}": (11, pull_fields(topic, group), b""),
        f"heartbeat {group} {topic}": (34, {}, heartbeat(group, topic)),
        f"heartbeat with a field {group} {topic}": (34, {"more": 1}, heartbeat(group, topic)),
        f"unregister {group}": (35, {"clientID": "127.0.0.1@acl", "consumerGroup": group}, b""),
        f"consumer list {group}": (38, {"consumerGroup": group}, b""),
        f"update offset {group} {topic}": (15, {"consumerGroup": group, "topic": topic, "queueId": 0,
                                               "commitOffset": 0}, b""),
        f"query offset {group} {topic}": (14, {"consumerGroup": group, "topic": topic, "queueId": 0}, b""),
        f"send back {group}": (36, {"offset": 1 << 40, "group": group, "delayLevel": 0, "originMsgId": "x",
                                    "originTopic": topic, "unitMode": "false", "maxReconsumeTimes": 16}, b""),
        f"send v2 retry {group}": (310, send_v2_fields(RETRY + group, group), b"x"),
    }


def broker_requests() -> dict[str, tuple[int, dict, bytes]]:
    """Return name -> (code, fields, body) of the requests on the broker."""
    return {
        "send v2 trace": (310, send_v2_fields(TRACE_TOPIC, "acl-producer"), b"x"),
        "pull trace": (11, pull_fields(TRACE_TOPIC, "aliceGroup"), b""),
        "create topic": (17, {"topic": "MadeTopic", "defaultTopic": "TBW102", "readQueueNums": 1, "perm": 6,
                              "writeQueueNums": 1, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0,
                              "order": "false"}, b""),
        "update config": (25, {}, b"regionId=ThisRegion\n"),
        "update config with a field": (25, {"more": 1}, b"regionId=DefaultRegion\n"),
        "delete topic": (215, {"topic": "MadeTopic"}, b""),
        "make group": (200, {"more": 1}, json.dumps({"groupName": "madeGroup"}).encode()),
        "delete group": (207, {"groupName": "madeGroup", "cleanOffset": "false"}, b""),
        "config": (26, {}, b""),
        "runtime info": (28, {}, b""),
        "max offset": (30, {"topic": "DeniedTopic", "queueId": 0}, b""),
        "topic stats": (202, {"topic": "DeniedTopic"}, b""),
        "consumer connections": (203, {"consumerGroup": "nobodyGroup"}, b""),
        "all topics": (21, {}, b""),
        "lock": (41, {"more": 1}, json.dumps({"consumerGroup": "freeGroup", "clientId": "c", "mqSet": []}).encode()),
        "acl versions": (52, {}, b""),
    }


def denied_by_rmqha_only(topic: str, group: str) -> dict[str, tuple[int, dict, bytes]]:
    """Return name -> (code, fields, body) of the requests that the original allows to accounts without permission."""
    return {
        f"batch {topic}": (320, send_v2_fields(topic, "acl-producer", True), batch_body()),
        f"send v1 retry {group}": (10, send_fields(RETRY + group), b"x"),
        "unknown code": (9999, {}, b""),
        "delete account": (51, {"accessKey": "nobody"}, b""),
        "make account": (50, {"accessKey": "short"}, b""),
        "delete no account": (51, {}, b""),
        "make no account": (50, {}, b""),
        "no white addresses": (53, {}, b""),
        "white addresses": (53, {"globalWhiteAddrs": "1.2.3.4", "aclFileFullPath": "/nowhere.yml"}, b""),
    }
