"""Pulls: messages are sent to consumers.

    IO thread: checks -> store.get_message -> response over slices of the map; nothing new -> held
    woken pulls run again through `execute_request_when_wakeup`, once, and are answered whatever they find
    a group that has to be created first: PullMessageThread_<n>

Offsets that are ahead. A send is acknowledged when its record is safe in the log. Its queue entry is written a moment
later, by the dispatch. So a client that continues at the offset that follows from its send can name an offset that is
beyond the end of the queue, although the message before it was acknowledged. The original answers PULL_OFFSET_MOVED
with the current end of the queue; the consumer then goes back and consumes messages again, and its users see an offset
that was valid being refused. Here, such a pull waits once until the appended records are dispatched, and is then judged
by the new end of the queue. It waits only once, so an offset that is really invalid is still corrected. If there is
nothing to wait for, but the queue has grown since it was read, the pull runs again at once: the dispatch happened in
between. The same holds for a pull at the end of the queue that does not ask to be held: without the wait it could miss
a message that was acknowledged before the pull was sent.
"""
import functools
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmqha.broker.client.client_channels import now_ms
from rmqha.broker.expression_message_filter import ExpressionMessageFilter
from rmqha.broker.pull_request_hold_service import PullRequest
from rmqha.common import mix_all, sys_flags, topics, util_all
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.message import message_decoder, message_layout
from rmqha.common.message.message import MessageQueue
from rmqha.common.protocol import response_code
from rmqha.common.protocol.client_bodies import OffsetMovedEvent
from rmqha.common.protocol.client_headers import PullMessageRequestHeader, PullMessageResponseHeader
from rmqha.common.sys_flags import TopicFilterType
from rmqha.common.topics import SubscriptionGroupConfig
from rmqha.remoting.addresses import parse_channel_remote_addr
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.store.append import MessageExtBrokerInner
from rmqha.store.results import GetMessageResult, GetMessageStatus

if TYPE_CHECKING:
    from rmqha.broker.broker_addresses import BrokerAddresses
    from rmqha.broker.consumer_offset_manager import ConsumerOffsetManager
    from rmqha.broker.processor.pull_admission import PullAdmission
    from rmqha.broker.pull_request_hold_service import PullRequestHoldService
    from rmqha.remoting.channel import Channel
    from rmqha.remoting.interfaces import Answer
    from rmqha.store.broker_stats_manager import BrokerStatsManager
    from rmqha.store.default_message_store import DefaultMessageStore

log = logging.getLogger("RocketmqBroker")

_CODES = {
    GetMessageStatus.FOUND: response_code.SUCCESS,
    GetMessageStatus.MESSAGE_WAS_REMOVING: response_code.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.NO_MATCHED_MESSAGE: response_code.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.OFFSET_FOUND_NULL: response_code.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: response_code.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: response_code.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_TOO_SMALL: response_code.PULL_OFFSET_MOVED,
}


class PullMessageProcessor:
    """Processor of PULL_MESSAGE.

    Java: org.apache.rocketmq.broker.processor.PullMessageProcessor (4.9.8)
    """

    def __init__(self, broker_config: BrokerConfig, store: "DefaultMessageStore", stats: "BrokerStatsManager",
                 addresses: "BrokerAddresses", admission: "PullAdmission", hold_service: "PullRequestHoldService",
                 offsets: "ConsumerOffsetManager", is_stale: Callable[[str, int, int], bool]) -> None:
        self._config, self._store_config, self._role = broker_config, store.message_store_config, store.role
        self._store, self._stats = store, stats
        self._addresses = addresses
        self._admission = admission
        self._hold_service = hold_service
        self._offsets = offsets
        # Returns whether an offset belongs to a deleted topic.
        self._is_stale = is_stale

    def process_request(self, channel: "Channel", request: RemotingCommand) -> "Answer":
        """Serve a pull; None when it is held."""
        header = request.decode_command_custom_header(PullMessageRequestHeader)
        # Kept so that a woken pull is not decoded again.
        request.custom_header = header
        groups, group = self._admission.groups, header.consumerGroup
        if group not in groups.subscription_group_table and groups.is_auto_created(group):
            return self._admission.hand_over(lambda: self._process(channel, request, header, True))
        return self._process(channel, request, header, True)

    def reject_request(self) -> bool:
        """Return False: pulls are never rejected."""
        return False

    def execute_request_when_wakeup(self, channel: "Channel", request: RemotingCommand,
                                    waited_for_dispatch: bool = False) -> None:
        """Serve a pull that was held, on the thread that woke it.

        It is answered in any case, unless it only waited for the dispatch: then it may be held for a message.
        """
        header: PullMessageRequestHeader
        header = request.custom_header  # type: ignore[assignment]  # process_request has put it there
        try:
            response = self._process(channel, request, header, waited_for_dispatch, waited_for_dispatch)
            if response is not None:
                response.opaque = request.opaque
                response.serialize_type = request.serialize_type
                channel.write(response)
        except Exception:
            log.exception("excuteRequestWhenWakeup run")

    def _process(self, channel: "Channel", request: RemotingCommand, header: PullMessageRequestHeader,
                 broker_allow_suspend: bool, waited_for_dispatch: bool = False) -> RemotingCommand | None:
        begin_ms = now_ms()
        admission, store = self._admission, self._store
        response: RemotingCommand | None
        response = RemotingCommand.create_response_command(response_code.SYSTEM_ERROR, None)
        group_config = admission.check_group(header, response)
        if group_config is None or not admission.check_topic(channel, header, response):
            return response
        message_filter = admission.message_filter(channel, header, group_config, response)
        if message_filter is None:
            return response
        result = store.get_message(header.consumerGroup, header.topic, header.queueId, header.queueOffset,
                                   header.maxMsgNums, message_filter)
        if result is None:
            response.code = response_code.SYSTEM_ERROR
            response.remark = "store getMessage return null"
        else:
            response_header = self._fill(channel, header, group_config, result, response)
            if response.code == response_code.SUCCESS:
                self._transfer(header, result, response, begin_ms)
            elif response.code == response_code.PULL_NOT_FOUND:
                is_patient = sys_flags.has_suspend_flag(header.sysFlag)
                if is_patient and self._hold_service.is_ending:
                    # Differs: a broker that is shutting down answers the pulls that it holds, with an error after which
                    # clients wait before they pull again; in the original they get no answer, and time out after 30 s
                    response.code, response.remark = response_code.SERVICE_NOT_AVAILABLE, "the broker is shutting down"
                elif broker_allow_suspend and is_patient:
                    if self._suspend(channel, request, header, message_filter):
                        response = None
                # Differs: a pull that finds nothing waits until acknowledged messages are dispatched, even if it is not
                # to be held; the original answers at once, and may miss them
                elif broker_allow_suspend and store.call_when_dispatched(
                        functools.partial(self.execute_request_when_wakeup, channel, request)):
                    response = None
                elif broker_allow_suspend and self._has_grown(header, result):
                    response = self._process(channel, request, header, False)
            elif response.code == response_code.PULL_OFFSET_MOVED:
                # Differs: a pull beyond the end of the queue waits once for the dispatch of acknowledged messages, so
                # an offset that follows from the response to a send is not moved back
                waits = broker_allow_suspend and not waited_for_dispatch and header.queueOffset > result.max_offset
                if waits and store.call_when_dispatched(
                        functools.partial(self.execute_request_when_wakeup, channel, request, True)):
                    response = None
                elif waits and self._has_grown(header, result):
                    response = self._process(channel, request, header, True, waited_for_dispatch=True)
                else:
                    self._offset_moved(header, group_config, result, response, response_header)
        if broker_allow_suspend and sys_flags.has_commit_offset_flag(header.sysFlag):
            self._commit_offset(channel, header)
        return response

    def _has_grown(self, header: PullMessageRequestHeader, result: GetMessageResult) -> bool:
        """Return whether messages have been added to the queue since it was read."""
        return self._store.get_max_offset_in_queue(header.topic, header.queueId) > result.max_offset

    def _fill(self, channel: "Channel", header: PullMessageRequestHeader, group_config: SubscriptionGroupConfig,
              result: GetMessageResult, response: RemotingCommand) -> PullMessageResponseHeader:
        status = result.status
        suggest = mix_all.MASTER_ID
        if self._config.slaveReadEnable:
            suggest = (group_config.whichBrokerWhenConsumeSlowly if result.suggest_pulling_from_slave
                       else group_config.brokerId)
        response.remark = status.name
        response_header = PullMessageResponseHeader(suggest, result.next_begin_offset, result.min_offset,
                                                    result.max_offset)
        response.custom_header = response_header
        code = _CODES.get(status)
        if code is None:  # NO_MATCHED_LOGIC_QUEUE, NO_MESSAGE_IN_QUEUE
            code = response_code.PULL_OFFSET_MOVED if header.queueOffset else response_code.PULL_NOT_FOUND
        response.code = code
        if code == response_code.PULL_OFFSET_MOVED:
            log.info("the request offset is moved (%s). group=%s, topic=%s, queueId=%d, requestOffset=%d, "
                     "nextOffset=%d, brokerMinOffset=%d, brokerMaxOffset=%d, client=%s", status.name,
                     header.consumerGroup, header.topic, header.queueId, header.queueOffset,
                     result.next_begin_offset, result.min_offset, result.max_offset,
                     parse_channel_remote_addr(channel))
        return response_header

    def _transfer(self, header: PullMessageRequestHeader, result: GetMessageResult, response: RemotingCommand,
                  begin_ms: int) -> None:
        # Differs: the body of a pull's response is never copied, whatever the value of transferMsgByHeap; the times are
        # recorded in both cases
        stats = self._stats
        group, topic, queue_id = header.consumerGroup, header.topic, header.queueId
        stats.inc_group_get_nums(group, topic, result.message_count)
        stats.inc_group_get_size(group, topic, result.buffer_total_size)
        stats.inc_broker_get_nums(result.message_count)
        stored = _store_timestamp(result.message_buffer_list[-1])
        stats.record_disk_fall_behind_time(group, topic, queue_id, util_all.current_time_millis() - stored)
        stats.inc_group_get_latency(group, topic, queue_id, now_ms() - begin_ms)
        response.set_file_region(result.message_buffer_list, result.release)

    def _suspend(self, channel: "Channel", request: RemotingCommand, header: PullMessageRequestHeader,
                 message_filter: ExpressionMessageFilter) -> bool:
        """Hold a pull; return False when its connection has too many held pulls, so that it is answered at once."""
        polling_ms = self._hold_service.polling_ms(header.suspendTimeoutMillis)
        pull_request = PullRequest(request, channel, polling_ms, now_ms(), header.queueOffset,
                                   message_filter.subscription_data, message_filter)
        return self._hold_service.suspend_pull_request(header.topic, header.queueId, pull_request)

    def _offset_moved(self, header: PullMessageRequestHeader, group_config: SubscriptionGroupConfig,
                      result: GetMessageResult, response: RemotingCommand,
                      response_header: PullMessageResponseHeader) -> None:
        if self._role.is_slave and not self._store_config.offsetCheckInSlave:
            response_header.suggestWhichBrokerId = group_config.brokerId
            response.code = response_code.PULL_RETRY_IMMEDIATELY
            log.warning("PULL_OFFSET_MOVED:none correction. topic=%s, groupId=%s, requestOffset=%d, "
                        "suggestBrokerId=%d", header.topic, header.consumerGroup, header.queueOffset,
                        group_config.brokerId)
            return
        queue = MessageQueue(header.topic, self._config.brokerName, header.queueId)
        self._generate_offset_moved_event(OffsetMovedEvent(
            consumerGroup=header.consumerGroup, messageQueue=queue, offsetRequest=header.queueOffset,
            offsetNew=result.next_begin_offset))
        log.warning("PULL_OFFSET_MOVED:correction offset. topic=%s, groupId=%s, requestOffset=%d, newOffset=%d, "
                    "suggestBrokerId=%s", header.topic, header.consumerGroup, header.queueOffset,
                    result.next_begin_offset, response_header.suggestWhichBrokerId)
        if _may_continue(header, result):
            response.code = response_code.PULL_RETRY_IMMEDIATELY

    def _generate_offset_moved_event(self, event: OffsetMovedEvent) -> None:
        message = MessageExtBrokerInner()
        message.topic = topics.RMQ_SYS_OFFSET_MOVED_EVENT
        message.tags = event.consumerGroup
        message.delay_time_level = 0
        message.keys = event.consumerGroup
        message.body = remoting_serializable.encode(event)
        message.properties_string = message_decoder.message_properties2string(message.properties)
        message.tags_code = MessageExtBrokerInner.tags_string2tags_code(TopicFilterType.SINGLE_TAG, message.tags)
        message.born_timestamp = util_all.current_time_millis()
        message.born_host = message.store_host = self._addresses.store_host
        # Differs: the response to a pull does not wait until the event about its moved offset is stored
        self._store.async_put_message(message)

    def _commit_offset(self, channel: "Channel", header: PullMessageRequestHeader) -> None:
        if not self._role.is_slave \
                and not self._is_stale(header.topic, header.queueId, header.commitOffset):
            self._offsets.commit_offset(
                parse_channel_remote_addr(channel), header.consumerGroup, header.topic, header.queueId,
                header.commitOffset)


def _may_continue(header: PullMessageRequestHeader, result: GetMessageResult) -> bool:
    """Return whether a pull for deleted messages may simply continue at the next offset: a long-polling one may.

    Differs: a long-polling pull for deleted messages continues at the next offset. The original answers
    PULL_OFFSET_MOVED; its push consumers then drop the queue, and take it again after 10 s and a rebalance. If the
    beginning of a topic is deleted, a new group gets its first message after 20 to 33 s. A pull that does not ask to be
    held is answered as in the original: its user may need to know that messages are deleted.
    """
    return (result.status is GetMessageStatus.OFFSET_TOO_SMALL and sys_flags.has_suspend_flag(header.sysFlag)
            and 0 <= header.queueOffset < result.next_begin_offset)


def _store_timestamp(record: memoryview) -> int:
    sys_flag = message_layout.INT.unpack_from(record, message_layout.SYSFLAG_POSITION)[0]
    stored: int = message_layout.LONG.unpack_from(record, message_layout.store_timestamp_position(sys_flag))[0]
    return stored
