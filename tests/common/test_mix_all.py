"""Properties to objects and back, durable files, addresses."""
import ipaddress
import logging
import os
import stat
import threading

import pytest

from rmqha.common import mix_all
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


def test_bad_values_leave_the_default_and_are_reported():
    sample, problems = Sample(), []
    mix_all.properties2object({"anInt": "5.0", "aDouble": "five", "role": "BOSS"}, sample,
                              lambda key, value, problem: problems.append((key, value)))
    assert sample == Sample()
    assert problems == [("anInt", "5.0"), ("aDouble", "five"), ("role", "BOSS")]


def test_bad_values_without_a_report_are_passed_over_as_in_java():
    sample = Sample()
    mix_all.properties2object({"anInt": "x", "aBoolean": "yes"}, sample)
    assert sample == Sample()


def test_object_gives_java_texts_without_nulls():
    assert mix_all.object2properties(Sample(aBoolean=True)) == {
        "anInt": "1", "aLong": "2", "aDouble": "0.5", "aBoolean": "true", "aString": "x", "role": "SLAVE"}


def test_properties_text_reads_back():
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


def test_text_that_utf8_cannot_write_is_no_reason_not_to_save_the_rest(tmp_path):
    mix_all.string2file("a\ud800b", str(tmp_path / "a"))
    assert mix_all.file2string(str(tmp_path / "a")) == "a?b"


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path, exists):
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


def test_a_pipe_a_link_and_a_terminal_get_the_text(tmp_path):
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
def test_failing_disk_leaves_the_old_file(tmp_path, monkeypatch, step):
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
def test_byte_counts_for_people(count, si, text):
    assert mix_all.human_readable_byte_count(count, si) == text
