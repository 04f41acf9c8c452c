"""Bits of a record's SYSFLAG.

bit 0 compressed, 1 multi tags, 2-3 transaction, 4 born host IPv6, 5 store host IPv6, 6-7 reserved for 5.x batches,
8-10 compression type.

Java: org.apache.rocketmq.common.sysflag.MessageSysFlag (4.9.8)
"""
from rmqha.common.compression.compression_type import CompressionType

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
    """`flag` with its transaction bits replaced."""
    return (flag & ~TRANSACTION_ROLLBACK_TYPE) | transaction_type


def get_compression_type(flag: int) -> CompressionType:
    """The type of a compressed body; ValueError for the unassigned values 4 to 7."""
    return CompressionType.find_by_value((flag & COMPRESSION_TYPE_COMPARATOR) >> 8)
