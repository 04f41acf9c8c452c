"""What kind of message a hook sees."""
import enum


class MessageType(enum.Enum):
    """Ordinary, half, committed or delayed. The names are Java's.

    Java: org.apache.rocketmq.common.message.MessageType (4.9.8)
    """

    Normal_Msg = 0
    Trans_Msg_Half = 1
    Trans_msg_Commit = 2
    Delay_Msg = 3
