"""A message as a JSON object: what `consume -o json` and `export` write, and `produce -f json` and `import` read."""
import base64
import binascii
from dataclasses import dataclass
from typing import Any

from rmqha.common.message import message_const as names
from rmqha.common.message.message import Message
from rmqha.common.message.message_ext import MessageExt
from rmqha.tools.dialect.output import iso_time

SEPARATORS = ("\x01", "\x02")  # between properties on the wire
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
    """All of a stored message. Times stand as ms and as ISO 8601; a body that is no UTF-8 as base64."""
    return {
        "topic": message.topic, "broker": message.broker_name, "queue": message.queue_id,
        "offset": message.queue_offset, "keys": message.keys, "tags": message.tags,
        "properties": user_properties(message), **body_fields(bytes(message.body)), "flag": message.flag,
        "size": message.store_size, "msgId": message.msg_id, "offsetMsgId": getattr(message, "offset_msg_id", None),
        "bornTimestamp": message.born_timestamp, "bornTime": iso_time(message.born_timestamp),
        "bornHost": _host(message.born_host), "storeTimestamp": message.store_timestamp,
        "storeTime": iso_time(message.store_timestamp), "storeHost": _host(message.store_host),
        "reconsumeTimes": message.reconsume_times, "system": system_properties(message)}


def body_fields(body: bytes) -> dict[str, str]:
    """`body`, or `bodyBase64` for what is no UTF-8."""
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"bodyBase64": base64.b64encode(body).decode()}


def body_of(fields: dict[str, Any]) -> bytes:
    """The bytes of `body` or `bodyBase64`; ValueError unless there is one of them."""
    if ("body" in fields) == ("bodyBase64" in fields):
        raise ValueError("give `body`, or `bodyBase64` for bytes")
    if "body" in fields:
        body: str = _typed(fields, "body", str) or ""
        return body.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(_typed(fields, "bodyBase64", str) or "", validate=True)
    except binascii.Error as error:
        raise ValueError(f"bodyBase64: {error}") from None


def outgoing(fields: Any, topic: str) -> Outgoing:
    """The message of a JSON object. ValueError that says what is wrong with which field."""
    if not isinstance(fields, dict):
        raise ValueError("not a JSON object")
    unknown = sorted(fields.keys() - _KNOWN - _OF_THE_STORE)
    if unknown:
        raise ValueError(f"unknown field {unknown[0]!r}; known are {', '.join(sorted(_KNOWN))}")
    message = Message(topic, body_of(fields), flag=_typed(fields, "flag", int) or 0)
    keys, tags = fields.get("keys"), _typed(fields, "tags", str)
    if isinstance(keys, list) and not all(isinstance(key, str) for key in keys):
        raise ValueError("keys: texts are wanted")
    if not isinstance(keys, (str, list, type(None))):
        raise ValueError(f"keys: a text or a list of texts is wanted, not {keys!r}")
    decorate(message, keys, tags, _typed(fields, "properties", dict) or {}, _typed(fields, "delay", int))
    queue = _typed(fields, "queue", int)
    if queue is not None and queue < 0:
        raise ValueError(f"queue: {queue} is below 0")
    return Outgoing(message, queue, _typed(fields, "broker", str))


def decorate(message: Message, keys: str | list[str] | None, tags: str | None, properties: dict[str, Any],
             delay: int | None) -> None:
    """Give a message its properties; ValueError for those that the wire can't carry, or that RocketMQ uses itself."""
    for name, value in properties.items():
        if not isinstance(value, str):
            raise ValueError(f"property {name}: a text is wanted, not {value!r}")
        message.put_user_property(name, value)
    if keys:
        message.set_keys(keys)
    if tags:
        message.tags = tags
    if delay is not None and delay < 0:
        raise ValueError(f"delay: {delay} is below 0; levels begin at 1")
    if delay:
        message.delay_time_level = delay
    for name, value in message.properties.items():
        if any(separator in name + value for separator in SEPARATORS):
            raise ValueError(f"property {name!r}: the characters \\x01 and \\x02 separate properties on the wire")


def _typed(fields: dict[str, Any], name: str, kind: type) -> Any:
    value = fields.get(name)
    if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
        words = {str: "a text", int: "a whole number", dict: "an object"}
        raise ValueError(f"{name}: {words[kind]} is wanted, not {value!r}")
    return value


def _host(host: Any) -> str | None:
    return f"{host[0]}:{host[1]}" if host else None
