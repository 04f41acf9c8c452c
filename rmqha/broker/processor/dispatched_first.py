"""Who asks where queues end is told so behind all that was appended before, though it still gathers for its dispatch.

    the first answer --something gathers?--> ReputMessageService dispatches it at once --> the answer, asked again
"""
from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmqha.broker.processor import admin_turns
from rmqha.common.futures import Completable
from rmqha.common.protocol import request_code, response_code
from rmqha.remoting.addresses import exception_simple_desc
from rmqha.remoting.exception import RemotingCommandException
from rmqha.remoting.protocol.remoting_command import RemotingCommand

if TYPE_CHECKING:
    from rmqha.remoting.interfaces import Answer
    from rmqha.store.default_message_store import DefaultMessageStore

log = logging.getLogger("RocketmqBroker")

# Differs: the original answers by what is dispatched already, and lacks the messages of the last millisecond
TELL_ENDS = frozenset((
    *admin_turns.AT_ONCE, request_code.SEARCH_OFFSET_BY_TIMESTAMP, request_code.GET_EARLIEST_MSG_STORETIME,
    request_code.GET_TOPIC_STATS_INFO, request_code.GET_CONSUME_STATS, request_code.GET_BROKER_CONSUME_STATS,
    request_code.QUERY_CONSUME_QUEUE, request_code.QUERY_CONSUME_TIME_SPAN, request_code.INVOKE_BROKER_TO_RESET_OFFSET,
))
_WAIT_S = 0.1  # of a thread that may wait: what has gathered is dispatched within milliseconds


def answer(store: DefaultMessageStore, code: int, serve: Callable[[], RemotingCommand]) -> Answer:
    """What `serve` says once what has gathered is in its queues; at once when nothing has."""
    if code not in admin_turns.AT_ONCE:
        dispatched = threading.Event()
        if store.call_when_dispatched(dispatched.set):
            dispatched.wait(_WAIT_S)
        return serve()
    later: Completable[RemotingCommand | None] = Completable()
    if store.call_when_dispatched(lambda: _complete(later, serve)):  # on the dispatching thread: it takes microseconds
        return later
    return serve()


def _complete(later: Completable[RemotingCommand | None], serve: Callable[[], RemotingCommand]) -> None:
    try:
        later.complete(serve())
    except Exception as failure:  # answered as what the thread that reads requests refuses
        is_peers_fault = isinstance(failure, RemotingCommandException)
        log.error("where a queue ends can't be told: %s", failure, exc_info=None if is_peers_fault else failure)
        later.complete(RemotingCommand.create_response_command(response_code.SYSTEM_ERROR,
                                                               exception_simple_desc(failure)))
