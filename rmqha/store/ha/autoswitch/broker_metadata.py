"""Who a replica is among those of its broker's name, whatever its role: `cluster#name#id` in one small file."""
from __future__ import annotations

import os
from dataclasses import dataclass

from rmqha.common import mix_all

# A broker whose configuration says 0 has this id while it is no master.
FIRST_MASTER_ID = 1000


class BrokerMetadataError(ValueError):
    """The file is of another broker, or none."""


@dataclass(frozen=True)
class BrokerMetadata:
    """The identity of a replica; `broker_id` stays when its role changes.

    Java: org.apache.rocketmq.store.ha.autoswitch.BrokerMetadata (5.1.4)
    """

    cluster_name: str
    broker_name: str
    broker_id: int

    def encode_to_str(self) -> str:
        """The file's text."""
        return f"{self.cluster_name}#{self.broker_name}#{self.broker_id}"

    @classmethod
    def decode_from_str(cls, text: str) -> BrokerMetadata:
        """The identity in a file's text. BrokerMetadataError when there is none."""
        parts = text.strip().split("#")
        if len(parts) != 3 or not (parts[2].isascii() and parts[2].isdecimal()) or len(parts[2]) > 18:
            raise BrokerMetadataError(f"{text[:80]!r} is no cluster#name#id")
        return cls(parts[0], parts[1], int(parts[2]))


@dataclass(frozen=True)
class TempBrokerMetadata:
    """An id that a replica is about to take; `register_check_code` says to the controller that it was this one.

    Java: org.apache.rocketmq.store.ha.autoswitch.TempBrokerMetadata (5.1.4)
    """

    cluster_name: str
    broker_name: str
    broker_id: int
    register_check_code: str

    def encode_to_str(self) -> str:
        """The file's text."""
        return f"{self.cluster_name}#{self.broker_name}#{self.broker_id}#{self.register_check_code}"

    @classmethod
    def decode_from_str(cls, text: str) -> TempBrokerMetadata:
        """What is in a file's text. BrokerMetadataError when there is nothing."""
        identity, _hash, code = text.strip().rpartition("#")
        if not code:
            raise BrokerMetadataError(f"{text[:80]!r} is no cluster#name#id#code")
        metadata = BrokerMetadata.decode_from_str(identity)
        return cls(metadata.cluster_name, metadata.broker_name, metadata.broker_id, code)


def load_or_make(path: str, cluster_name: str, broker_name: str, broker_id: int) -> BrokerMetadata:
    """The identity in the file; a new one, with `broker_id`, when there is no file.

    BrokerMetadataError, which names the file, when it is damaged or of a broker of another name.
    """
    text = mix_all.file2string(path) if os.path.exists(path) else None
    if text is None:
        metadata = BrokerMetadata(cluster_name, broker_name, broker_id or FIRST_MASTER_ID)
        mix_all.string2file(metadata.encode_to_str(), path)
        return metadata
    try:
        metadata = BrokerMetadata.decode_from_str(text)
    except BrokerMetadataError as error:
        raise BrokerMetadataError(f"{path}: {error}. Write it anew, with an id that no other replica has") from error
    if metadata.broker_name != broker_name:
        raise BrokerMetadataError(f"{path} is of broker {metadata.broker_name}, and this one is {broker_name}: the "
                                  "store was copied. Take the file away, and give this replica an id of its own")
    return metadata
