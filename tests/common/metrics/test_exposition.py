"""How metrics are written: as the library does, but piece by piece."""
import threading

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rmqha.common import metrics
from rmqha.common.metrics import COUNTER, GAUGE, HISTOGRAM, STEPS, Family, Memo, Metric, OutOfTimeError, Pace
from rmqha.common.stats import LatencyHistogram

SIZES = Metric("sizes", GAUGE, ("topic",), "Bytes\nof it")


def _parsed(pieces):
    return list(text_string_to_metric_families(b"".join(pieces).decode()))


def test_a_family_of_many_pieces_is_one_family_with_one_header():
    count = STEPS * 3 + 1
    pieces = list(metrics.encode([Family(SIZES, (((f"t{n}",), n) for n in range(count)))], Pace(60)))
    assert len(pieces) == 4 and b"".join(pieces).count(b"# TYPE") == 1
    (family,) = _parsed(pieces)
    assert family.name == "sizes" and family.type == "gauge" and len(family.samples) == count
    assert [sample.value for sample in family.samples] == list(range(count))


def test_names_that_break_the_format_are_written_so_that_they_are_read_again():
    topic = 'a"b\\c\nd'
    (family,) = _parsed(metrics.encode([Family(SIZES, [((topic,), 1)])], Pace(60)))
    assert family.samples[0].labels == {"topic": topic}


def test_counters_and_empty_families():
    counter = Metric("things_total", COUNTER, (), "Things")
    things, empty = _parsed(metrics.encode([Family(counter, [((), 7)]), Family(SIZES, [])], Pace(60)))
    assert things.type == "counter" and things.samples[0].name == "things_total" and things.samples[0].value == 7
    assert empty.name == "sizes" and not empty.samples


def test_buckets_add_up():
    times = LatencyHistogram((.001, .01))
    for elapsed_ns in (500_000, 1_000_000, 2_000_000, 5_000_000_000):
        times.note(elapsed_ns)
    took = Metric("took_seconds", HISTOGRAM, ("what",), "Time")
    (family,) = _parsed(metrics.encode([Family(took, [(("x",), times.distribution())])], Pace(60)))
    values = {(sample.name, sample.labels.get("le")): sample.value for sample in family.samples}
    assert values == {("took_seconds_bucket", "0.001"): 2, ("took_seconds_bucket", "0.01"): 3,
                      ("took_seconds_bucket", "+Inf"): 4, ("took_seconds_count", None): 4,
                      ("took_seconds_sum", None): pytest.approx(5.0035)}


def test_wrong_number_of_labels_is_an_error():
    with pytest.raises(ValueError):
        list(metrics.encode([Family(SIZES, [((), 1)])], Pace(60)))


def test_a_family_that_fails_is_left_out_and_told(caplog):
    def broken():
        yield ("a",), 1
        raise RuntimeError("planted")

    other = Metric("other", GAUGE, (), "Other")
    pieces, is_whole = metrics.encode_all([Family(SIZES, broken()), Family(other, [((), 1)])], Pace(60))
    assert not is_whole and [family.name for family in _parsed(pieces)][-1] == "other"
    assert "sizes can't be told" in caplog.text


def test_when_time_is_out_what_is_done_is_told(caplog):
    def endless():
        while True:
            yield ("a",), 1

    other = Metric("other", GAUGE, (), "Other")
    pace = Pace(0.05)
    pieces, is_whole = metrics.encode_all([Family(other, [((), 1)]), Family(SIZES, endless())], pace)
    assert not is_whole and _parsed(pieces)[0].name == "other"
    assert "no time for sizes" in caplog.text


def test_pace_ends_at_the_stop():
    is_stopped = threading.Event()
    pace = Pace(60, is_stopped.is_set)
    for _ in range(STEPS * 2):
        pace.step()
    is_stopped.set()
    with pytest.raises(OutOfTimeError):
        for _ in range(STEPS):
            pace.step()


def test_memo_makes_each_once():
    made = []

    def source():
        for number in range(3):
            made.append(number)
            yield number

    memo = Memo(source())
    assert made == []
    first = iter(memo)
    assert next(first) == 0 and made == [0]
    assert list(memo) == [0, 1, 2] and list(first) == [1, 2] and made == [0, 1, 2]


def test_process_metrics_are_there():
    names = {family.name for family in _parsed([metrics.process_metrics()])}
    assert {"process_resident_memory_bytes", "process_cpu_seconds", "process_open_fds"} <= names
