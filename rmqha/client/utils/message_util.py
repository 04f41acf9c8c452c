"""Replies to requests.

Java: org.apache.rocketmq.client.utils.MessageUtil (4.9.8)
"""
from rmqha.client.common import client_error_code
from rmqha.client.exception import MQClientException
from rmqha.common import mix_all
from rmqha.common.message import message_const
from rmqha.common.message.message import Message


def create_reply_message(request_message: Message, body: bytes) -> Message:
    """A message that, when sent, goes to whoever sent `request_message`. MQClientException when that is no request."""
    cluster = request_message.get_property(message_const.PROPERTY_CLUSTER)
    if cluster is None:
        raise MQClientException(
            "create reply message fail, requestMessage error, property[" + message_const.PROPERTY_CLUSTER
            + "] is null.", client_error_code.CREATE_REPLY_MESSAGE_EXCEPTION)
    reply = Message()
    reply.topic = mix_all.get_reply_topic(cluster)
    reply.body = body
    reply.put_property(message_const.PROPERTY_MESSAGE_TYPE, mix_all.REPLY_MESSAGE_FLAG)
    for name in (message_const.PROPERTY_CORRELATION_ID, message_const.PROPERTY_MESSAGE_REPLY_TO_CLIENT,
                 message_const.PROPERTY_MESSAGE_TTL):
        value = request_message.get_property(name)
        if value is not None:
            reply.put_property(name, value)
    return reply
