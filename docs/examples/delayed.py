"""Send a message that is delivered later: level 1 of the brokers' `messageDelayLevel` is one second by default."""
import time

from rmqha import ConsumeFromWhere, Message, Producer, PullConsumer

with Producer("reminders_out") as producer:
    reminder = Message("Reminders", b"the kettle boils")
    reminder.delay_time_level = 1
    sent = time.monotonic()
    producer.send(reminder)
consumer = PullConsumer("reminders_in", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
consumer.subscribe("Reminders")
with consumer:
    while not (messages := consumer.poll()):
        print("not yet")
    print(f"{bytes(messages[0].body).decode()}, after {time.monotonic() - sent:.1f} s")
    consumer.commit_sync()  # stores the offset, so a second run gets its own message
