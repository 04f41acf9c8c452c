"""Send a request and wait for the reply. Both are messages; only this producer receives the reply."""
from rmqha import ConsumeStatus, Message, MessageExt, Producer, PushConsumer, create_reply_message

with Producer("calculators") as answering, Producer("pupils") as asking:
    # Create the topic first: a consumer whose topic is missing looks for it again only after 30 s. It is created on
    # each broker that has TBW102, RocketMQ's template topic.
    asking.admin.create_topic("TBW102", "Sums", 4)

    def listener(messages: list[MessageExt]) -> ConsumeStatus:
        for message in messages:
            numbers = bytes(message.body).decode().split("+")
            answering.send(create_reply_message(message, str(sum(map(int, numbers))).encode()))
        return ConsumeStatus.CONSUME_SUCCESS

    consumer = PushConsumer("calculators", message_listener=listener)
    consumer.subscribe("Sums")
    with consumer:
        for question in ("1+2", "30+4+5"):
            reply = asking.request(Message("Sums", question.encode()), timeout_ms=30_000)
            print(f"{question} = {bytes(reply.body).decode()}")
