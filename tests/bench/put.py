"""Puts per second of the bare store (no network, one putting thread), at 128 B and 1 KiB, and where the time goes.

    python -m tests.bench.put [--count 200000] [--sizes 128 1024] [--folder F] [--json F]

The real broker has no such tool, so there is no ratio. Each size is measured three times: with dispatch to consume
queues and index beside the puts (as in a broker), with dispatch held back, and with a sampling thread that shows the
share of each function of the putting thread. The process has one GIL, so time that dispatch uses is lost to the puts;
the time with dispatch ends when everything is dispatched.
"""
import argparse
import collections
import logging
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from rmqha.common.broker_config import BrokerConfig
from rmqha.common.message import message_const, message_decoder
from rmqha.common.threads import current_frames
from rmqha.store.append import MessageExtBrokerInner
from rmqha.store.default_message_store import DefaultMessageStore
from rmqha.store.message_store_config import MessageStoreConfig
from rmqha.store.results import PutMessageStatus
from tests.bench.results import Results, add_json

TOPICS = 4
QUEUES = 8
_SAMPLE_SECONDS = 0.002
_HOST = ("127.0.0.1", 10911)


def open_store(folder: Path) -> DefaultMessageStore:
    """Return a running store with the broker's default sizes."""
    config = MessageStoreConfig()
    config.storePathRootDir, config.storePathCommitLog = str(folder), str(folder / "commitlog")
    config.haListenPort = 0
    store = DefaultMessageStore(config, None, None, BrokerConfig())
    assert store.load()
    store.start()
    return store


def make_messages(count: int, size: int) -> list[MessageExtBrokerInner]:
    """Return messages as the send processor hands them over: with tag, key and unique key."""
    body, messages = b"b" * size, []
    for number in range(count):
        message = MessageExtBrokerInner()
        message.topic, message.queue_id = f"bench_topic_{number // QUEUES % TOPICS}", number % QUEUES
        message.body = body
        message.born_timestamp, message.born_host, message.store_host = 1_700_000_000_000, _HOST, _HOST
        message.sys_flag = 0
        message.properties = {
            message_const.PROPERTY_KEYS: f"order{number:012d}", message_const.PROPERTY_TAGS: f"Tag{number % 5}",
            message_const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX: f"0A000001{number:024X}",
            message_const.PROPERTY_WAIT_STORE_MSG_OK: "true"}
        message.properties_string = message_decoder.message_properties2string(message.properties)
        message.tags_code = MessageExtBrokerInner.tags_string2tags_code(None, f"Tag{number % 5}")
        messages.append(message)
    return messages


def put_all(store: DefaultMessageStore, messages: list[MessageExtBrokerInner]) -> float:
    """Return the seconds for all puts, and for the dispatch if it runs. RuntimeError if a put is not accepted."""
    put, ok = store.put_message, PutMessageStatus.PUT_OK
    begin = time.perf_counter()
    for message in messages:
        result = put(message)
        if result.put_message_status is not ok:
            raise RuntimeError(f"a put was refused: {result}")
    while store.reput_message_service.is_alive() and not store.reput_message_service.wait_caught_up(1000):
        pass
    return time.perf_counter() - begin


class Sampler(threading.Thread):
    """Samples one thread every 2 ms and counts its innermost functions."""

    def __init__(self, watched: int) -> None:
        super().__init__(daemon=True)
        self.watched = watched
        self.seen: collections.Counter[str] = collections.Counter()
        self.over = threading.Event()

    def run(self) -> None:
        """Sample until `over`."""
        while not self.over.wait(_SAMPLE_SECONDS):
            code = current_frames()[self.watched].f_code
            self.seen[f"{Path(code.co_filename).stem}.{code.co_qualname}"] += 1

    def table(self, lines: int) -> list[tuple[str, float]]:
        """Return the functions with the largest shares."""
        total = sum(self.seen.values()) or 1
        return [(name, count / total) for name, count in self.seen.most_common(lines)]


def measure(folder: Path, size: int, count: int, rounds: int, results: Results) -> None:
    """Measure one size in all three ways."""
    rates: dict[str, list[float]] = {"with dispatch": [], "dispatch held": []}
    for number in range(rounds):
        for name, seen in rates.items():
            store = open_store(folder / f"{size}-{name.replace(' ', '-')}-{number}")
            try:
                messages = make_messages(count, size)
                if name == "dispatch held":
                    store.reput_message_service.shutdown()
                seen.append(count / put_all(store, messages))
            finally:
                store.shutdown()
                store.destroy()
    for name, seen in rates.items():
        middle = statistics.median(seen)
        say(f"{size:5} B  {name:14} {middle:9,.0f} msg/s  {1e6 / middle:6.1f} us  {middle * size / 1e6:6.1f} MB/s of "
            f"bodies  (min {min(seen):,.0f}, max {max(seen):,.0f})")
        results.row("rmqha", "rate", "msg/s", seen, size=size, way=name)
    store = open_store(folder / f"{size}-sampled")
    sampler = Sampler(threading.get_ident())
    try:
        messages = make_messages(count, size)
        sampler.start()
        put_all(store, messages)
    finally:
        sampler.over.set()
        sampler.join()
        store.shutdown()
        store.destroy()
    for name, share in sampler.table(12):
        say(f"         {share:5.1%} of the putting thread in {name}")


def say(text: str) -> None:
    """Print one line immediately."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> None:
    """Measure all sizes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--sizes", type=int, nargs="+", default=[128, 1024])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", help="folder for the stores (default: the system's temporary folder)")
    add_json(parser)
    arguments = parser.parse_args()
    results = Results("put", arguments)
    # A store without dispatch logs a warning when it ends.
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory(prefix="rmqha-bench-", dir=arguments.folder) as folder:
        for size in arguments.sizes:
            measure(Path(folder), size, arguments.count, arguments.rounds, results)


if __name__ == "__main__":
    main()
