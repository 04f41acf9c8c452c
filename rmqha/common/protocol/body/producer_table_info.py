"""All producers of a broker."""
from dataclasses import dataclass, field

from rmqha.common.protocol.body.producer_info import ProducerInfo


@dataclass(slots=True)
class ProducerTableInfo:
    """Producers by group (answer of GET_ALL_PRODUCER_INFO).

    Java: org.apache.rocketmq.common.protocol.body.ProducerTableInfo (4.9.8)
    """

    data: dict[str, list[ProducerInfo]] = field(default_factory=dict)
