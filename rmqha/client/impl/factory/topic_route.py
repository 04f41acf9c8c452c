"""From a route to the queues that can be sent to, and those that can be pulled."""
from rmqha.client.impl.producer.topic_publish_info import TopicPublishInfo
from rmqha.common import mix_all, sys_flags
from rmqha.common.message.message import MessageQueue
from rmqha.common.protocol.topic_route_data import QueueData, TopicRouteData


def topic_route_data2_topic_publish_info(topic: str, route: TopicRouteData) -> TopicPublishInfo:
    """The queues that can be sent to: write permission, and a master that is there.

    Java: org.apache.rocketmq.client.impl.factory.MQClientInstance#topicRouteData2TopicPublishInfo (4.9.8)
    """
    info = TopicPublishInfo(topic_route_data=route)
    if route.orderTopicConf:
        info.order_topic = True
        info.message_queue_list = _ordered_queues(topic, route.orderTopicConf)
        return info
    with_master = {broker.brokerName for broker in route.brokerDatas if mix_all.MASTER_ID in broker.brokerAddrs}
    for data in sorted(route.queueDatas, key=_broker_name):
        if sys_flags.is_writeable(data.perm) and data.brokerName in with_master:
            info.message_queue_list.extend(
                MessageQueue(topic, data.brokerName, queue_id) for queue_id in range(data.writeQueueNums))
    return info


def topic_route_data2_topic_subscribe_info(topic: str, route: TopicRouteData) -> set[MessageQueue]:
    """The queues that can be pulled: read permission; a slave alone will do.

    Java: org.apache.rocketmq.client.impl.factory.MQClientInstance#topicRouteData2TopicSubscribeInfo (4.9.8)
    """
    return {
        MessageQueue(topic, data.brokerName, queue_id)
        for data in route.queueDatas if sys_flags.is_readable(data.perm)
        for queue_id in range(data.readQueueNums)
    }


def topic_route_data_is_change(old: TopicRouteData | None, now: TopicRouteData) -> bool:
    """True unless both say the same, in whatever order.

    Java: org.apache.rocketmq.client.impl.factory.MQClientInstance#topicRouteDataIsChange (4.9.8)
    """
    return old is None or _comparable(old) != _comparable(now)


def _comparable(route: TopicRouteData) -> tuple[object, ...]:
    queues = sorted(route.queueDatas, key=_broker_name)
    brokers = sorted(route.brokerDatas, key=lambda broker: broker.brokerName)
    return route.orderTopicConf, queues, brokers, route.filterServerTable


def _broker_name(data: QueueData) -> str:
    return data.brokerName


def _ordered_queues(topic: str, order_topic_conf: str) -> list[MessageQueue]:
    queues: list[MessageQueue] = []
    for broker in order_topic_conf.split(";"):
        if broker:
            name, count = broker.split(":")
            queues.extend(MessageQueue(topic, name, queue_id) for queue_id in range(int(count)))
    return queues
