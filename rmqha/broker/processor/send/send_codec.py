"""The simple sends at the start of what a connection has brought, up to the first frame of another kind. Pure.

`read_simple_sends` is compiled where a C compiler was (rmqha/native/_express_send.c), and `sends_in_python` where none
was: both read the same.
"""
from rmqha.broker.processor.send.send_header import read_simple_header
from rmqha.common import sys_flags
from rmqha.common.message import message_layout
from rmqha.native import kernels
from rmqha.remoting.frame_decoder import LENGTH_FIELD_SIZE
from rmqha.store.append import MessageRow

_OTHER_SYS_FLAGS = sys_flags.TRANSACTION_ROLLBACK_TYPE | message_layout.V6_FLAGS

Routes = dict[str, tuple[str, ...]]
"""By topic: "topic-queueId" of each queue."""
SimpleSends = tuple[list[MessageRow], list[int], list[str], int, int, str | None]
"""The sends, their opaques, the topics of which a route was used (again when it changes), the serialize type, the
position behind the last of them, and the topic of the one that comes next when there is no route for it."""


def sends_in_python(data: memoryview, position: int, cluster: bytes, born_host: bytes, routes: Routes, max_body: int,
                    most: int, row_type: type[MessageRow]) -> SimpleSends:
    """The simple sends of one serialize type whose frames lie whole in `data` from `position` on, at most `most`.

    Each to one of the queues in `routes`, its body of at most `max_body` bytes. `cluster`: see `cluster_property`;
    `born_host`: 8 bytes; `row_type`: MessageRow. The bodies are views of `data`.
    """
    sends: list[MessageRow] = []
    opaques: list[int] = []
    topics: list[str] = []
    first_kind = 0
    while len(sends) < most and len(data) - position >= LENGTH_FIELD_SIZE:
        begin = position + LENGTH_FIELD_SIZE
        end = begin + int.from_bytes(data[position:begin], signed=True)
        if not begin <= end <= len(data):
            break
        header = read_simple_header(data[begin:end], cluster)
        if header is None or sends and header[-1] != first_kind:
            break
        topic, queue_id, sys_flag, born, flag, tail, reconsumed, opaque, body_at, crc, kind = header
        keys, body = routes.get(topic), data[begin + body_at:end]
        if keys is None:
            return sends, opaques, topics, first_kind, position, topic
        if topics[-1:] != [topic]:
            topics.append(topic)
        if queue_id >= len(keys) or sys_flag & _OTHER_SYS_FLAGS or len(body) > max_body:
            break
        sends.append(row_type(topic, queue_id, keys[queue_id], row_type.record_size(len(body), len(tail)), crc,
                                flag, sys_flag, born, born_host, reconsumed, body, tail))
        opaques.append(opaque)
        first_kind, position = kind, end
    return sends, opaques, topics, first_kind, position, None


read_simple_sends = kernels.EXPRESS_SENDS.function("read_simple_sends", sends_in_python)
"""`sends_in_python`, or its compiled twin."""
