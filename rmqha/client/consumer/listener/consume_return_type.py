"""How a listener's call ended, as hooks and traces say it."""
import enum


class ConsumeReturnType(enum.Enum):
    """The numbers go into traces. A call beyond `consume_timeout` is TIME_OUT even if it succeeded.

    Java: org.apache.rocketmq.client.consumer.listener.ConsumeReturnType (4.9.8)
    """

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURNNULL = 3
    FAILED = 4
