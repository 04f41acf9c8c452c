"""How far a sent message came."""
from enum import Enum


class SendStatus(Enum):
    """SEND_OK is acknowledged as asked; the others are stored, but not as safely as the broker's role promises.

    Java: org.apache.rocketmq.client.producer.SendStatus (4.9.8)
    """

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
