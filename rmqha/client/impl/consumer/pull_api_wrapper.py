"""Pulling: which broker to ask, and what to make of its answer."""
import logging
from typing import TYPE_CHECKING, overload

from rmqha.client.common.cause_log import CauseLog
from rmqha.client.consumer.pull_result import PullCallback, PullResult, PullResultExt, PullStatus
from rmqha.client.exception import MQClientException
from rmqha.client.hook.filter_message_hook import FilterMessageContext, FilterMessageHook
from rmqha.client.impl.find_broker_result import FindBrokerResult
from rmqha.common import java, mix_all, subscriptions, sys_flags
from rmqha.common.compression import MOST_IN_ALL, BodyBudget
from rmqha.common.message import message_const, message_decoder
from rmqha.common.message import message_decoder as message_client_id_setter
from rmqha.common.message.message import MessageExt, MessageQueue
from rmqha.common.protocol.client_headers import PullMessageRequestHeader
from rmqha.common.subscriptions import SubscriptionData

if TYPE_CHECKING:
    from rmqha.client.impl.factory.mq_client_instance import MQClientInstance

log = logging.getLogger("RocketmqClient")

FIRST_VERSION_WITH_EXPRESSIONS = java.Version["V4_1_0_SNAPSHOT"]


class PullAPIWrapper:
    """Follows the broker's advice on whom to ask next, and filters tags exactly: brokers compare hash codes only.

    Java: org.apache.rocketmq.client.impl.consumer.PullAPIWrapper (4.9.8)
    """

    def __init__(self, mq_client_factory: "MQClientInstance", consumer_group: str, unit_mode: bool) -> None:
        self._mq_client_factory = mq_client_factory
        self._consumer_group = consumer_group
        self.unit_mode = unit_mode
        self._pull_from_which_node_table: dict[MessageQueue, int] = {}  # queue -> broker id; single assignments
        self.connect_broker_by_user = False  # always ask default_broker_id
        self.default_broker_id = mix_all.MASTER_ID
        self.filter_message_hook_list: list[FilterMessageHook] = []  # set before the first pull
        self.keep_bad_bodies = False  # a MissingBody in place of one that does not decompress, instead of an error
        self.causes = CauseLog(log)  # what the hooks did wrong

    def process_pull_result(
        self, mq: MessageQueue, pull_result: PullResult, subscription_data: SubscriptionData
    ) -> PullResult:
        """Decode what was found, leave out other tags, and remember the broker's advice."""
        if not isinstance(pull_result, PullResultExt):
            return pull_result
        self.update_pull_from_which_node(mq, pull_result.suggest_which_broker_id)
        if pull_result.pull_status is PullStatus.FOUND and pull_result.message_binary is not None:
            found = self._decoded(mq, pull_result, pull_result.message_binary)
            wanted = subscription_data.tagsSet
            if wanted and not subscription_data.classFilterMode:
                found = [msg for msg in found if msg.tags in wanted]
            self._execute_hook(mq, found)
            self._complete(mq, pull_result, found)
            pull_result.msg_found_list = found
        pull_result.message_binary = None
        return pull_result

    def _decoded(self, mq: MessageQueue, pull_result: PullResultExt, binary: bytes | memoryview) -> list[MessageExt]:
        """The messages that the bodies have room for; the next pull begins at the first that has none.

        BodyTooLargeError when not even the first has, unless bad bodies are kept.
        """
        # Differs: Java decompresses all, whatever they grow to
        keep_bad = self.keep_bad_bodies
        found, left_out = message_decoder.decode_fitting(binary, BodyBudget(most_each=MOST_IN_ALL), keep_bad)
        if left_out is None:
            return found
        at, first = left_out.queue_offset, found[0].queue_offset if found else left_out.queue_offset
        # a message that was put into further queues has the offset of its own one, which says nothing here
        if left_out.topic == mq.topic and first <= at < pull_result.next_begin_offset and (found or keep_bad):
            pull_result.next_begin_offset = at if found else at + 1
            return found or [left_out]
        return message_decoder.decodes(binary, keep_bad=keep_bad)  # an error, unless bad ones are kept

    def _execute_hook(self, mq: MessageQueue, msgs: list[MessageExt]) -> None:
        if not self.filter_message_hook_list:
            return
        context = FilterMessageContext(self._consumer_group, msgs, mq, self.unit_mode)
        for hook in self.filter_message_hook_list:
            try:
                hook.filter_message(context)
            except BaseException as error:  # the user's code
                self.causes.raised(error, "execute hook error. hookName=%s", hook.hook_name())

    @staticmethod
    def _complete(mq: MessageQueue, pull_result: PullResult, msgs: list[MessageExt]) -> None:
        min_offset, max_offset = str(pull_result.min_offset), str(pull_result.max_offset)
        for msg in msgs:
            properties = msg.properties
            if properties.get(message_const.PROPERTY_TRANSACTION_PREPARED, "").lower() == "true":
                msg.transaction_id = message_client_id_setter.get_uniq_id(msg)
            properties[message_const.PROPERTY_MIN_OFFSET] = min_offset
            properties[message_const.PROPERTY_MAX_OFFSET] = max_offset
            msg.broker_name = mq.brokerName

    def update_pull_from_which_node(self, mq: MessageQueue, broker_id: int) -> None:
        """Ask this broker for the queue next time."""
        self._pull_from_which_node_table[mq] = broker_id

    @overload
    def pull_kernel_impl(
        self, mq: MessageQueue, sub_expression: str | None, expression: str | None, sub_version: int, offset: int,
        max_nums: int, sys_flag: int, commit_offset: int, broker_suspend_max_time_millis: int, timeout_millis: float,
        pull_callback: None = None,
    ) -> PullResultExt: ...

    @overload
    def pull_kernel_impl(
        self, mq: MessageQueue, sub_expression: str | None, expression: str | None, sub_version: int, offset: int,
        max_nums: int, sys_flag: int, commit_offset: int, broker_suspend_max_time_millis: int, timeout_millis: float,
        pull_callback: PullCallback,
    ) -> None: ...

    def pull_kernel_impl(
        self,
        mq: MessageQueue,
        sub_expression: str | None,
        expression: str | None,
        sub_version: int,
        offset: int,
        max_nums: int,
        sys_flag: int,
        commit_offset: int,
        broker_suspend_max_time_millis: int,
        timeout_millis: float,
        pull_callback: PullCallback | None = None,
    ) -> PullResultExt | None:
        """Pull; without a callback wait for the (undecoded) result."""
        broker = self._find_broker(mq)
        if not subscriptions.is_tag_type(expression) and broker.broker_version < FIRST_VERSION_WITH_EXPRESSIONS:
            raise MQClientException(f"The broker[{mq.brokerName}, {broker.broker_version}] does not upgrade to support "
                                    f"for filter message by {expression}")
        if broker.slave:
            sys_flag = sys_flags.clear_commit_offset_flag(sys_flag)
        header = PullMessageRequestHeader(
            consumerGroup=self._consumer_group,
            topic=mq.topic,
            queueId=mq.queueId,
            queueOffset=offset,
            maxMsgNums=max_nums,
            sysFlag=sys_flag,
            commitOffset=commit_offset,
            suspendTimeoutMillis=broker_suspend_max_time_millis,
            subscription=sub_expression,
            subVersion=sub_version,
            expressionType=expression,
            bname=mq.brokerName,
        )
        api = self._mq_client_factory.mq_client_api_impl
        if pull_callback is None:
            return api.pull_message(broker.broker_addr, header, timeout_millis)
        api.pull_message_async(broker.broker_addr, header, timeout_millis, pull_callback)
        return None

    def _find_broker(self, mq: MessageQueue) -> FindBrokerResult:
        find = self._mq_client_factory.find_broker_address_in_subscribe
        broker = find(mq.brokerName, self.recalculate_pull_from_which_node(mq), only_this_broker=False)
        if broker is None:
            self._mq_client_factory.update_topic_route_info_from_name_server(mq.topic)
            broker = find(mq.brokerName, self.recalculate_pull_from_which_node(mq), only_this_broker=False)
        if broker is None:
            raise MQClientException(f"The broker[{mq.brokerName}] not exist")
        return broker

    def recalculate_pull_from_which_node(self, mq: MessageQueue) -> int:
        """The id of the broker to ask for a queue: the last answer's advice, the master at first."""
        if self.connect_broker_by_user:
            return self.default_broker_id
        return self._pull_from_which_node_table.get(mq, mix_all.MASTER_ID)
