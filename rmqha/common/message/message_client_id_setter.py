"""The producer's unique message id (UNIQ_KEY).

Upper-case hex of: IP (4 or 16 bytes), process id (2), a number of the process (4), ms since the month began (4),
counter (2): 32 or 56 characters.

Java: org.apache.rocketmq.common.message.MessageClientIDSetter (4.9.8)
"""
import ipaddress
import itertools
import os
import socket
import struct
import time
from functools import lru_cache

import psutil

from rmqha.common.message import message_const
from rmqha.common.message.message import Message

# One counter for the process, as in Java: ids must differ between all its producers. next() on it is atomic.
_COUNTER = itertools.count()


def _local_ip() -> bytes:
    """The first public address of this host, else its first private IPv4 one, else four bytes of the time."""
    private = None
    for addresses in psutil.net_if_addrs().values():
        for entry in addresses:
            if entry.family not in (socket.AF_INET, socket.AF_INET6):
                continue
            address = ipaddress.ip_address(entry.address)
            if address.is_loopback or address.is_link_local or address.is_unspecified:
                continue
            if not address.is_private:
                return address.packed
            if address.version == 4:
                private = private or address.packed
    return private or create_fake_ip()


def create_fake_ip() -> bytes:
    """Four bytes of the time, for a host without an address."""
    return struct.pack(">q", time.time_ns() // 1_000_000)[4:]


@lru_cache(maxsize=1)
def _fixed_part(process_id: int) -> str:
    return (_local_ip() + struct.pack(">H", process_id & 0xFFFF) + os.urandom(4)).hex().upper()


@lru_cache(maxsize=2)
def _month_start_ms(year: int, month: int) -> int:
    """Local midnight of the first of the month, in ms since the epoch."""
    return int(time.mktime((year, month, 1, 0, 0, 0, 0, 0, -1))) * 1000


def create_uniq_id() -> str:
    """A new unique id."""
    now_ms = time.time_ns() // 1_000_000
    local = time.localtime(now_ms // 1000)
    elapsed = max(0, now_ms - _month_start_ms(local.tm_year, local.tm_mon))
    return f"{_fixed_part(os.getpid())}{elapsed & 0xFFFF_FFFF:08X}{next(_COUNTER) & 0xFFFF:04X}"


def set_uniq_id(message: Message) -> None:
    """Give the message a unique id unless it has one."""
    if message.get_property(message_const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX) is None:
        message.put_property(message_const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, create_uniq_id())


def get_uniq_id(message: Message) -> str | None:
    """The message's unique id, or None."""
    return message.get_property(message_const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX)


def _parts(msg_id: str) -> tuple[bytes, int, int]:
    data = bytes.fromhex(msg_id)
    if len(data) not in (16, 28):
        raise ValueError(f"a unique id has 32 or 56 characters, not {len(msg_id)}")
    ip_length = len(data) - 12
    process_id, elapsed = struct.unpack_from(">H4xI", data, ip_length)
    return data[:ip_length], process_id, elapsed


def get_nearly_time_from_id(msg_id: str) -> int:
    """When the id was made, in ms since the epoch, if that is less than a month ago. ValueError for no unique id."""
    elapsed = _parts(msg_id)[2]
    now_ms = time.time_ns() // 1_000_000
    local = time.localtime(now_ms // 1000)
    start = _month_start_ms(local.tm_year, local.tm_mon)
    # Differs: an id of this millisecond is of now; the original takes it for one of a month ago.
    if start + elapsed > now_ms:
        start = _month_start_ms(local.tm_year, local.tm_mon - 1)
    return start + elapsed
