"""The long campaigns. The exit code is 1 if something failed; its stores are kept.

Faults of a master and its slave under load (campaign.py), with one line per cycle and one schedule per seed:

    python -m tests.faults --minutes 10 --seed 1            all kinds that this machine can do, except probes and idle
    python -m tests.faults --cycles 500 --seed 1 --kind kill [--kind link]    that many cycles of each kind named
    python -m tests.faults --cycles 100 --seed 1 --kind kill --brokers java-rmqha    a Java master, an rmqha slave

All named points of one store (points.py) with several seeds; prints a table:

    python -m tests.faults --seeds 20 [--jobs 2] [--point TEXT]
"""
import argparse
import os
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.faults import ledger
from tests.faults.harness import Nursery, Outcome, Rounds
from tests.faults.points import POINTS


def run_seed(seed: int, names: list[str], folder: Path) -> list[Outcome]:
    """Run all points with one seed."""
    nursery = Nursery()
    try:
        rounds = Rounds(nursery, folder / f"seed{seed}", seed)
        outcomes = [rounds.run(POINTS[name], seed) for name in names]
    finally:
        nursery.close()
    held = sum(not outcome.failure for outcome in outcomes)
    print(f"seed {seed}: {held} of {len(outcomes)} hold", file=sys.stderr, flush=True)
    return outcomes


def run_points(options: argparse.Namespace, folder: Path) -> int:
    """Run the kill points; return the exit code."""
    names = [name for name in POINTS if options.point in name]
    seeds = range(options.first, options.first + options.seeds)
    with ThreadPoolExecutor(options.jobs or 2) as pool:
        outcomes = [outcome for each in pool.map(lambda seed: run_seed(seed, names, folder), seeds) for outcome in each]
    for name in names:
        of_point = [outcome for outcome in outcomes if outcome.point == name]
        held = sum(not outcome.failure for outcome in of_point)
        print(f"{name:55} {held:4} of {len(of_point)} hold")
    failures = [outcome for outcome in outcomes if outcome.failure]
    for outcome in failures:
        print(f"\n{outcome.point!r} seed {outcome.seed} passage {outcome.passage}:\n{outcome.failure}")
    print(f"\n{len(outcomes) - len(failures)} of {len(outcomes)} rounds hold; stores: {folder}")
    if options.record:
        ledger.append([ledger.Entry(ledger.present_commit(), "store points", "rmqha", options.first, len(outcomes), 0,
                                    len(failures))])
    return 1 if failures else 0


def run_campaign(options: argparse.Namespace, folder: Path) -> int:
    """Run faults of a pair; return the exit code."""
    from tests.faults import campaign
    # why a Java broker does not start
    os.environ.setdefault("RMQHA_JAVA_LOG_LEVEL", "ERROR")
    kinds, (master, _, slave) = [], options.brokers.partition("-")
    for kind in options.kind or [name for name, kind in campaign.KINDS.items() if not kind.by_name_only]:
        reason = campaign.KINDS[kind].why_not()
        if master != "rmqha" and campaign.KINDS[kind].master_of_rmqha_only:
            reason = "the original is known to fail it as a master"
        print(f"kind {kind} " + (f"is left out: {reason}" if reason else "is taken"), flush=True)
        kinds += [] if reason else [kind]
    if not kinds:
        return 1
    minutes = options.minutes or (24 * 60 if options.cycles else 10)
    begin = time.monotonic()
    until = begin + minutes * 60
    lives = campaign.lives_of(kinds, (master, slave), options.seed, options.cycles, until, folder)
    outcomes = campaign.run(lives, options.jobs or 4, until)
    print("\n" + campaign.summary(outcomes))
    if options.record:
        ledger.append(_entries(outcomes, options.seed))
    print(f"{time.monotonic() - begin:.0f} s, seed {options.seed}")
    failed = any(outcome.failure for outcome in outcomes)
    if not failed and options.folder is None:
        shutil.rmtree(folder)
    return 1 if failed else 0


def _entries(outcomes: list, seed: int) -> list[ledger.Entry]:
    """Return a line of the ledger for each kind of fault."""
    commit, groups = ledger.present_commit(), {}
    for outcome in outcomes:
        groups.setdefault((outcome.life.kind, "-".join(outcome.life.brokers)), []).append(outcome)
    return [ledger.Entry(commit, kind, brokers, seed, sum(each.cycles for each in group),
                         sum(each.acknowledged for each in group), sum(bool(each.failure) for each in group))
            for (kind, brokers), group in groups.items()]


def _parser() -> argparse.ArgumentParser:
    from tests.faults import campaign
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=0, help="processes at a time: 2 for the points, 4 for pairs")
    parser.add_argument("--folder", type=Path, default=None, help="where the stores go; default: a new one in memory")
    parser.add_argument("--record", action="store_true", help="append the result to the ledger, see ledger.py")
    pairs = parser.add_argument_group("faults of a pair")
    pairs.add_argument("--minutes", type=float, default=0, help="no cycle begins after that")
    pairs.add_argument("--cycles", type=int, default=None, help="of each kind")
    pairs.add_argument("--seed", type=int, default=1)
    pairs.add_argument("--kind", action="append", choices=list(campaign.KINDS))
    pairs.add_argument("--brokers", default="rmqha-rmqha", help="kinds of master and slave: java-rmqha, rmqha-java")
    points = parser.add_argument_group("kill points of a store")
    points.add_argument("--seeds", type=int, default=20)
    points.add_argument("--first", type=int, default=1, help="the first seed")
    points.add_argument("--point", default="", help="only points whose name contains this")
    return parser


def main() -> int:
    """Run and print; the exit code shows whether everything holds."""
    options = _parser().parse_args()
    of_pairs = bool(options.minutes or options.cycles or options.kind)
    memory = Path("/dev/shm")
    folder = options.folder or Path(tempfile.mkdtemp(prefix="faults-",
                                                     dir=memory if of_pairs and memory.is_dir() else None))
    return run_campaign(options, folder) if of_pairs else run_points(options, folder)


if __name__ == "__main__":
    sys.exit(main())
