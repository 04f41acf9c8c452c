"""Failover under load. The exit code is 1 if a promise was broken; then the stores are kept.

    python -m tests.faults.failover --cycles 300 --kind kill
    python -m tests.faults.failover --cycles 300 --kind kill --store etcd --least-in-sync 3
    python -m tests.faults.failover --cycles 100 --kind switch --stale 16
    python -m tests.faults.failover --cycles 30 --kind kill --controller java --brokers java
    python -m tests.faults.failover --cycles 50 --kind kill --controller java --brokers mixed
    python -m tests.faults.failover --cycles 200 --kind partition --seconds 180 --clocks --jobs 3

A cycle of `partition` is a sequence of `--seconds`. The seed determines the schedule.
"""
import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.faults import ledger, pair_broker
from tests.faults.failover import cluster
from tests.faults.failover import lives as campaign
from tests.faults.failover.cluster import Plan
from tests.faults.failover.lives import KINDS, Outcome
from tests.support import real_rocketmq
from tests.support.nodes import why_no_etcd


def why_not(kind: str, plan: Plan) -> str | None:
    """Return why this is not possible on this machine, or None if it is."""
    reason = None
    if "java" in (plan.controller, plan.brokers) or plan.brokers == "mixed":
        reason = real_rocketmq.why_unavailable()
    if plan.controller == "rmqha" and plan.store == "etcd":
        reason = reason or why_no_etcd()
    if kind == "partition":
        reason = reason or cluster.why_not()
    return reason or (pair_broker.why_not() if plan.clocks else None)


def _entries(outcomes: list[Outcome], seed: int) -> list[ledger.Entry]:
    commit, groups = ledger.present_commit(), {}
    for outcome in outcomes:
        named = _named(outcome.life.plan, outcome.life.stale > 0)
        groups.setdefault((f"failover {outcome.life.kind}", named), []).append(outcome)
    return [ledger.Entry(commit, kind, brokers, seed, sum(each.cycles for each in group),
                         sum(each.acknowledged for each in group), sum(bool(each.failure) for each in group))
            for (kind, brokers), group in groups.items()]


def _named(plan: Plan, relays: bool) -> str:
    controller = "java" if plan.controller == "java" else f"rmqha {plan.store}"
    return f"{plan.brokers} under {controller}" + (", relays" if relays else "")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.failover", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cycles", type=int, default=10, help="of each kind")
    parser.add_argument("--minutes", type=float, default=24 * 60, help="no cycle begins after that")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", action="append", choices=list(KINDS))
    parser.add_argument("--controller", choices=["rmqha", "java"], default="rmqha")
    parser.add_argument("--store", choices=["local", "etcd"], default="local")
    parser.add_argument("--brokers", choices=["rmqha", "java", "mixed"], default="rmqha")
    parser.add_argument("--min-in-sync", type=int, default=2, help="minInSyncReplicas")
    parser.add_argument("--least-in-sync", type=int, choices=[2, 3], default=2,
                        help="replicas, when `kill` kills a master; 2: in one cycle of five the third is catching up")
    parser.add_argument("--seconds", type=float, default=180, help="of a sequence of `partition`")
    parser.add_argument("--clocks", action="store_true", help="`partition` sets wall clocks, too")
    parser.add_argument("--producers", type=int, default=16)
    parser.add_argument("--stale", type=int, default=0,
                        help="producers that always send to the same broker, whichever is the master: it relays")
    parser.add_argument("--pause", type=float, default=40, help="of a producer between two messages, in ms")
    parser.add_argument("--jobs", type=int, default=1, help="lives at a time")
    parser.add_argument("--folder", type=Path, default=None,
                        help="where the stores go, and stay; default: a new one in memory")
    parser.add_argument("--json", type=Path, default=None, help="append a line per life")
    parser.add_argument("--record", action="store_true", help="append the result to the ledger, see ledger.py")
    return parser.parse_args()


def main() -> int:
    """Run and print; the exit code shows whether everything holds."""
    options = _options()
    plan = Plan(options.controller, options.store, options.brokers, clocks=options.clocks,
                min_in_sync=options.min_in_sync)
    kinds = []
    for kind in options.kind or ["kill"]:
        reason = why_not(kind, plan)
        print(f"kind {kind} " + (f"is left out: {reason}" if reason else "is taken"), flush=True)
        kinds += [] if reason else [kind]
    if not kinds:
        return 1
    memory = Path("/dev/shm")
    folder = options.folder or Path(tempfile.mkdtemp(prefix="failover-", dir=memory if memory.is_dir() else None))
    begin = time.monotonic()
    lives = campaign.lives_of(kinds, plan, options.seed, options.cycles, folder, until=begin + options.minutes * 60,
                              seconds=options.seconds, producers=options.producers, pause_s=options.pause / 1000,
                              keep=options.folder is not None, least_in_sync=options.least_in_sync,
                              stale=options.stale)
    outcomes = campaign.run(lives, options.jobs)
    print("\n" + campaign.summary(outcomes))
    print(f"{time.monotonic() - begin:.0f} s, seed {options.seed}")
    if options.json is not None:
        campaign.write_json(outcomes, options.json)
    if options.record:
        ledger.append(_entries(outcomes, options.seed))
    failed = any(outcome.failure for outcome in outcomes)
    if not failed and options.folder is None:
        shutil.rmtree(folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
