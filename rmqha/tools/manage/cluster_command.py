"""The group `rmqha cluster`: a cluster at a glance, its brokers, and the settings of running brokers."""
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

import click

from rmqha.common.program import examples
from rmqha.common.units import bytes_text, count_text, percent_text, span_text
from rmqha.tools.admin.cluster_admin import Broker
from rmqha.tools.connection import account, connected, needed_namesrv
from rmqha.tools.manage.cluster_info import ClusterFacts, cluster_facts, controllers_named, slaves_of
from rmqha.tools.manage.completion import complete_broker
from rmqha.tools.manage.masters import ManageGroup, cluster_options
from rmqha.tools.manage.settings import (
    AT_RUN_TIME,
    Change,
    Changed,
    Differences,
    change_settings,
    checked_keys,
    differences,
    effect_of,
    label,
    picked,
    plan,
    read_settings,
    wanted_values,
)
from rmqha.tools.replication.views import ControllerView
from rmqha.tools.terminal import (
    FAILED,
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
    yes_option,
)
from rmqha.tools.top.rows import troubles
from rmqha.tools.view.snapshot import BrokerState, Collector, Picture, picture, snapshot_pair
from rmqha.tools.view.texts import broker_json, slave_json

_NO_VALUE = "-"

one_broker_option = click.option(
    "-b", "--broker", shell_complete=complete_broker,
    help="Only the brokers of this name, or only the one at this host:port.")
_interval_option = click.option(
    "-i", "--interval", "interval_s", default="1s", show_default=True, type=duration_type(0.1, 3600),
    help="The time between the two polls that rates are computed from.")


@click.group("cluster", cls=ManageGroup)
def cluster_group() -> None:
    """Show a cluster at a glance, and read, change and compare its settings."""


def _picture(namesrv: str | None, cluster: str | None, timeout_s: float, interval_s: float) -> Picture:
    with Collector(needed_namesrv(namesrv), timeout_s * 1000, cluster, None, account()) as collector:
        before, now = snapshot_pair(collector, interval_s)
    if not now.brokers:
        raise CannotAnswerError(f"the name server {namesrv} knows no broker")
    return picture(now, before, before if before.groups_at_s != now.groups_at_s else None)


def _finish(shown: Picture) -> None:
    """End with exit code 1 or 2 when brokers did not answer."""
    silent = [each for each in shown.snapshot.brokers if each.error]
    if silent:
        text = f"{counted(len(silent), 'broker')} of {len(shown.snapshot.brokers)} did not answer"
        raise WorkFailedError(text) if len(silent) < len(shown.snapshot.brokers) else CannotAnswerError(text)


@cluster_group.command("info", short_help="Show the cluster at a glance, with all faults.", epilog=examples(
    "rmqha cluster info"))
@_interval_option
@cluster_options
def info_command(namesrv: str | None, cluster: str | None, timeout_s: float, output: str, interval_s: float) -> None:
    """Show clusters, name servers, controllers, brokers, rates, disks and all faults at a glance.

    The counts of messages are since the brokers started; sizes are of the masters' logs. `rmqha top` shows more,
    `rmqha check` is for monitoring.
    """
    shown = _picture(namesrv, cluster, timeout_s, interval_s)
    with connected(needed_namesrv(namesrv), timeout_s) as admin:
        controllers = controllers_named(admin, shown)
    facts, faults = cluster_facts(shown), troubles(shown)
    if output != "table":
        emit({
            "clusters": [{**asdict(each), "fullest": None if each.fullest is None else {
                "broker": each.fullest[0], "disk_used": each.fullest[1]}} for each in facts],
            "name_servers": [{"address": address, "error": error} for address, error in shown.snapshot.name_servers],
            "controllers": [asdict(each) for each in controllers],
            "groups": len(shown.snapshot.groups), "behind": sum(each.behind for each in shown.snapshot.groups),
            "faults": [{"status": "CRITICAL" if tone == "bad" else "WARNING", "text": text} for tone, text in faults],
        }, output)
    else:
        _print_info(shown, facts, controllers, faults)
    _finish(shown)


def _print_info(shown: Picture, facts: Sequence[ClusterFacts], controllers: Sequence[ControllerView],
                faults: Sequence[tuple[str, str]]) -> None:
    for each in facts:
        put_facts({f"cluster {cell(each.name)}": _brokers_text(each), **{f"  {name}": text for name, text in {
            "versions": cell(", ".join(each.versions)) or _NO_VALUE,
            "messages": f"{count_text(each.in_msgs)} in/s, {count_text(each.out_msgs)} out/s; "
                        f"{_total(each.received)} received, {_total(each.delivered)} delivered",
            "logs": bytes_text(each.log_bytes),
            "disk": "-" if each.fullest is None else f"{percent_text(each.fullest[1])} used at {cell(each.fullest[0])}"
                    ", the fullest"}.items()}})
    groups = shown.snapshot.groups
    put_facts({
        "name servers": ", ".join(f"{address} NO ANSWER" if error else address
                                  for address, error in shown.snapshot.name_servers),
        "controllers": ", ".join(f"{each.address} {_state(each)}" for each in controllers) or "none",
        "groups": f"{len(groups)}, {count_text(sum(each.behind for each in groups))} unread messages",
        "faults": str(len(faults)) if faults else "none"})
    for tone, text in faults:
        put(f"  {'CRITICAL' if tone == 'bad' else 'WARNING'} {cell(text)}")


def _brokers_text(facts: ClusterFacts) -> str:
    text = f"{counted(facts.masters, 'master')}, {counted(facts.slaves, 'slave')}"
    return text + (f"; NO ANSWER from {cell(', '.join(facts.silent))}" if facts.silent else "")


def _total(count: int) -> str:
    return _NO_VALUE if count < 0 else f"{count:,}"


def _state(view: ControllerView) -> str:
    return "NO ANSWER" if view.error else "leads" if view.is_leader else "stands by" if view.leader else "has no leader"


_BROKER_HEADINGS = ("name", "id", "role", "address", "version", "in/s", "out/s", "disk", "log", "uptime", "lag",
                    "state")
_BROKER_RIGHT = {"id", "in/s", "out/s", "disk", "log", "uptime", "lag"}


@cluster_group.command("brokers", short_help="List the brokers with their rates, disks and lag.", epilog=examples(
    "rmqha cluster brokers",
    "rmqha cluster brokers -o json"))
@_interval_option
@cluster_options
def brokers_command(namesrv: str | None, cluster: str | None, timeout_s: float, output: str,
                    interval_s: float) -> None:
    """List the brokers: role, address, version, messages per second, disk usage, size of the log, uptime.

    Slaves are shown with their lag, in bytes of the master's log. `rmqha ha status` shows more about replication.
    """
    shown = _picture(namesrv, cluster, timeout_s, interval_s)
    slaves = slaves_of(shown)
    if output != "table":
        emit([{**broker_json(shown, each), "slave": slave_json(slaves[each.address]) if each.address in slaves
               else None} for each in shown.snapshot.brokers], output)
    else:
        rows = [_broker_cells(shown, each) for each in shown.snapshot.brokers]
        put(render_table(_BROKER_HEADINGS, rows, _BROKER_RIGHT))
        for each in shown.snapshot.brokers:
            if each.error:
                put(cell(each.error), err=True)
    _finish(shown)


def _broker_cells(shown: Picture, each: BrokerState) -> tuple[str, ...]:
    rates, slave = shown.broker_rates(each.address), slaves_of(shown).get(each.address)
    uptime_s = (shown.snapshot.at_ms - each.boot_ms) / 1000 if each.boot_ms > 0 else None
    return (cell(each.name), str(each.broker_id), cell(each.role_text), cell(each.address), cell(each.version),
            count_text(rates.in_msgs), count_text(rates.out_msgs), percent_text(each.disk_used),
            _NO_VALUE if each.error else bytes_text(each.log_size), span_text(uptime_s),
            bytes_text(slave.lag_bytes) if slave is not None else "",
            "NO ANSWER" if each.error else slave.state if slave is not None else "up")


# ---- settings


@cluster_group.group("config")
def config_group() -> None:
    """Read, change and compare the settings of running brokers.

    `rmqha config` explains keys and checks files.
    """


@config_group.command("get", short_help="Show settings of all brokers side by side.", epilog=examples(
    "rmqha cluster config get flushDiskType fileReservedTime",
    "rmqha cluster config get -b broker-a"))
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@one_broker_option
@cluster_options
def get_command(keys: tuple[str, ...], namesrv: str | None, cluster: str | None, broker: str | None,
                timeout_s: float, output: str) -> None:
    """Show the values of keys at all brokers of a cluster, side by side; all keys by default.

    A key that a broker does not have, or that has no value there, is shown as `-`. Secrets are never shown.
    """
    with connected(needed_namesrv(namesrv), timeout_s) as admin:
        answers = read_settings(admin, picked(admin, cluster, broker))
    settings = answers.needed()
    shown = checked_keys(keys, settings) if keys else sorted({key for each in settings.values() for key in each.values})
    values = {key: {each: settings[each].value(key) for each in settings} for key in shown}
    if output != "table":
        emit({"brokers": [_broker_facts(each) for each in settings],
              "values": {key: {label(each): value for each, value in by_broker.items()}
                         for key, by_broker in values.items()}}, output)
    else:
        put(render_table(["key", *(cell(label(each)) for each in settings)],
                         [[cell(key), *(_shown(value) for value in by_broker.values())]
                          for key, by_broker in values.items()], set()))
    answers.finish()


def _broker_facts(broker: Broker) -> dict[str, object]:
    return {"cluster": broker.cluster, "name": broker.name, "broker_id": broker.broker_id, "address": broker.address}


def _shown(value: str | None) -> str:
    return _NO_VALUE if value is None else cell(value)


@config_group.command("set", short_help="Change settings of running brokers.", epilog=examples(
    "rmqha cluster config set --dry-run fileReservedTime=48",
    "rmqha cluster config set --yes -b broker-a fileReservedTime=48 deleteWhen=03"))
@click.argument("values", nargs=-1, required=True, metavar="KEY=VALUE...")
@one_broker_option
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@yes_option
@cluster_options
def set_command(values: tuple[str, ...], namesrv: str | None, cluster: str | None, broker: str | None, dry_run: bool,
                yes: bool, timeout_s: float, output: str) -> None:
    """Change settings of all brokers of a cluster while they run, masters and slaves.

    Only keys that can change while a broker runs; the values are checked before anything is sent. Then the settings
    are read again. The result says whether the broker's config file has the value, so that a restart keeps it.

    Exit code 1 also when one of several brokers refused a change, or a broker did not save it in its file.
    """
    wanted = wanted_values(values)
    with connected(needed_namesrv(namesrv), timeout_s) as admin:
        answers = read_settings(admin, picked(admin, cluster, broker))
        changes = plan(answers.needed(), wanted)
        if output == "table" or not (dry_run or yes):
            put(_plan_text(changes), err=output != "table")
        needed = [each for each in changes if each.is_needed]
        refused = [each for each in needed if each.problem]
        done: list[Changed] = []
        if dry_run or not needed:
            _put_note("dry run: nothing was changed" if dry_run else "nothing to change")
        else:
            brokers = {each.broker for each in needed}
            agreed(f"Change {counted(len(wanted), 'key')} at {counted(len(brokers), 'broker')}?", yes)
            made = change_settings(admin, needed)
            answers.errors.update(made.errors)
            done = [each for changed in made.values.values() for each in changed]
    if output != "table":
        emit(_changes_json(changes, done, dry_run), output)
    else:
        _put_saved(done)
    for key in wanted if done else ():
        if effect_of(key) != AT_RUN_TIME:
            _put_note(f"{key} takes effect {effect_of(key)}")
    if dry_run and refused:
        raise WorkFailedError(f"{counted(len(refused), 'change')} would be refused")
    answers.values = {each: answers.values[each] for each in answers.values if each not in answers.errors}
    answers.finish()
    if any(each.is_saved is False and each.change.broker not in answers.errors for each in done):
        raise WorkFailedError("values that are not saved are lost when the broker restarts: write them to its config "
                              "file")


def _put_note(text: str) -> None:
    put(text, err=True)


def _plan_text(changes: Sequence[Change]) -> str:
    return render_table(["broker", "key", "before", "after", "note"], [
        [cell(label(each.broker)), cell(each.key), _shown(each.before), cell(each.after),
         cell(each.problem) or ("" if each.is_needed else "unchanged")] for each in changes], set())


def _put_saved(done: Iterable[Changed]) -> None:
    """Print what the brokers have now, and what survives a restart."""
    words = {True: "set, and saved in", False: "set, but NOT SAVED:", None: "set; whether it is saved is unknown:"}
    for each in done:
        change = each.change
        put(f"{cell(label(change.broker))}: {change.key}={cell(change.after)} {words[each.is_saved]} "
            f"{cell(each.file if each.is_saved else each.why)}")


def _changes_json(changes: Sequence[Change], done: Sequence[Changed], dry_run: bool) -> dict[str, object]:
    by_change = {each.change: each for each in done}
    return {"dry_run": dry_run, "changes": [{
        "broker": _broker_facts(each.broker), "key": each.key, "before": each.before, "after": each.after,
        "needed": each.is_needed, "problem": each.problem, "changed": each in by_change,
        "saved": by_change[each].is_saved if each in by_change else None,
        "why": by_change[each].why if each in by_change else ""} for each in changes]}


@config_group.command("diff", short_help="Show which brokers differ, and from their files.", epilog=examples(
    "rmqha cluster config diff",
    "rmqha cluster config diff --exit-code -b broker-a"))
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@one_broker_option
@click.option("-a", "--all", "show_all", is_flag=True,
              help="Also show keys that have to differ (names, addresses, paths), with the reason.")
@click.option("--exit-code", is_flag=True, help="Exit with code 1 when there are differences, too.")
@cluster_options
def diff_command(keys: tuple[str, ...], namesrv: str | None, cluster: str | None, broker: str | None, show_all: bool,
                 exit_code: bool, timeout_s: float, output: str) -> None:
    """Compare masters with masters, slaves with their master, and each broker with its config file.

    Keys that have to differ, such as names, addresses and paths, are left out. A RocketMQ broker does not report its
    file: that is unknown.
    """
    with connected(needed_namesrv(namesrv), timeout_s) as admin:
        answers = read_settings(admin, picked(admin, cluster, broker))
    settings = answers.needed()
    everything = differences(settings, checked_keys(keys, settings))
    unexpected = everything.unexpected
    shown = everything if show_all else unexpected
    if output != "table":
        emit(_differences_json(shown), output)
    else:
        _print_differences(shown, list(settings))
    answers.finish()
    if exit_code and (unexpected.replicas or unexpected.files):
        raise SystemExit(FAILED)


def _print_differences(shown: Differences, brokers: Sequence[Broker]) -> None:
    concerned = [each for each in brokers if any(each in one.values for one in shown.replicas)]
    if shown.replicas:
        rows = [[cell(each.key), cell(each.compared), *(_shown(each.values[one]) if one in each.values else ""
                                                        for one in concerned)] for each in shown.replicas]
        headings = ["key", "compared", *(cell(label(each)) for each in concerned)]
        if any(each.expected for each in shown.replicas):
            headings.append("expected because")
            rows = [[*row, each.expected] for row, each in zip(rows, shown.replicas)]
        put(render_table(headings, rows, set()))
    else:
        put("no differences between the brokers")
    put("")
    if shown.files:
        put(render_table(["broker", "key", "running", "in its file", "why"], [
            [cell(label(each.broker)), cell(each.key), _shown(each.running), _shown(each.in_file), each.why]
            for each in shown.files], set()))
    elif len(shown.unknown) < len(brokers):
        put("no differences from the config files")
    for one, why in shown.unknown.items():
        put(f"{cell(label(one))}: differences from its file are unknown: {cell(why)}")


def _differences_json(shown: Differences) -> dict[str, object]:
    return {
        "replicas": [{"key": each.key, "compared": each.compared, "expected": each.expected,
                      "values": _by_label(each.values)} for each in shown.replicas],
        "files": [{"broker": _broker_facts(each.broker), "file": each.path, "key": each.key, "running": each.running,
                   "in_file": each.in_file, "why": each.why, "expected": each.expected} for each in shown.files],
        "unknown": _by_label(shown.unknown)}


def _by_label(values: Mapping[Broker, str]) -> dict[str, str]:
    return {label(broker): value for broker, value in values.items()}
