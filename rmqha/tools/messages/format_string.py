"""Format strings of `-f`, as kcat's: %s is a message's body, \\n the end of a line."""
import re
from collections.abc import Callable

from rmqha.common.message.message import MessageExt
from rmqha.tools.dialect.exit_codes import CannotAnswerError
from rmqha.tools.messages.message_json import user_properties
from rmqha.tools.store.output import time_text

Field = Callable[[MessageExt], bytes | str]

# letter -> what it is, and how to get it
FIELDS: dict[str, tuple[str, Field]] = {
    "t": ("topic", lambda message: message.topic),
    "b": ("broker's name", lambda message: message.broker_name or ""),
    "p": ("queue id", lambda message: str(message.queue_id)),
    "o": ("offset in the queue", lambda message: str(message.queue_offset)),
    "k": ("keys, separated by blanks", lambda message: message.keys or ""),
    "K": ("bytes of the keys", lambda message: str(len((message.keys or "").encode()))),
    "g": ("tag", lambda message: message.tags or ""),
    "s": ("body, as it is", lambda message: bytes(message.body)),
    "S": ("bytes of the body", lambda message: str(len(message.body))),
    "h": ("the producer's properties, `name=value`, separated by commas",
          lambda message: _pairs(user_properties(message))),
    "H": ("all properties, the system's too", lambda message: _pairs(message.properties)),
    "T": ("when it was stored, in ms", lambda message: str(message.store_timestamp)),
    "D": ("when it was stored, in local time", lambda message: time_text(message.store_timestamp)),
    "B": ("when it was sent, in ms", lambda message: str(message.born_timestamp)),
    "i": ("message id, of its producer", lambda message: message.msg_id or ""),
    "I": ("message id, of its broker: address and place in the log",
          lambda message: getattr(message, "offset_msg_id", None) or ""),
    "%": ("a percent sign", lambda message: "%"),
}
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_TOKEN = re.compile(r"%(?P<field>.?)|\\x(?P<hex>[0-9a-fA-F]{2})|\\(?P<escape>.?)|(?P<text>[^%\\]+)", re.DOTALL)


def _pairs(properties: dict[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in properties.items())


def compiled(text: str) -> Callable[[MessageExt], bytes]:
    """What makes the bytes of a message; CannotAnswerError for a letter or an escape that is not known."""
    parts = [_part(text, match) for match in _TOKEN.finditer(text)]

    def render(message: MessageExt) -> bytes:
        return b"".join(part if isinstance(part, bytes) else _bytes(part(message)) for part in parts)
    return render


def _bytes(value: bytes | str) -> bytes:
    return value.encode("utf-8", "replace") if isinstance(value, str) else value


def _part(text: str, match: re.Match[str]) -> bytes | Field:
    if match["text"] is not None:
        return match["text"].encode()
    if match["hex"] is not None:
        return bytes.fromhex(match["hex"])
    if match["escape"] is not None:
        if match["escape"] not in _ESCAPES:
            raise CannotAnswerError(f"-f {text!r}: \\{match['escape']} is not known; known are "
                                    + ", ".join(f"\\{letter}" for letter in _ESCAPES) + " and \\xFF")
        return _ESCAPES[match["escape"]]
    if match["field"] not in FIELDS:
        raise CannotAnswerError(f"-f {text!r}: %{match['field']} is not known; known are "
                                + ", ".join(f"%{letter}" for letter in FIELDS))
    return FIELDS[match["field"]][1]
