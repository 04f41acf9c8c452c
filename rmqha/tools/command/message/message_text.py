"""A stored message as a line of text, and as JSON."""
import ipaddress
from typing import Any

from rmqha.common.compression import MissingBody
from rmqha.common.java import hash_map_order
from rmqha.common.message.message import MessageClientExt, MessageExt
from rmqha.common.message.message_layout import Host
from rmqha.remoting.addresses import parse_socket_address_addr


def message_text(msg: MessageExt) -> str:
    """All fields, the body as signed bytes.

    Java: org.apache.rocketmq.common.message.MessageExt#toString (4.9.8)
    """
    return (f"MessageExt [brokerName={null(msg.broker_name)}, queueId={msg.queue_id}, storeSize={msg.store_size}, "
            f"queueOffset={msg.queue_offset}, sysFlag={msg.sys_flag}, bornTimestamp={msg.born_timestamp}, "
            f"bornHost={host_text(msg.born_host)}, storeTimestamp={msg.store_timestamp}, "
            f"storeHost={host_text(msg.store_host)}, msgId={null(offset_msg_id(msg))}, "
            f"commitLogOffset={msg.commit_log_offset}, bodyCRC={msg.body_crc}, reconsumeTimes={msg.reconsume_times}, "
            f"preparedTransactionOffset={msg.prepared_transaction_offset}, "
            f"toString()=Message{{topic='{msg.topic}', flag={msg.flag}, properties={properties_text(msg.properties)}, "
            f"body={_bytes_text(msg.body)}, transactionId='{null(msg.transaction_id)}'}}]")


def offset_msg_id(msg: MessageExt) -> str | None:
    """Address and log offset as an id."""
    return msg.offset_msg_id if isinstance(msg, MessageClientExt) else msg.msg_id


def null(value: object) -> object:
    """The value, `null` for None."""
    return "null" if value is None else value


def properties_text(properties: dict[str, str]) -> str:
    """`{name=value, ...}` in the order of a Java HashMap."""
    return "{" + ", ".join(f"{name}={properties[name]}" for name in hash_map_order(properties)) + "}"


def host_text(host: Host | None) -> str:
    """An address as Java writes one without a name: `/1.2.3.4:5`, `/[0:0:0:0:0:0:0:1]:5`."""
    if host is None:
        return "null"
    address = ipaddress.ip_address(host[0])
    if address.version == 4:
        return f"/{address}:{host[1]}"
    groups = ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":"))
    return f"/[{groups}]:{host[1]}"


def _bytes_text(body: bytes | memoryview) -> str:
    if isinstance(body, MissingBody):
        return repr(body)
    if not body:
        return "null"  # a record without a body leaves Java's null
    return "[" + ", ".join(map(str, memoryview(body).cast("b"))) + "]"


def message_fields(msg: MessageExt) -> dict[str, Any]:
    """The fields for JSON, without the body; times are ms since the epoch."""
    return {
        "msgId": msg.msg_id, "offsetMsgId": offset_msg_id(msg), "topic": msg.topic, "tags": msg.tags,
        "keys": msg.keys, "brokerName": msg.broker_name, "queueId": msg.queue_id, "queueOffset": msg.queue_offset,
        "commitLogOffset": msg.commit_log_offset, "storeSize": msg.store_size, "bodyCRC": msg.body_crc,
        "flag": msg.flag, "sysFlag": msg.sys_flag, "reconsumeTimes": msg.reconsume_times,
        "bornTimestamp": msg.born_timestamp, "bornHost": parse_socket_address_addr(msg.born_host),
        "storeTimestamp": msg.store_timestamp, "storeHost": parse_socket_address_addr(msg.store_host),
        "preparedTransactionOffset": msg.prepared_transaction_offset, "properties": dict(msg.properties),
    }
