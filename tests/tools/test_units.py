"""Sizes, durations and times of options have one meaning, and no received number breaks a command."""
import ast
import json
import math
import re
import time
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.common import units, util_all
from rmqha.common.message.message import MessageClientExt, MessageQueue
from rmqha.common.protocol.table_bodies import ConsumeStats, ConsumeStatsList, OffsetWrapper
from rmqha.common.texts import first_real, real, whole
from rmqha.pipeline import job_command
from rmqha.pipeline.format_options import Options, PipelineError
from rmqha.pipeline.pipeline_command import pipeline_group
from rmqha.pipeline.worker import FIRST_MS, LAST_MS, micros
from rmqha.tools.admin.cluster_admin import Broker, number
from rmqha.tools.check_base import Limits, LimitsType
from rmqha.tools.command.consumer import _group
from rmqha.tools.command.controller import _broker_row
from rmqha.tools.command.message_print import message_fields, message_text
from rmqha.tools.doctor.cluster_checks import _used
from rmqha.tools.messages.consume import FIELDS
from rmqha.tools.messages.positions import Position, PositionType
from rmqha.tools.messages.produce import as_object
from rmqha.tools.replication.ask import Told
from rmqha.tools.replication.judgement import master_port
from rmqha.tools.replication.views import _damaged
from rmqha.tools.terminal import CannotAnswerError, UnitType, iso_time, time_text
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
from tests.support.guide import is_leaf, own_commands
from tests.support.tiers import of_sources

# Sizes, durations and times: one meaning in all options of all commands, and each such option uses it.

KIB, MIN = 1024, 60.0
SIZES = {"0": 0, "17": 17, "17B": 17, "1k": KIB, "1K": KIB, "2KiB": 2 * KIB, "2kib": 2 * KIB, "1KB": 1000,
         "30M": 30 * KIB**2, "30MiB": 30 * KIB**2, "30mib": 30 * KIB**2, "3MB": 3_000_000, "1.5g": 3 * KIB**3 // 2,
         "2GiB": 2 * KIB**3, "2GB": 2 * 10**9, "1T": KIB**4, "1 TiB": KIB**4}
DURATIONS = {"250ms": 0.25, "30s": 30.0, "30S": 30.0, "30m": 30 * MIN, "30min": 30 * MIN, "1.5h": 90 * MIN,
             "2d": 2 * 1440 * MIN, "7 d": 7 * 1440 * MIN}
MOMENTS = ["2026-03-01", "2026-03-01T12:30:00", "2026-03-01 12:30:00.250", "2026-07-01T00:00:00Z",
           "2026-07-01T00:00:00+05:30", "20260301123000123", "1767225600000"]
NEITHER = ["", " ", "soon", "3X", "1e3", "-5m", "30 parsecs", "M", "1,5g", "٣s", "9" * 40, "1" * 19 + "s", "0x10",
           "nan", "2026-13-01"]

# Words that suggest an amount; options that match but take a count or a rate are listed below.
_WORDS = re.compile(r"\b(seconds?|bytes|TIME|times? of|how long|stored at|mappedFileSize\w*|driver)\b", re.IGNORECASE)
_AMOUNT_NAMES = re.compile(r"--(.*-)?(timeout|interval|wait|seconds|delay|size|bytes|memory|from|to|since|until|"
                           r"expire|warn|crit|from-time|to-time)$")
# (command, option) -> the reason why it takes none of the three kinds.
OTHERS = {
    ("rmqha produce", "--delay"): "a level of messageDelayLevel",
    ("rmqha bench produce", "--rate"): "messages a second",
    ("rmqha bench e2e", "--rate"): "messages a second", ("rmqha produce", "--rate"): "messages a second",
    ("rmqha drill failover", "--rate"): "messages a second", ("rmqha pipeline replay", "--to"): "a topic",
    ("rmqha pipeline restore", "--to"): "a topic",
    ("rmqha dlq resend", "--to"): "a topic", ("rmqha acl check", "--from"): "an address",
    ("rmqha group seek", "--to"): "also a word or an offset; times as everywhere",
    ("rmqha check group", "--warn"): "messages", ("rmqha check group", "--crit"): "messages",
}
CALLBACKS = {job_command.moment: units.parse_time, job_command.size: units.parse_size,
             job_command.queue_file_size: units.parse_size}


def all_options():
    """Yield (command, option) of every option, including those of the pipeline."""
    for path, command in [*own_commands(), *((f"rmqha pipeline {name}", each)
                                             for name, each in sorted(pipeline_group.commands.items()))]:
        if is_leaf(command):
            yield from ((path, option) for option in command.params if isinstance(option, click.Option)
                        and not option.is_flag)


def is_amount(path: str, option: click.Option) -> bool:
    """Return whether an option's name or help suggests that it takes a size, a duration or a time."""
    if any((path, name) in OTHERS for name in option.opts) or isinstance(option.type, (click.Path, click.Choice)):
        return False
    return any(_AMOUNT_NAMES.fullmatch(name) for name in option.opts) or bool(_WORDS.search(option.help or "")) \
        and not option.opts[0].startswith("-f")


def read(option: click.Option, text: str) -> object:
    """Parse a text as the option does; return None when it is refused."""
    context = click.Context(click.Command("x"))
    try:
        value = option.type.convert(text, option, context)
        return option.callback(context, option, value) if option.callback is not None else value
    except click.BadParameter:
        return None


AMOUNTS = [(path, option) for path, option in all_options() if is_amount(path, option)]


def test_many_options_take_amounts_and_no_exception_is_obsolete():
    assert len(AMOUNTS) > 40
    named = {(path, name) for path, option in all_options() for name in option.opts}
    assert {each for each in OTHERS if each in named} == set(OTHERS), set(OTHERS) - named


def test_no_option_has_its_own_kind_of_number():
    """Check that every float option is a rate, or uses units."""
    assert [(path, option.opts) for path, option in all_options() if isinstance(option.type, click.types.FloatParamType)
            and not any((path, name) in OTHERS for name in option.opts)] == []


@pytest.mark.parametrize("path, option", AMOUNTS, ids=[f"{path} {option.opts[0]}" for path, option in AMOUNTS])
def test_each_option_interprets_amounts_the_same_way(path, option, monkeypatch):
    monkeypatch.setattr(units.time, "time", lambda: 1_800_000_000.0)
    kind = option.type
    if isinstance(kind, UnitType):
        parse = kind._parse
        table = {text: parse(text) for text in (*SIZES, *DURATIONS, *MOMENTS, *NEITHER) if not _fails(parse, text)}
        assert parse in (units.parse_size, units.parse_duration, units.parse_time)
        for text, wanted in table.items():
            assert read(option, text) in (wanted, None)  # None: outside of its range
        least = {units.parse_size: "1MiB", units.parse_duration: "2s", units.parse_time: "10m"}[parse]
        assert read(option, least) == parse(least)
    elif isinstance(kind, LimitsType):
        for text, size in SIZES.items():
            assert read(option, text) == Limits(size)
        for text, seconds in DURATIONS.items():
            assert read(option, text) == Limits(None, seconds)
    elif isinstance(kind, PositionType):
        for text in (*MOMENTS, "30m", "2d", "250ms"):
            assert read(option, text) == Position(time_ms=units.parse_time(text))
    elif option.callback is job_command._memory:
        assert (read(option, "2g"), read(option, "512M"), read(option, "512m")) == ("2097152k", "524288k", None)
    else:
        parse = CALLBACKS[option.callback]
        text = "1MiB" if parse is units.parse_size else "30m"
        assert read(option, text) == parse(text)
    assert all(read(option, text) is None for text in NEITHER if not (isinstance(kind, PositionType) and text == ""))


def _fails(parse, text):
    try:
        parse(text)
    except units.UnitError:
        return True
    return False


@pytest.mark.parametrize("text, size", SIZES.items())
def test_sizes(text, size):
    assert units.parse_size(text) == size and units.parse_limit(text) == (size, None)


@pytest.mark.parametrize("text, seconds", DURATIONS.items())
def test_durations_and_times_before_now(text, seconds):
    assert units.parse_duration(text) == seconds and units.parse_limit(text) == (None, seconds)
    assert units.parse_time(text, 10**12) == 10**12 - round(seconds * 1000)


def test_lower_case_m_is_minutes_and_upper_case_m_is_mebibytes():
    with pytest.raises(units.UnitError, match="'30m' is a duration, not a size; MiB is M"):
        units.parse_size("30m")
    with pytest.raises(units.UnitError, match="'30M' is a size, not a duration; minutes are m"):
        units.parse_duration("30M")
    with pytest.raises(units.UnitError, match="'30M' is a size, not a duration; minutes are m"):
        units.parse_time("30M")


def _ms(found):
    return found.time_ms if isinstance(found, Position) else found


@pytest.mark.parametrize("zone, hours", [("UTC", 0), ("Etc/GMT-9", -9), ("Etc/GMT+5", 5)])
def test_date_without_a_zone_is_local_time_everywhere(zone, hours, monkeypatch):
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        wanted = 1_772_323_200_000 + hours * 3_600_000
        seen = {(path, option.opts[0]): _ms(read(option, "2026-03-01"))
                for path, option in AMOUNTS if option.callback is job_command.moment
                or isinstance(option.type, PositionType)
                or isinstance(option.type, UnitType) and option.type._parse is units.parse_time}
        assert len(seen) >= 8 and set(seen.values()) == {wanted}, seen
        assert units.parse_time("2026-03-01T00:00:00Z") == 1_772_323_200_000
        assert units.parse_time("20260301000000000") == wanted
    finally:
        monkeypatch.undo()
        time.tzset()


@given(st.text(max_size=40) | st.from_regex(r"[0-9.]{1,20} ?[kmgtibshdKMGTIBSHD]{0,3}", fullmatch=True))
def test_any_text_is_an_amount_or_refused_in_one_line(text):
    for parse in (units.parse_size, units.parse_duration, units.parse_time, units.parse_limit):
        try:
            found = parse(text)
        except units.UnitError as error:
            assert len(str(error)) < 400
        else:
            assert all(each is None or each >= 0 and math.isfinite(each)
                       for each in (found if isinstance(found, tuple) else (found,)))


@given(st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1)))
def test_printed_times_are_accepted_as_input(moment):
    ms = int(moment.timestamp()) * 1000 + moment.microsecond // 1000
    assert units.parse_time(datetime.fromtimestamp(ms / 1000).astimezone().isoformat(timespec="milliseconds")) == ms


# Received times and numbers: no value may break a command that reads or shows them.

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
def test_each_time_can_be_printed(ms):
    for show in (util_all.time_millis_to_human_string, util_all.time_millis_to_human_string2,
                 util_all.time_millis_to_human_string3, util_all.format_date, util_all.utc_text, time_text):
        assert show(ms)
    assert iso_time(ms) is None or "T" in iso_time(ms)


@given(LONGS, LONGS)
def test_message_with_any_time_is_shown(born, stored):
    message = message_of(born, stored)
    json.dumps([as_object(message), message_json(message), message_fields(message)], allow_nan=False)
    assert message_text(message)
    for _what, field in FIELDS.values():
        assert field(message) is not None


@given(LONGS)
def test_rows_of_sub_commands_accept_any_time(ms):
    from rmqha.client.trace import TraceView
    from rmqha.tools.command.message_query import PRODUCED, _row
    assert _row(PRODUCED, "Pub", TraceView(time_stamp=ms)) is not None


@given(LONGS)
def test_column_of_times_has_null_beyond_the_calendar(ms):
    value = micros(ms)
    assert value == (ms * 1000 if FIRST_MS <= ms <= LAST_MS else None)
    if value is not None:  # wherever it is shown
        for hours in (-14, 14):
            assert datetime(1970, 1, 1) + timedelta(microseconds=value, hours=hours)


@given(TEXTS | st.text() | st.floats().map(str) | st.integers().map(str))
def test_number_parsed_from_a_text_is_in_its_range_or_missing(text):
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
def test_counts_and_ports_in_texts_are_in_their_ranges_or_missing(text):
    assert all(0 <= count < 1 << 63 for count in _damaged(f"slave:{text},master:{text}").values())
    _host, _colon, port = master_port(f"h:{text}").rpartition(":")
    assert port == "PORT" or 0 < int(port) < 65_535


@given(FLOATS)
def test_progress_of_a_group_accepts_any_rate(tps):
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
    """Return the output of top and the console for snapshots, as the API's JSON."""
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
    # As the collector handles it.
    except CannotAnswerError as error:
        return broker_state(Told(BROKER, error=error.message))


TABLES = st.dictionaries(st.sampled_from(TABLE_KEYS), TEXTS)


@given(TABLES, TABLES, st.dictionaries(st.sampled_from(CONFIG_KEYS), TEXTS), LONGS, FLOATS)
def test_any_runtime_table_of_a_broker_is_shown_as_json(before, now, config, ms, tps):
    def at(table, at_s):
        stats = ConsumeStats({MessageQueue("T", "broker-a", 0): OffsetWrapper(ms, -ms // 2, ms)}, tps)
        return Snapshot(round(at_s * 1000), at_s, brokers=(state_of(table, config),), groups_at_s=at_s,
                        groups=group_states([ConsumeStatsList([{"readers": [stats]}])]))
    assert shown(at(now, 2.0), at(before, 1.0))
    assert _broker_row(now, "C", "broker-a", 0, BROKER.address) is not None


def test_broker_with_nan_does_not_affect_the_others():
    odd = state_of({"commitLogDiskRatio": "nan", "msgPutTotalTodayNow": "nan"}, {"diskMaxUsedSpaceRatio": "nan"})
    good = BrokerState("C", "broker-b", "b:1", 0, disk_used=0.5, disk_limit=0.75)
    told = json.loads(shown(Snapshot(0, 0.0, brokers=(odd, good))))[0]["brokers"]
    assert [(each["disk_used"], each["disk_limit"], each["put_total"]) for each in told] == [
        (None, None, -1), (0.5, 0.75, -1)]
    assert seconds_to_go(5, -math.inf) == 0


@given(LONGS, LONGS, FLOATS)
def test_topic_with_any_offsets_and_times_is_shown(end, last_ms, per_s):
    detail = TopicDetail("T", (QueueRow("b", 0, 0, end, last_ms, per_s),), ())
    assert rows.topic_queues(detail, 1_764_000_000_000).rows


@pytest.mark.parametrize("digits", ["9" * 5000, "9" * 400, "9" * 20])
@pytest.mark.parametrize("unit", ["", "m"])
def test_size_or_time_with_too_many_digits_is_a_usage_error(digits, unit):
    options = Options({"some": digits + unit}, ["some"], "here")
    for read in (options.size, options.duration):
        with pytest.raises(PipelineError, match="some") as caught:
            read("some", 1)
        assert len(str(caught.value)) < 400


# Conversions of numbers to dates: from this host's clock, or the code handles numbers beyond the calendar.
GUARDED = {
    "rmqha/common/util_all.py", "rmqha/tools/terminal.py", "rmqha/common/logs.py", "rmqha/tools/top/top_app.py",
    "rmqha/common/message/message_decoder.py",
    # the time of a build, and the times of files, limited to those that an archive can have
    "rmqha/native/build_backend.py", "rmqha/tools/support/bundle.py", "rmqha/tools/support/support_command.py",
}
CALENDAR = {"fromtimestamp", "utcfromtimestamp", "gmtime", "localtime", "ctime"}


def asked_calendars():
    """Yield (file, function) of each call that converts a number to a date."""
    for path in sorted((ROOT / "rmqha").rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(function, ast.FunctionDef):
                for call in ast.walk(function):
                    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args \
                            and call.func.attr in CALENDAR:
                        yield str(path.relative_to(ROOT)), function.name


@of_sources
def test_no_other_place_converts_a_number_to_a_date():
    assert [each for each in asked_calendars() if each[0] not in GUARDED] == []
