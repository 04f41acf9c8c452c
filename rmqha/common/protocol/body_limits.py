"""How large the bodies of requests may be that are parsed, by request code.

The limits leave room for what real clients and brokers send, many times over: a subscription takes 17 elements, a queue
to be locked 8, a topic that is registered 17. Codes that are not named here either have no body, or one that is stored
or passed on as it is, up to `maxMessageSize` or the length of a frame.
"""
from typing import NamedTuple

from rmqha.common.protocol import request_code

MIB = 1 << 20
MAX_FRAME_BYTES = 16 * MIB

JSON_MARKS = b"{[,:\\"  # what makes reading JSON expensive, beside its bytes
PROPERTIES_MARKS = b"\n\r\\"
_SHOWN = str.maketrans({"\n": "\\n", "\r": "\\r"})


class BodyLimit(NamedTuple):
    """What a body may have at most; `marks` are the bytes that count as its elements."""

    max_bytes: int
    max_elements: int
    marks: bytes = JSON_MARKS

    def bytes_excess(self, code: int, body: bytes) -> str | None:
        """How many bytes the body has, and may have; None when it has not too many."""
        if len(body) <= self.max_bytes:
            return None
        return f"the body of {code_name(code)} has {len(body)} bytes, the limit is {self.max_bytes}"

    def elements_excess(self, code: int, body: bytes) -> str | None:
        """How many elements the body has, and may have; None when it has not too many. It is not parsed for that."""
        if len(body) <= self.max_elements:
            return None
        elements = len(body) - len(body.translate(None, self.marks))
        if elements <= self.max_elements:
            return None
        return (f"the body of {code_name(code)} has {elements} elements, counted by "
                f"{' '.join(self.marks.decode()).translate(_SHOWN)}, the limit is {self.max_elements}")


# Differs: 4.9 takes any body that fits in a frame, and parses it
BODY_LIMITS: dict[int, BodyLimit] = {
    request_code.HEART_BEAT: BodyLimit(8 * MIB, 400_000),
    request_code.CHECK_CLIENT_CONFIG: BodyLimit(MIB, 50_000),
    request_code.LOCK_BATCH_MQ: BodyLimit(4 * MIB, 200_000),
    request_code.UNLOCK_BATCH_MQ: BodyLimit(4 * MIB, 200_000),
    request_code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: BodyLimit(MIB // 4, 10_000),
    request_code.UPDATE_BROKER_CONFIG: BodyLimit(MIB // 4, 10_000, PROPERTIES_MARKS),
    request_code.REGISTER_BROKER: BodyLimit(MAX_FRAME_BYTES, 850_000),
    request_code.QUERY_DATA_VERSION: BodyLimit(MIB // 16, 1_000),
    request_code.UPDATE_NAMESRV_CONFIG: BodyLimit(MIB // 4, 10_000, PROPERTIES_MARKS),
    request_code.UPDATE_CONTROLLER_CONFIG: BodyLimit(MIB // 4, 10_000, PROPERTIES_MARKS),
    request_code.CONTROLLER_ALTER_SYNC_STATE_SET: BodyLimit(MIB // 16, 1_000),
    request_code.CONTROLLER_GET_SYNC_STATE_DATA: BodyLimit(MIB // 4, 10_000),
    request_code.NOTIFY_BROKER_ROLE_CHANGED: BodyLimit(MIB // 16, 1_000),
}

_NAMES = {code: name for name, code in vars(request_code).items() if isinstance(code, int) and name.isupper()}


def code_name(code: int) -> str:
    """`HEART_BEAT (34)`; the number alone for an unknown code."""
    return f"{_NAMES[code]} ({code})" if code in _NAMES else str(code)
