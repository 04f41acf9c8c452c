"""Printing messages as they come: a table that grows, JSON lines, YAML documents, or a format string."""
import sys
from collections.abc import Callable, Iterable

import click

from rmqha.common.compression import MissingBody
from rmqha.common.message.message import MessageExt, MessageQueue
from rmqha.tools.dialect.output import cell, display_width, emit, padded, put
from rmqha.tools.messages.format_string import compiled
from rmqha.tools.messages.message_json import as_object
from rmqha.tools.store.output import time_text

_HEADINGS = ("stored", "ms", "queue", "offset", "tag", "keys", "body")
_RIGHT = {"ms", "offset"}
_LEAST = {"stored": 23, "ms": 13, "offset": 6}


class MessagePrinter:
    """Prints one message after the other to standard output."""

    def __init__(self, output: str, format_string: str | None, queues: Iterable[MessageQueue]) -> None:
        self._output = output
        self._render: Callable[[MessageExt], bytes] | None = None if format_string is None else compiled(format_string)
        self._widths = {heading: max(_LEAST.get(heading, 0), len(heading)) for heading in _HEADINGS}
        names = [f"{queue.brokerName}:{queue.queueId}" for queue in queues]
        self._widths["queue"] = max(map(display_width, ["queue", *names]))
        self._is_begun = False

    def print(self, message: MessageExt) -> None:
        """Print one."""
        if self._render is not None:
            if isinstance(message.body, MissingBody):
                put(f"{message.topic} {message.broker_name}:{message.queue_id} at {message.queue_offset}: "
                    f"{message.body.reason}", err=True)
            sys.stdout.buffer.write(self._render(message))
        elif self._output != "table":
            emit(as_object(message), self._output)
        else:
            self._print_row(message)

    def flush(self) -> None:
        """What was printed is to be seen now."""
        (sys.stdout if self._render is None else sys.stdout.buffer).flush()

    def _print_row(self, message: MessageExt) -> None:
        if not self._is_begun:
            self._is_begun = True
            put(click.style(self._line(_HEADINGS), bold=True))
        text = _body_text(message.body)
        put(self._line((time_text(message.store_timestamp), str(message.store_timestamp),
                        f"{cell(message.broker_name or '')}:{message.queue_id}", str(message.queue_offset),
                        cell(message.tags or ""), cell(message.keys or ""), text)))

    def _line(self, cells: Iterable[str]) -> str:
        parts = []
        for heading, text in zip(_HEADINGS, cells):
            width = self._widths[heading]
            if heading in ("tag", "keys", "offset"):  # as wide as the widest so far
                width = self._widths[heading] = max(width, display_width(text))
            parts.append(text if heading == "body" else padded(text, width, heading in _RIGHT))
        return "  ".join(parts).rstrip()


def _body_text(body: bytes | memoryview) -> str:
    if isinstance(body, MissingBody):
        return cell(f"({body.reason})")
    data = bytes(body)
    try:
        return cell(data.decode())
    except UnicodeDecodeError:
        return f"({len(data)} bytes) {data.hex()}"
