"""At the end of a life, when nobody sends any more: all is read once more, and what was acknowledged from the slave.

    files of both     read from their beginnings, by a new copy; the logs compared; consume queues against the log
    the slave's port  each acknowledged message by its offset (VIEW_MESSAGE_BY_ID), all queues as consumers pull them
    `store verify`    on each store, while its broker runs: clean

The first two share nothing with rmqha but the slave itself; the third is rmqha's own command.
"""
from collections.abc import Iterator, Sequence

from click.testing import CliRunner

from rmqha.tools.rmqha_command import rmqha
from tests.faults.drawn_messages import crc_of
from tests.faults.log_copy import LogCopy, Place
from tests.faults.pair_broker import Broker
from tests.faults.senders import TOPICS, Acknowledged
from tests.faults.verdict import Violation
from tests.support import store_compare
from tests.support.raw_remoting import Answer, RawClient, frame, header
from tests.support.wait import wait_until

_VIEW_MESSAGE_BY_ID = 33
_AT_A_TIME = 16
_TIMEOUT_S = 60
_SUCCESS, _TOPIC_NOT_EXIST = 0, 17


def place_of(record: store_compare.Record) -> tuple[str, Place]:
    """Name and place of a record that came over the wire."""
    properties = record.properties
    crc = crc_of(record.body, properties.get("TAGS", ""), properties.get("FILLING", ""))
    return properties.get("KEYS", ""), (record.topic, record.queue_id, record.queue_offset, record.physical_offset, crc)


def check_by_offset(address: str, who: str, wanted: Sequence[tuple[str, Acknowledged]]) -> int:
    """Each message can be read from this broker by its offset, and is what was sent. Their number."""
    with RawClient(address, _TIMEOUT_S) as client:
        for begin in range(0, len(wanted), _AT_A_TIME):
            some = dict(enumerate(wanted[begin:begin + _AT_A_TIME], begin))
            for opaque, (_, placed) in some.items():
                client.send(frame(header(_VIEW_MESSAGE_BY_ID, opaque, offset=placed.offset)))
            for _ in range(len(some)):
                opaque, answer = client.read_frame()
                name, placed = some.pop(opaque)
                found = [place_of(record) for record in _records(answer.body)] if answer.code == _SUCCESS else []
                if found != [(name, placed.place())]:
                    raise Violation(f"A: read from the {who} at {placed.offset}: {found or answer}, acknowledged was "
                                    f"{name} {placed}")
    return len(wanted)


def check_by_queue(address: str, who: str, copy: LogCopy, topics: Sequence[str] = TOPICS) -> int:
    """A consumer pulls what the log has of some topics, queue by queue. The number of messages."""
    by_offset = {place[3]: (name, place) for name, places in copy.places.items() for place in places}
    with RawClient(address, _TIMEOUT_S) as client:
        queues = {key: units for key, units in copy.queues.items() if key[0] in topics}
        for (topic, queue_id), units in queues.items():
            index = min(units)
            while index in units:
                for record in _pulled(client, who, topic, queue_id, index):
                    found, expected = place_of(record), by_offset[units[index][0]]
                    if found != expected:
                        raise Violation(f"A: a consumer reads {found} from the {who} at {topic}/{queue_id} {index}, "
                                        f"the log has {expected}")
                    index += 1
    return sum(map(len, queues.values()))


def _pulled(client: RawClient, who: str, topic: str, queue_id: int, index: int) -> list[store_compare.Record]:
    def known() -> Answer | None:
        answer = client.pull(topic, queue_id, index, 64)
        return None if answer.code == _TOPIC_NOT_EXIST else answer
    answer = wait_until(known, what=f"the {who} to know the topic {topic}, of which its master tells it every 10 s")
    records = list(_records(answer.body)) if answer.code == _SUCCESS else []
    if not records:
        raise Violation(f"A: {topic}/{queue_id} can't be read from the {who} at {index}: {answer}")
    return records


def _records(body: bytes) -> Iterator[store_compare.Record]:
    try:
        yield from store_compare.records_in(body)
    except (AssertionError, UnicodeDecodeError) as failure:
        raise Violation(f"A: what was read is no record: {failure}: {body[:99]!r}") from failure


def check_store(broker: Broker) -> None:
    """`store verify` finds nothing; the index of the original, which loses entries at a kill, is left out."""
    properties = broker.properties
    index = ["--index-slots", str(properties["maxHashSlotNum"]), "--index-entries", str(properties["maxIndexNum"])]
    result = CliRunner().invoke(rmqha, [
        "store", "verify", str(broker.store), "--all", "--file-size", str(properties["mappedFileSizeCommitLog"]),
        *(index if broker.kind == "rmqha" else ["--no-index"])])
    if result.exit_code != 0:
        raise Violation(f"V: store verify of the {broker.base_name}: code {result.exit_code}: {result.output[:2000]} "
                        f"{result.exception!r}")
