"""The topics of a broker, which may be 100,000: requested and decoded quickly.

    ask_topics --GET_ALL_TOPIC_CONFIG, the state that the caller knows--> broker
               <--the whole table, or from a broker of rmqha only the changes--

`decode_topics` reads the text that brokers write entry by entry, with one pattern. So it releases the interpreter's
lock between them, needs no memory beside the result, and takes a fourth of the time. Any other text is read by
`remoting_serializable`. Both have the same result.
"""
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from rmqha.common.protocol import request_code, table_version
from rmqha.common.protocol.table_bodies import TopicConfigSerializeWrapper
from rmqha.common.sys_flags import TopicFilterType
from rmqha.common.topics import TopicConfig
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.tools.admin.large_answers import ask_large, check_unusual

if TYPE_CHECKING:
    from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt

log = logging.getLogger("RocketmqTools")

MAX_TOPICS = 400_000  # of a broker; those of rmqha have at most 100,000
# Brokers limit them to 127 characters, and to 255 those of groups.
MAX_NAME = 1024

_NUMBER = rb"-?(?:0|[1-9]\d{0,17})"
_TEXT = rb'"([^"\\\x00-\x1f]*+)"'
_PLAIN_TEXT = rb'"[^"\\\x00-\x1f]*+"'
_DELETED = _PLAIN_TEXT + b":" + _NUMBER
_ATTRIBUTE = _PLAIN_TEXT + b":" + _PLAIN_TEXT
_ATTRIBUTES = rb'"attributes":\{(?:' + _ATTRIBUTE + b"(?:," + _ATTRIBUTE + rb")*)?\},"
_HEAD = (rb'\{(?:"dataVersion":\{"counter":' + _NUMBER + rb'(?:,"stateVersion":' + _NUMBER + rb')?,"timestamp":'
         + _NUMBER + rb'\},)?(?:"deletedTopics":\{' + _DELETED + b"(?:," + _DELETED + rb')*\},)?"topicConfigTable":\{')
# The settings are two groups, because the name is between them. RocketMQ 5 adds attributes before the others.
_ENTRY = (_TEXT + rb":\{((?:" + _ATTRIBUTES + rb')?"order":(?:true|false),"perm":' + _NUMBER + rb',"readQueueNums":'
          + _NUMBER + rb',"topicFilterType":"(?:SINGLE_TAG|MULTI_TAG)"),"topicName":' + _TEXT
          + rb',("topicSysFlag":' + _NUMBER + rb',"writeQueueNums":' + _NUMBER + rb")\}([,}])")
_VALUES = rb'"(order|perm|readQueueNums|topicFilterType|topicSysFlag|writeQueueNums)":"?(\w+|-\d+)'


class Settings(NamedTuple):
    """The settings of a topic on a broker. Topics with the same settings share one object."""

    read_queues: int
    write_queues: int
    perm: int
    filter_type: TopicFilterType
    system_flag: int
    order: bool

    def config(self, name: str) -> TopicConfig:
        """Return them as the settings of a topic with this name."""
        return TopicConfig(name, self.read_queues, self.write_queues, self.perm, self.filter_type, self.system_flag,
                           self.order)


Topics = dict[str, Settings]


@dataclass(frozen=True)
class Told:
    """A broker's answer. `topics`: None if they are as the caller knows them; otherwise all topics, or with
    `only_changes` those that have changed.

    `state` names the state of the table for the next request; "": the broker sends the whole table each time.
    """

    topics: Topics | None
    state: str = ""
    only_changes: bool = False


def ask_topics(admin: "DefaultMQAdminExt", address: str, timeout_ms: float, known: str = "") -> Told:
    """Ask a broker for its topics. `known`: the state that the caller has of them; "": none.

    Raises the client's exceptions, and ValueError for an answer that can't be read.
    """
    request = RemotingCommand.create_request_command(request_code.GET_ALL_TOPIC_CONFIG)
    request.add_ext_field(table_version.KNOWN, known)
    request.add_ext_field(table_version.CHANGES, "true")
    response = ask_large(admin.api.remoting_client, address, request, timeout_ms)
    fields = response.ext_fields or {}
    state = fields.get(table_version.TOLD, "")
    if state and state == known:
        return Told(None, state)
    return Told(decode_topics(response.body or b""), state, table_version.CHANGES in fields)


def decode_topics(body: bytes | bytearray | memoryview) -> Topics:
    """Return the topics of a table by the names that are its keys, without those of more than MAX_NAME characters.

    Raises FastjsonError and AnswerTooLargeError, which are ValueErrors.
    """
    topics = _decode_usual(body)
    if topics is None:
        check_unusual(body)
        table = remoting_serializable.from_json(TopicConfigSerializeWrapper, body).topicConfigTable or {}
        topics = settings_of(table)
    if max(map(len, topics), default=0) <= MAX_NAME:
        return topics
    found = {name: settings for name, settings in topics.items() if len(name) <= MAX_NAME}
    log.warning("%d topics are left out, whose names have more than %d characters", len(topics) - len(found), MAX_NAME)
    return found


def settings_of(table: Mapping[str, TopicConfig]) -> Topics:
    """Return the settings of topics by name. An unknown filter type counts as SINGLE_TAG."""
    shared: dict[Settings, Settings] = {}
    return {name: shared.setdefault(found, found) for name, config in table.items() for found in [Settings(
        config.readQueueNums, config.writeQueueNums, config.perm, config.topicFilterType or TopicFilterType.SINGLE_TAG,
        config.topicSysFlag, config.order)]}


def _decode_usual(body: bytes | bytearray | memoryview) -> Topics | None:
    """Return the topics of a table in the usual form; None for any other text."""
    head = re.match(_HEAD, body)
    if head is None:
        return None
    match = re.compile(_ENTRY).match
    topics: Topics = {}
    shared: dict[tuple[bytes, bytes], Settings] = {}
    position, next_one = head.end(), b","
    while next_one == b",":
        found = match(body, position)
        if found is None:
            return None
        name, first, own_name, last, next_one = found.groups()
        # A text with references means something else.
        if b"$ref" in (name, own_name) or b'"$ref"' in first:
            return None
        settings = shared.get((first, last))
        if settings is None:
            settings = shared[first, last] = _settings(first, last)
        topics[str(name, "utf-8", "replace")] = settings
        position = found.end()
    return topics if bytes(body[position:]) == b"}" else None


def _settings(first: bytes, last: bytes) -> Settings:
    values = {key.decode(): value.decode() for key, value in re.findall(_VALUES, first + last)}
    return Settings(int(values["readQueueNums"]), int(values["writeQueueNums"]), int(values["perm"]),
                    TopicFilterType[values["topicFilterType"]], int(values["topicSysFlag"]), values["order"] == "true")
