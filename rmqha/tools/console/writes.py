"""The few changes that the console makes when it may: a topic, a group's offsets, a broker's write permission."""
import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

from rmqha.common import sys_flags
from rmqha.common import topics as topic_validator
from rmqha.common.topics import TopicConfig
from rmqha.tools.console.source import Source
from rmqha.tools.view.as_json import Json
from rmqha.tools.view.questions import QuestionError, asked

log = logging.getLogger("RocketmqTools")

MAX_QUEUES = 1024
EARLIEST, LATEST = "earliest", "latest"
_END = -1  # as a time: the end of each queue
_LAST_MS = 253_402_300_799_999  # 9999-12-31
_TIMES = {EARLIEST: 0, LATEST: _END}
Body = Mapping[str, Any]


class Writes:
    """Each gives what it has done; QuestionError for what is wrong or was refused."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._admin = source.questions.admin

    def topic(self, body: Body) -> Json:
        """Make a topic, or change it, on all masters that answer: {"topic", "queues"}."""
        name, queues = body.get("topic"), body.get("queues", 8)
        reason = topic_validator.check_topic(name) if isinstance(name, str) else "topic: a name"
        if reason is not None or not isinstance(name, str):
            raise QuestionError(reason or "topic: a name")
        if not isinstance(queues, int) or isinstance(queues, bool) or not 1 <= queues <= MAX_QUEUES:
            raise QuestionError(f"queues: 1 to {MAX_QUEUES} on each broker")
        config = TopicConfig(name, queues, queues, sys_flags.PERM_READ | sys_flags.PERM_WRITE)
        masters = [broker for broker in self._source.picture().snapshot.brokers if broker.is_master]
        for broker in masters:
            asked(partial(self._admin.create_and_update_topic_config, broker.address, config))
        return self._done(f"topic {name} with {queues} queues", brokers=[broker.name for broker in masters])

    def offsets(self, group: str, body: Body) -> Json:
        """Let a group go to a time in a topic: {"topic", "to": ms, "earliest" or "latest"}, whether it runs or not."""
        topic, to = body.get("topic"), body.get("to")
        if not isinstance(topic, str) or not topic:
            raise QuestionError("topic: a name")
        at_ms = _TIMES.get(to) if isinstance(to, str) else to
        if not isinstance(at_ms, int) or isinstance(at_ms, bool) or not _END <= at_ms <= _LAST_MS:
            raise QuestionError('to: a time in ms, "earliest" or "latest"')
        moved = asked(lambda: self._reset(topic, group, at_ms))
        return self._done(f"offsets of {group} in {topic} to {to}", queues=moved)

    def _reset(self, topic: str, group: str, at_ms: int) -> int:
        """How many queues; the brokers tell a group's clients, and for one without clients just set its offsets."""
        now = self._source.picture().snapshot
        if self._source.questions.clients(now, group).clients:
            return len(self._admin.reset_offset_by_timestamp(topic, group, at_ms, True))
        return len(self._admin.reset_offset_by_timestamp_old(group, topic, at_ms, True))

    def write_permission(self, broker: str, body: Body) -> Json:
        """Let nobody send to the brokers of a name, or all again, at each name server: {"allow": true or false}."""
        allow = body.get("allow")
        if not isinstance(allow, bool):
            raise QuestionError("allow: true or false")
        if broker not in {each.name for each in self._source.picture().snapshot.brokers}:
            raise QuestionError(f"no broker {broker!r}", not_there=True)
        change = self._admin.add_write_perm_of_broker if allow else self._admin.wipe_write_perm_of_broker
        topics = [asked(partial(change, address, broker))
                  for address in asked(self._admin.get_name_server_address_list)]
        return self._done(f"write permission of {broker}: {allow}", topics=max(topics, default=0))

    def _done(self, what: str, **more: object) -> Json:
        log.info("console: %s %s", what, more)
        self._source.questions.answers.forget()
        return {"done": what, **more}
