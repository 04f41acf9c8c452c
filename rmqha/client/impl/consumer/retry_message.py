"""A message that is to come again."""
from rmqha.common import mix_all
from rmqha.common.message import message_const
from rmqha.common.message.message import Message
from rmqha.common.message.message_ext import MessageExt


def retry_message(msg: MessageExt, topic: str, group: str, max_reconsume_times: int) -> Message:
    """What is sent to the group's retry topic when the broker can't be asked to do it; `topic` as brokers know it.

    Java: org.apache.rocketmq.client.impl.consumer.DefaultMQPushConsumerImpl#sendMessageBack (4.9.8)
    """
    new_msg = Message(mix_all.get_retry_topic(group), msg.body, flag=msg.flag)
    properties = dict(msg.properties)
    properties.setdefault(message_const.PROPERTY_ORIGIN_MESSAGE_ID, msg.msg_id or "")
    properties[message_const.PROPERTY_RETRY_TOPIC] = topic
    properties[message_const.PROPERTY_RECONSUME_TIME] = str(msg.reconsume_times + 1)
    properties[message_const.PROPERTY_MAX_RECONSUME_TIMES] = str(max_reconsume_times)
    properties.pop(message_const.PROPERTY_TRANSACTION_PREPARED, None)
    new_msg.properties = properties
    new_msg.delay_time_level = 3 + msg.reconsume_times
    return new_msg
