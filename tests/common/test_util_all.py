"""Times, names, checksums."""
import logging
import threading
import zlib

import pytest

from rmqha.common import java, logs, server_util, util_all


def test_file_name_is_20_digits():
    assert util_all.offset2file_name(1073741824) == "00000000001073741824"


def test_crc_drops_the_highest_bit():
    data = next(bytes([n]) for n in range(256) if zlib.crc32(bytes([n])) > 0x7FFFFFFF)
    assert util_all.crc32(data) == zlib.crc32(data) - 0x80000000
    assert util_all.crc32(None) == util_all.crc32(b"") == 0


def test_human_times_are_local():
    text = util_all.time_millis_to_human_string(1_700_000_000_123)
    assert len(text) == 17 and text.endswith("20123")
    assert util_all.time_millis_to_human_string3(1_700_000_000_123) == text[:14]
    assert util_all.time_millis_to_human_string2(1_700_000_000_123).endswith(":20,123")
    assert len(util_all.time_millis_to_human_string()) == 17


@pytest.mark.parametrize("timestamp", [-1, 0, 2**63 - 1, -2**63])
def test_any_time_stamp_has_a_text(timestamp):
    assert util_all.time_millis_to_human_string2(timestamp)


def test_next_times_are_ahead():
    now = util_all.current_time_millis()
    assert now < util_all.compute_next_minutes_time_millis() <= now + 60_000
    assert now < util_all.compute_next_morning_time_millis() <= now + 25 * 3600_000


def test_disk_use_is_a_part_or_unknown(tmp_path):
    assert 0 <= util_all.get_disk_partition_space_used_percent(str(tmp_path)) <= 1
    assert util_all.get_disk_partition_space_used_percent(str(tmp_path / "no")) == -1
    assert util_all.get_disk_partition_space_used_percent("") == -1


def test_split_drops_empty_parts_at_the_end():
    assert util_all.split("a;b;;", ";") == ["a", "b"] and util_all.split(None, ";") is None


def test_version_numbers_are_those_on_the_wire():
    assert java.CURRENT_VERSION == 409
    names = {0: "V3_0_0_SNAPSHOT", 15: "V3_0_0_FINAL", 28: "V3_0_7_SNAPSHOT", 37: "V3_0_11", 62: "V3_1_8_SNAPSHOT",
             121: "V3_4_9", 393: "V4_9_0", 401: "V4_9_4", 407: "V4_9_7", 413: "V5_0_0", 612: "HIGHER_VERSION"}
    assert {number: java.get_version_desc(number) for number in names} == names
    assert java.get_version_desc(99_999) == "HIGHER_VERSION"
    with pytest.raises(ValueError):
        java.value2version(-1)


def test_log_lines_look_like_javas_and_roll(tmp_path):
    logger = logging.getLogger("RmqhaTestOfLogs")
    files = (logs.LogFile("sample", (logger.name,), max_bytes=400, max_index=2),)
    logs.setup_logging(files, str(tmp_path))
    try:
        for number in range(20):
            logger.warning("line %d", number)
    finally:
        for handler in logger.handlers[:]:
            logger.removeHandler(handler)
            handler.close()
    last = (tmp_path / "sample.log").read_text().splitlines()[-1]
    assert last[19:] == f" WARN {threading.current_thread().name} - line 19" and last[4] == last[7] == "-"
    assert sorted(file.name for file in (tmp_path / "otherdays").iterdir()) == ["sample.1.log", "sample.2.log"]


def test_bad_option_prints_the_help_and_exits_with_1(capsys):
    parser = server_util.add_broker_options(server_util.build_commandline_options("mqbroker"))
    with pytest.raises(SystemExit) as raised:
        parser.parse_args(["-x"])
    assert raised.value.code == server_util.EXIT_USAGE
    assert "--printImportantConfig" in capsys.readouterr().out


def test_options_with_a_value_become_properties():
    parser = server_util.add_namesrv_options(server_util.build_commandline_options("mqnamesrv"))
    command_line = parser.parse_args(["-n", "a:1;b:2", "-c", "f", "-p"])
    assert server_util.command_line2properties(command_line) == {"namesrvAddr": "a:1;b:2", "configFile": "f"}
