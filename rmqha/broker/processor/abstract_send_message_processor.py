"""What all ways of sending have in common: checks, and how a header is read."""
import random

from rmqha.broker.processor.send.send_admission import SendAdmission
from rmqha.common.protocol import request_code
from rmqha.common.protocol.client_headers import SendMessageRequestHeader, SendMessageRequestHeaderV2
from rmqha.remoting.protocol.remoting_command import RemotingCommand

DLQ_NUMS_PER_GROUP = 1


class AbstractSendMessageProcessor(SendAdmission):
    """Header parsing and checks shared by sends and replies; its checks, msgCheck too, stand in SendAdmission.

    Java: org.apache.rocketmq.broker.processor.AbstractSendMessageProcessor (4.9.8)
    """

    def parse_request_header(self, request: RemotingCommand) -> SendMessageRequestHeader:
        """The header in its long form, whichever form came."""
        if request.code == request_code.SEND_MESSAGE:
            return request.decode_command_custom_header(SendMessageRequestHeader)
        return SendMessageRequestHeaderV2.create_send_message_request_header_v1(
            request.decode_command_custom_header(SendMessageRequestHeaderV2))


def random_queue_id(queue_nums: int) -> int:
    """One of the queues."""
    return random.randrange(99_999_999) % queue_nums
