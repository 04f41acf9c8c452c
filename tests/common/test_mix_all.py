"""Converting properties to objects and back, durable files, addresses, times, names, and checksums."""
import ipaddress
import logging
import os
import stat
import threading
import zlib

import pytest

from rmqha.common import java, logs, mix_all, server_util, util_all
from rmqha.common.config_keys import Long, important
from rmqha.common.lazy_dataclasses import dataclass
from rmqha.store.message_store_config import BrokerRole


@dataclass
class Sample:
    """A config class with a key of each type."""

    anInt: int = 1
    aLong: Long = 2
    aDouble: float = 0.5
    aBoolean: bool = False
    aString: str = "x"
    maybe: str | None = None
    role: BrokerRole = important(BrokerRole.SLAVE)


def test_properties_set_attributes_by_annotation():
    sample = Sample()
    mix_all.properties2object({"anInt": "-5", "aLong": "+9223372036854775807", "aDouble": "1.5e3d", "aBoolean": "TRUE",
                               "aString": " y ", "maybe": "z", "role": "SYNC_MASTER", "other": "1"}, sample)
    assert sample == Sample(-5, 2**63 - 1, 1500.0, True, " y ", "z", BrokerRole.SYNC_MASTER)


def test_invalid_values_leave_the_default_and_are_reported():
    sample, problems = Sample(), []
    mix_all.properties2object({"anInt": "5.0", "aDouble": "five", "role": "BOSS"}, sample,
                              lambda key, value, problem: problems.append((key, value)))
    assert sample == Sample()
    assert problems == [("anInt", "5.0"), ("aDouble", "five"), ("role", "BOSS")]


def test_invalid_values_without_a_report_are_ignored_as_in_java():
    sample = Sample()
    mix_all.properties2object({"anInt": "x", "aBoolean": "yes"}, sample)
    assert sample == Sample()


def test_object_is_written_as_javas_texts_without_nulls():
    assert mix_all.object2properties(Sample(aBoolean=True)) == {
        "anInt": "1", "aLong": "2", "aDouble": "0.5", "aBoolean": "true", "aString": "x", "role": "SLAVE"}


def test_properties_text_is_read_back():
    properties = {"a": "C:\\x", "b": "é\n", "c": "", "d e": " f"}
    assert mix_all.string2properties(mix_all.properties2string(properties)) == properties
    assert mix_all.string2properties("a=\\uqqqq") is None


def test_all_or_important_keys_are_logged(caplog):
    log = logging.getLogger("RocketmqCommon")
    with caplog.at_level(logging.INFO, log.name):
        mix_all.print_object_properties(log, Sample(), only_important_field=True)
        mix_all.print_object_properties(log, Sample())
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "role=SLAVE" and len(lines) == 8 and "maybe=" in lines


def test_topic_names():
    assert mix_all.get_retry_topic("g") == "%RETRY%g" and mix_all.get_dlq_topic("g") == "%DLQ%g"
    assert mix_all.get_reply_topic("c") == "c_REPLY_TOPIC" and mix_all.is_lmq("%LMQ%a") and not mix_all.is_lmq(None)
    assert mix_all.is_sys_consumer_group("CID_RMQ_SYS_TRANS") and not mix_all.is_sys_consumer_group("CID")


def test_vip_channel_is_two_ports_below():
    assert mix_all.broker_vip_channel(True, "[::1]:10911") == "[::1]:10909"
    assert mix_all.broker_vip_channel(False, "a:10911") == "a:10911"


def test_address_server_url():
    assert mix_all.get_ws_addr() == "http://jmenv.tbsite.net:8080/rocketmq/nsaddr"
    assert mix_all.get_ws_addr("h:1", "s") == "http://h:1/rocketmq/s"


def test_local_address_is_an_address():
    address = ipaddress.ip_address(mix_all.get_local_address())
    assert str(address) in mix_all.get_local_inet_address() or address.is_loopback


def test_file_is_replaced_and_the_old_text_kept(tmp_path):
    file = str(tmp_path / "new" / "a.json")
    mix_all.string2file("one", file)
    assert mix_all.file2string(file) == "one" and mix_all.file2string(file + ".bak") is None
    mix_all.string2file("two", file)
    mix_all.string2file("drei é", file)
    assert (mix_all.file2string(file), mix_all.file2string(file + ".bak")) == ("drei é", "two")
    assert sorted(os.listdir(tmp_path / "new")) == ["a.json", "a.json.bak"]


def test_text_that_utf8_cannot_encode_does_not_stop_the_save(tmp_path):
    mix_all.string2file("a\ud800b", str(tmp_path / "a"))
    assert mix_all.file2string(str(tmp_path / "a")) == "a?b"


@pytest.mark.parametrize("exists", [True, False])
def test_link_is_kept_and_its_target_replaced(tmp_path, exists):
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to("far/file")
    if exists:
        (tmp_path / "far" / "file").write_text("old")
    for text in ("first", "second"):
        mix_all.string2file(text, str(tmp_path / "link"))
    assert (tmp_path / "link").is_symlink() and (tmp_path / "far" / "file").read_text() == "second"
    assert (tmp_path / "link.bak").read_text() == "first" and not (tmp_path / "link.bak").is_symlink()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["far", "link", "link.bak"]
    assert [each.name for each in (tmp_path / "far").iterdir()] == ["file"]


def test_pipe_link_and_terminal_receive_the_text(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    came = []
    reader = threading.Thread(target=lambda: came.append((tmp_path / "pipe").read_text()))
    reader.start()
    mix_all.string2file_not_safe("text", str(tmp_path / "pipe"))
    reader.join(240)
    assert came == ["text"] and stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    main, terminal = os.openpty()
    mix_all.string2file_not_safe("text", os.ttyname(terminal))
    assert os.read(main, 100) == b"text"
    os.close(main)
    os.close(terminal)
    (tmp_path / "link").symlink_to("file")
    mix_all.string2file_not_safe("text", str(tmp_path / "link"))
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_text() == "text"


def test_file_system_without_links_gets_a_copy(tmp_path, monkeypatch):
    def no_links(*_):
        raise PermissionError("no links here")
    monkeypatch.setattr(os, "link", no_links)
    file = str(tmp_path / "a.json")
    mix_all.string2file("one", file)
    mix_all.string2file("two", file)
    assert (mix_all.file2string(file), mix_all.file2string(file + ".bak")) == ("two", "one")


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_failed_write_keeps_the_old_file(tmp_path, monkeypatch, step):
    file = str(tmp_path / "a.json")
    mix_all.string2file("one", file)

    def fail(*_):
        raise OSError(28, "No space left on device")
    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError):
        mix_all.string2file("two", file)
    assert mix_all.file2string(file) == "one"


@pytest.mark.parametrize(("count", "si", "text"), [(1, False, "1 B"), (1536, False, "1.5 KiB"), (1500, True, "1.5 kB"),
                                                   (1 << 40, False, "1.0 TiB")])
def test_readable_byte_counts(count, si, text):
    assert mix_all.human_readable_byte_count(count, si) == text


# Times, names, checksums.


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
def test_any_timestamp_has_a_text(timestamp):
    assert util_all.time_millis_to_human_string2(timestamp)


def test_next_times_are_in_the_future():
    now = util_all.current_time_millis()
    assert now < util_all.compute_next_minutes_time_millis() <= now + 60_000
    assert now < util_all.compute_next_morning_time_millis() <= now + 25 * 3600_000


def test_disk_use_is_a_ratio_or_unknown(tmp_path):
    assert 0 <= util_all.get_disk_partition_space_used_percent(str(tmp_path)) <= 1
    assert util_all.get_disk_partition_space_used_percent(str(tmp_path / "no")) == -1
    assert util_all.get_disk_partition_space_used_percent("") == -1


def test_split_drops_empty_parts_at_the_end():
    assert util_all.split("a;b;;", ";") == ["a", "b"] and util_all.split(None, ";") is None


def test_version_numbers_equal_those_on_the_wire():
    assert java.CURRENT_VERSION == 409
    names = {0: "V3_0_0_SNAPSHOT", 15: "V3_0_0_FINAL", 28: "V3_0_7_SNAPSHOT", 37: "V3_0_11", 62: "V3_1_8_SNAPSHOT",
             121: "V3_4_9", 393: "V4_9_0", 401: "V4_9_4", 407: "V4_9_7", 413: "V5_0_0", 612: "HIGHER_VERSION"}
    assert {number: java.get_version_desc(number) for number in names} == names
    assert java.get_version_desc(99_999) == "HIGHER_VERSION"
    with pytest.raises(ValueError):
        java.value2version(-1)


def test_log_lines_have_javas_format_and_files_roll(tmp_path):
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


def test_invalid_option_prints_the_help_and_exits_with_1(capsys):
    parser = server_util.add_broker_options(server_util.build_commandline_options("mqbroker"))
    with pytest.raises(SystemExit) as raised:
        parser.parse_args(["-x"])
    assert raised.value.code == server_util.EXIT_USAGE
    assert "--printImportantConfig" in capsys.readouterr().out


def test_options_with_a_value_become_properties():
    parser = server_util.add_namesrv_options(server_util.build_commandline_options("mqnamesrv"))
    command_line = parser.parse_args(["-n", "a:1;b:2", "-c", "f", "-p"])
    assert server_util.command_line2properties(command_line) == {"namesrvAddr": "a:1;b:2", "configFile": "f"}
