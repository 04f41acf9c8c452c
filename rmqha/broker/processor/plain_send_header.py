"""The header of a send as clients of 4.9 write it, read by one pattern: what the broker never looks at is not decoded.

Pure: no socket, no store. Whatever is unusual does not match, and goes the general way.
"""
import re
from collections.abc import Callable
from typing import NamedTuple

from rmqha.common.message import message_const
from rmqha.common.message.message_decoder import property_order

_NUMBER = rb"(\d{1,9})"
# {"code":310,"extFields":{a: producer group, b: topic, c: default topic, d: its queues, e: queue id, f: sysFlag,
# g: born timestamp, h: flag, i: properties, j: reconsume times, k: unit mode, l: max reconsume times, m: batch,
# n: broker name}, ...}
_match_header: Callable = re.compile(
    rb'\{"code":310,"extFields":\{"a":"[^"\\]+","b":"([^"\\]+)","c":"[^"\\]+","d":"\d{1,9}","e":"' + _NUMBER
    + rb'","f":"' + _NUMBER + rb'","g":"(\d{13})","h":"' + _NUMBER + rb'","i":"([^"]*)","j":"' + _NUMBER
    + rb'","k":"(?:true|false)",(?:"l":"\d{1,9}",)?"m":"false"(?:,"n":"[^"\\]*")?\},"flag":0,"language":"JAVA",'
    + rb'"opaque":' + _NUMBER + rb',"serializeTypeCurrentRPC":"JSON","version":\d{1,9}\}').fullmatch

_CLUSTER = message_const.PROPERTY_CLUSTER
_WAIT = message_const.PROPERTY_WAIT_STORE_MSG_OK
# Properties that make a message more than something to append.
_SPECIAL = frozenset((message_const.PROPERTY_DELAY_TIME_LEVEL, message_const.PROPERTY_TRANSACTION_PREPARED,
                      message_const.PROPERTY_INNER_MULTI_DISPATCH))


def match_header(header: bytes) -> tuple[bytes, bytes, bytes, bytes, bytes, bytes, bytes, bytes] | None:
    """Topic, queue id, sysFlag, born timestamp, flag, properties, reconsume times, opaque as they stand there.

    None when it is no plain send.
    """
    if not header.isascii():
        return None
    match = _match_header(header)
    return None if match is None else match.groups()


class _Shape(NamedTuple):
    """What is to be done with properties of these names in this order."""

    order: tuple[int, ...]  # which entry comes when; -1: the cluster's
    wait: int  # the entry that says whether the client waits; -1: there is none


class PropertyShapes:
    """Turns the properties of a header into those of the record: without WAIT, with CLUSTER, in Java's order.

    The order of each set of names is found once. One thread.
    """

    MAX_SHAPES = 4096

    def __init__(self, cluster_name: str) -> None:
        self._cluster = f"{_CLUSTER}\x01{cluster_name}".encode()
        self._shapes: dict[tuple[bytes, ...], _Shape | None] = {}

    def rewrite(self, escaped: bytes) -> bytes | None:
        """The record's properties; None when the message is no plain one or the text is unusual."""
        text = escaped.replace(b"\\u0001", b"\x01").replace(b"\\u0002", b"\x02")
        if b"\\" in text:
            return None
        entries = text.split(b"\x02")
        if not entries[-1]:
            entries.pop()
        try:
            names = tuple([name for name, _ in [entry.split(b"\x01") for entry in entries]])
        except ValueError:
            return None
        if names in self._shapes:
            shape = self._shapes[names]
        else:
            shape = self._shape_of(names)
        if shape is None or b"\x01\x02" in text or text.endswith(b"\x01"):
            return None
        order, wait = shape
        if wait >= 0 and entries[wait] != b"WAIT\x01true":
            return None
        entries.append(self._cluster)
        return b"\x02".join([entries[index] for index in order])

    def _shape_of(self, names: tuple[bytes, ...]) -> _Shape | None:
        if len(self._shapes) >= self.MAX_SHAPES:
            self._shapes.clear()
        texts = [name.decode("ascii") for name in names]
        shape = None
        if len(set(texts)) == len(texts) and "" not in texts and _CLUSTER not in texts and not _SPECIAL & set(texts):
            wait = texts.index(_WAIT) if _WAIT in texts else -1
            # WAIT leaves the map before CLUSTER's place in it is asked for
            stored = tuple([name for name in (*texts, _CLUSTER) if name != _WAIT])
            places = {name: index for index, name in enumerate(texts)}
            shape = _Shape(tuple([places.get(name, -1) for name in property_order(stored)]), wait)
        self._shapes[names] = shape
        return shape
