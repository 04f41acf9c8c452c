"""Times and numbers that others send: whatever they are, nothing breaks that reads or shows them."""
import ast
import json
import math
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.common import units, util_all
from rmqha.common.message.message import MessageClientExt, MessageQueue
from rmqha.common.protocol.table_bodies import ConsumeStats, ConsumeStatsList, OffsetWrapper
from rmqha.common.texts import first_real, real, whole
from rmqha.pipeline.format_options import Options, PipelineError
from rmqha.pipeline.worker import FIRST_MS, LAST_MS, micros
from rmqha.tools.admin.cluster_admin import Broker, number
from rmqha.tools.command.consumer import _group
from rmqha.tools.command.controller import _broker_row
from rmqha.tools.command.message_print import message_fields, message_text
from rmqha.tools.doctor.cluster_checks import _used
from rmqha.tools.messages.consume import FIELDS
from rmqha.tools.messages.produce import as_object
from rmqha.tools.replication.ask import Told
from rmqha.tools.replication.judgement import master_port
from rmqha.tools.replication.views import _damaged
from rmqha.tools.terminal import CannotAnswerError, iso_time, time_text
from rmqha.tools.top import rows
from rmqha.tools.view import texts as as_json
from rmqha.tools.view.questions import QueueRow, TopicDetail, message_json
from rmqha.tools.view.snapshot import (
    BrokerState,
    History,
    Snapshot,
    broker_state,
    group_states,
    picture,
    seconds_to_go,
    sparkline,
)

ROOT = Path(__file__).resolve().parents[2]
NOW_NS = 1_764_000_000_000_000_000
LONGS = st.sampled_from([0, -1, 1, NOW_NS, -NOW_NS, (1 << 63) - 1, -(1 << 63), 253_402_300_799_999, 253_402_300_800_000,
                         -62_135_596_800_000, -62_135_596_800_001]) | st.integers(-(1 << 63), (1 << 63) - 1)
ODD = ("nan", "-nan", "inf", "-Infinity", "1e999", "-1e308", "1e308", "9" * 400, "9" * 5000, "-1", "", " ", "[" * 5000,
       "0x10", "1_000", "\u0663", "\x00", "7", "0.5", str(NOW_NS), str(1 << 64), "1e18 2e18 3e18", "nan nan nan")
TEXTS = st.sampled_from(ODD)
FLOATS = st.sampled_from([math.nan, math.inf, -math.inf, 1e308, -1e308, 0.0]) | st.floats()
BROKER = Broker("C", "broker-a", 0, "10.0.0.1:10911")
CONFIG_KEYS = ("diskMaxUsedSpaceRatio", "mappedFileSizeCommitLog", "flushDiskType")
TABLE_KEYS = ("bootTimestamp", "commitLogMaxOffset", "commitLogMinOffset", "msgPutTotalTodayNow", "msgGetTotalTodayNow",
              "commitLogDiskRatio", "consumeQueueDiskRatio", "dispatchBehindBytes", "earliestMessageTimeStamp",
              "sendThreadPoolQueueSize", "pullThreadPoolQueueSize", "haLastEpoch", "putTps", "getTransferedTps")


def message_of(born, stored):
    message = MessageClientExt("T", b"x")
    message.born_timestamp, message.store_timestamp, message.offset_msg_id = born, stored, "00"
    message.born_host = message.store_host = ("127.0.0.1", 1)
    return message


@given(LONGS)
def test_each_time_has_a_text(ms):
    for show in (util_all.time_millis_to_human_string, util_all.time_millis_to_human_string2,
                 util_all.time_millis_to_human_string3, util_all.format_date, util_all.utc_text, time_text):
        assert show(ms)
    assert iso_time(ms) is None or "T" in iso_time(ms)


@given(LONGS, LONGS)
def test_a_message_of_any_time_is_shown(born, stored):
    message = message_of(born, stored)
    json.dumps([as_object(message), message_json(message), message_fields(message)], allow_nan=False)
    assert message_text(message)
    for _what, field in FIELDS.values():
        assert field(message) is not None


@given(LONGS)
def test_rows_of_sub_commands_with_any_time(ms):
    from rmqha.client.trace import TraceView
    from rmqha.tools.command.message_query import PRODUCED, _row
    assert _row(PRODUCED, "Pub", TraceView(time_stamp=ms)) is not None


@given(LONGS)
def test_a_column_of_times_has_null_beyond_the_calendar(ms):
    value = micros(ms)
    assert value == (ms * 1000 if FIRST_MS <= ms <= LAST_MS else None)
    if value is not None:  # wherever it is shown
        for hours in (-14, 14):
            assert datetime(1970, 1, 1) + timedelta(microseconds=value, hours=hours)


@given(TEXTS | st.text() | st.floats().map(str) | st.integers().map(str))
def test_a_number_of_a_text_is_in_its_range_or_not_there(text):
    assert -5 <= whole(text, -5, 0, 100) <= 100
    value = real(text, 0, 1)
    assert value is None or 0 <= value <= 1
    assert math.isfinite(first_real(text))
    assert _used(text) == -1 or 0 <= _used(text) <= 1
    try:
        assert abs(number({"key": text}, "key", "b:1")) < 1 << 63
    except CannotAnswerError as error:
        assert len(str(error)) < 400


@given(TEXTS | st.text())
def test_counts_and_ports_in_texts_are_in_their_ranges_or_not_there(text):
    assert all(0 <= count < 1 << 63 for count in _damaged(f"slave:{text},master:{text}").values())
    _host, _colon, port = master_port(f"h:{text}").rpartition(":")
    assert port == "PORT" or 0 < int(port) < 65_535


@given(FLOATS)
def test_the_progress_of_a_group_has_any_rate(tps):
    stats = ConsumeStats({}, tps)
    admin = SimpleNamespace(examine_consume_stats=lambda _group: stats,
                            examine_consumer_connection_info=lambda _group: None)
    assert _group(admin, "readers") is not None


@given(FLOATS | st.integers())
def test_every_value_has_a_short_text(value):
    for show in (units.count_text, units.bytes_text, units.percent_text, units.span_text):
        assert show(value)
    assert len(units.count_text(value)) < 25
    assert len(sparkline([value, None, 1.0], 5)) == 5


def shown(now, before=None):
    """All that top and the console show of snapshots, as the JSON of the API."""
    made, history = picture(now, before, before), History()
    history.add(made)
    for table in (rows.brokers(made, history.values), rows.groups(made, history.values),
                  *(rows.group_queues(made, group.name) for group in now.groups)):
        table.arranged(0, False, "")
    rows.troubles(made)
    return json.dumps([as_json.overview(made), [as_json.group_json(made, each) for each in now.groups],
                       [as_json.place_json(place) for each in now.groups for place in each.places],
                       [history.line(kind, "") for kind in ("in", "out", "behind")]], allow_nan=False)


def state_of(table, config):
    try:
        return broker_state(Told(BROKER, config, table))
    except CannotAnswerError as error:  # as the collector takes it
        return broker_state(Told(BROKER, error=error.message))


TABLES = st.dictionaries(st.sampled_from(TABLE_KEYS), TEXTS)


@given(TABLES, TABLES, st.dictionaries(st.sampled_from(CONFIG_KEYS), TEXTS), LONGS, FLOATS)
def test_whatever_a_broker_tells_of_itself_is_shown_as_json(before, now, config, ms, tps):
    def at(table, at_s):
        stats = ConsumeStats({MessageQueue("T", "broker-a", 0): OffsetWrapper(ms, -ms // 2, ms)}, tps)
        return Snapshot(round(at_s * 1000), at_s, brokers=(state_of(table, config),), groups_at_s=at_s,
                        groups=group_states([ConsumeStatsList([{"readers": [stats]}])]))
    assert shown(at(now, 2.0), at(before, 1.0))
    assert _broker_row(now, "C", "broker-a", 0, BROKER.address) is not None


def test_one_broker_with_nan_leaves_the_others_as_they_are():
    odd = state_of({"commitLogDiskRatio": "nan", "msgPutTotalTodayNow": "nan"}, {"diskMaxUsedSpaceRatio": "nan"})
    good = BrokerState("C", "broker-b", "b:1", 0, disk_used=0.5, disk_limit=0.75)
    told = json.loads(shown(Snapshot(0, 0.0, brokers=(odd, good))))[0]["brokers"]
    assert [(each["disk_used"], each["disk_limit"], each["put_total"]) for each in told] == [
        (None, None, -1), (0.5, 0.75, -1)]
    assert seconds_to_go(5, -math.inf) == 0


@given(LONGS, LONGS, FLOATS)
def test_a_topic_of_any_offsets_and_times_is_shown(end, last_ms, per_s):
    detail = TopicDetail("T", (QueueRow("b", 0, 0, end, last_ms, per_s),), ())
    assert rows.topic_queues(detail, 1_764_000_000_000).rows


@pytest.mark.parametrize("digits", ["9" * 5000, "9" * 400, "9" * 20])
@pytest.mark.parametrize("unit", ["", "m"])
def test_a_size_or_a_time_of_too_many_digits_is_an_error_of_the_option(digits, unit):
    options = Options({"some": digits + unit}, ["some"], "here")
    for read in (options.size, options.duration):
        with pytest.raises(PipelineError, match="some") as caught:
            read("some", 1)
        assert len(str(caught.value)) < 400


# Where a calendar is asked about a number: it is this host's clock, or the place says what to do beyond the calendar.
GUARDED = {
    "rmqha/common/util_all.py", "rmqha/tools/terminal.py", "rmqha/common/logs.py", "rmqha/tools/top/top_app.py",
    "rmqha/common/message/message_decoder.py",
}
CALENDAR = {"fromtimestamp", "utcfromtimestamp", "gmtime", "localtime", "ctime"}


def asked_calendars():
    """(file, function) of each call that makes a calendar's date of a number."""
    for path in sorted((ROOT / "rmqha").rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(function, ast.FunctionDef):
                for call in ast.walk(function):
                    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args \
                            and call.func.attr in CALENDAR:
                        yield str(path.relative_to(ROOT)), function.name


def test_no_other_place_makes_a_date_of_a_number():
    assert [each for each in asked_calendars() if each[0] not in GUARDED] == []
