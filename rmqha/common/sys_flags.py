"""Bit flags of stored messages, pull requests, topics and permissions.

- SYSFLAG of a record: bit 0 compressed, 1 multi tags, 2-3 transaction, 4 born host IPv6, 5 store host IPv6, 6-7
  reserved for 5.x batches, 8-10 compression type
- sysFlag of a pull request: FLAG_COMMIT_OFFSET to FLAG_LITE_PULL_MESSAGE
- topicSysFlag of a topic: FLAG_UNIT and FLAG_UNIT_SUB
- permissions of topics and brokers: PERM_READ, PERM_WRITE and PERM_INHERIT

Java: org.apache.rocketmq.common.sysflag.MessageSysFlag (4.9.8)
Java: org.apache.rocketmq.common.sysflag.PullSysFlag (4.9.8)
Java: org.apache.rocketmq.common.sysflag.TopicSysFlag (4.9.8)
Java: org.apache.rocketmq.common.constant.PermName (4.9.8)
"""
import enum


class CompressionType(enum.Enum):
    """The type of a compressed body: LZ4 frame, ZSTD frame or zlib stream.

    Java: org.apache.rocketmq.common.compression.CompressionType (4.9.8)
    """

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3

    @staticmethod
    def of(name: str) -> "CompressionType":
        """Return the type called `name`, in any case and with surrounding blanks; ValueError for any other name."""
        try:
            return CompressionType[name.strip().upper()]
        except KeyError:
            raise ValueError(f"Unsupported compress type name: {name}") from None

    @staticmethod
    def find_by_value(value: int) -> "CompressionType":
        """Return the type of the three bits. 0 is ZLIB, as in records of older versions. ValueError for others."""
        return CompressionType(value or 3)

    @property
    def compression_flag(self) -> int:
        """Return the type's bits at their place in SYSFLAG."""
        return self.value << 8


class TopicFilterType(enum.Enum):
    """One tag, or several. In 4.9 the only difference is the record's multi-tags bit.

    Java: org.apache.rocketmq.common.TopicFilterType (4.9.8)
    """

    SINGLE_TAG = 0
    MULTI_TAG = 1


COMPRESSED_FLAG = 0x1
MULTI_TAGS_FLAG = 0x1 << 1
TRANSACTION_NOT_TYPE = 0
TRANSACTION_PREPARED_TYPE = 0x1 << 2
TRANSACTION_COMMIT_TYPE = 0x2 << 2
TRANSACTION_ROLLBACK_TYPE = 0x3 << 2
BORNHOST_V6_FLAG = 0x1 << 4
STOREHOSTADDRESS_V6_FLAG = 0x1 << 5
COMPRESSION_TYPE_COMPARATOR = 0x7 << 8


def reset_transaction_value(flag: int, transaction_type: int) -> int:
    """Return `flag` with its transaction bits replaced."""
    return (flag & ~TRANSACTION_ROLLBACK_TYPE) | transaction_type


def get_compression_type(flag: int) -> CompressionType:
    """Return the type of a compressed body; ValueError for the unassigned values 4 to 7."""
    return CompressionType.find_by_value((flag & COMPRESSION_TYPE_COMPARATOR) >> 8)


FLAG_COMMIT_OFFSET = 0x1
FLAG_SUSPEND = 0x1 << 1
FLAG_SUBSCRIPTION = 0x1 << 2
FLAG_CLASS_FILTER = 0x1 << 3
FLAG_LITE_PULL_MESSAGE = 0x1 << 4


def build_pull_sys_flag(commit_offset: bool, suspend: bool, subscription: bool, class_filter: bool,
                   lite_pull: bool = False) -> int:
    """Return the flag for the five booleans."""
    return (FLAG_COMMIT_OFFSET * commit_offset | FLAG_SUSPEND * suspend | FLAG_SUBSCRIPTION * subscription
            | FLAG_CLASS_FILTER * class_filter | FLAG_LITE_PULL_MESSAGE * lite_pull)


def clear_commit_offset_flag(sys_flag: int) -> int:
    """Return `sys_flag` without its commit bit, for a pull from a slave."""
    return sys_flag & ~FLAG_COMMIT_OFFSET


def has_commit_offset_flag(sys_flag: int) -> bool:
    """Return whether the request carries an offset to be stored."""
    return bool(sys_flag & FLAG_COMMIT_OFFSET)


def has_suspend_flag(sys_flag: int) -> bool:
    """Return whether the broker may hold the request until data arrives."""
    return bool(sys_flag & FLAG_SUSPEND)


def has_subscription_flag(sys_flag: int) -> bool:
    """Return whether the request carries its own subscription."""
    return bool(sys_flag & FLAG_SUBSCRIPTION)


FLAG_UNIT = 0x1
FLAG_UNIT_SUB = 0x1 << 1


def build_topic_sys_flag(unit: bool, has_unit_sub: bool) -> int:
    """Return the flag for the two booleans."""
    return FLAG_UNIT * unit | FLAG_UNIT_SUB * has_unit_sub


def has_unit_flag(sys_flag: int) -> bool:
    """Return whether the topic belongs to a unit."""
    return bool(sys_flag & FLAG_UNIT)


def has_unit_sub_flag(sys_flag: int) -> bool:
    """Return whether a unit's consumers subscribe to the topic."""
    return bool(sys_flag & FLAG_UNIT_SUB)


PERM_READ = 0x1 << 2
PERM_WRITE = 0x1 << 1
PERM_INHERIT = 0x1


def perm2_string(perm: int) -> str:
    """Return `RWX` with a `-` for each missing bit; X means inherit."""
    return ("R" if is_readable(perm) else "-") + ("W" if is_writeable(perm) else "-") + (
        "X" if is_inherited(perm) else "-")


def is_readable(perm: int) -> bool:
    """Return whether the read bit is set."""
    return bool(perm & PERM_READ)


def is_writeable(perm: int) -> bool:
    """Return whether the write bit is set."""
    return bool(perm & PERM_WRITE)


def is_inherited(perm: int) -> bool:
    """Return whether topics may be created with this one as the template."""
    return bool(perm & PERM_INHERIT)
