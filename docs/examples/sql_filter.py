"""Receive only messages whose properties match a condition; brokers need `enablePropertyFilter=true`.

docs/examples.md shows how to set it.
"""
from rmqha import ConsumeFromWhere, Message, MessageSelector, Producer, PullConsumer

with Producer("weather_stations") as producer:
    for place, degrees in (("Oslo", -3), ("Cairo", 31), ("Lima", 24), ("Delhi", 38)):
        message = Message("Weather", place.encode())
        message.put_user_property("degrees", str(degrees))
        message.put_user_property("place", place)
        producer.send(message)
consumer = PullConsumer("heat_warnings", consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
consumer.subscribe("Weather", MessageSelector.by_sql("degrees > 30 AND place IN ('Cairo', 'Delhi', 'Lima')"))
hot: set[str] = set()
with consumer:
    while len(hot) < 2:
        hot |= {bytes(message.body).decode() for message in consumer.poll()}
print("hot:", *sorted(hot))
