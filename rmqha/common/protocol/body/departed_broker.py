"""Brokers that a name server misses: they went without saying so, or another one has taken their place.

GET_BROKER_CLUSTER_INFO with the field `askDepartedBrokers` is answered with a field `departedBrokers`, a JSON list. Who
does not ask gets the answer of 4.9, and a name server of 4.9 does not know the field.
"""
import json
from dataclasses import asdict, dataclass

from rmqha.common.json_text import parse_json
from rmqha.common.text_hash import text_hash

ASK = "askDepartedBrokers"
TOLD = "departedBrokers"


@dataclass(frozen=True, order=True)
class DepartedBroker:
    """One of them, as it registered; `since_ms`: for how long it has been away, or -1 for one that is replaced.

    One that is replaced still registers, and so does another one under the same brokerName and brokerId.
    """

    cluster: str = ""
    name: str = ""
    broker_id: int = 0
    address: str = ""
    since_ms: int = -1

    def __hash__(self) -> int:
        return text_hash(self.cluster, self.name, self.broker_id, self.address, self.since_ms)


def encode(brokers: list[DepartedBroker]) -> str:
    """The field's text."""
    return json.dumps([asdict(each) for each in brokers])


def decode(text: str | None) -> list[DepartedBroker]:
    """What `encode` has written, none for None; ValueError for anything else."""
    try:
        told = parse_json(text or "[]", "the field")
        brokers = [DepartedBroker(**each) for each in told]
    except TypeError as error:
        raise ValueError(f"no list of brokers: {error}") from error
    for each in brokers:
        texts, numbers = (each.cluster, each.name, each.address), (each.broker_id, each.since_ms)
        if not all(isinstance(text, str) for text in texts) or not all(type(number) is int for number in numbers):
            raise ValueError(f"no broker: {each}")
    return brokers
