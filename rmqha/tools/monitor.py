"""The monitor of consumer groups: its findings, the listener that receives them, and a listener that logs them.

The service checks all groups once per round.

    MonitorService thread: each minute ask brokers and clients -> MonitorListener
    push consumer's thread: OFFSET_MOVED_EVENT -> MonitorListener
"""
import logging
import random
from collections import defaultdict
from collections.abc import Mapping
from typing import Protocol

from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
from rmqha.client.consumer.listeners import ConsumeConcurrentlyStatus
from rmqha.client.exception import CLIENT_ERRORS
from rmqha.client.results import PullStatus
from rmqha.common import mix_all, topics, util_all
from rmqha.common.java import Version, string_hash_code
from rmqha.common.lazy_dataclasses import dataclass
from rmqha.common.message.message import MessageExt, MessageQueue
from rmqha.common.program import interrupted_later
from rmqha.common.protocol.client_bodies import ConsumerRunningInfo, OffsetMovedEvent
from rmqha.common.protocol.table_bodies import OffsetWrapper
from rmqha.common.threads import ScheduledService
from rmqha.remoting.interfaces import RPCHook
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.fastjson import FastjsonError
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt, get_consumer_running_info

log = logging.getLogger("RocketmqClient")

LOG_PREFIX = "[MONITOR] "
LOG_NOTIFY = LOG_PREFIX + " [NOTIFY] "
_RULE = "=" * 41


@dataclass(slots=True)
class UndoneMsgs:
    """A group's unconsumed messages of a topic: in total, in the queue with the most, and the delay in ms.

    Java: org.apache.rocketmq.tools.monitor.UndoneMsgs (4.9.8)
    """

    consumerGroup: str
    topic: str
    undoneMsgsTotal: int = 0
    undoneMsgsSingleMQ: int = 0
    undoneMsgsDelayTimeMills: int = 0

    def __str__(self) -> str:
        return (f"UndoneMsgs [consumerGroup={self.consumerGroup}, topic={self.topic}, "
                f"undoneMsgsTotal={self.undoneMsgsTotal}, undoneMsgsSingleMQ={self.undoneMsgsSingleMQ}, "
                f"undoneMsgsDelayTimeMills={self.undoneMsgsDelayTimeMills}]")


@dataclass(slots=True)
class DeleteMsgsEvent:
    """An event from a broker, with the time it was stored (ms since the epoch).

    Java: org.apache.rocketmq.tools.monitor.DeleteMsgsEvent (4.9.8)
    """

    offsetMovedEvent: OffsetMovedEvent
    eventTimestamp: int

    def __str__(self) -> str:
        event = self.offsetMovedEvent
        text = (f"OffsetMovedEvent [consumerGroup={event.consumerGroup}, messageQueue={event.messageQueue}, "
                f"offsetRequest={event.offsetRequest}, offsetNew={event.offsetNew}]")
        return f"DeleteMsgsEvent [offsetMovedEvent={text}, eventTimestamp={self.eventTimestamp}]"


class MonitorListener(Protocol):
    """A receiver of findings. Called on the monitor's thread; events of deleted messages on a consumer's thread.

    Java: org.apache.rocketmq.tools.monitor.MonitorListener (4.9.8)
    """

    # Differs: the monitor has no report of failed messages; the original declares one and never calls it
    def begin_round(self) -> None:
        """Take note that a round begins."""

    def report_undone_msgs(self, undone_msgs: UndoneMsgs) -> None:
        """Take a report of how far a group is behind in a topic."""

    def report_delete_msgs_event(self, delete_msgs_event: DeleteMsgsEvent) -> None:
        """Take a report that a group lost messages, deleted before it consumed them."""

    def report_consumer_running_info(self, cri_table: Mapping[str, ConsumerRunningInfo]) -> None:
        """Take the running info of a group's clients, by client id."""

    def end_round(self) -> None:
        """Take note that a round has ended."""


class DefaultMonitorListener(MonitorListener):
    """Writes the reports to the client's log, in the original's words.

    Java: org.apache.rocketmq.tools.monitor.DefaultMonitorListener (4.9.8)
    """

    def begin_round(self) -> None:
        log.info("%s%sbeginRound", LOG_PREFIX, _RULE)

    def report_undone_msgs(self, undone_msgs: UndoneMsgs) -> None:
        log.info("%sreportUndoneMsgs: %s", LOG_PREFIX, undone_msgs)

    def report_delete_msgs_event(self, delete_msgs_event: DeleteMsgsEvent) -> None:
        log.info("%sreportDeleteMsgsEvent: %s", LOG_PREFIX, delete_msgs_event)

    def report_consumer_running_info(self, cri_table: Mapping[str, ConsumerRunningInfo]) -> None:
        group = cri_table[min(cri_table)].properties.get("consumerGroup")
        if not ConsumerRunningInfo.analyze_subscription(cri_table):
            log.info("%sreportConsumerRunningInfo: ConsumerGroup: %s, Subscription different", LOG_NOTIFY, group)
        for client_id in sorted(cri_table):
            trouble = ConsumerRunningInfo.analyze_process_queue(client_id, cri_table[client_id])
            if trouble:
                log.info("%sreportConsumerRunningInfo: ConsumerGroup: %s, ClientId: %s, %s", LOG_NOTIFY, group,
                         client_id, trouble)

    def end_round(self) -> None:
        log.info("%s%sendRound", LOG_PREFIX, _RULE)


FIRST_ROUND_AFTER_MS = 20_000
# older clients have no running info
_V3_1_8_SNAPSHOT = Version["V3_1_8_SNAPSHOT"]


@dataclass(slots=True)
class MonitorConfig:
    """The name servers, and the time between two rounds in ms.

    Java: org.apache.rocketmq.tools.monitor.MonitorConfig (4.9.8)
    """

    namesrvAddr: str | None = None
    roundInterval: int = 60_000


class MonitorService:
    """Reports to a listener how far each group is behind, the state of its clients, and the messages it lost.

    Java: org.apache.rocketmq.tools.monitor.MonitorService (4.9.8)
    """

    def __init__(
        self, monitor_config: MonitorConfig, monitor_listener: MonitorListener, rpc_hook: RPCHook | None = None
    ) -> None:
        self._config = monitor_config
        self._listener = monitor_listener
        addr = monitor_config.namesrvAddr
        self._admin = DefaultMQAdminExt(addr, rpc_hook)
        self._pull_consumer = DefaultMQPullConsumer(mix_all.TOOLS_CONSUMER_GROUP, addr, rpc_hook)
        self._push_consumer = DefaultMQPushConsumer(mix_all.MONITOR_CONSUMER_GROUP, addr, self.take_event, rpc_hook)
        for client in (self._admin.client_config, self._pull_consumer, self._push_consumer):
            client.instance_name = self._instance_name()
        self._push_consumer.consume_thread_min = self._push_consumer.consume_thread_max = 1
        self._push_consumer.subscribe(topics.RMQ_SYS_OFFSET_MOVED_EVENT, "*")
        self._scheduled_service = ScheduledService("MonitorService")

    def _instance_name(self) -> str:
        name = f"{util_all.current_time_millis() + random.randrange(-1 << 31, 1 << 31)}{self._config.namesrvAddr}"
        return f"MonitorService_{string_hash_code(name)}"

    def start(self) -> None:
        """Connect; the first round begins after 20 s. Raise MQClientException when a client can't start."""
        with interrupted_later():
            self._pull_consumer.start()
            self._push_consumer.start()
            self._scheduled_service.schedule_at_fixed_rate(
                self.do_monitor_work, FIRST_ROUND_AFTER_MS, self._config.roundInterval)

    def shutdown(self) -> None:
        """Stop the rounds and disconnect. Idempotent."""
        self._scheduled_service.shutdown()
        self._pull_consumer.shutdown()
        self._push_consumer.shutdown()
        self._admin.shutdown()

    def take_event(self, messages: list[MessageExt]) -> ConsumeConcurrentlyStatus:
        """Report messages that were deleted before a group pulled them."""
        for msg in messages:
            try:
                event = remoting_serializable.from_json(OffsetMovedEvent, msg.body)
            except FastjsonError as error:
                log.warning("message %s of topic %s is not a valid event: %s", msg.msg_id, msg.topic, error)
            else:
                self._listener.report_delete_msgs_event(DeleteMsgsEvent(event, msg.store_timestamp))
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    def do_monitor_work(self) -> None:
        """Run one round."""
        begin_time = util_all.current_time_millis()
        self._listener.begin_round()
        prefix = mix_all.RETRY_GROUP_TOPIC_PREFIX
        for topic in sorted(self._admin.fetch_all_topic_list().topicList):
            if topic.startswith(prefix):
                self._look_at(topic.removeprefix(prefix))
        self._listener.end_round()
        log.info("Execute one round monitor work, spent timemills: %d",
                 util_all.compute_elapsed_time_milliseconds(begin_time))

    def _look_at(self, consumer_group: str) -> None:
        """Report on a group; skip it when it is not online."""
        try:
            self._report_undone_msgs(consumer_group)
            self.report_consumer_running_info(consumer_group)
        except CLIENT_ERRORS as error:
            log.debug("group %s: %s", consumer_group, error)

    def _report_undone_msgs(self, consumer_group: str) -> None:
        stats = self._admin.examine_consume_stats(consumer_group)
        self._admin.examine_consumer_connection_info(consumer_group)
        by_topic: dict[str, dict[MessageQueue, OffsetWrapper]] = defaultdict(dict)
        for queue, place in stats.offsetTable.items():
            by_topic[queue.topic][queue] = place
        for topic in sorted(by_topic):
            self._listener.report_undone_msgs(self._undone_msgs(consumer_group, topic, by_topic[topic]))

    def _undone_msgs(
        self, consumer_group: str, topic: str, places: dict[MessageQueue, OffsetWrapper]
    ) -> UndoneMsgs:
        diffs = [max(0, place.brokerOffset - place.consumerOffset) for place in places.values()]
        delays = [self._delay(queue, place) for queue, place in places.items() if place.lastTimestamp > 0]
        return UndoneMsgs(consumer_group, topic, sum(diffs), max(diffs, default=0), max(delays, default=0))

    def _delay(self, queue: MessageQueue, place: OffsetWrapper) -> int:
        """Return the time between the last consumed and the last stored message, in ms; 0 when unknown."""
        try:
            last = self._pull_consumer.admin.max_offset(queue) - 1
            result = self._pull_consumer.pull(queue, "*", last, 1) if last >= 0 else None
        except CLIENT_ERRORS as error:
            log.debug("last message of %s: %s", queue, error)
            return 0
        if result is None or result.pull_status is not PullStatus.FOUND:
            return 0
        return max(0, result.msg_found_list[0].store_timestamp - place.lastTimestamp)

    def report_consumer_running_info(self, consumer_group: str) -> None:
        """Ask a group's clients for their running info, and report it."""
        infos: dict[str, ConsumerRunningInfo] = {}
        for connection in self._admin.examine_consumer_connection_info(consumer_group).connectionSet:
            if connection.version < _V3_1_8_SNAPSHOT:
                continue
            try:
                infos[connection.clientId] = get_consumer_running_info(
                    self._admin, consumer_group, connection.clientId, False)
            except CLIENT_ERRORS as error:
                log.debug("client %s of group %s: %s", connection.clientId, consumer_group, error)
        if infos:
            self._listener.report_consumer_running_info(infos)
