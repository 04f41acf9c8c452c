"""The folder that a log is received into: what it holds after any end of its receiver."""
import os

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rmqha.tools.replication.receive import ReceivedLog
from rmqha.tools.terminal import CannotAnswerError
from tests.tools.replication.logs import SEGMENT, content, files, log_of


def write(folder, data, begin=0):
    """Write `data` in pieces that end where files end."""
    with ReceivedLog(str(folder), SEGMENT) as log:
        offset = begin
        while offset < begin + len(data):
            size = min(SEGMENT - offset % SEGMENT, 777, begin + len(data) - offset)
            log.write(offset, data[offset - begin:offset - begin + size])
            offset += size


def test_new_folder_holds_nothing(tmp_path):
    with ReceivedLog(str(tmp_path / "new"), SEGMENT) as log:
        assert (log.begin, log.end, log.synced, log.settled(1000)) == (None, None, None, None)
    assert os.listdir(tmp_path / "new") == []


def test_files_have_names_and_sizes_of_a_commit_log(tmp_path):
    data = log_of(40)
    write(tmp_path, data)
    assert sorted(os.listdir(tmp_path)) == [f"{start:020d}" for start in range(0, len(data), SEGMENT)]
    assert content(tmp_path, len(data)) == data


def test_log_may_begin_at_any_file(tmp_path):
    data = log_of(20, begin=3 * SEGMENT)
    write(tmp_path, data, 3 * SEGMENT)
    with ReceivedLog(str(tmp_path), SEGMENT) as log:
        end = 3 * SEGMENT + len(data) - 300  # before the last record
        assert (log.begin, log.end, log.synced) == (3 * SEGMENT, end, end)


def test_goes_on_where_it_ends(tmp_path):
    data = log_of(40)
    for begin in range(0, len(data), 300 * 7):
        with ReceivedLog(str(tmp_path), SEGMENT) as log:
            for offset in range(log.end or 0, min(begin + 2100, len(data))):
                log.write(offset, data[offset:offset + 1])
    assert content(tmp_path, len(data)) == data


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 20 * 300 + 600), st.binary(max_size=40))
@example(4095, b"\0\0")  # what the log has there
def test_cut_or_torn_end_is_taken_back_to_what_is_surely_whole(tmp_path_factory, cut, garbage):
    folder = tmp_path_factory.mktemp("torn")
    data = log_of(20)
    cut = min(cut, len(data))
    write(folder, data[:cut] + garbage)
    cut += len(os.path.commonprefix([data[cut:], garbage]))
    with ReceivedLog(str(folder), SEGMENT) as log:
        end = log.end or 0
        assert end <= cut
        assert cut - end <= 2 * 300 or cut - end <= 300 + SEGMENT % 300 + 8
        if end < len(data):
            log.write(end, data[end:min(len(data), end - end % SEGMENT + SEGMENT)])
    end = min(len(data), end - end % SEGMENT + SEGMENT)
    assert b"".join(files(folder).values())[:end] == data[:end]


def test_last_record_stays_on_disk_over_a_restart(tmp_path):
    data = log_of(3)
    write(tmp_path, data)
    with ReceivedLog(str(tmp_path), SEGMENT) as log:
        assert log.end == 600
    assert content(tmp_path, 900) == data


def test_record_with_a_wrong_crc_and_all_behind_it_is_taken_back(tmp_path):
    data = log_of(10)
    write(tmp_path, data)
    with open(tmp_path / f"{0:020d}", "r+b") as file:
        file.seek(5 * 300 + 150)
        file.write(b"\xff")
    with ReceivedLog(str(tmp_path), SEGMENT) as log:
        assert log.end == 4 * 300
    assert content(tmp_path, 1500) == data[:1500]


def test_settled_is_a_record_older_than_the_newest_by_that_time(tmp_path):
    write(tmp_path, log_of(10))  # one each second
    with ReceivedLog(str(tmp_path), SEGMENT) as log:
        assert log.end == 9 * 300
        assert log.settled(0) == 8 * 300  # the last one is always compared
        assert log.settled(3500) == 5 * 300
        assert log.settled(3000) == 6 * 300
        assert log.settled(60_000) == 0


def test_settled_goes_back_over_files(tmp_path):
    data = log_of(40, step_ms=10)
    write(tmp_path, data)
    assert len(data) > 2 * SEGMENT
    with ReceivedLog(str(tmp_path), SEGMENT) as log:
        assert log.settled(60_000) == 0
        assert log.settled(200) == next(offset for offset in range(len(data)) if data[offset + 56:offset + 64] ==
                                        (1_700_000_000_000 + 19 * 10).to_bytes(8, "big")
                                        and data[offset + 4:offset + 8] == b"\xda\xa3\x20\xa7")


@pytest.mark.parametrize(("make", "text"), [
    (lambda folder: (folder / "notes.txt").write_text("x"), "is no commit log file"),
    (lambda folder: (folder / f"{0:020d}").write_bytes(bytes(100)), "has 100 bytes"),
    (lambda folder: [(folder / f"{start:020d}").write_bytes(bytes(SEGMENT)) for start in (0, 2 * SEGMENT)],
     "is a gap"),
    (lambda folder: (folder / f"{5:020d}").write_bytes(bytes(SEGMENT)), "is no file of a log of"),
])
def test_folder_with_anything_else_is_refused_and_left_alone(tmp_path, make, text):
    make(tmp_path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(CannotAnswerError, match=text), ReceivedLog(str(tmp_path), SEGMENT):
        pass
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_two_receivers_of_one_folder_are_one_too_many(tmp_path):
    with ReceivedLog(str(tmp_path), SEGMENT):
        with pytest.raises(CannotAnswerError, match="another receiver"), ReceivedLog(str(tmp_path), SEGMENT):
            pass
    with ReceivedLog(str(tmp_path), SEGMENT):
        pass


def test_nothing_is_synced_after_a_failed_fsync(tmp_path, monkeypatch):
    data = log_of(3)

    def fails(_fd):
        raise OSError(5, "Input/output error")
    with pytest.raises(OSError, match="Input/output"), ReceivedLog(str(tmp_path), SEGMENT) as log:
        log.write(0, data)
        assert log.synced == 0
        monkeypatch.setattr(os, "fdatasync", fails)
        try:
            log.sync()
        finally:
            assert log.synced == 0
