"""Messages by id and by key, what became of them, and their bodies as something that can be shown."""
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from rmqha.client.exception import MQClientException
from rmqha.client.trace import TraceView
from rmqha.common import topics
from rmqha.common.compression import BodyBudget, MissingBody
from rmqha.common.message import message_decoder
from rmqha.common.message import message_decoder as message_client_id_setter
from rmqha.common.message.message import MessageExt
from rmqha.common.protocol import response_code
from rmqha.tools.admin.message_questions import message_track_detail
from rmqha.tools.command.message.message_text import message_fields
from rmqha.tools.view.questions import QuestionError, Questions, asked
from rmqha.tools.view.snapshot import Snapshot

MAX_MESSAGES = 64  # of one key
MAX_TEXT_BYTES, MAX_HEX_BYTES = 64 * 1024, 4 * 1024
MAX_LISTED_BYTES = 256  # of a body in a list of messages
MAX_LIST_BYTES = 64 << 20  # of all bodies of a list, decompressed
_TEXT_CONTROLS = frozenset("\t\n\r")
_ROW = 16


@dataclass(frozen=True)
class Body:
    """A body for people: `text` when it is UTF-8 without control characters, else None; `hex` dumps its beginning.

    `size` is in bytes, `is_cut` says that neither shows all of it.
    """

    size: int
    text: str | None
    hex: str
    is_cut: bool


def body_view(body: bytes, max_bytes: int = MAX_TEXT_BYTES) -> Body:
    """At most `max_bytes` of text, and of the dump."""
    part = body[:max_bytes]
    text = _text(part, len(part) < len(body))
    dumped = body[:min(max_bytes, MAX_HEX_BYTES)]
    return Body(len(body), text, hex_dump(dumped), len(part if text is not None else dumped) < len(body))


def _text(part: bytes, is_cut: bool) -> str | None:
    for lost in range(4 if is_cut else 1):  # a character may be cut in two
        try:
            text = part[:len(part) - lost].decode("utf-8")
        except UnicodeDecodeError:
            continue
        return text if all(char.isprintable() or char in _TEXT_CONTROLS for char in text) else None
    return None


def hex_dump(data: bytes) -> str:
    """Lines of offset, 16 bytes, and their ASCII."""
    return "\n".join(f"{at:08x}  {data[at:at + _ROW].hex(' '):<47}  {_ascii(data[at:at + _ROW])}"
                     for at in range(0, len(data), _ROW))


def _ascii(data: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data)


class Messages:
    """Looks messages up; QuestionError for what can't be answered."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self._admin = questions.admin

    def by_id(self, now: Snapshot, topic: str | None, msg_id: str) -> list[MessageExt]:
        """The message of an offset id, or of a producer's unique id, for which its topic is needed; or an empty list.

        An offset id has an address in it: only a broker of this cluster is asked, whatever the id says.
        """
        known = now.by_address
        try:
            host, port = message_decoder.decode_message_id(msg_id).address
        except ValueError:
            host, port = "", 0
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        if address in known:
            return self._found(lambda: [self._admin.mq_admin.view_message(msg_id)])
        if not topic:
            raise QuestionError("this id is not an offset id of one of the cluster's brokers; a producer's id is found "
                                "together with its topic: give that, too")
        return self._found(lambda: self._admin.mq_admin.query_message_by_uniq_key(
            topic, msg_id, begin=_begin_of(msg_id)).message_list)

    def by_key(self, topic: str, key: str) -> list[MessageExt]:
        """The newest messages of a key first."""
        messages = self._found(lambda: self._admin.mq_admin.query_message(
            topic, key, MAX_MESSAGES, 0, _now_ms(), _budget()).message_list)
        return sorted(messages, key=lambda msg: -msg.store_timestamp)[:MAX_MESSAGES]

    def trace(self, msg_id: str, trace_topic: str = topics.RMQ_SYS_TRACE_TOPIC
              ) -> tuple[list[TraceView], list[str]]:
        """What producers and consumers have noted about a message, by time, and why some of it can't be read.

        Empty when none of them traces.
        """
        found = self._found(lambda: self._admin.mq_admin.query_message(
            trace_topic, msg_id, MAX_MESSAGES, 0, _now_ms(), _budget()).message_list)
        views: list[TraceView] = []
        errors = []
        for msg in found:
            try:
                if isinstance(msg.body, MissingBody):
                    raise ValueError(msg.body.reason)
                views += TraceView.decode_from_trace_trans_data(msg_id, msg)
            except ValueError as error:
                errors.append(f"{trace_topic} holds something that is not a trace, in message {msg.msg_id}: {error}")
        return sorted(views, key=lambda view: view.time_stamp), errors

    def tracks(self, msg: MessageExt) -> list[dict[str, str | None]]:
        """What became of it in each group that consumes its topic, by the groups' offsets."""
        return [{"group": track.consumerGroup, "state": track.trackType.name, "why": track.exceptionDesc}
                for track in asked(lambda: message_track_detail(self._admin, msg))]

    def _found(self, ask: Callable[[], Iterable[MessageExt]]) -> list[MessageExt]:
        """Messages; an empty list when the brokers have none."""
        def ask_or_nothing() -> list[MessageExt]:
            try:
                return list(ask())
            except MQClientException as error:
                if error.response_code in (response_code.NO_MESSAGE, response_code.TOPIC_NOT_EXIST):
                    return []
                raise
        return asked(ask_or_nothing)


def message_json(msg: MessageExt, max_body_bytes: int = MAX_TEXT_BYTES) -> dict[str, Any]:
    """All fields of a message (named as mqadmin prints them), and its body as text or dump."""
    error = msg.body.reason if isinstance(msg.body, MissingBody) else ""
    body = body_view(bytes(msg.body), max_body_bytes)
    return {**message_fields(msg), "body": {"size": body.size, "text": None if error else body.text, "hex": body.hex,
                                            "cut": body.is_cut, "error": error}}


def trace_json(view: TraceView) -> dict[str, Any]:
    """One event; times are ms."""
    return {"type": view.msg_type, "group": view.group_name, "client": view.client_host, "at_ms": view.time_stamp,
            "cost_ms": view.cost_time, "status": view.status, "store_host": view.store_host}


def _begin_of(msg_id: str) -> int | None:
    """0, all times, for an id from which no time can be read, as other languages' clients may make it."""
    try:
        message_client_id_setter.get_nearly_time_from_id(msg_id)
    except ValueError:
        return 0
    return None


def _budget() -> BodyBudget:
    """Several people may ask at once, and a list shows no more than the beginnings."""
    return BodyBudget(MAX_LIST_BYTES, MAX_LIST_BYTES // 4)


def _now_ms() -> int:
    return round(time.time() * 1000)
