"""A message as a JSON object: what `consume -o json` and `export` write, and `produce -f json` and `import` read."""
import base64
import contextlib
from dataclasses import dataclass
from typing import Any

from rmqha.common.compression import MissingBody
from rmqha.common.message import message_const as names
from rmqha.common.message.message import Message, MessageExt
from rmqha.tools.dialect.output import iso_time
from rmqha.tools.messages.json_lines import LONGEST_TEXT, number, shown, typed

_AFTER_NAME, _AFTER_VALUE = "\x01", "\x02"  # on the wire
_LEAST_INT, _MOST_INT = -(1 << 31), (1 << 31) - 1
# Where and when a message was: read over by who sends it again.
_OF_THE_STORE = frozenset({
    "topic", "offset", "msgId", "offsetMsgId", "size", "bornTimestamp", "bornTime", "bornHost", "storeTimestamp",
    "storeTime", "storeHost", "reconsumeTimes", "system"})
_KNOWN = frozenset({"body", "bodyBase64", "keys", "tags", "properties", "delay", "flag", "queue", "broker"})
_SYSTEM = names.STRING_HASH_SET | {names.PROPERTY_TRANSACTION_CHECK_TIMES, names.PROPERTY_INNER_MULTI_DISPATCH}


@dataclass(frozen=True)
class Outgoing:
    """A message and where it goes: None for any queue, or for any broker that has the queue."""

    message: Message
    queue: int | None = None
    broker: str | None = None


def user_properties(message: Message) -> dict[str, str]:
    """What its producer gave it, without keys and tags."""
    return {name: value for name, value in message.properties.items() if name not in _SYSTEM}


def system_properties(message: Message) -> dict[str, str]:
    """What RocketMQ itself keeps there, without keys and tags."""
    return {name: value for name, value in message.properties.items()
            if name in _SYSTEM and name not in (names.PROPERTY_KEYS, names.PROPERTY_TAGS)}


def as_object(message: MessageExt) -> dict[str, Any]:
    """All of a stored message. Times stand as ms and as ISO 8601; a body that is no UTF-8, or long, as base64;
    `bodyError` says why there is none."""
    return {
        "topic": message.topic, "broker": message.broker_name, "queue": message.queue_id,
        "offset": message.queue_offset, "keys": message.keys, "tags": message.tags,
        "properties": user_properties(message), **_body_fields_of(message), "flag": message.flag,
        "size": message.store_size, "msgId": message.msg_id, "offsetMsgId": getattr(message, "offset_msg_id", None),
        "bornTimestamp": message.born_timestamp, "bornTime": iso_time(message.born_timestamp),
        "bornHost": _host(message.born_host), "storeTimestamp": message.store_timestamp,
        "storeTime": iso_time(message.store_timestamp), "storeHost": _host(message.store_host),
        "reconsumeTimes": message.reconsume_times, "system": system_properties(message)}


def _body_fields_of(message: MessageExt) -> dict[str, str]:
    body = message.body
    return {"bodyError": body.reason} if isinstance(body, MissingBody) else body_fields(bytes(body))


def body_fields(body: bytes) -> dict[str, str]:
    """`body`, or `bodyBase64` for what is no UTF-8 or has more than LONGEST_TEXT bytes."""
    if len(body) <= LONGEST_TEXT:
        with contextlib.suppress(UnicodeDecodeError):
            return {"body": body.decode()}
    return {"bodyBase64": base64.b64encode(body).decode()}


def body_of(fields: dict[str, Any]) -> bytes:
    """The bytes of `body` or `bodyBase64`; ValueError unless there is one of them."""
    if ("body" in fields) == ("bodyBase64" in fields):
        raise ValueError("give `body`, or `bodyBase64` for bytes")
    if "body" in fields:
        body: str = typed(fields, "body", str) or ""
        return body.encode("utf-8", "surrogatepass")
    text = typed(fields, "bodyBase64", str) or ""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:  # binascii.Error, and for characters beyond ASCII ValueError itself
        raise ValueError(f"bodyBase64: {error}") from None


def outgoing(fields: Any, topic: str) -> Outgoing:
    """The message of a JSON object. ValueError that says what is wrong with which field."""
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")
    unknown = sorted(fields.keys() - _KNOWN - _OF_THE_STORE)
    if unknown:
        raise ValueError(f"unknown field {shown(unknown[0])}; known are {', '.join(sorted(_KNOWN))}")
    message = Message(topic, body_of(fields), flag=flag_of(fields))
    keys, tags = fields.get("keys"), typed(fields, "tags", str)
    if isinstance(keys, list) and not all(isinstance(key, str) for key in keys):
        raise ValueError("keys: texts are wanted")
    if not isinstance(keys, (str, list, type(None))):
        raise ValueError(f"keys: a text or a list of texts is wanted, not {shown(keys)}")
    decorate(message, keys, tags, typed(fields, "properties", dict) or {}, typed(fields, "delay", int))
    return Outgoing(message, number(fields, "queue", 0, _MOST_INT), typed(fields, "broker", str))


def flag_of(fields: dict[str, Any]) -> int:
    """The flag, which has 32 bits; 0 when it is absent."""
    return number(fields, "flag", _LEAST_INT, _MOST_INT) or 0


def check_property(name: str, value: Any) -> None:
    """ValueError for a property that the wire can't carry. A value may have a \\x01: the first one ends the name."""
    if not isinstance(value, str):
        raise ValueError(f"property {shown(name)[1:-1]}: a text is wanted, not {shown(value)}")
    if _AFTER_NAME in name or _AFTER_VALUE in name + value:
        raise ValueError(f"property {shown(name)}: the characters \\x01 and \\x02 separate properties on the wire")
    try:
        name.encode()
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"property {shown(name)}: half of a surrogate pair is not a character: "
                         f"{error.object[error.start]!r}") from None


def decorate(message: Message, keys: str | list[str] | None, tags: str | None, properties: dict[str, Any],
             delay: int | None) -> None:
    """Give a message its properties; ValueError for those that the wire can't carry, or that RocketMQ uses itself."""
    for name, value in properties.items():
        check_property(name, value)
        if name in names.STRING_HASH_SET:
            raise ValueError(f"property {name}: the name is RocketMQ's own; take another one")
        if not name or not value:  # blanks are carried, nothing is not
            raise ValueError(f"property {shown(name)}: neither name nor value may be empty")
        message.put_property(name, value)
    if keys:
        message.set_keys(keys)
    if tags:
        message.tags = tags
    if delay is not None and not 0 <= delay <= _MOST_INT:
        raise ValueError(f"delay: {delay} is {'below 0' if delay < 0 else 'too much'}; levels begin at 1")
    if delay:
        message.delay_time_level = delay
    for name, value in message.properties.items():
        check_property(name, value)


def _host(host: Any) -> str | None:
    return f"{host[0]}:{host[1]}" if host else None
