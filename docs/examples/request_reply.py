"""Ask, and wait for the answer: a request is a message, and so is its reply, to this producer alone."""
from rmqha import ConsumeStatus, Message, MessageExt, Producer, PushConsumer, create_reply_message

with Producer("calculators") as answering, Producer("pupils") as asking:
    asking.admin.create_topic("TBW102", "Sums", 4)  # a consumer that starts before its topic looks again after 30 s

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
