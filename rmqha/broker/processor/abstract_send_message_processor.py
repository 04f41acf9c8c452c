"""What all ways of sending have in common: checks, and how a header is read."""
import random

from rmqha.broker.processor.send.send_admission import SendAdmission
from rmqha.common.protocol import request_code
from rmqha.common.protocol.header.send_headers import SendMessageRequestHeader, SendMessageRequestHeaderV2
from rmqha.remoting.protocol.remoting_command import RemotingCommand

DLQ_NUMS_PER_GROUP = 1


# Texts of the numbers that fields mostly hold: looking one up is cheaper than to check and convert it.
_NUMBERS = {str(number): number for number in range(1024)}
_MILLIS_LENGTH = 13  # digits of the time in ms, from 2001 to 2286
_PLAIN_BOOLEANS = frozenset((None, "true", "false"))


class AbstractSendMessageProcessor(SendAdmission):
    """Header parsing and checks shared by sends and replies; its checks, msgCheck too, stand in SendAdmission.

    Java: org.apache.rocketmq.broker.processor.AbstractSendMessageProcessor (4.9.8)
    """

    def parse_request_header(self, request: RemotingCommand) -> SendMessageRequestHeader:
        """The header in its long form, whichever form came."""
        if request.code == request_code.SEND_MESSAGE:
            return request.decode_command_custom_header(SendMessageRequestHeader)
        header = _parse_plain_v2(request.ext_fields or {})
        if header is not None:
            return header
        return SendMessageRequestHeaderV2.create_send_message_request_header_v1(
            request.decode_command_custom_header(SendMessageRequestHeaderV2))


def _parse_plain_v2(fields: dict[str, str]) -> SendMessageRequestHeader | None:
    """The header of a V2 request as clients send them; None for whatever is unusual: the header's plan decides then."""
    get = fields.get
    try:
        born, reconsumed, most, unit, batch = fields["g"], get("j"), get("l"), get("k"), get("m")
        if len(born) != _MILLIS_LENGTH or not (born.isascii() and born.isdigit()):
            return None
        header = SendMessageRequestHeader(
            fields["a"], fields["b"], fields["c"], _NUMBERS[fields["d"]], _NUMBERS[fields["e"]], _NUMBERS[fields["f"]],
            int(born), _NUMBERS[fields["h"]], get("i"), None if reconsumed is None else _NUMBERS[reconsumed],
            unit == "true", batch == "true", None if most is None else _NUMBERS[most], bname=get("n"))
    except KeyError:
        return None
    return header if unit in _PLAIN_BOOLEANS and batch in _PLAIN_BOOLEANS else None


def random_queue_id(queue_nums: int) -> int:
    """One of the queues."""
    return random.randrange(99_999_999) % queue_nums
