"""Half messages that were asked about too often get a topic of their own."""
import logging

from rmqha.broker.transaction.abstract_transactional_message_check_listener import (
    TCMT_QUEUE_NUMS,
    AbstractTransactionalMessageCheckListener,
)
from rmqha.broker.transaction.queue.transactional_message_bridge import TransactionalMessageBridge
from rmqha.common import sys_flags
from rmqha.common.message import message_const
from rmqha.common.message.message import MessageExt
from rmqha.store.append import MessageExtBrokerInner
from rmqha.store.results import PutMessageStatus

log = logging.getLogger("RocketmqTransaction")


class DefaultTransactionalMessageCheckListener(AbstractTransactionalMessageCheckListener):
    """Puts them into TRANS_CHECK_MAX_TIME_TOPIC.

    Java: org.apache.rocketmq.broker.transaction.queue.DefaultTransactionalMessageCheckListener (4.9.8)
    """

    def resolve_discard_msg(self, message: MessageExt) -> None:
        """Store a copy in that topic."""
        log.error("MsgExt:%s has been checked too many times, so discard it by moving it to system topic "
                  "TRANS_CHECK_MAXTIME_TOPIC", message)
        inner = self._to_message_ext_broker_inner(message)
        result = self.broker_controller.message_store.put_message(inner) if inner is not None else None
        if result is not None and result.put_message_status is PutMessageStatus.PUT_OK:
            log.info("Put checked-too-many-time half message to TRANS_CHECK_MAXTIME_TOPIC OK. Restored in "
                     "queueOffset=%d, commitLogOffset=%d, real topic=%s", message.queue_offset,
                     message.commit_log_offset, message.get_user_property(message_const.PROPERTY_REAL_TOPIC))
        else:
            log.error("Put checked-too-many-time half message to TRANS_CHECK_MAXTIME_TOPIC failed, real topic=%s, "
                      "msgId=%s", message.topic, message.msg_id)

    def _to_message_ext_broker_inner(self, message: MessageExt) -> MessageExtBrokerInner | None:
        """None when the topic can't be made: as in Java, the message is given up, and the check goes on."""
        topic = self.broker_controller.topic_config_manager.create_topic_of_tran_check_max_time(
            TCMT_QUEUE_NUMS, sys_flags.PERM_READ | sys_flags.PERM_WRITE)
        if topic is None:
            return None
        inner = TransactionalMessageBridge.renew_half_message_inner(message)
        inner.topic = topic.topicName
        inner.queue_id = 0
        inner.reconsume_times = message.reconsume_times
        return inner
