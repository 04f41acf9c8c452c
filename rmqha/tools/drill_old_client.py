"""A producer of the drill that behaves like RocketMQ 4.9's: it learns of another master only with its next route.

    its thread: send every 20 ms, three tries at the master of the route, without a pause; another route every 30 s
"""
from __future__ import annotations

import logging
import threading
import time

from rmqha.client.exception import CLIENT_ERRORS
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.client.results import SendStatus
from rmqha.common import mix_all, util_all
from rmqha.common.message.message import Message
from rmqha.common.protocol.client_headers import SendMessageRequestHeaderV2
from rmqha.common.threads import NamedThreadPool
from rmqha.common.topics import AUTO_CREATE_TOPIC_KEY_TOPIC

log = logging.getLogger("RocketmqTools")

# The defaults of 4.9's producer.
_ROUTE_S, _TRIES, _TIMEOUT_MS = 30.0, 3, 3000
_INTERVAL_S = 0.02


class OldClient:
    """The producer and what it has felt. `start` and `stop` it once; the figures are read after `stop`."""

    def __init__(self, namesrv: str, topic: str) -> None:
        self._topic = topic
        self._producer = DefaultMQProducer("drill-old", namesrv)
        self._pool = NamedThreadPool("DrillOldClient_", 1)
        self._stopped = threading.Event()
        self._route: tuple[float, str, str] = (0.0, "", "")  # when it was asked for, broker name, address
        self._last_ok = 0.0
        # Sends that failed for the application, after all tries.
        self.failed = 0
        # Between two acknowledgements, or since the last one, in seconds.
        self.longest_pause_s = 0.0

    def start(self) -> None:
        """Begin to send."""
        self._producer.start()
        self._last_ok = time.monotonic()
        self._pool.submit(self._run)

    def stop(self) -> None:
        """End. Idempotent."""
        self._stopped.set()
        self._pool.shutdown()
        self._producer.shutdown()

    def _run(self) -> None:
        while not self._stopped.is_set():
            begin = time.monotonic()
            if self._send():
                self._note_pause()
                self._last_ok = time.monotonic()
            else:
                self.failed += 1
            self._stopped.wait(max(begin + _INTERVAL_S - time.monotonic(), 0))
        self._note_pause()

    def _note_pause(self) -> None:
        self.longest_pause_s = max(self.longest_pause_s, time.monotonic() - self._last_ok)

    def _send(self) -> bool:
        deadline = time.monotonic() + _TIMEOUT_MS / 1000
        for _ in range(_TRIES):
            left_ms = (deadline - time.monotonic()) * 1000
            if left_ms <= 0 or self._stopped.is_set():
                break
            try:
                return self._try(left_ms)
            except CLIENT_ERRORS as error:
                log.debug("a try failed: %s", error)
        return False

    def _try(self, timeout_ms: float) -> bool:
        name, address = self._master()
        header = SendMessageRequestHeaderV2(
            a="drill-old", b=self._topic, c=AUTO_CREATE_TOPIC_KEY_TOPIC, d=4,
            e=-1, f=0, g=util_all.current_time_millis(), h=0, i="", j=0)
        result = self._producer.api.send_message(address, name, Message(self._topic, b"drill"), header, b"drill",
                                                 timeout_ms)
        return result.send_status is SendStatus.SEND_OK

    def _master(self) -> tuple[str, str]:
        """Return name and address of the master in the route."""
        asked, name, address = self._route
        if not address or time.monotonic() - asked > _ROUTE_S:
            route = self._producer.api.get_topic_route_info_from_name_server(self._topic, _TIMEOUT_MS)
            for broker in route.brokerDatas:
                if mix_all.MASTER_ID in broker.brokerAddrs:
                    name, address = broker.brokerName, broker.brokerAddrs[mix_all.MASTER_ID]
            self._route = time.monotonic(), name, address
        return name, address
