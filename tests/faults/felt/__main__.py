"""Measure what unchanged clients feel when a master is switched, dies or vanishes.

    python -m tests.faults.felt --ours --event switch --event kill --rounds 3
    python -m tests.faults.felt --java --event kill
    python -m tests.faults.felt --ours --store etcd --event gone --way haproxy --ordered --transactions
    python -m tests.faults.felt --ours --broker-key someKey=true --json felt.jsonl

Go 2.1.2, Java 4.9.8 and 5.1.4, C++ and rmqha's own client, each with one producer (a synchronous send each 20 ms) and
one push consumer with default options. `gone` needs root. The exit code is 1 if an acknowledged message was lost, not
received, or stored more often than it was sent.

The columns: sends that threw, sends that returned another status than SEND_OK, sends with several attempts (- if the
client does not show them), the longest time without a SEND_OK, the longest send, the longest time from a send to the
reception of its message, messages that never came, and receptions of messages that had come before.
"""
import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.faults import network
from tests.faults.failover import cluster
from tests.faults.felt import run, ways
from tests.faults.felt.events import EVENTS, NEEDS_NETWORKS
from tests.faults.felt.programs import ORDERED, PROGRAMS, TRANSACTIONS, Pace, Program
from tests.faults.felt.run import Run, Task
from tests.faults.felt.system import Setup
from tests.support import real_rocketmq, warm
from tests.support.nodes import why_no_etcd

# Otherwise a transaction of unknown fate is checked after a minute.
_CHECK_EACH_MS = "10000"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.felt", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    servers = parser.add_mutually_exclusive_group()
    servers.add_argument("--ours", action="store_true", help="rmqha's servers; the default")
    servers.add_argument("--java", action="store_true",
                         help=f"brokers, controller and name server of RocketMQ {real_rocketmq.VERSION_5}")
    parser.add_argument("--store", choices=["local", "etcd"], default="local", help="of rmqha's controllers")
    parser.add_argument("--names", type=int, choices=[1, 2], default=1,
                        help="broker names, with three replicas each; events hit them in turn")
    parser.add_argument("--way", choices=ways.WAYS, default=None,
                        help="the clients use one address, with the files of conf/failover; one broker name")
    parser.add_argument("--event", action="append", choices=list(EVENTS), help="may be repeated; default: switch")
    parser.add_argument("--rounds", type=int, default=3, help="of each event")
    parser.add_argument("--settle", type=float, default=35,
                        help="seconds after an event; after less than 31 some clients still use the address of the "
                             "previous master, and do not feel the next event")
    parser.add_argument("--clients", default=",".join(PROGRAMS), help="some of " + ", ".join(PROGRAMS))
    parser.add_argument("--ordered", action="store_true",
                        help="also a Java client that sends to one queue, with an orderly consumer")
    parser.add_argument("--transactions", action="store_true",
                        help="also a Java producer of transactions, one each 100 ms")
    parser.add_argument("--networks", action="store_true", help="a network for each server, as `gone` needs it")
    parser.add_argument("--min-in-sync", type=int, default=2, help="minInSyncReplicas")
    parser.add_argument("--interval", type=int, default=20, help="ms between the sends of a client")
    parser.add_argument("--size", type=int, default=256, help="bytes of a message")
    parser.add_argument("--send-timeout", type=int, default=0, help="of the clients, in ms; 0: their default, 3,000")
    for whose in ("broker", "controller"):
        parser.add_argument(f"--{whose}-key", action="append", default=[], metavar="KEY=VALUE",
                            help=f"a property of each {whose}; may be repeated")
    parser.add_argument("--seed", type=int, default=1, help="of the moments and the targets")
    parser.add_argument("--folder", type=Path, default=None, help="where the files go, and stay")
    parser.add_argument("--json", type=Path, default=None, help="append a line with all figures")
    return parser.parse_args()


def _chosen(options: argparse.Namespace) -> list[Program]:
    chosen = [PROGRAMS[name] for name in options.clients.split(",") if name]
    return chosen + [ORDERED] * options.ordered + [TRANSACTIONS] * options.transactions


def why_not(task: Task) -> str | None:
    """Return why this run is not possible on this machine, or None if it is."""
    reasons = [program.why_unavailable() for program in task.programs]
    if task.setup.is_java:
        reasons.append(real_rocketmq.why_unavailable())
    if task.setup.store == "etcd":
        reasons.append(why_no_etcd())
    if task.setup.networks:
        reasons.append(cluster.why_not())
    reasons.append(ways.why_not(task.setup.way))
    if task.setup.way and (task.setup.is_java or task.setup.names > 1):
        reasons.append("--way is for one broker name of rmqha")
    return next((reason for reason in reasons if reason), None)


def _task(options: argparse.Namespace, folder: Path) -> Task:
    events = tuple(options.event or ["switch"])
    broker_keys = dict(key.split("=", 1) for key in options.broker_key)
    if options.transactions:
        broker_keys.setdefault("transactionCheckInterval", _CHECK_EACH_MS)
    setup = Setup(options.java, options.store, options.names,
                  options.networks or options.way is not None or not NEEDS_NETWORKS.isdisjoint(events),
                  options.way, options.min_in_sync, broker_keys,
                  dict(key.split("=", 1) for key in options.controller_key))
    return Task(setup, events, options.rounds, tuple(_chosen(options)), folder, options.settle,
                Pace(options.interval, options.size, options.send_timeout), options.seed)


def main() -> int:
    """Run and print; the exit code shows whether everything holds."""
    options = _options()
    memory = Path("/dev/shm")
    folder = options.folder or Path(tempfile.mkdtemp(prefix="felt-", dir=memory if memory.is_dir() else None))
    task = _task(options, folder.resolve())
    reason = why_not(task)
    if reason is not None:
        print(f"not possible here: {reason}")
        return 1
    if task.setup.networks:
        assert network.isolate(), "no network of its own"
    # A server starts as its users start it.
    warm.switch_off()
    begin = time.monotonic()
    result = Run(task).run()
    print(f"\n{run.text_of(task, result)}\n{time.monotonic() - begin:.0f} s")
    if options.json is not None:
        run.write_json(task, result, options.json)
    if options.folder is None and not result.violations:
        shutil.rmtree(folder)
    else:
        print(f"the files: {folder}")
    return 1 if result.violations else 0


if __name__ == "__main__":
    sys.exit(main())
