"""`rmqha group`: list, describe, create, alter, pause, resume and delete consumer groups, and move their offsets."""
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rmqha.common.message.message import parse_int
from rmqha.common.program import examples
from rmqha.common.topics import SubscriptionGroupConfig
from rmqha.common.units import TIMES, UnitError, count_text, parse_time, span_text
from rmqha.tools.admin.cluster_admin import Broker
from rmqha.tools.connection import connected, needed_namesrv
from rmqha.tools.manage.completion import complete_group, complete_topic
from rmqha.tools.manage.group_detail import AT_OFFSET, GroupDetail, GroupMember, GroupQueue, describe_group, queue_text
from rmqha.tools.manage.group_seek import (
    EARLIEST,
    LATEST,
    QueueMove,
    SeekPlan,
    SeekResult,
    SeekTarget,
    plan_seek,
    seek,
)
from rmqha.tools.manage.groups import (
    SETTINGS,
    Change,
    Deleted,
    DeletionPlan,
    GroupRow,
    change_group,
    create_group,
    delete_group,
    list_groups,
    plan_deletion,
    set_consuming,
)
from rmqha.tools.manage.masters import ManageGroup, Outcomes, cluster_options, masters
from rmqha.tools.manage.several import Several
from rmqha.tools.terminal import (
    END_WORDS,
    CannotAnswerError,
    WorkFailedError,
    agreed,
    cell,
    counted,
    duration_type,
    emit,
    put,
    put_facts,
    render_table,
    time_text,
    yes_option,
)

F = TypeVar("F", bound=Callable[..., Any])
_FEW = 3  # topics in a cell
_OFFSET_DIGITS = 12  # a longer number is a time, as with `rmqha consume --from`
_NONE, _UNKNOWN = "-", "?"

group_argument = click.argument("group", shell_complete=complete_group)


@click.group("group", cls=ManageGroup)
def group_group() -> None:
    """List and change consumer groups, and move their offsets.

    A group has settings on each master, so each command asks or changes all masters of the cluster. If some of them
    fail, the others are done, the failed ones are named, and the exit code is 1.
    """


# ---- list


@group_group.command("list", short_help="List the groups with their state and their unread messages.", epilog=examples(
    "rmqha group list", "rmqha group list 'billing-*'", "rmqha group list --all -o json"))
@click.argument("pattern", default="*")
@click.option("-a", "--all", "with_system", is_flag=True, help="Include RocketMQ's own groups.")
@cluster_options
def list_command(pattern: str, with_system: bool, namesrv: str | None, cluster: str | None, timeout_s: float,
                 output: str) -> None:
    """List the groups whose names match PATTERN, which may contain `*`, `?` and `[a-z]`.

    The rate is in messages per second, as the brokers counted them in the last minute. The oldest unread message is at
    most that old where `<` precedes its age. Messages that members sent back are counted as retries. `?` is unknown:
    members of a broadcasting group have its offsets themselves.
    """
    with connected(needed_namesrv(namesrv), timeout_s) as admin:
        listing = list_groups(admin, masters(admin, cluster), pattern, with_system)
    if output != "table":
        emit([row_object(row) for row in listing.rows], output)
    elif listing.rows:
        put(render_table(
            ["group", "state", "members", "model", "type", "topics", "unread", "retries", "rate/s", "oldest unread"],
            [_row_cells(row) for row in listing.rows], {"members", "unread", "retries", "rate/s", "oldest unread"}))
    else:
        put("no group" if pattern == "*" else f"no group matches {cell(pattern)}", err=True)
    listing.asked.finish()


def _row_cells(row: GroupRow) -> list[str]:
    topics = ", ".join(map(cell, row.topics[:_FEW])) + (f" +{len(row.topics) - _FEW}" if row.topics[_FEW:] else "")
    age = _age_text(row.unread != 0 or row.retries > 0, row.oldest_ms)
    limit = "" if row.oldest_is_exact or row.oldest_ms is None else "< "
    return [cell(row.name), row.state, str(row.members), row.model.lower(), row.kind, topics, _count_text(row.unread),
            f"{row.retries:,}", count_text(row.rate), limit + age]


def _count_text(unread: int | None) -> str:
    return _UNKNOWN if unread is None else f"{unread:,}"


def _age_text(is_late: bool, oldest_ms: int | None) -> str:
    """Return the age of the oldest unread message for people."""
    if not is_late:
        return _NONE
    return _UNKNOWN if oldest_ms is None else span_text(oldest_ms / 1000)


def row_object(row: GroupRow) -> dict[str, Any]:
    """Return a group for programs."""
    return {"name": row.name, "state": row.state, "members": row.members, "model": row.model, "type": row.kind,
            "topics": list(row.topics), "unread": row.unread, "retries": row.retries, "rate": round(row.rate, 1),
            "oldest_unread_ms": row.oldest_ms, "oldest_unread_exact": row.oldest_is_exact}


# ---- describe


@group_group.command("describe", short_help="Show a group's settings, members, progress and faults.", epilog=examples(
    "rmqha group describe billing", "rmqha group describe billing -o yaml"))
@group_argument
@cluster_options
def describe_command(group: str, namesrv: str | None, cluster: str | None, timeout_s: float, output: str) -> None:
    """Show a group: its settings on each broker, its members, and its progress in each queue.

    Warnings name faults: settings that differ, members with different subscriptions, queues without a member. A member
    describes itself through a broker; the queues of one that does not answer are not known.
    """
    with connected(needed_namesrv(namesrv), timeout_s) as admin:
        detail = describe_group(admin, masters(admin, cluster), group)
    if output == "table":
        _put_detail(detail)
    else:
        emit(_detail_json(detail), output)
    detail.asked.finish()


def _put_detail(detail: GroupDetail) -> None:
    how = ", ".join(filter(None, (detail.model.lower(), detail.kind, detail.consume_from)))
    put_facts({
        "group": cell(detail.name), "state": f"{detail.state}, {counted(len(detail.members), 'member')}",
        **({"consumes": how} if how else {}),
        "unread": _count_text(detail.unread), "rate": f"{count_text(detail.rate)}/s in the last minute",
        "oldest unread": _oldest_text(detail), "retries": f"{detail.retries:,} due in {cell(detail.retry_topic)}",
        "dead letters": f"{detail.dead_letters:,} in {cell(detail.dead_letter_topic)}"})
    for warning in detail.warnings:
        put(f"{click.style('warning', fg='yellow')}: {cell(warning)}")
    put("")
    put(render_table(["setting", "value", ""], [_setting_cells(detail, name) for name in SETTINGS], set()))
    if detail.members:
        put("")
        put(render_table(["member", "address", "language", "version", "subscriptions", "queues"],
                         [_member_cells(member) for member in detail.members], {"queues"}))
    if detail.queues:
        put("")
        put(render_table(["topic", "queue", "committed", "end", "unread", "last consumed", "oldest unread", "member"],
                         [_queue_cells(queue) for queue in detail.queues], {"committed", "end", "unread"}))


def _oldest_text(detail: GroupDetail) -> str:
    oldest = detail.oldest
    if oldest is None:
        return "unknown" if detail.is_late else "nothing is unread"
    which = "the message at the group's offset" if oldest.oldest_at == AT_OFFSET else "the queue's first message"
    return f"{span_text((oldest.oldest_ms or 0) / 1000)} ({which} in {cell(queue_text(oldest.key))})"


def _setting_cells(detail: GroupDetail, name: str) -> list[str]:
    if name not in detail.differs:
        return [name, _value_text(getattr(next(iter(detail.settings.values())), name)) if detail.settings else "", ""]
    values = ", ".join(f"{cell(broker.name)}: {_value_text(getattr(config, name))}"
                       for broker, config in detail.settings.items())
    return [name, values, "differs"]


def _value_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _member_cells(member: GroupMember) -> list[str]:
    subscriptions = ", ".join(f"{topic}: {said}" for topic, said in member.subscriptions)
    return [cell(member.client_id), cell(member.address), cell(member.language), member.version,
            cell(member.error or subscriptions), _UNKNOWN if member.error else str(len(member.queues))]


def _queue_cells(queue: GroupQueue) -> list[str]:
    return [cell(queue.topic), f"{cell(queue.broker)}:{queue.queue_id}",
            _NONE if queue.committed is None else str(queue.committed), str(queue.end), _count_text(queue.unread),
            time_text(queue.consumed_ms) if queue.consumed_ms > 0 else _NONE,
            _age_text(queue.unread != 0, queue.oldest_ms), ", ".join(map(cell, queue.owners)) or _NONE]


def _detail_json(detail: GroupDetail) -> dict[str, Any]:
    oldest = detail.oldest
    return {
        "name": detail.name, "state": detail.state, "model": detail.model, "type": detail.kind,
        "consume_from": detail.consume_from, "unread": detail.unread, "retries": detail.retries,
        "rate": round(detail.rate, 1), "dead_letters": detail.dead_letters, "retry_topic": detail.retry_topic,
        "dead_letter_topic": detail.dead_letter_topic,
        "oldest_unread_ms": oldest.oldest_ms if oldest is not None else None if detail.is_late else 0,
        "oldest_unread_at": oldest.oldest_at if oldest is not None else "",
        "settings": [{"broker": broker.name, "address": broker.address, **_settings_json(config)}
                     for broker, config in detail.settings.items()],
        "differs": list(detail.differs), "subscription_differs": list(detail.subscription_differs),
        "members": [{"client_id": each.client_id, "address": each.address, "language": each.language,
                     "version": each.version, "error": each.error,
                     "subscriptions": [{"topic": topic, "expression": said} for topic, said in each.subscriptions],
                     "queues": [{"topic": topic, "broker": broker, "queue_id": queue_id}
                                for topic, broker, queue_id in each.queues]} for each in detail.members],
        "queues": [{"topic": each.topic, "broker": each.broker, "queue_id": each.queue_id,
                    "committed": each.committed, "min": each.first, "max": each.end, "unread": each.unread,
                    "consumed_ms": each.consumed_ms or None, "oldest_unread_ms": each.oldest_ms,
                    "oldest_unread_at": each.oldest_at, "members": list(each.owners)} for each in detail.queues],
        "warnings": list(detail.warnings)}


def _settings_json(config: SubscriptionGroupConfig) -> dict[str, Any]:
    return {name: value for name, value in asdict(config).items() if name != "groupName"}


# ---- create, alter, pause, resume


def setting_options(command: F) -> F:
    """Add an option for each setting that a group has, except whether it consumes."""
    for option in (
            click.option("--notify/--no-notify", "notifyConsumerIdsChangedEnable", default=None,
                         help="Notify the members at once when a member starts or ends; otherwise they notice within "
                              "20 s. A new group has --notify."),
            click.option("--slow-broker-id", "whichBrokerWhenConsumeSlowly", type=click.IntRange(0, 1 << 30),
                         help="The id of the broker that members far behind read from; a new group's is 1, a slave."),
            click.option("--broker-id", "brokerId", type=click.IntRange(0, 1 << 30),
                         help="The id of the broker that members read from while they keep up; a new group's is 0, "
                              "the master."),
            click.option("--from-min/--no-from-min", "consumeFromMinEnable", default=None,
                         help="RocketMQ 4.9 stores this setting, but does not use it."),
            click.option("--broadcast/--no-broadcast", "consumeBroadcastEnable", default=None,
                         help="Allow broadcasting members. A new group has --broadcast."),
            click.option("--retry-queues", "retryQueueNums", type=click.IntRange(1, 1 << 16),
                         help="Queues of the retry topic, per broker; a new group has 1."),
            click.option("--retries", "retryMaxTimes", type=click.IntRange(0, 1 << 30),
                         help="Redeliveries before a message becomes a dead letter; a new group has 16. Clients since "
                              "3.4.9 send their own limit, which beats this one.")):
        command = option(command)
    return command


@group_group.command("create", short_help="Create a group on all masters.", epilog=examples(
    "rmqha group create billing", "rmqha group create billing --retries 3 --retry-queues 4"))
@group_argument
@setting_options
@cluster_options
def create_command(group: str, namesrv: str | None, cluster: str | None, timeout_s: float, output: str,
                   **settings: Any) -> None:
    """Create a group on all masters that lack it, for brokers with autoCreateSubscriptionGroup=false.

    On masters that have the group already it stays as it is. If all have it, the exit code is 2.
    """
    given = {name: value for name, value in settings.items() if value is not None}
    with connected(needed_namesrv(namesrv), timeout_s) as admin:
        _put_changes(create_group(admin, masters(admin, cluster), group, given), output)


@group_group.command("alter", short_help="Change settings of a group on all masters.", epilog=examples(
    "rmqha group alter billing --retries 3", "rmqha group alter billing --slow-broker-id 0 --broadcast"))
@group_argument
@setting_options
@cluster_options
def alter_command(group: str, namesrv: str | None, cluster: str | None, timeout_s: float, output: str,
                  **settings: Any) -> None:
    """Change settings of a group on all masters. The settings that are not given stay as they are."""
    given = {name: value for name, value in settings.items() if value is not None}
    if not given:
        raise click.UsageError("give at least one setting to change")
    with connected(needed_namesrv(namesrv), timeout_s) as admin:
        _put_changes(change_group(admin, masters(admin, cluster), group, given), output)


@group_group.command("pause", short_help="Stop the consumption of a group on all masters.", epilog=examples(
    "rmqha group pause billing"))
@group_argument
@cluster_options
def pause_command(group: str, namesrv: str | None, cluster: str | None, timeout_s: float, output: str) -> None:
    """Make all masters refuse the pulls of a group (consumeEnable=false); its other settings stay.

    Its members stay connected. They log NO_PERMISSION, and pull again every 3 s. Messages that they have fetched
    already are still consumed. A slave follows its master within 10 s.
    """
    _set_consuming(group, False, namesrv, cluster, timeout_s, output)


@group_group.command("resume", short_help="Let a paused group consume again.", epilog=examples(
    "rmqha group resume billing"))
@group_argument
@cluster_options
def resume_command(group: str, namesrv: str | None, cluster: str | None, timeout_s: float, output: str) -> None:
    """Let a paused group consume again on all masters (consumeEnable=true); its members continue within 3 s."""
    _set_consuming(group, True, namesrv, cluster, timeout_s, output)


def _set_consuming(group: str, enabled: bool, namesrv: str | None, cluster: str | None, timeout_s: float,
                   output: str) -> None:
    with connected(needed_namesrv(namesrv), timeout_s) as admin:
        _put_changes(set_consuming(admin, masters(admin, cluster), group, enabled), output)


def _put_changes(outcomes: Outcomes[Change], output: str) -> None:
    changes = sorted(outcomes.values.items())
    if output != "table":
        emit([{"broker": broker.name, "address": broker.address, "created": change.before is None,
               "changed": {} if change.before is None else {
                   name: {"before": getattr(change.before, name), "after": getattr(change.after, name)}
                   for name in change.changed}, "settings": _settings_json(change.after)}
              for broker, change in changes], output)
    elif changes:
        put(render_table(["broker", "address", "result"], [
            [cell(broker.name), cell(broker.address), _change_text(change)] for broker, change in changes], set()))
    outcomes.finish()


def _change_text(change: Change) -> str:
    if change.before is None:
        return "created" if change.after.consumeEnable else "created, paused"
    before, after = asdict(change.before), asdict(change.after)
    return ", ".join(f"{name}: {_value_text(before[name])} -> {_value_text(after[name])}"
                     for name in change.changed) or "nothing to change"


# ---- delete


@group_group.command("delete", short_help="Delete groups on all masters.", epilog=examples(
    "rmqha group delete billing", "rmqha group delete billing audit --offsets --topics --yes"))
@click.argument("groups", nargs=-1, required=True, metavar="GROUP...", shell_complete=complete_group)
@click.option("--offsets", is_flag=True, help="Also delete its offsets. Otherwise a group of the same name continues "
                                              "from them.")
@click.option("--topics", is_flag=True, help="Also delete its retry topic, and its dead letters with their topic.")
@click.option("-f", "--force", is_flag=True, help="Delete the group although it has members.")
@yes_option
@cluster_options
def delete_command(groups: tuple[str, ...], offsets: bool, topics: bool, force: bool, yes: bool, namesrv: str | None,
                   cluster: str | None, timeout_s: float, output: str) -> None:
    """Delete groups on all masters. A group with members is refused.

    Brokers with autoCreateSubscriptionGroup=true create a group again when a member starts. With several groups, those
    that can't be deleted do not stop the others: exit code 1 also when some of them failed, 2 when all did.
    """
    several = Several(groups, "group", output)
    with connected(needed_namesrv(namesrv), timeout_s) as admin:
        brokers = masters(admin, cluster)
        plans = []
        for group in several.names if not yes else ():
            with several.of(group):
                plans.append(plan_deletion(admin, brokers, group, force))
        if plans:
            agreed(_deletion_question([_deletion_text(plan, offsets, topics) for plan in plans]), yes)
        for group in several.names if yes else [plan.group for plan in plans]:
            with several.of(group):
                done = delete_group(admin, brokers, group, offsets, topics, force)
                rows = [{"broker": broker.name, "address": broker.address, **asdict(each)}
                        for broker, each in sorted(done.values.items())]
                several.show(group, rows if several.is_one else {"name": group, "brokers": rows},
                             partial(_put_deletion, "" if several.is_one else group, done.values))
                done.finish()
    several.finish()


def _deletion_question(texts: Sequence[str]) -> str:
    return f"Delete group {texts[0]}?" if len(texts) == 1 else f"Delete {len(texts)} groups: {'; '.join(texts)}?"


def _deletion_text(plan: DeletionPlan, offsets: bool, topics: bool) -> str:
    also = [text for text, is_wanted in (
        ("its offsets", offsets), ("its retry topic", topics),
        (counted(plan.dead_letters, "dead letter"), topics)) if is_wanted]
    return (f"{plan.group} on {counted(len(plan.brokers), 'master')}"
            + (f", with {', '.join(also)}" if also else "")
            + (f", although it has {counted(plan.members, 'member')}" if plan.members else ""))


def _put_deletion(title: str, deleted: Mapping[Broker, Deleted]) -> None:
    """Print what each broker deleted, below the group's name if there are several groups."""
    if title:
        put(f"group {cell(title)}")
    if deleted:
        put(render_table(["broker", "address", "deleted"], [
            [cell(broker.name), cell(broker.address), ", ".join(filter(None, (
                "group" if each.group else "", "offsets" if each.offsets else "", *map(cell, each.topics)))) or _NONE]
            for broker, each in sorted(deleted.items())], set()))


# ---- seek


if TYPE_CHECKING:
    _TargetParam = click.ParamType[SeekTarget]
    _QueueParam = click.ParamType[tuple[str, int]]
else:
    _TargetParam = _QueueParam = click.ParamType  # generic only from click 8.4 on


class _TargetType(_TargetParam):
    name = "earliest|latest|TIME|OFFSET"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> SeekTarget:
        if isinstance(value, SeekTarget):
            return value
        text = str(value)
        if (word := END_WORDS.get(text, text)) in (EARLIEST, LATEST):
            return SeekTarget(word=word)
        if text.isascii() and text.isdigit() and len(text) <= _OFFSET_DIGITS:
            return SeekTarget(offset=int(text))
        try:
            return SeekTarget(time_ms=parse_time(text))
        except UnitError:
            self.fail(f"{text[:80]!r} is not earliest, latest, the offset of one queue, or a time: {TIMES}", param, ctx)


class _QueueType(_QueueParam):
    name = "BROKER:ID"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value[0], value[1]
        broker, _, number = str(value).rpartition(":")
        if not broker or not (number.isascii() and number.isdigit()):
            self.fail(f"{str(value)[:80]!r} is not a queue: give a broker's name and a queue id, as broker-a:3", param,
                      ctx)
        try:
            return broker, parse_int(number)
        except ValueError:
            self.fail(f"{number[:20]!r} is not a queue id", param, ctx)


@group_group.command("seek", short_help="Move a group's offsets, after a look at the plan.", epilog=examples(
    "rmqha group seek billing -t orders --to 2h --dry-run",
    "rmqha group seek billing -t orders --to latest --yes",
    "rmqha group seek billing -t orders --to 1200 --queue broker-a:3",
    "rmqha group seek audit -t orders --to-group billing",
    "rmqha group seek billing --all-topics --to 2026-03-01T12:00:00"))
@group_argument
@click.option("-t", "--topic", "topics", multiple=True, shell_complete=complete_topic,
              help="The topic; may be given several times.")
@click.option("--all-topics", is_flag=True, help="All topics for which the group has offsets, but not its retry topic.")
@click.option("--to", "to", type=_TargetType(),
              help="earliest, latest, a time, or with --queue an offset of at most 12 digits.")
@click.option("--to-group", "other", metavar="GROUP", shell_complete=complete_group,
              help="Instead of --to: the offsets of this group, queue by queue. The group to move must be stopped.")
@click.option("--queue", "only", multiple=True, type=_QueueType(), help="Only this queue, as broker-a:3; may be given "
                                                                        "several times. The group must be stopped.")
@click.option("--dry-run", is_flag=True, help="Print the plan, and change nothing.")
@click.option("--wait", "wait_s", type=duration_type(1, 3600),
              help="How long running members may take; by default 45 s, and 15 s more for each topic of each broker.")
@yes_option
@cluster_options
def seek_command(group: str, topics: tuple[str, ...], all_topics: bool, to: SeekTarget | None, other: str | None,
                 only: tuple[tuple[str, int], ...], dry_run: bool, wait_s: float | None, yes: bool,
                 namesrv: str | None, cluster: str | None, timeout_s: float, output: str) -> None:
    """Move a group's offsets: print what each queue would skip or read again, ask, do it, and check each queue.

    While members run, all queues of a topic move, and only to earliest, latest or a time: the members store the new
    offsets themselves, Java's after 10 s. To go back, the group is paused meanwhile. The group's other offsets, and
    messages that wait for a retry, stay.

    A time means the first message of that time; a few messages that were stored just before it may be read again. With
    --to-group, queues for which that group has no offset are left out.

    Exit code 1 also when a queue did not move, or the group is still paused somewhere.
    """
    if bool(topics) == all_topics:
        raise click.UsageError("give a topic with -t, or --all-topics")
    if (to is None) == (other is None):
        raise click.UsageError("give --to or --to-group")
    if other == group:
        raise click.UsageError("--to-group: give another group")
    target = to or SeekTarget(group=other)
    if target.offset is not None and len(only) != 1:
        raise click.UsageError(f"{target.offset} is an offset: name its queue with --queue broker:id. All queues can "
                               f"move to earliest, latest or a time")
    if only and len(topics) != 1:
        raise click.UsageError("--queue needs one topic")
    with connected(needed_namesrv(namesrv), timeout_s) as admin:
        plan = plan_seek(admin, masters(admin, cluster), group, None if all_topics else list(dict.fromkeys(topics)),
                         target, only)
        if output == "table" or not (dry_run or yes):
            _put_plan(plan, err=output != "table")
        if dry_run:
            if output != "table":
                emit({"group": group, "online": plan.is_online, "plan": [_move_json(move) for move in plan.moves]},
                     output)
            plan.asked.finish()
            return
        if not yes:
            _put_errors(plan.asked.errors)
            agreed(_seek_text(plan), yes)
        if plan.is_online:
            put("waiting for the members to store the new offsets" + (", with the group paused ..." if plan.needs_pause
                                                                      else " ..."), err=True)
        result = seek(admin, plan, wait_s)
    _put_result(plan, result, output)


def _put_plan(plan: SeekPlan, err: bool) -> None:
    put(render_table(["topic", "queue", "committed", "first", "end", "target", "messages"], [
        [cell(move.topic), f"{cell(move.broker.name)}:{move.queue_id}",
         _NONE if move.committed is None else str(move.committed), str(move.first), str(move.end), str(move.target),
         move.text] for move in plan.moves], {"committed", "first", "end", "target"}), err)
    who = f"{counted(plan.members, 'running member')} will move them" if plan.is_online else "no member reads them"
    put(f"{_total_text(plan.moves)}; {who}", err)
    for topic in plan.new_topics:
        put(f"note: {cell(plan.group)} has no offsets for {cell(topic)}", err=True)


def _total_text(moves: Iterable[QueueMove]) -> str:
    changes = [move.change or 0 for move in moves]
    skipped, again = sum(each for each in changes if each > 0), -sum(each for each in changes if each < 0)
    return f"{counted(len(changes), 'queue')}: {skipped:,} skipped, {again:,} read again"


def _seek_text(plan: SeekPlan) -> str:
    online = " Its members drop the messages that they have fetched." if plan.is_online else ""
    return f"Move group {plan.group}?{online}" + (" It is paused meanwhile." if plan.needs_pause else "")


def _put_errors(errors: Mapping[Broker, CannotAnswerError]) -> None:
    for broker, error in errors.items():
        put(f"{broker.name} ({broker.address}): {error.message}", err=True)


def _move_json(move: QueueMove) -> dict[str, Any]:
    return {"topic": move.topic, "broker": move.broker.name, "queue_id": move.queue_id, "committed": move.committed,
            "min": move.first, "max": move.end, "target": move.target, "change": move.change,
            "online": move.is_online}


def _put_result(plan: SeekPlan, result: SeekResult, output: str) -> None:
    moved, still_paused = result.moved, result.still_paused
    if output == "table":
        put("")
        put(render_table(["topic", "queue", "target", "committed now", "result"], [
            [cell(each.move.topic), f"{cell(each.move.broker.name)}:{each.move.queue_id}", str(each.target),
             _NONE if each.seen is None else str(each.seen), cell(each.error) or "done"] for each in moved],
            {"target", "committed now"}))
    else:
        emit({"group": plan.group, "online": plan.is_online, "queues": [
            {**_move_json(each.move), "target": each.target, "seen": each.seen, "done": not each.error,
             "error": each.error} for each in moved],
            "still_paused": [broker.name for broker in still_paused]}, output)
    _put_errors(plan.asked.errors)
    _put_errors(still_paused)
    failed = sum(bool(each.error) for each in moved)
    texts = [f"{counted(failed, 'queue')} of {len(moved)} did not move" if failed else "",
             f"{counted(len(plan.asked.errors), 'broker')} failed" if plan.asked.errors else "",
             f"the group is still paused on {', '.join(broker.name for broker in still_paused)}: `rmqha group resume "
             f"{plan.group}` ends that" if still_paused else ""]
    if any(texts):
        raise WorkFailedError("; ".join(filter(None, texts)))
