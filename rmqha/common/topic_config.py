"""A topic's settings, as brokers keep and register them."""
from dataclasses import dataclass

from rmqha.common.constant import perm_name
from rmqha.common.later import LATER
from rmqha.common.message.message import parse_int
from rmqha.common.text_hash import text_hash
from rmqha.common.topic_filter_type import TopicFilterType

SEPARATOR = " "


@dataclass(slots=True)
class TopicConfig:
    """Queues, permission and flags of one topic on one broker. Field names are the JSON's.

    Java: org.apache.rocketmq.common.TopicConfig (4.9.8)
    """

    topicName: str = LATER
    readQueueNums: int = 16
    writeQueueNums: int = 16
    perm: int = perm_name.PERM_READ | perm_name.PERM_WRITE
    topicFilterType: TopicFilterType = TopicFilterType.SINGLE_TAG
    topicSysFlag: int = 0
    order: bool = False

    def encode(self) -> str:
        """`name read write perm filterType`, for compressed registrations; the system flag and order are lost."""
        return SEPARATOR.join((str(self.topicName), str(self.readQueueNums), str(self.writeQueueNums), str(self.perm),
                               self.topicFilterType.name))

    def decode(self, text: str) -> bool:
        """Take over what `encode` wrote. False when there are not five parts; ValueError for a part that is wrong."""
        parts = text.split(SEPARATOR, 5)
        if len(parts) != 5:
            return False
        read, write, perm = parse_int(parts[1]), parse_int(parts[2]), parse_int(parts[3])
        if parts[4] not in TopicFilterType.__members__:
            raise ValueError(f"topicFilterType = [{parts[4]}] value invalid")
        self.topicName, self.readQueueNums, self.writeQueueNums, self.perm = parts[0], read, write, perm
        self.topicFilterType = TopicFilterType[parts[4]]
        return True

    def __hash__(self) -> int:
        return text_hash(self.topicName, self.readQueueNums, self.writeQueueNums, self.perm, self.topicFilterType,
                         self.topicSysFlag, self.order)

    def __str__(self) -> str:
        return (f"TopicConfig [topicName={self.topicName}, readQueueNums={self.readQueueNums}, "
                f"writeQueueNums={self.writeQueueNums}, perm={perm_name.perm2_string(self.perm)}, "
                f"topicFilterType={self.topicFilterType.name}, topicSysFlag={self.topicSysFlag}, "
                f"order={str(self.order).lower()}]")
