"""The config classes: keys, defaults, clamps; and files that are wrong."""
import dataclasses
import logging

import pytest

from rmqha.common import mix_all
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.config_keys import config_keys, key_types
from rmqha.common.configuration import ConfigError, load_config_file, nearest_key
from rmqha.common.mix_all import parse_property
from rmqha.common.namesrv_config import NamesrvConfig
from rmqha.remoting.remoting_config import RemotingClientConfig, ServerConfig
from rmqha.store.message_store_config import BrokerRole, FlushDiskType, MessageStoreConfig

CLASSES = (BrokerConfig, MessageStoreConfig, ServerConfig, RemotingClientConfig, NamesrvConfig)


@pytest.fixture
def conf(tmp_path):
    def write(text: bytes | str) -> str:
        path = tmp_path / "broker.conf"
        path.write_bytes(text if isinstance(text, bytes) else text.encode("latin-1"))
        return str(path)
    return write


@pytest.mark.parametrize(("config_class", "count"), list(zip(CLASSES, (81, 78, 14, 14, 7))))
def test_number_of_keys_is_that_of_4_9_8(config_class, count):
    own = [item for item in dataclasses.fields(config_class) if not item.metadata.get("extension")]
    assert len(own) == count


@pytest.mark.parametrize("config_class", CLASSES)
def test_each_default_survives_its_text(config_class):
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


def test_defaults_that_others_build_on():
    store, broker = MessageStoreConfig(), BrokerConfig()
    assert store.mappedFileSizeCommitLog == 1 << 30 and store.mappedFileSizeConsumeQueue == 6_000_000
    assert store.brokerRole is BrokerRole.ASYNC_MASTER and store.flushDiskType is FlushDiskType.ASYNC_FLUSH
    assert store.haListenPort == 10912 and store.haTransferBatchSize == 32768 and store.slaveTimeout == 3000
    assert broker.brokerId == 0 and broker.defaultTopicQueueNums == 8 and broker.brokerPermission == 6
    assert broker.brokerIP1 == broker.brokerIP2 == mix_all.get_local_address()
    assert ServerConfig().listenPort == 8888 and RemotingClientConfig().connectTimeoutMillis == 3000


def test_consume_queue_file_size_is_rounded_up_to_units():
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
def test_bad_value_is_an_error_with_file_key_and_line(conf, line, message):
    file = conf(f"# first\n\n{line}\n")
    with pytest.raises(ConfigError) as raised:
        load_config_file(file, (BrokerConfig(), MessageStoreConfig()))
    assert str(raised.value).startswith(f"{file}:3: {line.partition('=')[0]}: ")
    assert message in str(raised.value)
    assert (raised.value.file, raised.value.line) == (file, 3)


def test_white_space_around_a_number_is_passed_over(conf):
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


def test_latin_1_is_read(conf):
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


def test_known_extra_keys_are_no_warning(conf, caplog):
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


def test_nearest_key_is_none_when_nothing_is_near():
    assert nearest_key("qqq", ["brokerName"]) is None
    assert nearest_key("brokerrole", ["brokerRole", "brokerName"]) == "brokerRole"
