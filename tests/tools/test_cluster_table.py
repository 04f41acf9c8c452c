"""The table of brokers, and the comparison of commit logs."""
from hypothesis import given
from hypothesis import strategies as st

from rmqha.tools import quickstart
from rmqha.tools.quickstart import BrokerRow, CommitLogFiles, first_difference, render


def write_log(folder, data, size, first=0):
    """`data` (which begins at offset `first`) as commit log files of `size` bytes; the last one is padded."""
    folder.mkdir(parents=True)
    for start in range(0, max(len(data), 1), size):
        (folder / f"{first + start:020}").write_bytes(data[start:start + size].ljust(size, b"\0"))
    return folder


def test_table_lines_up_and_says_yes_or_no():
    text = render([
        BrokerRow("broker-a", "SYNC_MASTER", "127.0.0.1:10911", 1234567),
        BrokerRow("broker-a-s", "SLAVE", "127.0.0.1:10921", 1234000, 567, True),
        BrokerRow("b", "SLAVE", "127.0.0.1:1", 7, 0, False)])
    head, line, master, slave, other = text.splitlines()
    assert head.split() == ["name", "role", "address", "max", "offset", "lag", "bytes", "identical"]
    assert set(line) == {"-", " "}
    assert master.split() == ["broker-a", "SYNC_MASTER", "127.0.0.1:10911", "1,234,567"]
    assert slave.endswith("  567  yes") and other.endswith("    0  NO")
    assert slave.index("567  yes") + 5 == head.index("bytes identical")


def test_files_are_read_across_their_borders(tmp_path):
    files = CommitLogFiles(write_log(tmp_path / "log", bytes(range(25)), 10, first=20))
    assert files.min_offset == 20
    assert files.read(28, 5) == bytes(range(8, 13))
    assert files.read(0, 21) == b"\0"
    assert files.read(48, 99) == b"\0\0"


def test_foreign_files_are_passed_over(tmp_path):
    folder = write_log(tmp_path / "log", b"abc", 3)
    (folder / "lock").write_text("x")
    (folder / "00000000000000000003.tmp").write_text("x")
    assert CommitLogFiles(folder).read(0, 10) == b"abc"


def test_empty_folder_has_nothing(tmp_path):
    assert CommitLogFiles(tmp_path).min_offset == 0 and CommitLogFiles(tmp_path).read(0, 5) == b""
    assert first_difference(tmp_path, tmp_path, 0) is None


def test_missing_bytes_are_a_difference(tmp_path):
    master = write_log(tmp_path / "m", b"x" * 30, 10)
    slave = write_log(tmp_path / "s", b"x" * 20, 10)
    assert first_difference(master, slave, 20) is None
    assert first_difference(master, slave, 30) == 20


def test_range_begins_where_both_have_files(tmp_path):
    data = bytes(range(40))
    master = write_log(tmp_path / "m", b"?" * 10 + data[10:], 10)
    slave = write_log(tmp_path / "s", data[20:], 10, first=20)
    assert first_difference(master, slave, 40) is None


@given(data=st.binary(min_size=1, max_size=300), place=st.integers(0, 299), sizes=st.tuples(
    st.integers(1, 50), st.integers(1, 50)), chunk=st.integers(1, 64))
def test_first_flipped_byte_is_found_whatever_the_file_sizes(tmp_path_factory, data, place, sizes, chunk):
    folder, place = tmp_path_factory.mktemp("logs"), place % len(data)
    flipped = data[:place] + bytes([data[place] ^ 1]) + data[place + 1:]
    master = write_log(folder / "m", data, sizes[0])
    same, other = write_log(folder / "s", data, sizes[1]), write_log(folder / "o", flipped, sizes[1])
    before, quickstart.CHUNK = quickstart.CHUNK, chunk
    try:
        assert first_difference(master, same, len(data)) is None
        assert first_difference(master, other, len(data)) == place
        assert first_difference(master, other, place) is None
    finally:
        quickstart.CHUNK = before
