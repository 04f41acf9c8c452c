"""`rmqha topic`: create, list, describe, change and delete topics on all masters of a cluster at once."""
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

import click

from rmqha.common import sys_flags, units
from rmqha.common.program import examples
from rmqha.common.topics import TopicConfig
from rmqha.tools.admin.cluster_admin import Broker, ClusterAdmin
from rmqha.tools.connection import connected, needed_namesrv
from rmqha.tools.manage import topics
from rmqha.tools.manage.completion import complete_topic
from rmqha.tools.manage.masters import ManageGroup, Outcomes, broker_option, cluster_options, masters
from rmqha.tools.manage.several import Several
from rmqha.tools.manage.topics import Change, Creation, Deletion, Flow, Messages, TopicPart, TopicRow, TopicSettings
from rmqha.tools.terminal import (
    CannotAnswerError,
    WorkFailedError,
    agreed,
    cell,
    counted,
    duration_type,
    emit,
    iso_time,
    put,
    put_facts,
    render_table,
    time_text,
    yes_option,
)

F = TypeVar("F", bound=Callable[..., Any])

KINDS = {"user": topics.USER, "system": topics.SYSTEM, "retry": topics.RETRY, "dlq": topics.DEAD_LETTER}
PERMS = {"rw": sys_flags.PERM_READ | sys_flags.PERM_WRITE, "r": sys_flags.PERM_READ, "w": sys_flags.PERM_WRITE}
_ALWAYS = ("read_queues", "write_queues", "perm")  # settings
_MOST_BROKERS = 4  # that a cell names
_UNLISTED = "name server {} does not list it on {} after {:g} s, so clients can't use it there yet"

name_argument = click.argument("name", shell_complete=complete_topic)
names_argument = click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_topic)


@click.group("topic", cls=ManageGroup)
def topic_group() -> None:
    """Create, list, describe, change and delete topics.

    Each command works on all masters of a cluster at once. If some of them fail, it prints which, and ends with exit
    code 1.
    """


def settings_options(command: F) -> F:
    """Add the options for the settings of a topic, without its order."""
    number = click.IntRange(1, topics.MAX_QUEUES)
    for option in (
            click.option("--perm", type=click.Choice(list(PERMS)), help="Whether clients may read and write it; a new "
                         "topic has rw."),
            click.option("--write-queues", type=number, help="Queues of each broker that producers send to; a new "
                         f"topic has {topics.DEFAULT_QUEUES}."),
            click.option("--read-queues", type=number, help="Queues of each broker that consumers read; a new topic "
                         f"has {topics.DEFAULT_QUEUES}."),
            click.option("-q", "--queues", type=number, help="Read and write queues of each broker, both; a new topic "
                         f"has {topics.DEFAULT_QUEUES}.")):
        command = option(command)
    return command


def settings_of(queues: int | None, read_queues: int | None, write_queues: int | None, perm: str | None,
                order: bool | None) -> TopicSettings:
    """Return the given settings; a usage error when they contradict each other."""
    if queues is not None and (read_queues is not None or write_queues is not None):
        raise click.UsageError("--queues sets the read queues and the write queues; give it alone")
    return TopicSettings(read_queues or queues, write_queues or queues, None if perm is None else PERMS[perm], order)


def finish(values: Iterable[Broker], errors: dict[Broker, CannotAnswerError]) -> None:
    """Print the errors, and end the command with exit code 1 or 2 if there are any."""
    Outcomes(dict.fromkeys(values), errors).finish()


def time_cell(time_ms: int | None) -> str:
    """Return a time as a cell; empty for no time."""
    return time_text(time_ms) if time_ms else ""


# ---- list


@topic_group.command("list", short_help="List topics.", epilog=examples(
    "rmqha topic list", "rmqha topic list 'orders-*' --stats", "rmqha topic list --kind retry --kind dlq -o json"))
@click.argument("pattern", required=False, shell_complete=complete_topic)
@click.option("--kind", "kinds", multiple=True, type=click.Choice(list(KINDS)), help="Topics of this kind only; may be "
              "repeated. Default: user.")
@click.option("--all", "every", is_flag=True, help="Topics of all kinds.")
@click.option("--stats", "with_stats", is_flag=True, help="Also the messages of each topic, and when the last one was "
              "stored. Each broker is asked for each topic.")
@broker_option
@cluster_options
def list_command(pattern: str | None, kinds: tuple[str, ...], every: bool, with_stats: bool, namesrv: str | None,
                 cluster: str | None, broker: str | None, timeout_s: float, output: str) -> None:
    """List topics, by default those of users. PATTERN has `*`, `?` and `[a-z]`.

    Queues are those of all brokers together.
    """
    if kinds and every:
        raise click.UsageError("--kind and --all exclude each other")
    wanted = KINDS.values() if every else [KINDS[kind] for kind in kinds] or [topics.USER]
    with connected(needed_namesrv(namesrv), timeout_s) as admin:
        listing = topics.list_topics(admin, masters(admin, cluster, broker), pattern, wanted)
        counts: dict[str, Messages] | None = None
        errors = dict(listing.outcomes.errors)
        if with_stats:
            counts, asked = topics.count_messages(admin, listing)
            errors |= asked.errors
    if output != "table":
        emit([row_object(row, counts) for row in listing.rows], output)
    elif not listing.rows:
        put("no topic" if pattern is None else f"no topic matches {cell(pattern)}", err=True)
    else:
        headings = ["topic", "kind", "brokers", "read", "write", "perm", "order"]
        put(render_table([*headings, *(("messages", "last stored") if with_stats else ())],
                         [_row_cells(row, counts) for row in listing.rows], {"read", "write", "messages"}))
    finish(listing.outcomes.values, errors)


def row_object(row: TopicRow, counts: dict[str, Messages] | None = None) -> dict[str, Any]:
    """Return a topic for programs."""
    stats = {} if counts is None else _counts_object(counts[row.name])
    return {"name": row.name, "kind": row.kind, "brokers": list(row.brokers), "read_queues": row.read_queues,
            "write_queues": row.write_queues, "perm": row.perm, "order": row.order, **stats}


def _counts_object(messages: Messages) -> dict[str, Any]:
    return {"messages": messages.count, "last_ms": messages.last_ms or None,
            "last_time": iso_time(messages.last_ms) if messages.last_ms else None}


def _row_cells(row: TopicRow, counts: dict[str, Messages] | None) -> list[str]:
    stats = [] if counts is None else [f"{counts[row.name].count:,}", time_cell(counts[row.name].last_ms)]
    return [cell(row.name), row.kind, names_cell(row.brokers), str(row.read_queues), str(row.write_queues), row.perm,
            "yes" if row.order else "", *stats]


def names_cell(names: Iterable[str]) -> str:
    """Return a list of names, shortened."""
    names = list(names)
    more = f" and {len(names) - _MOST_BROKERS} more" if len(names) > _MOST_BROKERS else ""
    return cell(", ".join(names[:_MOST_BROKERS])) + more


# ---- create


@topic_group.command("create", short_help="Create topics on all masters.", epilog=examples(
    "rmqha topic create orders", "rmqha topic create orders payments -q 16 --if-not-exists",
    "rmqha topic create steps -q 4 --order"))
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@settings_options
@click.option("--order", is_flag=True, help="Keep each key's queue while a broker is away: an order conf at the name "
              "servers.")
@click.option("--if-not-exists", is_flag=True, help="Do nothing on the brokers that have the topic; exit code 0.")
@click.option("--wait", "wait_s", type=duration_type(0, 3600), default="10s", show_default=True,
              help="How long to wait until the name servers list it on all brokers; 0: do not wait.")
@broker_option
@cluster_options
def create_command(names: tuple[str, ...], queues: int | None, read_queues: int | None, write_queues: int | None,
                   perm: str | None, order: bool, if_not_exists: bool, wait_s: float, namesrv: str | None,
                   cluster: str | None, broker: str | None, timeout_s: float, output: str) -> None:
    """Create topics on all masters; a topic that one of them has is refused, with exit code 2.

    By default a topic has 8 queues per broker, which clients may read and write. When the command ends, the name
    servers list it, so that producers can send at once. Exit code 1 also when they do not list it in time.

    Several topics are created one after the other. Exit code 1 also when some of them failed, 2 when all did.
    """
    settings = settings_of(queues, read_queues, write_queues, perm, order or None)
    several = Several(names, "topic", output)
    with connected(needed_namesrv(namesrv), timeout_s) as admin:
        brokers = topics.masters_and_crashed(admin, cluster, broker)
        for name in several.names:
            with several.of(name):
                creation = topics.create_topic(admin, brokers, name, settings, if_not_exists)
                unlisted = _wait_for_route(admin, name, creation, wait_s)
                several.show(name, _creation_object(name, creation, unlisted), partial(_put_creation, name, creation))
                finish(creation.brokers, creation.outcomes.errors)
                if unlisted:
                    raise WorkFailedError("; ".join(_UNLISTED.format(address, ", ".join(where), wait_s)
                                                    for address, where in unlisted.items()))
    several.finish()


def _wait_for_route(admin: ClusterAdmin, name: str, creation: Creation, wait_s: float) -> dict[str, list[str]]:
    """Return the brokers that name servers still do not list, by the name server's address."""
    if wait_s <= 0 or not creation.brokers:
        return {}
    routed = topics.wait_for_route(admin, name, creation.brokers, wait_s)
    for error in routed.errors.values():
        put(f"note: {error.message}", err=True)
    return routed.missing


def _creation_object(name: str, creation: Creation, unlisted: dict[str, list[str]]) -> dict[str, Any]:
    return {"name": name, "existing": [broker.name for broker in creation.existing],
            "created": [{"broker": broker.name, "address": broker.address, **config_object(config)}
                        for broker, config in sorted(creation.outcomes.values.items())],
            "failed": errors_object(creation.outcomes.errors), "not_listed": unlisted}


def config_object(config: TopicConfig) -> dict[str, Any]:
    """Return a broker's settings of a topic for programs."""
    return {key: read(config) for key, read in topics.SETTINGS.items()}


def errors_object(errors: dict[Broker, CannotAnswerError]) -> list[dict[str, str]]:
    """Return the errors of brokers for programs."""
    return [{"broker": broker.name, "address": broker.address, "error": error.message}
            for broker, error in sorted(errors.items())]


def _put_creation(name: str, creation: Creation) -> None:
    if creation.existing:
        put(f"topic {name} exists on {names_cell(broker.name for broker in creation.existing)}")
    made = sorted(creation.outcomes.values.items())
    if made:
        config = made[0][1]
        put(f"created topic {name} on {names_cell(broker.name for broker, _config in made)}: "
            f"{config.readQueueNums} read and {config.writeQueueNums} write queues each, "
            f"{topics.perm_text(config.perm)}")


# ---- describe


@topic_group.command("describe", short_help="Show topics' settings, queues and groups.", epilog=examples(
    "rmqha topic describe orders", "rmqha topic describe orders payments -o json"))
@names_argument
@cluster_options
def describe_command(names: tuple[str, ...], namesrv: str | None, cluster: str | None, timeout_s: float,
                     output: str) -> None:
    """Show a topic's settings on each broker, its queues, and the unread messages of each group that consumes it.

    Settings that differ between brokers are marked with `*`. For several topics, JSON and YAML have a list.
    """
    several = Several(names, "topic", output)
    with connected(needed_namesrv(namesrv), timeout_s) as admin:
        brokers = masters(admin, cluster)
        for name in several.names:
            with several.of(name):
                topic = topics.describe_topic(admin, brokers, name)
                several.show(name, _description_object(topic), partial(
                    _put_description, topic, is_first=name == several.names[0]))
                finish(topic.outcomes.values, topic.outcomes.errors)
    several.finish()


def _all_messages(topic: topics.Description) -> Messages:
    return Messages.of(queue for part in topic.parts.values() for queue in part.queues)


def _description_object(topic: topics.Description) -> dict[str, Any]:
    return {"name": topic.name, "kind": topic.kind, "order_conf": topic.order_conf,
            **_counts_object(_all_messages(topic)),
            "differences": topic.differences, "missing": [broker.name for broker in topic.missing],
            "brokers": [_part_object(broker, part) for broker, part in sorted(topic.parts.items())],
            "groups": _groups_object(topic.lags), "failed": errors_object(topic.outcomes.errors)}


def _part_object(broker: Broker, part: TopicPart) -> dict[str, Any]:
    return {"broker": broker.name, "address": broker.address, **config_object(part.config),
            "queues": [{"queue": queue.queue_id, "begin": queue.begin, "end": queue.end,
                        **_counts_object(Messages.of([queue]))} for queue in part.queues],
            "groups": _groups_object(part.lags)}


def _groups_object(lags: Mapping[str, int]) -> list[dict[str, Any]]:
    # `lag`: as it was called first.
    return [{"group": group, "unread": lag, "lag": lag} for group, lag in lags.items()]


def _put_description(topic: topics.Description, is_first: bool) -> None:
    if not is_first:
        put("")
    messages, parts = _all_messages(topic), sorted(topic.parts.items())
    put_facts({"topic": cell(topic.name), "kind": topic.kind, "messages": f"{messages.count:,}",
               "last stored": time_cell(messages.last_ms) or "never",
               **({"order conf": cell(topic.order_conf)} if topic.order_conf else {}),
               **({"missing on": names_cell(broker.name for broker in topic.missing)} if topic.missing else {})})
    put("")
    _put_settings(parts, topic.differences)
    put("")
    put(render_table(["broker", "queue", "begin", "end", "messages", "last stored"], [
        [cell(queue.broker), str(queue.queue_id), str(queue.begin), str(queue.end), f"{queue.count:,}",
         time_cell(queue.last_ms)] for _broker, part in parts for queue in part.queues],
        {"queue", "begin", "end", "messages"}))
    put("")
    if topic.lags:
        put(render_table(["group", "unread"], [[cell(group), f"{lag:,}"] for group, lag in topic.lags.items()],
                         {"unread"}))
    else:
        put("no group consumes it")


def _put_settings(parts: list[tuple[Broker, TopicPart]], differing: list[str]) -> None:
    """Print the settings by broker; those that topics rarely have only if one has them."""
    usual = config_object(topics.NEW_TOPIC)
    keys = [key for key, read in topics.SETTINGS.items()
            if key in _ALWAYS or any(read(part.config) != usual[key] for _broker, part in parts)]
    headings = {key: ("* " if key in differing else "") + key.replace("_", " ") for key in keys}
    put(render_table(["broker", "address", *headings.values()], [
        [cell(broker.name), broker.address, *(_setting_cell(topics.SETTINGS[key](part.config)) for key in keys)]
        for broker, part in parts], {headings["read_queues"], headings["write_queues"]}))


def _setting_cell(value: Any) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


# ---- alter


@topic_group.command("alter", short_help="Change settings of a topic.", epilog=examples(
    "rmqha topic alter orders -q 16", "rmqha topic alter orders --write-queues 4",
    "rmqha topic alter orders --perm r -b broker-a"))
@name_argument
@settings_options
@click.option("--order/--no-order", default=None, help="Make or remove its order conf at the name servers.")
@broker_option
@cluster_options
def alter_command(name: str, queues: int | None, read_queues: int | None, write_queues: int | None, perm: str | None,
                  order: bool | None, namesrv: str | None, cluster: str | None, broker: str | None, timeout_s: float,
                  output: str) -> None:
    """Change the given settings of a topic on each broker; the others stay as they are there.

    To have fewer queues, reduce --write-queues first. Reduce --read-queues when all groups have consumed the rest
    (`rmqha topic describe`): consumers do not read the queues beyond it.
    """
    settings = settings_of(queues, read_queues, write_queues, perm, order)
    if settings == TopicSettings():
        raise click.UsageError("give a setting to change: --queues, --read-queues, --write-queues, --perm, --order or "
                               "--no-order")
    with connected(needed_namesrv(namesrv), timeout_s) as admin:
        done = topics.alter_topic(admin, topics.masters_and_crashed(admin, cluster, broker), name, settings)
    changes = sorted(done.outcomes.values.items())
    if output != "table":
        emit({"name": name, "order_conf": done.order, "missing": [each.name for each in done.missing],
              "brokers": [{"broker": each.name, "address": each.address, "before": config_object(change.before),
                           "after": config_object(change.after), "unread": change.unread} for each, change in changes],
              "failed": errors_object(done.outcomes.errors)}, output)
    else:
        for each, change in changes:
            put(f"{cell(each.name)}: {_change_text(change)}")
        if done.order is not None:
            put(f"order conf: {cell(done.order) or 'removed'}")
        if done.missing:
            put(f"not on {names_cell(each.name for each in done.missing)}; `rmqha topic create {name} "
                "--if-not-exists` creates it there")
    for note in _notes(changes):
        put(f"note: {note}", err=True)
    finish(done.outcomes.values, done.outcomes.errors)


def _change_text(change: Change) -> str:
    before, after = config_object(change.before), config_object(change.after)
    parts = [f"{key.replace('_', ' ')} {_setting_cell(before[key])} -> {_setting_cell(after[key])}"
             for key in before if before[key] != after[key]]
    return ", ".join(parts) or "unchanged"


def _notes(changes: list[tuple[Broker, Change]]) -> Iterable[str]:
    """Yield what to know about fewer queues."""
    for broker, change in changes:
        before, after = change.before, change.after
        if after.readQueueNums < before.readQueueNums:
            yield (f"{broker.name}: consumers no longer read the queues {after.readQueueNums} to "
                   f"{before.readQueueNums - 1}, which hold {counted(change.unread, 'message')}; if some are not "
                   "consumed yet, increase --read-queues again")
        elif after.writeQueueNums < before.writeQueueNums:
            yield (f"{broker.name}: the queues {after.writeQueueNums} to {before.writeQueueNums - 1} get no more "
                   "messages; reduce --read-queues when all groups have consumed them")


# ---- delete


@topic_group.command("delete", short_help="Delete topics with their messages.", epilog=examples(
    "rmqha topic delete orders", "rmqha topic delete orders payments --yes"))
@names_argument
@yes_option
@cluster_options
def delete_command(names: tuple[str, ...], yes: bool, namesrv: str | None, cluster: str | None, timeout_s: float,
                   output: str) -> None:
    """Delete topics with their messages: on all masters, whose slaves follow, and at the name servers.

    Topics of the system are refused. If a master fails, run the command again when it is back. With several topics,
    those that can't be deleted do not stop the others: exit code 1 also when some of them failed, 2 when all did.
    """
    several = Several(names, "topic", output)
    held: dict[str, dict[str, int]] = {}
    with connected(needed_namesrv(namesrv), timeout_s) as admin:
        brokers = topics.masters_and_crashed(admin, cluster)
        for name in several.names:
            with several.of(name):
                held[name] = _held(admin, brokers, name)
        if held:
            agreed(_deletion_question(held), yes)
        for name, by_broker in held.items():
            with several.of(name):
                done = topics.delete_topic(admin, brokers, name)
                deleted = [broker.name for broker in sorted(done.outcomes.values) if broker.name in by_broker]
                several.show(name, _deletion_object(name, done, deleted, sum(by_broker.values())),
                             partial(_put_deletion, name, done, deleted))
                _finish_deletion(done)
    several.finish()


def _held(admin: ClusterAdmin, brokers: list[Broker], name: str) -> dict[str, int]:
    """Return the count of messages of a topic by broker name; CannotAnswerError when it can't be deleted."""
    topics.check_name(name, topics.own_names(brokers))
    there = topics.messages_by_broker(admin, brokers, name)
    having = {broker.name: held.count for broker, held in there.needed().items() if held is not None}
    if not having and not topics.routed_brokers(admin, name):
        raise topics.unknown_topic(admin, name, there.errors)
    return having


def _deletion_question(held: Mapping[str, Mapping[str, int]]) -> str:
    texts = [f"{name} with {counted(sum(by_broker.values()), 'message')} on "
             f"{names_cell(by_broker) or 'the name servers'}" for name, by_broker in held.items()]
    return f"Delete topic {texts[0]}?" if len(texts) == 1 else f"Delete {len(texts)} topics: {'; '.join(texts)}?"


def _deletion_object(name: str, done: Deletion, deleted: list[str], count: int) -> dict[str, Any]:
    return {"name": name, "deleted": deleted, "messages": count, "failed": errors_object(done.outcomes.errors),
            "name_servers_failed": [{"address": address, "error": error.message}
                                    for address, error in done.name_servers.items()]}


def _put_deletion(name: str, done: Deletion, deleted: list[str]) -> None:
    put(f"deleted topic {name} on {names_cell(deleted) or 'no broker'}"
        + (", and at the name servers" if done.is_complete else ""))


def _finish_deletion(done: Deletion) -> None:
    for error in done.name_servers.values():
        put(error.message, err=True)
    finish(done.outcomes.values, done.outcomes.errors)
    if done.name_servers:
        raise WorkFailedError(f"{counted(len(done.name_servers), 'name server')} still may list the topic: run the "
                              "command again")


# ---- stats


@topic_group.command("stats", short_help="Show a topic's messages and bytes, in and out.", epilog=examples(
    "rmqha topic stats orders"))
@name_argument
@cluster_options
def stats_command(name: str, namesrv: str | None, cluster: str | None, timeout_s: float, output: str) -> None:
    """Show messages and bytes of a topic on each master: in from producers, and out to each group.

    Brokers count by minute, hour and day, and begin at 0 when they start; the first figures take a minute. What groups
    read from slaves is not included.
    """
    with connected(needed_namesrv(namesrv), timeout_s) as admin:
        outcomes = topics.topic_rates(admin, masters(admin, cluster), name)
    rows = [(broker, flow) for broker, flows in sorted(outcomes.values.items()) for flow in flows or ()]
    if output != "table":
        emit([_flow_object(broker, flow) for broker, flow in rows], output)
    else:
        headings = ["broker", "flow", "msg/s", "msg/s (1 h)", "msg/s (1 d)", "msg (1 d)", "bytes/s", "bytes (1 d)"]
        put(render_table(headings, [_flow_cells(broker, flow) for broker, flow in rows], set(headings[2:])))
    finish(outcomes.values, outcomes.errors)


def _flow_object(broker: Broker, flow: Flow) -> dict[str, Any]:
    windows = {what: {window: {"sum": rate.sum, "per_s": rate.per_s} for window, rate in given.items()}
               for what, given in (("messages", flow.messages), ("bytes", flow.bytes))}
    return {"broker": broker.name, "direction": "in" if flow.group is None else "out", "group": flow.group, **windows}


def _flow_cells(broker: Broker, flow: Flow) -> list[str]:
    return [cell(broker.name), "in" if flow.group is None else f"out to {cell(flow.group)}",
            *(units.count_text(flow.messages[window].per_s) for window in ("minute", "hour", "day")),
            f"{flow.messages['day'].sum:,}", units.bytes_text(flow.bytes["minute"].per_s),
            units.bytes_text(flow.bytes["day"].sum)]
