"""Base class and helpers of the admin request handlers, and limits on how many of their requests run at once.

- `AdminTurns`: limits how many requests of a kind are served at the same time, so that others get threads and the GIL.
- `answer`: serves requests that report queue ends, after the records that wait for their dispatch are in their
  queues. A request of `AT_ONCE` is served by the dispatching thread; any other waits for it, at most 0.1 s.

    request --records waiting?--> ReputMessageService dispatches them at once --> the response
"""
from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from rmqha.common.data_version import ChangeLog
from rmqha.common.futures import Completable
from rmqha.common.protocol import request_code, response_code, table_version
from rmqha.common.protocol.command_custom_header import CommandCustomHeader
from rmqha.remoting.addresses import exception_simple_desc
from rmqha.remoting.exception import RemotingCommandException
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.fastjson import FastjsonError
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.store.role import Role

if TYPE_CHECKING:
    from rmqha.remoting.channel import Channel
    from rmqha.remoting.interfaces import Answer
    from rmqha.store.reput_message_service import ReputMessageService


# The default remark of Java's responses.
NO_REMARK = "not set any response code"
Handler = Callable[["Channel", RemotingCommand], RemotingCommand]


class AdminHandlers:
    """A group of handlers. They run on AdminBrokerThread_<n> and may block."""

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by request code."""
        raise NotImplementedError


def refuse_on_slave(role: Role) -> RemotingCommand | None:
    """Return the error response to a change on a slave; None on a master."""
    if not role.is_slave:
        return None
    return RemotingCommand.create_response_command(
        response_code.SYSTEM_ERROR, "Can't modify topic or subscription group from slave broker, please execute "
        "it from master broker.")


def success(body: object = None, header: CommandCustomHeader | None = None) -> RemotingCommand:
    """Return a SUCCESS response with a body: a dataclass to encode as JSON, a text, or bytes."""
    response = RemotingCommand.create_response_command(response_code.SUCCESS, None, header)
    if isinstance(body, str):
        response.body = body.encode("utf-8", "replace")
    elif isinstance(body, bytes):
        response.body = body
    elif body is not None:
        response.body = remoting_serializable.encode(body)
    return response


def table_answer(request: RemotingCommand, changes: ChangeLog, encode: Callable[[list[str] | None], str],
                 header: CommandCustomHeader | None = None, also: str = "") -> RemotingCommand:
    """Return a table as JSON: the whole table, or, for a slave of ours, only the entries that changed since its state.

    `encode` is called with the names of the entries, None for all. `also` is the part of the table's state besides its
    entries, without a space. The table may be newer than the state that is returned.
    Differs: a slave of rmqha gets only the entries of a table that have changed; the original sends its slaves the
    whole tables every 10 s, whether or not they have changed.
    """
    fields = request.ext_fields or {}
    known = fields.get(table_version.KNOWN)
    if known is None:
        return success(encode(None), header)
    # Take the mark before `encode`: changes while it runs are then sent with the next response.
    told = f"{changes.mark()} {also}"
    known_mark, _, known_also = known.partition(" ")
    takes_changes = table_version.CHANGES in fields and known_also == also
    changed = changes.since(known_mark) if takes_changes else None
    response = success(encode(changed) if known != told else None, header)
    response.add_ext_field(table_version.TOLD, told)
    if changed is not None:
        response.add_ext_field(table_version.CHANGES, "true")
    return response


def system_error(remark: str) -> RemotingCommand:
    """Return a SYSTEM_ERROR response with a remark."""
    return RemotingCommand.create_response_command(response_code.SYSTEM_ERROR, remark)


COMPUTING_AT_ONCE = 2
WAITING_AT_ONCE = 8  # of the 16 threads that are the default of adminBrokerThreadPoolNums

# These read tables or queues; their time grows with the size.
COMPUTING = frozenset((
    request_code.GET_ALL_TOPIC_CONFIG, request_code.GET_TOPIC_STATS_INFO, request_code.QUERY_CONSUME_QUEUE,
    request_code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, request_code.GET_CONSUMER_CONNECTION_LIST,
    request_code.GET_PRODUCER_CONNECTION_LIST, request_code.GET_ALL_PRODUCER_INFO, request_code.GET_CONSUME_STATS,
    request_code.GET_ALL_CONSUMER_OFFSET, request_code.QUERY_TOPIC_CONSUME_BY_WHO,
    request_code.QUERY_CONSUME_TIME_SPAN, request_code.QUERY_CORRECTION_OFFSET, request_code.CLONE_GROUP_OFFSET,
    request_code.GET_BROKER_CONSUME_STATS, request_code.GET_COMMIT_LOG_CHECKSUMS,
    request_code.GET_MESSAGE_HEADS,
))
# These wait for clients, which may never respond.
WAITING = frozenset((
    request_code.INVOKE_BROKER_TO_RESET_OFFSET, request_code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    request_code.GET_CONSUMER_RUNNING_INFO, request_code.CONSUME_MESSAGE_DIRECTLY,
))
# Consumers depend on these; they have their own threads, which other requests cannot use.
OF_CONSUMERS = (
    request_code.LOCK_BATCH_MQ, request_code.UNLOCK_BATCH_MQ, request_code.SEARCH_OFFSET_BY_TIMESTAMP,
    request_code.GET_EARLIEST_MSG_STORETIME,
)
# Consumers depend on these as well; the reading thread can answer them immediately.
AT_ONCE = (request_code.GET_MAX_OFFSET, request_code.GET_MIN_OFFSET)


class AdminTurns:
    """Limits of concurrent requests: those of `COMPUTING` wait for their turn, those of `WAITING` are refused."""

    # Differs: admin requests that compute wait for their turn, and too many that wait for clients are refused. The
    # original has no such limit: all 16 threads may serve the same code; they do not share an interpreter
    def __init__(self) -> None:
        self.computing = threading.Semaphore(COMPUTING_AT_ONCE)
        self._waiting = threading.Semaphore(WAITING_AT_ONCE)

    def run(self, code: int, serve: Callable[[], RemotingCommand]) -> RemotingCommand:
        """Call `serve` when it is its turn, and return the response."""
        if code in COMPUTING:
            with self.computing:
                return serve()
        if code not in WAITING:
            return serve()
        if not self._waiting.acquire(blocking=False):
            return RemotingCommand.create_response_command(
                response_code.SYSTEM_BUSY, f"{WAITING_AT_ONCE} requests are waiting for clients, try again later")
        try:
            return serve()
        finally:
            self._waiting.release()


log = logging.getLogger("RocketmqBroker")

# Differs: requests for the ends and statistics of queues are answered when the appended messages are dispatched; the
# original answers from the dispatched messages only, and misses those of the last millisecond
TELL_ENDS = frozenset((
    *AT_ONCE, request_code.SEARCH_OFFSET_BY_TIMESTAMP, request_code.GET_EARLIEST_MSG_STORETIME,
    request_code.GET_TOPIC_STATS_INFO, request_code.GET_CONSUME_STATS, request_code.GET_BROKER_CONSUME_STATS,
    request_code.QUERY_CONSUME_QUEUE, request_code.QUERY_CONSUME_TIME_SPAN, request_code.INVOKE_BROKER_TO_RESET_OFFSET,
    request_code.GET_MESSAGE_HEADS,
))
# How long a thread that may block waits; the waiting records are dispatched within milliseconds.
_WAIT_S = 0.1


def answer(reput: ReputMessageService, code: int, serve: Callable[[], RemotingCommand]) -> Answer:
    """Return the response of `serve`, called when the records that wait for their dispatch are in their queues."""
    if code not in AT_ONCE:
        dispatched = threading.Event()
        if reput.call_when_dispatched(dispatched.set):
            dispatched.wait(_WAIT_S)
        return serve()
    later: Completable[RemotingCommand | None] = Completable()
    # `serve` runs on the dispatching thread, but takes only microseconds.
    if reput.call_when_dispatched(lambda: _complete(later, serve)):
        return later
    return serve()


def _complete(later: Completable[RemotingCommand | None], serve: Callable[[], RemotingCommand]) -> None:
    try:
        later.complete(serve())
    except Exception as failure:
        # Answered in the same way as a failure on the thread that reads requests.
        is_peers_fault = isinstance(failure, RemotingCommandException)
        log.error("cannot determine the end of a queue: %s", failure, exc_info=None if is_peers_fault else failure)
        later.complete(RemotingCommand.create_response_command(response_code.SYSTEM_ERROR,
                                                               exception_simple_desc(failure)))


T = TypeVar("T")


def decode_body(request: RemotingCommand, cls: type[T]) -> T:
    """Return the request's JSON body as a `cls`.

    Raises RemotingCommandException, the peer's fault, when it is invalid.
    """
    try:
        return remoting_serializable.from_json(cls, request.body or b"")
    except FastjsonError as failure:
        raise RemotingCommandException(f"the body is not a valid {cls.__name__}: {failure}") from None
