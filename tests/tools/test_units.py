"""Sizes, durations and times: one meaning for all options of all commands, and each option that takes one has it."""
import math
import re
import time
from datetime import datetime

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.common import units
from rmqha.pipeline import job_command
from rmqha.pipeline.pipeline_command import pipeline_group
from rmqha.tools.check_base import Limits, LimitsType
from rmqha.tools.messages.consume import Position, PositionType
from rmqha.tools.terminal import UnitType
from tests.support.commands import is_leaf, own_commands

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

# What is about an amount by its words, and is not one of those three: counts and rates.
_WORDS = re.compile(r"\b(seconds?|bytes|TIME|times? of|how long|stored at|mappedFileSize\w*|driver)\b", re.IGNORECASE)
_AMOUNT_NAMES = re.compile(r"--(.*-)?(timeout|interval|wait|seconds|delay|size|bytes|memory|from|to|since|until|"
                           r"expire|warn|crit|from-time|to-time)$")
# option -> why it is none of them, by command and name
OTHERS = {
    ("rmqha produce", "--delay"): "a level of messageDelayLevel",
    ("rmqha bench produce", "--rate"): "messages a second",
    ("rmqha bench e2e", "--rate"): "messages a second", ("rmqha produce", "--rate"): "messages a second",
    ("rmqha drill failover", "--rate"): "messages a second", ("rmqha pipeline replay", "--to"): "a topic",
    ("rmqha pipeline restore", "--to"): "a topic",
}
CALLBACKS = {job_command.moment: units.parse_time, job_command.size: units.parse_size,
             job_command.queue_file_size: units.parse_size}


def all_options():
    """(command, option) of each, those of the pipeline too."""
    for path, command in [*own_commands(), *((f"rmqha pipeline {name}", each)
                                             for name, each in sorted(pipeline_group.commands.items()))]:
        if is_leaf(command):
            yield from ((path, option) for option in command.params if isinstance(option, click.Option)
                        and not option.is_flag)


def is_amount(path: str, option: click.Option) -> bool:
    """Whether an option's name or words say that it takes a size, a duration or a time."""
    if any((path, name) in OTHERS for name in option.opts) or isinstance(option.type, (click.Path, click.Choice)):
        return False
    return any(_AMOUNT_NAMES.fullmatch(name) for name in option.opts) or bool(_WORDS.search(option.help or "")) \
        and not option.opts[0].startswith("-f")


def read(option: click.Option, text: str) -> object:
    """A text as the option takes it; None when it refuses."""
    context = click.Context(click.Command("x"))
    try:
        value = option.type.convert(text, option, context)
        return option.callback(context, option, value) if option.callback is not None else value
    except click.BadParameter:
        return None


AMOUNTS = [(path, option) for path, option in all_options() if is_amount(path, option)]


def test_there_are_such_options_and_the_exceptions_are_needed():
    assert len(AMOUNTS) > 40
    named = {(path, name) for path, option in all_options() for name in option.opts}
    assert {each for each in OTHERS if each in named} == set(OTHERS), set(OTHERS) - named


def test_no_option_takes_a_number_of_its_own_kind():
    """A float is a rate, or goes through units."""
    assert [(path, option.opts) for path, option in all_options() if isinstance(option.type, click.types.FloatParamType)
            and not any((path, name) in OTHERS for name in option.opts)] == []


@pytest.mark.parametrize("path, option", AMOUNTS, ids=[f"{path} {option.opts[0]}" for path, option in AMOUNTS])
def test_each_option_has_the_one_meaning(path, option, monkeypatch):
    monkeypatch.setattr(units.time, "time", lambda: 1_800_000_000.0)
    kind = option.type
    if isinstance(kind, UnitType):
        parse = kind._parse
        table = {text: parse(text) for text in (*SIZES, *DURATIONS, *MOMENTS, *NEITHER) if not _fails(parse, text)}
        assert parse in (units.parse_size, units.parse_duration, units.parse_time)
        for text, wanted in table.items():
            assert read(option, text) in (wanted, None)  # None: beyond its range
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
def test_durations_and_so_long_ago(text, seconds):
    assert units.parse_duration(text) == seconds and units.parse_limit(text) == (None, seconds)
    assert units.parse_time(text, 10**12) == 10**12 - round(seconds * 1000)


def test_one_letter_m_is_never_taken_for_the_other():
    with pytest.raises(units.UnitError, match="'30m' is a duration, not a size; MiB are M"):
        units.parse_size("30m")
    with pytest.raises(units.UnitError, match="'30M' is a size, not a duration; minutes are m"):
        units.parse_duration("30M")
    with pytest.raises(units.UnitError, match="'30M' is a size, not a duration; minutes are m"):
        units.parse_time("30M")


def _ms(found):
    return found.time_ms if isinstance(found, Position) else found


@pytest.mark.parametrize("zone, hours", [("UTC", 0), ("Etc/GMT-9", -9), ("Etc/GMT+5", 5)])
def test_a_date_without_a_zone_is_local_everywhere(zone, hours, monkeypatch):
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
def test_what_is_printed_can_be_given_back(moment):
    ms = int(moment.timestamp()) * 1000 + moment.microsecond // 1000
    assert units.parse_time(datetime.fromtimestamp(ms / 1000).astimezone().isoformat(timespec="milliseconds")) == ms
