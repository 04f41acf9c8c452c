"""`rmqha check group`: a consumer group keeps up, its members run, and it is not paused.

    masters: settings, progress, members --list_groups--> GroupRow --judge_group, Limits--> problems, a line, exit code
"""
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from glob import escape

import click

from rmqha.common.program import examples
from rmqha.common.units import span_text
from rmqha.tools.admin.cluster_admin import ClusterAdmin
from rmqha.tools.check_base import CheckCommand, Status
from rmqha.tools.connection import connected, needed_namesrv
from rmqha.tools.manage.completion import complete_group
from rmqha.tools.manage.group_command import row_object
from rmqha.tools.manage.groups import (
    PARTLY_PAUSED,
    PAUSED,
    GroupListing,
    GroupRow,
    groups_of,
    list_groups,
    long_ms,
    needed_group,
)
from rmqha.tools.manage.masters import cluster_options, on_each
from rmqha.tools.manage.topics import masters_and_crashed
from rmqha.tools.replication.judgement import Problem, worst
from rmqha.tools.terminal import cell, counted, duration_type, emit, put


@dataclass(frozen=True)
class GroupLimits:
    """The limits of a group. A value above one exceeds it; None means unlimited."""

    warn: int
    crit: int
    age_warn_s: float | None = None
    age_crit_s: float | None = None
    min_members: int = 1


def judge_group(row: GroupRow, limits: GroupLimits) -> Iterator[Problem]:
    """Yield what is wrong with a group. Messages that wait for a retry are unread, too."""
    if row.members < limits.min_members:
        few = "no member runs" if not row.members else f"{counted(row.members, 'member')}, {limits.min_members} wanted"
        yield Problem(Status.CRITICAL, few)
    if row.state in (PAUSED, PARTLY_PAUSED):
        yield Problem(Status.WARNING, "paused" if row.state == PAUSED else "paused on some masters")
    if row.unread is None:
        yield Problem(Status.UNKNOWN, "the unread messages are not known: " + (
            "the members of a broadcasting group have its offsets themselves" if row.model == "BROADCASTING" else
            "it has no offsets yet for too many topics"))
        return
    unread = row.unread + row.retries
    status = _status(unread, limits.warn, limits.crit)
    if status is not Status.OK:
        limit = limits.crit if status is Status.CRITICAL else limits.warn
        yield Problem(status, f"{_unread_text(row)}, more than {limit:,}")
    if unread and (limits.age_warn_s is not None or limits.age_crit_s is not None):
        yield from _judge_age(row, limits)


def _status(value: float, warn: float | None, crit: float | None) -> Status:
    if crit is not None and value > crit:
        return Status.CRITICAL
    return Status.WARNING if warn is not None and value > warn else Status.OK


def _judge_age(row: GroupRow, limits: GroupLimits) -> Iterator[Problem]:
    if row.oldest_ms is None:
        yield Problem(Status.UNKNOWN, "the age of the oldest unread message is not known")
        return
    age_s = row.oldest_ms / 1000
    status = _status(age_s, limits.age_warn_s, limits.age_crit_s)
    if status is not Status.OK and not row.oldest_is_exact:
        yield Problem(Status.UNKNOWN, f"the oldest unread message is at most {span_text(age_s)} old")
    elif status is not Status.OK:
        limit = limits.age_crit_s if status is Status.CRITICAL else limits.age_warn_s
        yield Problem(status, f"the oldest unread message is {span_text(age_s)} old, more than {span_text(limit)}")


def _unread_text(row: GroupRow) -> str:
    retries = f", {row.retries:,} of them retries" if row.retries else ""
    return f"{counted((row.unread or 0) + row.retries, 'unread message')}{retries}"


def _summary(row: GroupRow) -> str:
    age = "" if not row.oldest_ms else f", the oldest {'' if row.oldest_is_exact else 'at most '}" + span_text(
        row.oldest_ms / 1000) + " old"
    return f"{_unread_text(row)}{age}; {counted(row.members, 'member')}"


def perfdata(row: GroupRow, limits: GroupLimits) -> str:
    """Return a group's figures as performance data for monitoring: 'label'=value;warn;crit;min."""
    def of(label: str, value: str, warn: float | None, crit: float | None) -> str:
        return f"'{label}'={value};{'' if warn is None else f'{warn:g}'};{'' if crit is None else f'{crit:g}'};0"
    parts = [] if row.unread is None else [of("unread", str(row.unread + row.retries), limits.warn, limits.crit)]
    if row.oldest_ms is not None:
        parts.append(of("age", f"{row.oldest_ms / 1000:g}s", limits.age_warn_s, limits.age_crit_s))
    return " ".join([*parts, f"'members'={row.members};;{limits.min_members}:;0"])


def _found(admin: ClusterAdmin, cluster: str | None, group: str) -> GroupListing:
    """Return the group; CannotAnswerError when no broker has it."""
    brokers = masters_and_crashed(admin, cluster)
    listing = list_groups(admin, brokers, escape(group), with_system=True)
    if not listing.rows:
        needed_group(group, on_each(admin, brokers, partial(groups_of, admin), long_ms(admin)).needed().values())
    return listing


def _text(problems: Iterable[Problem]) -> str:
    order = (Status.CRITICAL, Status.UNKNOWN, Status.WARNING)
    return "; ".join(problem.text for problem in sorted(problems, key=lambda each: order.index(each.status)))


@click.command("group", cls=CheckCommand, short_help="Check that a group keeps up and is not paused.",
               epilog=examples(
    "rmqha check group billing -n 127.0.0.1:9876",
    "rmqha check group billing --warn 1000 --crit 10000 --age-crit 15min"))
@click.argument("group", shell_complete=complete_group)
@click.option("--warn", type=click.IntRange(0), default=1000, show_default=True,
              help="Unread messages above which the result is WARNING; messages that wait for a retry count.")
@click.option("--crit", type=click.IntRange(0), default=10_000, show_default=True,
              help="Unread messages above which the result is CRITICAL.")
@click.option("--age-warn", "age_warn_s", type=duration_type(),
              help="Age of the oldest unread message above which the result is WARNING.")
@click.option("--age-crit", "age_crit_s", type=duration_type(),
              help="Age of the oldest unread message above which the result is CRITICAL.")
@click.option("--min-members", type=click.IntRange(0), default=1, show_default=True,
              help="CRITICAL when fewer members run.")
@cluster_options
def group_check_command(group: str, warn: int, crit: int, age_warn_s: float | None, age_crit_s: float | None,
                        min_members: int, namesrv: str | None, cluster: str | None, timeout_s: float,
                        output: str) -> None:
    """Check a consumer group: its unread messages, the age of the oldest one, and whether members run.

    A paused group is WARNING. Prints one line. Exit code: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN.

    UNKNOWN means that a master does not answer, or that the masters do not know how far the group is: members of a
    broadcasting group have its offsets themselves.
    """
    limits = GroupLimits(warn, crit, age_warn_s, age_crit_s, min_members)
    with connected(needed_namesrv(namesrv), timeout_s) as admin:
        listing = _found(admin, cluster, group)
    problems = [Problem(Status.UNKNOWN, f"{broker.name}: {error.message}")
                for broker, error in listing.asked.errors.items()]
    if not listing.rows:
        problems.append(Problem(Status.UNKNOWN, "the other masters do not have it"))
    for row in listing.rows:
        problems += judge_group(row, limits)
    status = worst(problems)
    text = f"{group}: {_text(problems) or _summary(listing.rows[0])}"
    if output != "table":
        emit({"check": "group", "status": status.name, "code": int(status), "text": text,
              "problems": [{"status": problem.status.name, "text": problem.text} for problem in problems],
              "group": next((row_object(row) for row in listing.rows), None)}, output)
    else:
        put(cell(f"GROUP {status.name} - {text} | " + " ".join(perfdata(row, limits) for row in listing.rows)
                 ).removesuffix(" | "))
    raise SystemExit(int(status))
