"""The tables of `top`, as rows of texts with the values to sort by: pure functions on a picture."""
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from rmqha.common.units import bytes_text, count_text, percent_text, span_text
from rmqha.tools.check_base import Status
from rmqha.tools.replication.views import SlaveView
from rmqha.tools.terminal import cell
from rmqha.tools.view.questions import GroupClients, TopicDetail, TopicRow
from rmqha.tools.view.snapshot import (
    BEHIND,
    IN,
    LAG,
    OUT,
    BrokerState,
    GroupRates,
    GroupState,
    Picture,
    all_faults,
    seconds_to_go,
    sparkline,
)

SPARK_WIDTH = 12
# A push consumer commits its offsets at this interval: messages consumed since then seem to be unread.
_STEADY_S = 5.0
# Rounds per bar: groups are not asked in each round.
_GROUPS_EACH = 5
# Bytes: a smaller lag shows no peak in the sparkline.
_LAG_TOP = 4096.0
Lines = Callable[[str, str, int], list[float | None]]  # kind, name, how many -> the last values


@dataclass(frozen=True)
class Column:
    """A column. `right`: it has numbers; sorting by it begins with the greatest."""

    title: str
    right: bool = False


@dataclass(frozen=True)
class Row:
    """A row. `key` names what Enter opens, `sort` has a value for each cell; `tone` is "", good, warn or bad."""

    key: str
    cells: tuple[str, ...]
    sort: tuple[float | str, ...]
    tone: str = ""


@dataclass(frozen=True)
class Table:
    """A table with a title, columns and rows."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...] = field(default=())

    def arranged(self, column: int | None, backwards: bool, wanted: str) -> tuple[Row, ...]:
        """Return the rows with `wanted` in a cell, sorted by a column; with column None in their own order."""
        rows: Iterable[Row] = self.rows
        if wanted:
            rows = [row for row in rows if any(wanted.lower() in text.lower() for text in row.cells)]
        if column is None or column >= len(self.columns):
            return tuple(rows)
        descending = self.columns[column].right != backwards
        return tuple(sorted(rows, key=lambda row: _key(row.sort[column]), reverse=descending))


def _key(value: float | str) -> tuple[int, float, str]:
    return (0, 0.0, value) if isinstance(value, str) else (1, value, "")


def _row(key: str, cells: Sequence[tuple[str, float | str | None]], tone: str = "") -> Row:
    """Return a row of pairs of text and value; an unknown value sorts below any other."""
    return Row(key, tuple(cell(text) for text, _value in cells),
               tuple(float("-inf") if value is None else value for _text, value in cells), tone)


def _text(text: str) -> tuple[str, str]:
    return text, text


BROKER_COLUMNS = (
    Column("broker"), Column("id", True), Column("address"), Column("role"), Column("in/s", True), Column("in"),
    Column("out/s", True), Column("out"), Column("log/s", True), Column("log", True), Column("disk", True),
    Column("state"), Column("lag", True), Column("lag trend"), Column("lag time", True))


def brokers(picture: Picture, lines: Lines) -> Table:
    """Return the table of masters and slaves, each with its rates, and slaves with their lag."""
    now = picture.snapshot
    slaves = {slave.address: slave for each in now.replication for slave in each.slaves}
    rows = [_broker(picture, broker, slaves.get(broker.address), lines) for broker in now.brokers]
    known = {broker.address for broker in now.brokers}
    rows += [_stranger(each.name, slave) for each in now.replication for slave in each.slaves
             if slave.address not in known]
    return Table("brokers", BROKER_COLUMNS, tuple(rows))


def _broker(picture: Picture, broker: BrokerState, slave: SlaveView | None, lines: Lines) -> Row:
    rates = picture.broker_rates(broker.address)
    state, tone = _state(broker, slave)
    log_size = None if broker.error else broker.log_size
    return _row(broker.address, [
        _text(broker.name), (str(broker.broker_id), broker.broker_id), _text(broker.address), _text(broker.role_text),
        (count_text(rates.in_msgs), rates.in_msgs),
        (sparkline(lines(IN, broker.address, SPARK_WIDTH), SPARK_WIDTH), rates.in_msgs),
        (count_text(rates.out_msgs), rates.out_msgs),
        (sparkline(lines(OUT, broker.address, SPARK_WIDTH), SPARK_WIDTH), rates.out_msgs),
        (bytes_text(rates.log_bytes), rates.log_bytes), (bytes_text(log_size), log_size),
        (percent_text(broker.disk_used), broker.disk_used), _text(state),
        ("", None) if slave is None else (bytes_text(slave.lag_bytes), slave.lag_bytes),
        ("", None) if slave is None else (sparkline(lines(LAG, broker.address, SPARK_WIDTH), SPARK_WIDTH, _LAG_TOP),
                                          slave.lag_bytes),
        ("", None) if slave is None else (span_text(slave.lag_seconds), slave.lag_seconds),
    ], tone)


def _state(broker: BrokerState, slave: SlaveView | None) -> tuple[str, str]:
    if broker.error:
        return "NO ANSWER", "bad"
    if slave is not None:
        return slave.state, _tone(slave.status)
    if broker.disk_used is not None and broker.disk_limit is not None and broker.disk_used > broker.disk_limit:
        return "DISK FULL", "warn"
    return "up", "good"


def _tone(status: Status) -> str:
    return {Status.OK: "good", Status.CRITICAL: "bad"}.get(status, "warn")


def _stranger(name: str, slave: SlaveView) -> Row:
    empty: list[tuple[str, float | str | None]] = [("", None)] * 6
    return _row(slave.address, [
        _text(name), ("" if slave.broker_id is None else str(slave.broker_id), slave.broker_id),
        _text(slave.address), _text("not registered"), *empty, ("", None), _text(slave.state),
        (bytes_text(slave.lag_bytes), slave.lag_bytes), ("", None), (span_text(slave.lag_seconds), slave.lag_seconds),
    ], _tone(slave.status))


GROUP_COLUMNS = (
    Column("group"), Column("behind", True), Column("backlog"), Column("delay", True), Column("consumed/s", True),
    Column("sent/s", True), Column("growth/s", True), Column("drained in", True), Column("queues", True),
    Column("topics"))


def groups(picture: Picture, lines: Lines) -> Table:
    """Return the table of all groups, those with the largest lag first."""
    rows = [_group(picture, group, lines) for group in
            sorted(picture.snapshot.groups, key=lambda each: (-each.behind, each.name))]
    return Table("groups", GROUP_COLUMNS, tuple(rows))


def _group(picture: Picture, group: GroupState, lines: Lines) -> Row:
    rates, delay = picture.group_rates(group.name), group.delay_ms(picture.snapshot.at_ms)
    delay_s = None if delay is None else delay / 1000
    gone = seconds_to_go(group.behind, rates.growth)
    tone = _backlog_tone(group.behind, rates) if group.behind else "good"
    return _row(group.name, [
        _text(group.name), (count_text(group.behind), group.behind),
        (sparkline(_thinned(lines(BEHIND, group.name, SPARK_WIDTH * _GROUPS_EACH)), SPARK_WIDTH), group.behind),
        (span_text(delay_s), delay_s), (count_text(rates.consumed), rates.consumed),
        (count_text(rates.produced), rates.produced), (count_text(rates.growth), rates.growth),
        (span_text(gone), gone), (str(len(group.places)), len(group.places)), _text(", ".join(group.topics)),
    ], tone)


def _thinned(values: list[float | None]) -> list[float | None]:
    """Return every n-th value, including the last one."""
    return values[::-_GROUPS_EACH][::-1]


def _backlog_tone(behind: int, rates: GroupRates) -> str:
    """Good: only just consumed messages are unread; bad: the lag grows by more than 1/10 of the sent messages."""
    produced, growth = rates.produced or 0.0, rates.growth or 0.0
    if behind <= _STEADY_S * (rates.consumed or 0.0):
        return "good"
    return "bad" if growth > max(1.0, produced / 10) else "warn"


PLACE_COLUMNS = (Column("topic"), Column("broker"), Column("queue", True), Column("end", True), Column("offset", True),
                 Column("behind", True), Column("delay", True))


def group_queues(picture: Picture, name: str) -> Table:
    """Return the table of a group's queues."""
    group, now_ms = picture.snapshot.group(name), picture.snapshot.at_ms
    rows = []
    for place in group.places if group is not None else ():
        late_s = (now_ms - place.consumed_ms) / 1000 if place.behind and place.consumed_ms > 0 else None
        rows.append(_row(f"{place.topic} {place.broker} {place.queue_id}", [
            _text(place.topic), _text(place.broker), (str(place.queue_id), place.queue_id),
            (f"{place.end:,}", place.end), (f"{place.offset:,}", place.offset),
            (f"{place.behind:,}", place.behind), (span_text(late_s) if place.behind else "", late_s),
        ], "warn" if place.behind else ""))
    return Table(f"queues of group {name}", PLACE_COLUMNS, tuple(rows))


CLIENT_COLUMNS = (Column("client"), Column("address"), Column("language"), Column("version"))


def group_clients(name: str, told: GroupClients) -> Table:
    """Return the table of a group's clients."""
    how = ", ".join(part for part in (told.consume_type, told.model, told.consume_from) if part)
    subscriptions = ", ".join(f"{topic} ({expression})" for topic, expression in told.subscriptions)
    title = f"clients of group {name}: {how}; {subscriptions}" if told.clients else (
        f"clients of group {name}: no client is connected")
    return Table(title, CLIENT_COLUMNS, tuple(
        _row(each.client_id, [_text(each.client_id), _text(each.address), _text(each.language), _text(each.version)])
        for each in told.clients))


TOPIC_COLUMNS = (Column("topic"), Column("kind"), Column("read queues", True), Column("write queues", True),
                 Column("perm"), Column("brokers"))


def topics(told: Sequence[TopicRow], where: str = "") -> Table:
    """Return the table of topics, user topics first."""
    rows = sorted(told, key=lambda each: (each.kind != "user", each.name))
    return Table(f"topics{where}", TOPIC_COLUMNS, tuple(_row(each.name, [
        _text(each.name), _text(each.kind), (str(each.read_queues), each.read_queues),
        (str(each.write_queues), each.write_queues), _text(each.perm), _text(", ".join(each.brokers))])
        for each in rows))


QUEUE_COLUMNS = (Column("broker"), Column("queue", True), Column("begin", True), Column("end", True),
                 Column("messages", True), Column("in/s", True), Column("last message", True))


def topic_queues(told: TopicDetail, now_ms: int) -> Table:
    """Return the table of a topic's queues."""
    groups_text = f"; consumed by {', '.join(told.groups)}" if told.groups else "; no group consumes it"
    rows = []
    for queue in told.queues:
        age_s = max(0, now_ms - queue.last_ms) / 1000 if queue.last_ms > 0 else None
        rows.append(_row(f"{queue.broker} {queue.queue_id}", [
            _text(queue.broker), (str(queue.queue_id), queue.queue_id), (f"{queue.begin:,}", queue.begin),
            (f"{queue.end:,}", queue.end), (f"{queue.end - queue.begin:,}", queue.end - queue.begin),
            (count_text(queue.per_s), queue.per_s),
            (f"{span_text(age_s)} ago" if age_s is not None else "-", None if age_s is None else -age_s)]))
    return Table(f"queues of topic {told.name}{groups_text}", QUEUE_COLUMNS, tuple(rows))


def troubles(picture: Picture) -> list[tuple[str, str]]:
    """Return all problems as (tone, text), the worst first."""
    now = picture.snapshot
    found = [("bad", error) for _address, error in now.name_servers if error]
    found += [(_tone(fault.status), fault.text) for fault in now.faults
              if fault.text not in {error for _address, error in now.name_servers}]
    for each in now.replication:
        found += [(_tone(fault.status), f"{each.name}: {fault.text}") for fault in all_faults(each)]
        found += [(_tone(slave.status), f"{each.name}, slave {slave.address}: {slave.note}")
                  for slave in each.slaves if slave.note and slave.status is not Status.OK]
    found += [("warn", text) for text in now.groups_errors]
    return sorted(dict.fromkeys(found), key=lambda trouble: trouble[0] != "bad")
