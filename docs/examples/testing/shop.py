"""A shop: it sends orders, and its billing charges each of them once. The tests are in tests/."""
import json
import os
import sys
import threading
import time

from rmqha import (
    ConsumeFromWhere,
    ConsumeStatus,
    Message,
    MQBrokerException,
    Producer,
    PushConsumer,
    SendStatus,
    select_message_queue_by_hash,
)
from rmqha.common.protocol.response_code import SYSTEM_BUSY

TOPIC = "orders"


class NotReplicatedError(Exception):
    """The order is stored on one machine only."""


class Shop:
    """Sends orders; those of one customer stay in sequence."""

    def __init__(self, namesrv_addr, timeout_ms=3000, tries=4):
        self.tries = tries
        self.producer = Producer("shop", namesrv_addr, send_msg_timeout=timeout_ms)

    def __enter__(self):
        self.producer.start()
        return self

    def __exit__(self, *_):
        self.producer.shutdown()

    def place(self, customer, order, amount):
        """Place an order for `amount` cents."""
        if amount <= 0:
            raise ValueError(f"an order of {amount} cents")
        self._send(customer, "placed", {"order": order, "amount": amount})

    def cancel(self, customer, order):
        """Cancel an order."""
        self._send(customer, "cancelled", {"order": order})

    def _send(self, customer, what, event):
        message = Message(TOPIC, json.dumps(event).encode(), tags=what, keys=[str(event["order"])])
        for attempt in range(self.tries):
            try:
                result = self.producer.send(message, selector=select_message_queue_by_hash, arg=customer)
            except MQBrokerException as error:
                if error.response_code != SYSTEM_BUSY or attempt == self.tries - 1:
                    raise
                time.sleep(0.01 * 2**attempt)
                continue
            if result.send_status is not SendStatus.SEND_OK:
                raise NotReplicatedError(f"order {event['order']}: {result.send_status.name}")
            return


class Billing:
    """Charges each order once, and refunds cancelled orders."""

    def __init__(self, namesrv_addr, group="billing"):
        self.charged = {}  # order -> cents; guarded by _lock
        self._lock = threading.Lock()
        self._consumer = PushConsumer(group, namesrv_addr, self._take,
                                      consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        self._consumer.subscribe(TOPIC, "placed || cancelled")

    def __enter__(self):
        self._consumer.start()
        return self

    def __exit__(self, *_):
        self._consumer.shutdown()

    def _take(self, messages):
        """Charge or refund. Without CONSUME_SUCCESS as the answer, the messages would be delivered again."""
        for message in messages:
            event = json.loads(message.body)
            with self._lock:
                if message.tags == "cancelled":
                    self.charged[event["order"]] = 0
                else:  # an order that arrives twice, or after its cancellation, is not charged again
                    self.charged.setdefault(event["order"], event["amount"])
        return ConsumeStatus.CONSUME_SUCCESS


if __name__ == "__main__":
    with Shop(os.environ["NAMESRV_ADDR"]) as my_shop:
        my_shop.place(*sys.argv[1:3], int(sys.argv[3]))
