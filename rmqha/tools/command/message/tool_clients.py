"""The producers and consumers of sub-commands: as the admin client's, asked of the same name servers."""
from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common import mix_all, util_all
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt

_LONGEST_BODY = 4 << 20  # bytes, what a producer sends by default


def pull_consumer(admin: DefaultMQAdminExt, group: str = mix_all.TOOLS_CONSUMER_GROUP) -> DefaultMQPullConsumer:
    """A pull consumer, not started."""
    consumer = DefaultMQPullConsumer(group, admin.namesrv_addr, admin.rpc_hook)
    consumer.keep_bad_bodies = True
    return consumer


def new_producer(admin: DefaultMQAdminExt, group: str | None = None, trace: bool = False) -> DefaultMQProducer:
    """A producer, not started; without a group's name its group is the time."""
    return DefaultMQProducer(group or str(util_all.current_time_millis()), admin.namesrv_addr, admin.rpc_hook,
                             enable_msg_trace=trace)


def body_of_size(size: int, piece: bytes = b"a") -> bytes:
    """A body of at least so many bytes; of a size that the producer refuses, the least one that it refuses."""
    return piece * -(-min(size, _LONGEST_BODY + 1) // len(piece))
