"""The binary header, serialize type ROCKETMQ.

| field     | type                                                                     |
|-----------|--------------------------------------------------------------------------|
| code      | int16                                                                    |
| language  | int8                                                                     |
| version   | int16                                                                    |
| opaque    | int32                                                                    |
| flag      | int32                                                                    |
| remark    | int32 length, UTF-8; length 0 is None                                    |
| extFields | int32 length in bytes, then pairs: int16 length, key, int32 length, value |
"""
import struct

from rmqha.remoting.exception import RemotingCommandException

HEADER_FIXED = struct.Struct(">HbHiii")
assert HEADER_FIXED.size == 17
LENGTH = struct.Struct(">i")
MAX_KEY_LENGTH = 0x7FFF
MAX_EXT_FIELDS = 8192  # of a header that is read

Fixed = tuple[int, int, int, int, int]


def rocketmq_protocol_encode(code: int, language: int, version: int, opaque: int, flag: int, remark: str | None,
                             pairs: list[tuple[str, str]]) -> bytes:
    """The header's bytes; `pairs` are the extFields in the order to be written.

    Java: org.apache.rocketmq.remoting.protocol.RocketMQSerializable#rocketMQProtocolEncode (4.9.8)
    """
    remark_bytes = _utf8(remark) if remark else b""
    ext_bytes = map_serialize(pairs)
    fixed = HEADER_FIXED.pack(code & 0xFFFF, language, version & 0xFFFF, opaque, flag, len(remark_bytes))
    return b"".join((fixed, remark_bytes, LENGTH.pack(len(ext_bytes)), ext_bytes))


def map_serialize(pairs: list[tuple[str, str]]) -> bytes:
    """Keys and values, each behind its length.

    Java: org.apache.rocketmq.remoting.protocol.RocketMQSerializable#mapSerialize (4.9.8)
    """
    parts: list[bytes] = []
    for key, value in pairs:
        key_bytes, value_bytes = _utf8(key), _utf8(value)
        if len(key_bytes) > MAX_KEY_LENGTH:
            raise RemotingCommandException(f"extFields key of {len(key_bytes)} bytes")
        parts += (len(key_bytes).to_bytes(2, "big"), key_bytes, len(value_bytes).to_bytes(4, "big"), value_bytes)
    return b"".join(parts)


def rocketmq_protocol_decode(header: bytes) -> tuple[Fixed, str | None, dict[str, str] | None]:
    """((code, language, version, opaque, flag), remark, extFields). RemotingCommandException for lengths that lie.

    Java: org.apache.rocketmq.remoting.protocol.RocketMQSerializable#rocketMQProtocolDecode (4.9.8)
    """
    if len(header) < HEADER_FIXED.size + LENGTH.size:
        raise RemotingCommandException(f"header of {len(header)} bytes")
    code, language, version, opaque, flag, remark_length = HEADER_FIXED.unpack_from(header)
    end = HEADER_FIXED.size + remark_length
    if not 0 <= remark_length <= len(header) - HEADER_FIXED.size - LENGTH.size:
        raise RemotingCommandException(f"string length exceed limit:{len(header)}")
    remark = header[HEADER_FIXED.size:end].decode("utf-8", "replace") if remark_length else None
    (ext_length,) = LENGTH.unpack_from(header, end)
    start = end + LENGTH.size
    if ext_length > len(header) - start:
        raise RemotingCommandException(
            f"RocketMQ protocol decoding failed, extFields length: {ext_length}, but header length: {len(header)}")
    ext_fields = map_deserialize(header, start, start + ext_length) if ext_length > 0 else None
    fixed = (_int16(code), language, _int16(version), opaque, flag)
    return fixed, remark, ext_fields


def map_deserialize(data: bytes, position: int, end: int, errors: str = "strict") -> dict[str, str]:
    """The pairs between two positions. An empty key or value is null in Java: such a pair is left out.

    Java: org.apache.rocketmq.remoting.protocol.RocketMQSerializable#mapDeserialize (4.9.8)
    """
    result: dict[str, str] = {}
    try:
        for _ in range(MAX_EXT_FIELDS + 1):
            if position >= end:
                return result
            key = position + 2
            key_end = key + (data[position] << 8 | data[position + 1])
            value = key_end + 4
            if value > end:
                raise RemotingCommandException(f"string length exceed limit:{end}")
            value_end = value + int.from_bytes(data[key_end:value], "big")
            if value_end > end:
                raise RemotingCommandException(f"string length exceed limit:{end}")
            if value_end > value and key_end > key:
                result[str(data[key:key_end], "utf-8", errors)] = str(data[value:value_end], "utf-8", errors)
            position = value_end
    except IndexError:
        raise RemotingCommandException(f"string length exceed limit:{end}") from None
    except UnicodeDecodeError:
        return {**result, **map_deserialize(data, position, end, "replace")}
    raise RemotingCommandException(f"more than {MAX_EXT_FIELDS} extFields")


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _int16(value: int) -> int:
    return value - 0x1_0000 if value & 0x8000 else value
