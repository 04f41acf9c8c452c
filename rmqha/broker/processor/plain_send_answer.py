"""The answers to plain sends: what is the same in all of them is encoded once."""
import operator
import struct
from collections.abc import Callable, Iterable
from typing import NamedTuple

from rmqha.common.broker_config import BrokerConfig
from rmqha.common.message import message_const
from rmqha.remoting.protocol.remoting_command import RemotingCommand

_FRAME_START = struct.Struct(">II")  # length, mark and header length
# Stand in a template for what differs from answer to answer.
_MARKS = ("@msgId@", "@queueId@", "@queueOffset@", "@opaque@")
_OPAQUE = 1234567891  # in the place of the last one, which is a number


class Answered(NamedTuple):
    """What an answer tells about one message."""

    msg_id: str
    queue_id: int
    queue_offset: int
    opaque: str


class _Template(NamedTuple):
    text: str  # for the % operator
    arrange: Callable[[Answered], tuple]  # the values in the order in which they stand in `text`


class SendAnswers:
    """Encodes answers exactly as RemotingCommand does: its encoder makes the templates. Any thread."""

    def __init__(self, broker_config: BrokerConfig) -> None:
        self._config = broker_config
        self._templates: dict[tuple[int, str, bool], _Template] = {}  # single dict operations

    def encode(self, code: int, answered: Iterable[Answered]) -> bytes:
        """The frames of answers with one response code."""
        key = code, self._config.regionId, self._config.traceOn
        text, arrange = self._templates.get(key) or self._make(key)
        parts = []
        for one in answered:
            header = (text % arrange(one)).encode()
            parts += (_FRAME_START.pack(4 + len(header), len(header)), header)
        return b"".join(parts)

    def _make(self, key: tuple[int, str, bool]) -> _Template:
        code, region, trace_on = key
        response = RemotingCommand.create_response_command(code, None)
        response.mark_response_type()
        response.opaque = _OPAQUE
        response.ext_fields = {
            message_const.PROPERTY_MSG_REGION: region,
            message_const.PROPERTY_TRACE_SWITCH: "true" if trace_on else "false",
            "msgId": _MARKS[0], "queueId": _MARKS[1], "queueOffset": _MARKS[2]}
        text = response.encode_header()[_FRAME_START.size:].decode().replace(str(_OPAQUE), _MARKS[3])
        order = sorted(range(len(_MARKS)), key=lambda index: text.index(_MARKS[index]))
        text = text.replace("%", "%%")
        for mark in _MARKS:
            text = text.replace(mark, "%s")
        template = self._templates[key] = _Template(text, operator.itemgetter(*order))
        return template
