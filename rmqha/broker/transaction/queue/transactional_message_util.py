"""Names of the two topics, of the group that reads them, and of the op messages' tag.

Java: org.apache.rocketmq.broker.transaction.queue.TransactionalMessageUtil (4.9.8)
"""
from rmqha.common import mix_all, topics

REMOVETAG = "d"


def build_op_topic() -> str:
    """The topic of op messages."""
    return topics.RMQ_SYS_TRANS_OP_HALF_TOPIC


def build_half_topic() -> str:
    """The topic of half messages."""
    return topics.RMQ_SYS_TRANS_HALF_TOPIC


def build_consumer_group() -> str:
    """The group whose offsets say how far the two topics are done."""
    return mix_all.CID_SYS_RMQ_TRANS
