"""Keep the steps of each order in sequence: one queue per order, and a listener that handles a queue in sequence."""
import threading

import rmqha
from rmqha import ConsumeFromWhere, Message, MessageExt, Producer, PushConsumer, select_message_queue_by_hash

ORDERS, STEPS = ("17", "18", "19"), ("created", "paid", "sent")
seen: dict[str, list[str]] = {order: [] for order in ORDERS}
done = threading.Event()


class Steps(rmqha.MessageListenerOrderly):
    def consume_message(
            self, msgs: list[MessageExt], context: rmqha.ConsumeOrderlyContext) -> rmqha.ConsumeOrderlyStatus:
        for message in msgs:
            seen[message.keys or ""].append(bytes(message.body).decode())
        if sum(map(len, seen.values())) == len(ORDERS) * len(STEPS):
            done.set()
        return rmqha.ConsumeOrderlyStatus.SUCCESS


with Producer("order_steps") as producer:
    # Create the topic before the first send: if queues are added later, the next steps of an order go to another queue.
    # It is created on each broker that has TBW102, RocketMQ's template topic.
    producer.admin.create_topic("TBW102", "OrderSteps", 4)
    for step in STEPS:
        for order in ORDERS:
            producer.send(Message("OrderSteps", step.encode(), keys=order),
                          selector=select_message_queue_by_hash, arg=order)
consumer = PushConsumer("order_watchers", message_listener=Steps(),
                        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
consumer.subscribe("OrderSteps")
with consumer:
    done.wait()
for order, steps in seen.items():
    print(f"order {order}: {' -> '.join(steps)}")
