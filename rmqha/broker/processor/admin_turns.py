"""How many admin requests of a kind are served at once: the others keep their threads, and get the interpreter."""
import threading
from collections.abc import Callable

from rmqha.common.protocol import request_code, response_code
from rmqha.remoting.protocol.remoting_command import RemotingCommand

COMPUTING_AT_ONCE = 2
WAITING_AT_ONCE = 8  # of the 16 threads that adminBrokerThreadPoolNums gives by default

# They read tables or queues, and take the longer the more there is.
COMPUTING = frozenset((
    request_code.GET_ALL_TOPIC_CONFIG, request_code.GET_TOPIC_STATS_INFO, request_code.QUERY_CONSUME_QUEUE,
    request_code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, request_code.GET_CONSUMER_CONNECTION_LIST,
    request_code.GET_PRODUCER_CONNECTION_LIST, request_code.GET_ALL_PRODUCER_INFO, request_code.GET_CONSUME_STATS,
    request_code.GET_ALL_CONSUMER_OFFSET, request_code.QUERY_TOPIC_CONSUME_BY_WHO,
    request_code.QUERY_CONSUME_TIME_SPAN, request_code.QUERY_CORRECTION_OFFSET, request_code.CLONE_GROUP_OFFSET,
    request_code.GET_BROKER_CONSUME_STATS, request_code.GET_COMMIT_LOG_CHECKSUMS,
))
# They wait for clients, which may never answer.
WAITING = frozenset((
    request_code.INVOKE_BROKER_TO_RESET_OFFSET, request_code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
    request_code.GET_CONSUMER_RUNNING_INFO, request_code.CONSUME_MESSAGE_DIRECTLY,
))
# Consumers need these; they have threads of their own, which no other request can take.
OF_CONSUMERS = (
    request_code.LOCK_BATCH_MQ, request_code.UNLOCK_BATCH_MQ, request_code.SEARCH_OFFSET_BY_TIMESTAMP,
    request_code.GET_EARLIEST_MSG_STORETIME,
)
# Consumers need these as well, and the thread that reads them has the answer at once.
AT_ONCE = (request_code.GET_MAX_OFFSET, request_code.GET_MIN_OFFSET)


class AdminTurns:
    """Turns at what computes, which wait, and at what waits for clients, which are refused when all are taken."""

    # Differs: in the original each of the 16 threads may be busy with the same; its threads do not share an interpreter
    def __init__(self) -> None:
        self.computing = threading.Semaphore(COMPUTING_AT_ONCE)
        self._waiting = threading.Semaphore(WAITING_AT_ONCE)

    def run(self, code: int, serve: Callable[[], RemotingCommand]) -> RemotingCommand:
        """The answer of `serve`, once it is its turn."""
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
