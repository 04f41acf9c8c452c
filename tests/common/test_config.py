"""The config classes, updates while a server runs, JSON config files, versions of tables, and the common parts of
the servers' start."""
import dataclasses
import json
import logging
import os
import resource
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, rule

from rmqha.common import mix_all, server_util
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.config_keys import config_keys, key_types
from rmqha.common.config_manager import ConfigManager
from rmqha.common.configuration import ConfigError, Configuration, load_config_file, nearest_key
from rmqha.common.data_version import ChangeLog, entries_of, follows
from rmqha.common.mix_all import parse_property
from rmqha.common.namesrv_config import NamesrvConfig
from rmqha.remoting.remoting_config import RemotingClientConfig, ServerConfig
from rmqha.store.message_store_config import BrokerRole, FlushDiskType, MessageStoreConfig

# The config classes: keys, defaults, clamped values; and invalid files.

CLASSES = (BrokerConfig, MessageStoreConfig, ServerConfig, RemotingClientConfig, NamesrvConfig)


@pytest.fixture
def conf(tmp_path):
    def write(text: bytes | str) -> str:
        path = tmp_path / "broker.conf"
        path.write_bytes(text if isinstance(text, bytes) else text.encode("latin-1"))
        return str(path)
    return write


@pytest.mark.parametrize(("config_class", "count"), list(zip(CLASSES, (81, 78, 14, 14, 7))))
def test_number_of_keys_equals_4_9_8(config_class, count):
    own = [item for item in dataclasses.fields(config_class) if not item.metadata.get("extension")]
    assert len(own) == count


@pytest.mark.parametrize("config_class", CLASSES)
def test_every_default_survives_its_text(config_class):
    config = config_class()
    types = key_types(config_class)
    for item in config_keys(config_class).values():
        value = getattr(config, item.name)
        if value is not None:
            assert parse_property(mix_all.property_text(value), types[item.name]) == value, item.name


@pytest.mark.parametrize(("config_class", "names"), [
    (BrokerConfig, 15), (MessageStoreConfig, 20), (ServerConfig, 0), (NamesrvConfig, 0)])
def test_number_of_important_keys(config_class, names):
    assert sum(bool(item.metadata.get("important")) for item in dataclasses.fields(config_class)) == names


def test_defaults_that_other_code_relies_on():
    store, broker = MessageStoreConfig(), BrokerConfig()
    assert store.mappedFileSizeCommitLog == 1 << 30 and store.mappedFileSizeConsumeQueue == 6_000_000
    assert store.brokerRole is BrokerRole.ASYNC_MASTER and store.flushDiskType is FlushDiskType.ASYNC_FLUSH
    assert store.haListenPort == 10912 and store.haTransferBatchSize == 32768 and store.slaveTimeout == 3000
    assert broker.brokerId == 0 and broker.defaultTopicQueueNums == 8 and broker.brokerPermission == 6
    assert broker.brokerIP1 == broker.brokerIP2 == mix_all.get_local_address()
    assert ServerConfig().listenPort == 8888 and RemotingClientConfig().connectTimeoutMillis == 3000


def test_consume_queue_file_size_is_rounded_up_to_whole_units():
    assert MessageStoreConfig(mappedFileSizeConsumeQueue=21).get_mapped_file_size_consume_queue() == 40
    assert MessageStoreConfig(mappedFileSizeConsumeQueue=40).get_mapped_file_size_consume_queue() == 40


@pytest.mark.parametrize(("configured", "used"), [(5, 10), (10, 10), (75, 75), (95, 95), (99, 95)])
def test_disk_ratio_is_clamped(configured, used):
    assert MessageStoreConfig(diskMaxUsedSpaceRatio=configured).get_disk_max_used_space_ratio() == used


def test_transient_pool_needs_asynchronous_flush_and_a_master():
    config = MessageStoreConfig(transientStorePoolEnable=True)
    assert config.is_transient_store_pool_enable()
    config.flushDiskType = FlushDiskType.SYNC_FLUSH
    assert not config.is_transient_store_pool_enable()
    config.flushDiskType, config.brokerRole = FlushDiskType.ASYNC_FLUSH, BrokerRole.SLAVE
    assert not config.is_transient_store_pool_enable()


def test_commit_log_path_follows_the_root_unless_set():
    config = MessageStoreConfig(storePathRootDir="/data")
    assert config.get_store_path_commit_log() == "/data/commitlog"
    config.storePathCommitLog = "/fast/log"
    assert config.get_store_path_commit_log() == "/fast/log"


def test_one_file_sets_keys_on_all_objects(conf):
    broker, store, server = BrokerConfig(), MessageStoreConfig(), ServerConfig()
    properties = load_config_file(conf(
        "brokerName = broker-a\nbrokerId=1\nbrokerRole=SLAVE\nflushDiskType=SYNC_FLUSH\nlistenPort=10921\n"
        "namesrvAddr=127.0.0.1:9876;127.0.0.1:9877\nautoCreateTopicEnable=FALSE\nenableBatchPush=true\n"
    ), (broker, store, server))
    assert (broker.brokerName, broker.brokerId, broker.autoCreateTopicEnable) == ("broker-a", 1, False)
    assert broker.namesrvAddr == "127.0.0.1:9876;127.0.0.1:9877"
    assert (store.brokerRole, store.flushDiskType) == (BrokerRole.SLAVE, FlushDiskType.SYNC_FLUSH)
    assert store.isEnableBatchPush and server.listenPort == 10921
    assert properties["brokerRole"] == "SLAVE"


@pytest.mark.parametrize(("line", "message"), [
    ("brokerId=zero", "expected a whole number from -1 to 9223372036854775807, not 'zero'"),
    ("brokerId=0x10", "expected a whole number"),
    ("brokerId=9223372036854775808", "does not fit in 64 bits"),
    ("defaultTopicQueueNums=2147483648", "does not fit in 32 bits"),
    ("defaultTopicQueueNums=1_000", "expected a whole number"),
    ("defaultTopicQueueNums=", "expected a whole number from 1 to 65536, not ''"),
    ("defaultTopicQueueNums=" + "9" * 5000, "expected a whole number"),
    ("brokerRole=MASTER", "expected one of ASYNC_MASTER, SYNC_MASTER, SLAVE, not 'MASTER'"),
    ("flushDiskType=sync_flush", "expected one of SYNC_FLUSH, ASYNC_FLUSH"),
])
def test_invalid_value_is_an_error_with_file_key_and_line(conf, line, message):
    file = conf(f"# first\n\n{line}\n")
    with pytest.raises(ConfigError) as raised:
        load_config_file(file, (BrokerConfig(), MessageStoreConfig()))
    assert str(raised.value).startswith(f"{file}:3: {line.partition('=')[0]}: ")
    assert message in str(raised.value)
    assert (raised.value.file, raised.value.line) == (file, 3)


def test_white_space_around_a_number_is_ignored(conf):
    broker, store = BrokerConfig(), MessageStoreConfig()
    load_config_file(conf("brokerId=7 \nbrokerRole=SLAVE\t\n"), (broker, store))
    assert broker.brokerId == 7 and store.brokerRole is BrokerRole.SLAVE


def test_missing_file_is_an_error_with_its_name(tmp_path):
    with pytest.raises(ConfigError, match="nothere.conf: cannot read the config file: No such file"):
        load_config_file(str(tmp_path / "nothere.conf"), ())


def test_folder_instead_of_a_file_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="cannot read the config file"):
        load_config_file(str(tmp_path), ())


def test_malformed_escape_is_an_error_with_its_line(conf):
    file = conf("a=1\nstorePathRootDir=C:\\users\n")
    with pytest.raises(ConfigError, match=f"{file}:2: Malformed"):
        load_config_file(file, ())


def test_latin_1_file_is_read(conf):
    broker = BrokerConfig()
    load_config_file(conf(b"brokerName=caf\xe9\n"), (broker,))
    assert broker.brokerName == "café"


def test_unknown_key_is_a_warning_with_the_nearest_name(conf, caplog):
    file = conf("brokerNmae=a\nlistenport=1\nzzz=1\n")
    with caplog.at_level(logging.WARNING, "RocketmqCommon"):
        properties = load_config_file(file, (BrokerConfig(), ServerConfig()))
    assert [record.getMessage() for record in caplog.records] == [
        f"{file}:1: unknown key brokerNmae, did you mean brokerName?",
        f"{file}:2: unknown key listenport, did you mean listenPort?",
        f"{file}:3: unknown key zzz"]
    assert properties["zzz"] == "1"


def test_known_extra_keys_cause_no_warning(conf, caplog):
    load_config_file(conf("rmqAddressServerDomain=a\n"), (BrokerConfig(),), other_keys=("rmqAddressServerDomain",))
    assert not caplog.records


@pytest.mark.parametrize("name", ["CommitLog", "ConsumeQueue"])
def test_old_spelling_of_a_key_still_sets_it_with_a_warning(conf, caplog, name):
    store = MessageStoreConfig()
    load_config_file(conf(f"mapedFileSize{name}=4096\n"), (BrokerConfig(), store))
    assert getattr(store, f"mappedFileSize{name}") == 4096
    assert f"mapedFileSize{name} is the old name of mappedFileSize{name}" in caplog.text


def test_new_spelling_wins_over_the_old_one(conf, caplog):
    store = MessageStoreConfig()
    load_config_file(conf("mapedFileSizeCommitLog=4096\nmappedFileSizeCommitLog=8192\n"), (store,))
    assert store.mappedFileSizeCommitLog == 8192
    assert "wins" in caplog.text


def test_no_key_is_suggested_when_none_is_similar():
    assert nearest_key("qqq", ["brokerName"]) is None
    assert nearest_key("brokerrole", ["brokerRole", "brokerName"]) == "brokerRole"


# Configuration: all keys of a server, updated and saved while it runs.

LOG = logging.getLogger("RocketmqNamesrv")


@pytest.fixture
def parts(tmp_path):
    namesrv = NamesrvConfig(configStorePath=str(tmp_path / "namesrv.conf"))
    server = ServerConfig()
    configuration = Configuration(LOG, namesrv, server)
    configuration.set_store_path_from_config(namesrv, "configStorePath")
    return configuration, namesrv, server, tmp_path / "namesrv.conf"


def test_text_has_the_keys_of_all_objects_and_of_the_file(parts):
    configuration, *_ = parts
    configuration.register_config({"unknownKey": "kept"}).register_config(None)
    lines = configuration.get_all_configs_format_string().splitlines()
    assert {"productEnvName=center", "listenPort=8888", "useEpollNativeSelector=false", "unknownKey=kept"} < set(lines)


def test_text_shows_the_current_values(parts):
    configuration, namesrv, *_ = parts
    namesrv.productEnvName = "changed"
    assert "productEnvName=changed\n" in configuration.get_all_configs_format_string()


def test_update_sets_counts_and_saves(parts):
    configuration, namesrv, server, file = parts
    before = configuration.get_data_version().counter
    configuration.update({"serverWorkerThreads": "3", "orderMessageEnable": "true", "noSuchKey": "1"})
    assert (server.serverWorkerThreads, namesrv.orderMessageEnable) == (3, True)
    assert configuration.get_data_version().counter == before + 1
    text = file.read_text()
    assert "serverWorkerThreads=3\n" in text and "noSuchKey" not in text


def test_update_keeps_the_old_file(parts):
    configuration, _, _, file = parts
    file.write_text("listenPort=1\n")
    configuration.update({"listenPort": "2"})
    assert file.with_name("namesrv.conf.bak").read_text() == "listenPort=1\n"


def test_invalid_value_changes_nothing(parts):
    configuration, namesrv, server, file = parts
    with pytest.raises(ConfigError, match="serverWorkerThreads"):
        configuration.update({"productEnvName": "x", "serverWorkerThreads": "many"})
    assert (namesrv.productEnvName, server.serverWorkerThreads) == ("center", 8)
    assert configuration.get_data_version().counter == 0 and not file.exists()


def test_disk_failure_is_logged(parts, caplog):
    configuration, namesrv, _, file = parts
    file.mkdir()
    configuration.update({"productEnvName": "x"})
    assert namesrv.productEnvName == "x" and "persist string2File error" in caplog.text


def test_missing_store_path_is_logged(caplog):
    Configuration(LOG, ServerConfig()).persist()
    assert "no store path" in caplog.text


def test_store_path_of_an_attribute_must_exist():
    with pytest.raises(AttributeError):
        Configuration(LOG).set_store_path_from_config(ServerConfig(), "nothing")


# JSON config files: the old state or the new one, and an error when neither is readable.


class Table(ConfigManager):
    """A dict in a file."""

    def __init__(self, path):
        self.path = str(path)
        self.table = {}

    def config_file_path(self):
        return self.path

    def encode(self, pretty_format=False):
        return json.dumps(self.table)

    def decode(self, json_string):
        self.table = json.loads(json_string)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "config" / "topics.json"


def persisted(file, *states):
    table = Table(file)
    for state in states:
        table.table = state
        assert table.persist()
    return table


def test_missing_file_is_an_empty_state(file):
    assert Table(file).load()


def test_state_is_loaded_again(file):
    persisted(file, {"a": 1}, {"a": 2})
    table = Table(file)
    assert table.load() and table.table == {"a": 2}


@pytest.mark.parametrize("content", [b"", b'{"a":', b"\xff\xfe", None], ids=["empty", "cut", "not UTF-8", "missing"])
def test_unusable_file_falls_back_to_the_backup(file, content):
    persisted(file, {"a": 1}, {"a": 2})
    os.remove(file)
    if content is not None:
        file.write_bytes(content)
    table = Table(file)
    assert table.load() and table.table == {"a": 1}


@pytest.mark.parametrize("content", [b"", b'{"a":'])
@pytest.mark.parametrize("backup", [b"", b"{", None])
def test_unreadable_files_are_not_an_empty_state(file, caplog, content, backup):
    file.parent.mkdir()
    file.write_bytes(content)
    if backup is not None:
        file.with_name("topics.json.bak").write_bytes(backup)
    assert not Table(file).load()
    assert "neither it nor its backup file is usable" in caplog.text


def test_failed_write_is_logged_and_keeps_the_old_state(file, monkeypatch, caplog):
    table = persisted(file, {"a": 1})

    def fail(*_):
        raise OSError(5, "Input/output error")
    monkeypatch.setattr(os, "fsync", fail)
    table.table = {"a": 2}
    assert not table.persist()
    assert "exception" in caplog.text and json.loads(file.read_text()) == {"a": 1}


def test_state_without_json_is_not_saved(file):
    table = Table(file)
    table.encode = lambda pretty_format=False: None
    assert table.persist() and not file.exists()


# Changes since a state, and the states that are known.

NAMES = st.sampled_from("abcde")


class ChangeLogTable(RuleBasedStateMachine):
    """A copy that applies changes equals the table, whatever happened in between."""

    copies = Bundle("copies")

    @initialize()
    def begin(self):
        self.changes, self.table, self.counter = ChangeLog(), {}, 0

    @rule(name=NAMES)
    def put(self, name):
        self.counter += 1
        self.table[name] = self.counter
        self.changes.note([name])

    @rule(name=NAMES)
    def take_away(self, name):
        if self.table.pop(name, None) is not None:
            self.changes.note_all()

    @rule(target=copies)
    def copy(self):
        return self.changes.mark(), dict(self.table)

    @rule(target=copies, known=consumes(copies))
    def follow(self, known):
        mark, copied = known
        now, names = self.changes.mark(), self.changes.since(mark)
        if names is None:
            copied = dict(self.table)
        else:
            assert len(set(names)) == len(names)
            copied = copied | {name: self.table[name] for name in names}
        assert copied == self.table
        assert names is None or follows(mark, now)
        return now, copied


TestTable = ChangeLogTable.TestCase


def test_latest_change_is_listed_first_and_once():
    changes = ChangeLog()
    mark = changes.mark()
    changes.note("abca")
    assert changes.since(mark) == ["a", "c", "b"]
    assert changes.since(changes.mark()) == []


def test_state_from_before_a_removal_is_unknown():
    changes = ChangeLog()
    changes.note("a")
    before = changes.mark()
    changes.note_all()
    assert changes.since(before) is None
    assert changes.since(changes.mark()) == []


@given(st.text() | st.from_regex(r"[0-9a-f]{32}\.[0-9]{1,5000}"))
def test_any_other_text_is_an_unknown_state(text):
    changes = ChangeLog()
    assert changes.since(text) is None
    assert not follows(text, changes.mark()) and not follows(changes.mark(), text)


@pytest.mark.parametrize("suffix", ["", "x", "-1", "1", "9" * 5000, "\u0661"])
def test_state_that_never_existed_is_unknown(suffix):
    changes = ChangeLog()
    life = changes.mark().rpartition(".")[0]
    assert changes.since(f"{life}.{suffix}") is None


def test_state_follows_only_states_of_its_life_that_are_not_newer():
    changes, other = ChangeLog(), ChangeLog()
    first = changes.mark()
    changes.note("a")
    second = changes.mark()
    assert follows(first, first) and follows(first, second)
    assert not follows(second, first) and not follows(other.mark(), second)


def test_no_change_is_lost_between_threads():
    changes, copied, stopped = ChangeLog(), set(), threading.Event()

    def note(number):
        for each in range(2000):
            changes.note([f"{number}.{each}"])

    def follow():
        mark = changes.mark()
        while not stopped.is_set():
            now = changes.mark()
            copied.update(changes.since(mark))
            mark = now
        copied.update(changes.since(mark))

    threads = [threading.Thread(target=note, args=(number,)) for number in range(4)]
    follower = threading.Thread(target=follow)
    for thread in [follower, *threads]:
        thread.start()
    for thread in threads:
        thread.join()
    stopped.set()
    follower.join()
    assert copied == {f"{number}.{each}" for number in range(4) for each in range(2000)}


def test_entries_of_a_table_are_a_copy_without_deleted_ones():
    table = {"a": 1, "b": 0, "c": 3}
    assert entries_of(table, None) == table and entries_of(table, None) is not table
    assert entries_of(table, ["c", "gone", "b"]) == {"c": 3, "b": 0}
    assert entries_of(table, []) == {}


# Common parts of the start of mqnamesrv and mqbroker.


def test_descriptor_limit_is_raised_to_the_hard_limit():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
    try:
        server_util.raise_descriptor_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_integers_with_many_digits_are_refused():
    before = sys.get_int_max_str_digits()
    try:
        server_util.limit_digits()
        assert int("9" * server_util.MAX_DIGITS) > 0
        with pytest.raises(ValueError, match="digits"):
            int("9" * (server_util.MAX_DIGITS + 1))
    finally:
        sys.set_int_max_str_digits(before)
