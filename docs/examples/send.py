"""Send messages with a tag for filtering and a key for finding them again; consume.py receives them."""
from rmqha import Message, Producer

with Producer("fruit_sellers") as producer:  # the name server comes from the environment variable NAMESRV_ADDR
    for number in (1, 2, 3):
        message = Message("Fruit", f"{number} kg of apples".encode(), tags="apples", keys=f"order-{number}")
        message.put_user_property("buyer", "Ada")
        result = producer.send(message)
        print(f"order-{number}: {result.send_status.name}, queue {result.message_queue.queueId} "
              f"of {result.message_queue.brokerName}, id {result.msg_id}")
