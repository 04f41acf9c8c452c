"""A store that the real broker writes, with messages of every kind, and a copy of the messages that Java's consumer
got.

    python -m tests.pipeline.java_store FOLDER --messages 2000000 --seconds 150

continues the store in FOLDER for about that long, and prints whether it is complete. Name FOLDER to the tests in
RMQHA_PIPELINE_STORE. FOLDER contains broker/store, got/*.parquet, and written.json (the progress).
"""
import argparse
import json
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.interop import test_java_stores as mixed
from tests.support.java_driver import JavaDriver
from tests.support.nodes import BrokerNode, NamesrvNode

TOPIC = mixed.TOPIC
SENDERS = 4
# From this number of messages on the files have the sizes that users have.
LARGE = 100_000
_TRANSACTIONS = {"transactionCheckInterval": 1000, "transactionTimeOut": 1000, "transactionCheckMax": 3}
# In one of this many rounds: the broker checks open transactions one after the other.
_TRANSACTIONS_IN = 4
_FILLER = "".join(chr(33 + (at * at * 31 + at // 7 * 17) % 90) for at in range(5000))
# Properties that the consumer adds.
_CONSUMERS_OWN = ("MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME")
GOT = pa.schema([("index", pa.int64()), ("queueId", pa.int32()), ("queueOffset", pa.int64()), ("flag", pa.int32()),
                 ("sysFlag", pa.int32()), ("bodyCrc", pa.int32()), ("storeSize", pa.int32()),
                 ("physicalOffset", pa.int64()), ("bornMs", pa.int64()), ("storeMs", pa.int64()),
                 ("tags", pa.string()), ("keys", pa.string()), ("uniqKey", pa.string()),
                 ("properties", pa.map_(pa.string(), pa.string())), ("body", pa.binary())])


@dataclass
class Written:
    """The progress of a store. `sending`: a round has begun and has not ended, so the contents of the store are
    unknown."""

    messages: int
    sent: int = 0
    visible: int = 0
    rounds: int = 0
    sending: bool = False

    @property
    def is_complete(self) -> bool:
        """True if all messages are there."""
        return self.sent >= self.messages

    @property
    def index_shape(self) -> dict[str, int]:
        """Slots and entries of the broker's index files."""
        return {"slots": 500_000, "entries": 2_000_000} if self.messages >= LARGE \
            else {"slots": mixed.SLOTS, "entries": mixed.ENTRIES}

    @property
    def _sizes(self) -> dict[str, int]:
        if self.messages < LARGE:
            return mixed.SIZES
        return {"mappedFileSizeCommitLog": 1 << 30, "mappedFileSizeConsumeQueue": 300_000 * 20,
                "maxHashSlotNum": self.index_shape["slots"], "maxIndexNum": self.index_shape["entries"]}

    @property
    def broker_keys(self) -> dict[str, object]:
        """The broker's configuration."""
        return {**self._sizes, **_TRANSACTIONS}

    def save(self, folder: Path) -> None:
        """Write written.json."""
        (folder / "written.json").write_text(json.dumps(asdict(self)))


def written(folder: Path) -> Written:
    """Return the progress of the store in `folder`."""
    return Written(**json.loads((folder / "written.json").read_text()))


def described(first: int, count: int, transactions: bool, large: bool) -> list[dict]:
    """Return the messages of one round; in a large store, their bodies have many sizes."""
    found = mixed.descriptions(first, transactions, (1,), count)
    for one in mixed.flat(found) if large else ():
        index = one["index"]
        length = 60_000 if index % 1000 == 77 else index * 7919 % 1400
        one["body"] += (_FILLER[index % 1000:] * (length // 4000 + 1))[:length]
    return found


def write(folder: Path, messages: int, driver: JavaDriver, nodes: list, *, at_once: int = 300,
          seconds: float | None = None) -> Written:
    """Continue the store in `folder` until it has `messages` messages or `seconds` have passed; append its servers
    to `nodes`."""
    state = written(folder) if (folder / "written.json").exists() else Written(messages)
    assert not state.sending and state.messages == messages, f"{folder} can't be continued: {state}"
    (folder / "got").mkdir(parents=True, exist_ok=True)
    namesrv = NamesrvNode("java", folder / "namesrv", shared_jvm=True)
    broker = BrokerNode("java", folder / "broker", namesrv.address, shared_jvm=True, **state.broker_keys)
    nodes += [namesrv, broker]
    namesrv.start()
    broker.start()
    if not state.sent:
        driver.create_topic(namesrv.address, broker.address, TOPIC, mixed.QUEUES)
    reader = Reader(driver, namesrv.address, folder / "got", state)
    end = None if seconds is None else time.monotonic() + seconds
    while not state.is_complete and (end is None or time.monotonic() < end):
        _round(driver, namesrv.address, reader, state, at_once, folder)
    reader.drain()
    broker.stop(120)
    namesrv.kill()
    state.visible = reader.count
    state.sending = False
    state.save(folder)
    return state


def _round(driver: JavaDriver, namesrv: str, reader: "Reader", state: Written, at_once: int, folder: Path) -> None:
    large = state.messages >= LARGE
    transactions = not large or state.rounds % _TRANSACTIONS_IN == 0
    this = described(state.sent, min(at_once, state.messages - state.sent), transactions, large)
    state.sending = True
    state.save(folder)
    jobs = [driver.submit("sendMixed", namesrv=namesrv, topic=TOPIC, group=f"mixed-producer-{number}",
                          messages=this[number::SENDERS], deadlineMs=300_000) for number in range(SENDERS)]
    late = reader.waits_for
    reader.expect(mixed.visible(this))
    reader.read(late)  # about the remaining messages of earlier rounds
    for job in jobs:
        refused = [result for result in job.result(400)["results"] if result[0] != "SEND_OK"]
        assert refused == []
    state.sent = max(one["index"] for one in mixed.flat(this)) + 1
    state.rounds += 1


class Reader:
    """Java's consumer: its messages are compared with the sent ones, and kept."""

    def __init__(self, driver: JavaDriver, namesrv: str, folder: Path, state: Written) -> None:
        self._driver, self._namesrv, self._folder = driver, namesrv, folder
        self._outstanding: dict[int, dict] = {}
        self.count = state.visible
        kept = pq.read_table(folder, columns=["queueId", "queueOffset"]).to_pydict() if self.count else {}
        # Places of the messages that were read: a consumer may get a message twice.
        self._places = set(zip(*kept.values()))

    def expect(self, visible: dict[int, dict]) -> None:
        """Add messages that have been sent."""
        self._outstanding |= visible

    @property
    def waits_for(self) -> int:
        """The number of sent messages that it has not received."""
        return len(self._outstanding)

    def read(self, count: int, deadline_ms: int = 30_000) -> None:
        """Read `count` messages, and any that follow."""
        if not count:
            return
        found = self._driver.submit(
            "readMixed", namesrv=self._namesrv, topic=TOPIC, group="reader", expression="*", deadlineMs=deadline_ms,
            lingerMs=300, until=count).result(400)["messages"]
        new = {(one["queueId"], one["queueOffset"]): one for one in found}
        new = {place: one for place, one in new.items() if place not in self._places}
        self._places |= new.keys()
        first = {int(one["properties"]["index"]): one for one in new.values()}
        # The broker commits a transaction twice if it checks again before it has the answer.
        first = {index: one for index, one in first.items() if index in self._outstanding}
        mixed.check_read(list(first.values()), {index: self._outstanding.pop(index) for index in first}, "java")
        if new:
            table = pa.Table.from_pylist(list(map(_row, new.values())), GOT)
            pq.write_table(table, self._folder / f"{self.count:012d}.parquet", compression="zstd")
        self.count += len(new)

    def drain(self) -> None:
        """Read until all messages are received; AssertionError if no more arrive."""
        tries = 5
        while self._outstanding:
            before = len(self._outstanding)
            self.read(before)
            tries -= len(self._outstanding) == before
            assert tries, f"the consumer never got {sorted(self._outstanding)[:20]} of {before}"
        before = None
        while before != self.count:  # copies that the broker has stored
            before = self.count
            self.read(1, deadline_ms=3000)


def _row(one: dict) -> dict:
    properties = {name: value for name, value in one["properties"].items() if name not in _CONSUMERS_OWN}
    return {"index": int(properties["index"]), "queueId": one["queueId"], "queueOffset": one["queueOffset"],
            "flag": one["flag"], "sysFlag": one["sysFlag"], "bodyCrc": one["bodyCrc"], "storeSize": one["storeSize"],
            "physicalOffset": one["physicalOffset"], "bornMs": one["bornMs"], "storeMs": one["storeMs"],
            "tags": properties.get("TAGS"), "keys": properties.get("KEYS"), "uniqKey": properties.get("UNIQ_KEY"),
            "properties": sorted(properties.items()), "body": one["body"].encode()}


@contextmanager
def _killing() -> Iterator[list]:
    nodes: list = []
    try:
        yield nodes
    finally:
        for node in nodes:
            node.kill()


def main(args: Iterable[str] | None = None) -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--messages", type=int, default=2_000_000)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--at-once", type=int, default=6000)
    given = parser.parse_args(args)
    given.folder.mkdir(parents=True, exist_ok=True)
    with _killing() as nodes:
        driver = JavaDriver(given.folder / "driver").start()
        driver.close = driver.shutdown
        with closing(driver):
            state = write(given.folder, given.messages, driver, nodes, at_once=given.at_once, seconds=given.seconds)
    print(f"{state.sent:,} of {state.messages:,} messages, {state.visible:,} visible to consumers"
          + ("; complete" if state.is_complete else "; run it again"))


if __name__ == "__main__":
    main()
