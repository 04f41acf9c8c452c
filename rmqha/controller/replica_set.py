"""What a controller knows of the replicas of one broker name: one small JSON document, the unit of each change."""
from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from rmqha.common.texts import parse_json

FIRST_BROKER_CONTROLLER_ID = 1


class ReplicaSetError(ValueError):
    """A document that is none of a replica set."""


@dataclass(frozen=True)
class Replica:
    """One replica: where it is, and the code under which it took its id (`address;ms since 1970`)."""

    address: str
    register_check_code: str


@dataclass(frozen=True)
class ReplicaSet:
    """All that is decided for one broker name. It never changes; a decision makes another one.

    `master_id` is None when nobody is the master. Both epochs count changes and never fall.

    Java: org.apache.rocketmq.controller.impl.manager.BrokerReplicaInfo (5.1.4)
    """

    cluster_name: str
    broker_name: str
    replicas: Mapping[int, Replica] = field(default_factory=dict)
    next_broker_id: int = FIRST_BROKER_CONTROLLER_ID
    master_id: int | None = None
    master_epoch: int = 0
    sync_state_set: frozenset[int] = frozenset()
    sync_state_set_epoch: int = 0

    @property
    def never_had_a_master(self) -> bool:
        """Whether the first election is still to come."""
        return self.master_epoch == 0

    def address(self, broker_id: int | None) -> str | None:
        """`host:port` of a replica; None when it is not known."""
        replica = None if broker_id is None else self.replicas.get(broker_id)
        return None if replica is None else replica.address

    def encode(self) -> bytes:
        """The document: UTF-8 JSON, keys sorted."""
        document = {
            "clusterName": self.cluster_name, "brokerName": self.broker_name, "nextBrokerId": self.next_broker_id,
            "replicas": {str(id_): {"address": r.address, "registerCheckCode": r.register_check_code}
                         for id_, r in self.replicas.items()},
            "masterBrokerId": self.master_id, "masterEpoch": self.master_epoch,
            "syncStateSet": sorted(self.sync_state_set), "syncStateSetEpoch": self.sync_state_set_epoch}
        return json.dumps(document, sort_keys=True, ensure_ascii=False).encode()

    @classmethod
    def decode(cls, data: bytes) -> ReplicaSet:
        """The replica set in a document. ReplicaSetError says what is wrong with it."""
        try:
            document = parse_json(data, "the document")
            return cls(
                _text(document, "clusterName"), _text(document, "brokerName"),
                {_whole(int(id_)): Replica(_text(r, "address"), _text(r, "registerCheckCode"))
                 for id_, r in document["replicas"].items()},
                _whole(document["nextBrokerId"]),
                None if document["masterBrokerId"] is None else _whole(document["masterBrokerId"]),
                _whole(document["masterEpoch"]), frozenset(map(_whole, document["syncStateSet"])),
                _whole(document["syncStateSetEpoch"]))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ReplicaSetError(f"{data[:80]!r} is no replica set: {error!r}") from error


def _text(document: dict[str, object], key: str) -> str:
    value = document[key]
    if not isinstance(value, str):
        raise TypeError(f"{key} is {value!r}, no text")
    return value


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise ValueError(f"{value!r} is no whole number from 0 on")
    return value
