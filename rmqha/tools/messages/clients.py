"""Clients of commands: their name server is asked first, so that what is missing is told in one line."""
import os
from pathlib import Path

from rmqha.client.consumer.default_mq_pull_consumer import DefaultMQPullConsumer
from rmqha.client.exception import MQClientException
from rmqha.client.impl.mq_client_api_impl import MQClientAPIImpl
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common.configuration import nearest_key
from rmqha.common.message.message import MessageQueue
from rmqha.common.mix_all import TOOLS_CONSUMER_GROUP
from rmqha.remoting.interfaces import RPCHook
from rmqha.tools.dialect.errors import one_line
from rmqha.tools.dialect.exit_codes import CannotAnswerError
from rmqha.tools.ha.broker_admin import BrokerAdmin

NO_GROUP = "none"
PRODUCER_GROUP = "rmqha_tools_producer"
_ASK_TIMEOUT_MS = 3_000


def checked(namesrv: str | None) -> str:
    """The name servers, once one of them has answered; CannotAnswerError that says what to do."""
    with BrokerAdmin(namesrv) as admin:
        admin.cluster_info()
    assert namesrv is not None
    return namesrv


def signing_hook() -> RPCHook | None:
    """What signs requests with the account in $ROCKETMQ_HOME/conf/tools.yml, as mqadmin's; None without one."""
    file = Path(os.environ.get("ROCKETMQ_HOME", ".")) / "conf" / "tools.yml"
    if not file.exists():
        return None
    from rmqha.acl import acl_files  # reading YAML takes a library that those without accounts need not have

    return acl_files.get_acl_rpc_hook(str(file))


def new_producer(namesrv: str | None, group: str = PRODUCER_GROUP) -> DefaultMQProducer:
    """A producer, not started."""
    return DefaultMQProducer(group, checked(namesrv), signing_hook())


def new_consumer(namesrv: str | None, group: str = NO_GROUP, topic: str | None = None) -> DefaultMQPullConsumer:
    """A pull consumer, not started. With a group and a topic it takes its share of the topic's queues.

    A body that does not decompress is a MissingBody: an error in its row.
    """
    if group == NO_GROUP:
        group, topic = TOOLS_CONSUMER_GROUP, None
    consumer = DefaultMQPullConsumer(group, checked(namesrv), signing_hook())
    consumer.keep_bad_bodies = True
    if topic is not None:
        consumer.register_topics = {topic}
    return consumer


def read_queues(consumer: DefaultMQPullConsumer, topic: str) -> list[MessageQueue]:
    """The queues of a topic that can be read, in order."""
    try:
        return sorted(consumer.fetch_subscribe_message_queues(topic))
    except MQClientException as error:
        raise no_queues(consumer.api, topic, error) from error


def write_queues(producer: DefaultMQProducer, topic: str) -> list[MessageQueue]:
    """The queues of a topic that can be sent to, in order."""
    try:
        return sorted(producer.fetch_publish_message_queues(topic))
    except MQClientException as error:
        raise no_queues(producer.api, topic, error) from error


def queues_to_be(producer: DefaultMQProducer, topic: str) -> list[MessageQueue]:
    """The queues of a topic that can be sent to, or that it will have once its first message makes it."""
    try:
        return sorted(producer.fetch_publish_message_queues(topic))
    except MQClientException as error:
        try:
            models = producer.fetch_publish_message_queues(producer.create_topic_key)
        except MQClientException:  # no broker makes topics by itself
            raise no_queues(producer.api, topic, error) from error
        return [MessageQueue(topic, model.brokerName, queue_id) for model in sorted(models) if model.queueId == 0
                for queue_id in range(producer.default_topic_queue_nums)]


def no_queues(api: MQClientAPIImpl, topic: str, error: MQClientException) -> CannotAnswerError:
    """Why there are none: an error with the topic that was meant, perhaps."""
    known = set(api.get_topic_list_from_name_server(_ASK_TIMEOUT_MS).topicList or ())
    if topic in known:
        return CannotAnswerError(f"the topic {topic!r} has no queue that may be used: {one_line(error)}")
    near = nearest_key(topic, known)
    return CannotAnswerError(f"no topic {topic!r} at the name server" + (f"; did you mean {near}?" if near else ""))


def chosen_queues(queues: list[MessageQueue], broker: str | None, queue_id: int | None) -> list[MessageQueue]:
    """Those of a broker's name, or with an id; CannotAnswerError when there are none."""
    found = [queue for queue in queues if broker in (None, queue.brokerName) and queue_id in (None, queue.queueId)]
    if not found:
        there = ", ".join(f"{queue.brokerName}:{queue.queueId}" for queue in queues[:20])
        what = f"broker {broker!r}" if queue_id is None else f"queue {queue_id}"
        raise CannotAnswerError(f"{what} has nothing of {queues[0].topic!r}; its queues are {there}")
    return found
