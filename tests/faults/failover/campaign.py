"""Many lives side by side, each in a process with a network of its own; and what came of them."""
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from tests.faults import campaign
from tests.faults.failover.cluster import Plan
from tests.faults.failover.lives import KINDS, Life, Outcome, run_life


def lives_of(kinds: list[str], plan: Plan, seed: int, cycles: int, folder: Path, **keys: object) -> Iterator[Life]:
    """The schedule; `cycles` of each kind in sum."""
    for kind, life_seed, count in campaign.turns(kinds, seed, cycles, lambda kind: KINDS[kind].cycles_per_life):
        yield Life(kind, plan_of(kind, plan), life_seed, count, folder / f"{kind}-{life_seed}", **keys)


def plan_of(kind: str, plan: Plan) -> Plan:
    """The plan as this kind needs it."""
    if kind != "partition":
        return plan
    return replace(plan, partitions=True)


def run(lives: Iterable[Life], jobs: int) -> list[Outcome]:
    """Run lives in `jobs` processes until there is none left."""
    return campaign.run(iter(lives), jobs, float("inf"), run_life)


def quantiles(values: list[float]) -> dict[str, float]:
    """Count, least, median, 99 % and most, in milliseconds."""
    ordered = sorted(values)

    def at(share: float) -> float:
        return round(ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1000, 1)
    return {"count": len(ordered), "min": at(0), "median": at(0.5), "p90": at(0.9), "p99": at(0.99), "max": at(1)}


def times_of(outcomes: Iterable[Outcome]) -> dict[str, dict[str, float]]:
    """By what was measured."""
    times: defaultdict[str, list[float]] = defaultdict(list)
    for outcome in outcomes:
        for what, values in outcome.times.items():
            times[what] += values
    return {what: quantiles(values) for what, values in sorted(times.items())}


def summary(outcomes: list[Outcome]) -> str:
    """Sums, times, refusals, and the failures."""
    lines = []
    groups: defaultdict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        groups[outcome.life.kind, str(outcome.life.plan)].append(outcome)
    for (kind, plan), group in groups.items():
        failed = [outcome for outcome in group if outcome.failure]
        lines.append(f"{kind}, {plan}: {sum(o.cycles for o in group)} cycles in {len(group)} lives, "
                     f"{sum(o.acknowledged for o in group)} acknowledged, {sum(o.maybe for o in group)} maybe, "
                     f"{sum(o.unknown for o in group)} without an answer, {len(failed)} lives failed, "
                     f"{sum(o.seconds for o in group):.0f} s")
        for what, of in times_of(group).items():
            lines.append(f"  {what}: {of['count']} times, {of['min']} .. {of['max']} ms, median {of['median']}, "
                         f"90 % {of['p90']}, 99 % {of['p99']}")
        refused: defaultdict[str, int] = defaultdict(int)
        for outcome in group:
            for why, count in outcome.refused.items():
                refused[why] += count
        lines += [f"  refused {count} times: {why}" for why, count in
                  sorted(refused.items(), key=lambda item: -item[1])[:8]]
        lines += [f"  FAILED {outcome.life.label()}: {outcome.failure}\n  {outcome.life.folder}" for outcome in failed]
    return "\n".join(lines)


def write_json(outcomes: list[Outcome], file: Path) -> None:
    """A line for each life."""
    with open(file, "a", encoding="utf-8") as out:
        for outcome in outcomes:
            life = outcome.life
            out.write(json.dumps({
                "kind": life.kind, "plan": str(life.plan), "seed": life.seed, "cycles": outcome.cycles,
                "acknowledged": outcome.acknowledged, "maybe": outcome.maybe, "unknown": outcome.unknown,
                "seconds": round(outcome.seconds, 1), "failure": outcome.failure,
                "times_ms": {what: [round(value * 1000, 1) for value in values]
                             for what, values in outcome.times.items()}}) + "\n")
    sys.stdout.flush()
