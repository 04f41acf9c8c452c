"""Message latency and longest pause beside many idle topics, groups and connections: the real broker and rmqha.

    python -m tests.bench.pauses [--topics 1000] [--queues 8] [--groups 1000] [--offsets 100] [--commits 500]
                                 [--connections 2000] [--rate 200] [--seconds 60] [--rounds 1] [--folder F]
                                 [--only java|rmqha] [--stalls 20] [--slave] [--json F]

The broker has `--topics` topics of `--queues` queues, a message in each, and `--groups` groups with `--offsets`
consumer offsets each, of which `--commits` per second are committed again. `--connections` clients are connected and
send a heartbeat every 30 s. Beside them a producer sends `--rate` messages per second, at fixed times, and a push
consumer receives them; both are Python, each in a separate process.

Latency counts from the time at which a message was due until it reaches its listener, so that a send that waits also
counts for the messages after it. The output has the median, p99, p99.9, the maximum, the number of messages that were
more than 50 ms late, and the broker's CPU. With `--stalls` rmqha's broker logs which code keeps other threads from
running for that many ms, and those lines are printed. `--slave` adds a slave and makes the master a SYNC_MASTER.
"""
import argparse
import itertools
import json
import multiprocessing
import os
import re
import statistics
import tempfile
import threading
import time
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path

import psutil

from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
from rmqha.client.consumer.listeners import ConsumeConcurrentlyStatus
from tests.bench import KINDS
from tests.bench.results import Results, add_json, distribution
from tests.bench.scale import make_log, make_topics
from tests.bench.send import _running
from tests.bench.startup import DEFAULT_STORE, say
from tests.support import real_rocketmq
from tests.support.nodes import BrokerNode, NamesrvNode
from tests.support.raw_remoting import SEND_MESSAGE, RawClient, frame, header

_TOPIC, _QUEUES = "pauses", 4
_UPDATE_CONSUMER_OFFSET, _HEART_BEAT = 15, 34
_ONEWAY = 2
_HEARTBEAT_S = 30
_LATE_MS = 50
_SETTLE_S = 5
_SETTINGS = {**DEFAULT_STORE, "mappedFileSizeCommitLog": 256 << 20, "maxHashSlotNum": 100_000, "maxIndexNum": 400_000}


def produce(address: str, rate: int, seconds: float) -> None:
    """Send a message at each due time; its body is that time (monotonic ns)."""
    with RawClient(address) as client:
        def drain() -> None:
            while True:
                try:
                    client.read_frame()
                except (OSError, EOFError):
                    return

        threading.Thread(target=drain, daemon=True).start()
        begin = time.monotonic_ns() + 100_000_000
        for number in range(int(rate * seconds)):
            due = begin + number * 1_000_000_000 // rate
            time.sleep(max(0, due - time.monotonic_ns()) / 1e9)
            fields = {"producerGroup": "raw-producer", "topic": _TOPIC, "defaultTopic": "TBW102",
                      "defaultTopicQueueNums": 4, "queueId": number % _QUEUES, "sysFlag": 0,
                      "bornTimestamp": int(time.time() * 1000), "flag": 0, "properties": "", "reconsumeTimes": 0}
            client.send(frame(header(SEND_MESSAGE, number, **fields), b"%020d" % due + bytes(200)))
        time.sleep(1)


def consume(namesrv: str, orders: Connection) -> None:
    """Consume all messages until asked to stop; then send how late each was, in ms."""
    late: list[float] = []

    def listener(messages: list) -> ConsumeConcurrentlyStatus:
        now = time.monotonic_ns()
        late.extend((now - int(bytes(message.body[:20]))) / 1e6 for message in messages)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    consumer = DefaultMQPushConsumer("pauses-listener", namesrv, listener)
    consumer.subscribe(_TOPIC, "*")
    consumer.start()
    orders.send("ready")
    while orders.recv() == "told":
        orders.send(list(late))
        late.clear()
    consumer.shutdown()


def idle(address: str, arguments: argparse.Namespace, orders: Connection) -> None:
    """Hold connections with their heartbeats, and keep committing offsets."""
    clients = []
    for number in range(arguments.connections):
        client = RawClient(address)
        client.send(_heartbeat(number))
        client.read_frame()
        clients.append(client)
    committer = RawClient(address)
    commits = _commits(arguments)
    for commit in itertools.islice(commits, arguments.groups * arguments.offsets):
        committer.send(commit)
    orders.send("ready")
    begin, sent, beats = time.monotonic(), 0, 0
    while not orders.poll(0.01):
        elapsed = time.monotonic() - begin
        while arguments.commits and sent < elapsed * arguments.commits:
            committer.send(next(commits))
            sent += 1
        while clients and beats < elapsed * len(clients) / _HEARTBEAT_S:
            client = clients[beats % len(clients)]
            client.send(_heartbeat(beats % len(clients)))
            client.read_frame()
            beats += 1


def _heartbeat(number: int) -> bytes:
    body = {"clientID": f"10.0.0.1@idle-{number}", "producerDataSet": [{"groupName": f"producer-{number % 100}"}],
            "consumerDataSet": []}
    return frame(header(_HEART_BEAT), json.dumps(body).encode())


def _commits(arguments: argparse.Namespace):
    """Return an endless iterator of oneway commits: the offsets of all groups in turn."""
    queues = arguments.queues
    for round_number in itertools.count(1):
        for group in range(arguments.groups):
            for number in range(arguments.offsets):
                topic = (group * arguments.offsets + number) // queues % arguments.topics
                head = json.loads(header(_UPDATE_CONSUMER_OFFSET, 1, consumerGroup=f"group-{group}",
                                         topic=f"scale_{topic:05d}", queueId=number % queues,
                                         commitOffset=round_number % 2))
                head["flag"] = _ONEWAY
                yield frame(json.dumps(head).encode())


def _start(stack: ExitStack, target, *arguments: object) -> Connection:
    """Start a separate process and wait until it has sent "ready"; it ends with the stack."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(*arguments, theirs), daemon=True)
    process.start()
    stack.callback(process.join)
    stack.callback(ours.send, "stop")
    assert ours.recv() == "ready"
    return ours


def measure(kind: str, folder: Path, arguments: argparse.Namespace) -> tuple[dict[str, float], list[float]]:
    """Return one kind's figures, and how late each message was, in ms. Everything is started for this kind alone."""
    with ExitStack() as stack:
        namesrv = stack.enter_context(_running(NamesrvNode(kind, folder / "n")))
        store = folder / "m" / "store"
        make_log(store / "commitlog", arguments.topics, arguments.queues, 1)
        make_topics(store, arguments.topics, arguments.queues)
        settings = dict(_SETTINGS)
        if arguments.stalls and kind == "rmqha":
            settings["stallWatchMs"] = arguments.stalls
        role = "SYNC_MASTER" if arguments.slave else "ASYNC_MASTER"
        master = stack.enter_context(_running(BrokerNode(kind, folder / "m", namesrv.address, **settings,
                                                         brokerRole=role)))
        if arguments.slave:
            stack.enter_context(_running(BrokerNode(kind, folder / "s", namesrv.address, **settings, brokerId=1,
                                                    brokerRole="SLAVE", haMasterAddress=master.ha_address)))
            master.wait_for_slave()
        with RawClient(master.address) as client:
            client.create_topic(_TOPIC, _QUEUES)
        _start(stack, idle, master.address, arguments)
        consumer = _start(stack, consume, namesrv.address)
        time.sleep(_SETTLE_S)
        produce(master.address, arguments.rate, 5)  # opens connections, warms routes and compilers
        consumer.send("told")
        consumer.recv()
        process = psutil.Process(master.pid)
        before, begin = sum(process.cpu_times()[:2]), time.monotonic()
        produce(master.address, arguments.rate, arguments.seconds)
        used = (sum(process.cpu_times()[:2]) - before) / (time.monotonic() - begin)
        consumer.send("told")
        late = consumer.recv()
        if settings.get("stallWatchMs"):
            _tell_stalls(master)
        if len(late) < int(arguments.rate * arguments.seconds):
            raise SystemExit(f"{kind}: only {len(late)} messages arrived")
    quantiles = statistics.quantiles(late, n=1000)
    return {"p50 ms": quantiles[499], "p99 ms": quantiles[989], "p99.9 ms": quantiles[998], "latest ms": max(late),
            f"later than {_LATE_MS}": sum(one > _LATE_MS for one in late), "CPU %": 100 * used}, late


def _tell_stalls(master: BrokerNode) -> None:
    for file in sorted(master.folder.rglob("*.log")):
        text = file.read_text("utf-8", "replace")
        for found in re.finditer(r"^.*no other thread had a turn.*(?:\n(?!\d{4}-).*)*", text, re.MULTILINE):
            say(found[0])


def main() -> None:
    """Run the requested measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("topics", 1000), ("queues", 8), ("groups", 1000), ("offsets", 100), ("commits", 500),
                          ("connections", 2000), ("rate", 200), ("rounds", 1), ("stalls", 0)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--folder", help="folder for the stores (default: the system's temporary folder)")
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--slave", action="store_true")
    add_json(parser)
    arguments = parser.parse_args()
    os.environ.setdefault("RMQHA_JAVA_OPTIONS", real_rocketmq.FULL_SPEED)
    results = Results("pauses", arguments)
    kinds = [kind for kind in KINDS if arguments.only in (None, kind)]
    seen: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    lateness: dict[str, list[list[tuple[float, float]]]] = {kind: [] for kind in kinds}
    for number in range(arguments.rounds):
        for kind in kinds:
            with tempfile.TemporaryDirectory(prefix="rmqha-bench-", dir=arguments.folder) as folder:
                table, late = measure(kind, Path(folder), arguments)
            seen[kind].append(table)
            lateness[kind].append(distribution(late))
            figures = "  ".join(f"{name} {value:.2f}" for name, value in seen[kind][-1].items())
            say(f"round {number} {kind:6} {figures}")
    say(f"{arguments.topics * arguments.queues:,} queues     " + " ".join(f"{kind:>10}" for kind in kinds))
    for name in seen[kinds[0]][0]:
        medians = " ".join(f"{statistics.median(each[name] for each in seen[kind]):10,.2f}" for kind in kinds)
        say(f"{name:17} {medians}")
    note(results, arguments, seen, lateness)


def note(results: Results, arguments: argparse.Namespace, seen: dict[str, list[dict[str, float]]],
         lateness: dict[str, list[list[tuple[float, float]]]]) -> None:
    """Record the figures of the table, and the distribution of each round."""
    case = {"queues": arguments.topics * arguments.queues, "groups": arguments.groups,
            "connections": arguments.connections, "rate": arguments.rate,
            "role": "SYNC_MASTER" if arguments.slave else "ASYNC_MASTER"}
    for kind, rounds in seen.items():
        results.row(kind, f"messages later than {_LATE_MS} ms", "", [each[f"later than {_LATE_MS}"] for each in rounds],
                    **case)
        results.row(kind, "CPU", "%", [each["CPU %"] for each in rounds], **case)
        results.row(kind, "lateness", "ms", lateness[kind], **case)


if __name__ == "__main__":
    main()
