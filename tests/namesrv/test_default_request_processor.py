"""The answers of a name server: codes, remarks and bodies, and bounded memory for any number of new names."""
import json
import logging
import zlib
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqha.common import util_all
from rmqha.common.configuration import ConfigError, Configuration
from rmqha.common.namesrv_config import NamesrvConfig
from rmqha.common.protocol import request_code, response_code
from rmqha.common.protocol.cluster_bodies import RegisterBrokerBody
from rmqha.common.topics import TopicConfig
from rmqha.namesrv import default_request_processor, kv_config_manager, registrations
from rmqha.namesrv.default_request_processor import DefaultRequestProcessor
from rmqha.namesrv.kv_config_manager import KVConfigManager
from rmqha.namesrv.route_info_manager import RouteInfoManager
from rmqha.remoting.exception import RemotingCommandException
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_config import ServerConfig
from tests.interop.request_code_cases import NAMESRV_CODES
from tests.support.tiers import drawn
from tests.support.watch import names_kept, own_objects

CHANNEL = SimpleNamespace(remote_address=("127.0.0.1", 40000), close=lambda: None)
BROKER = {"brokerName": "broker-a", "brokerAddr": "10.0.0.1:10911", "clusterName": "c1",
          "haServerAddr": "10.0.0.1:10912", "brokerId": "0"}
V4_9_3, V4_9_8, V3_0_10 = 399, 409, 35


@pytest.fixture
def controller(tmp_path):
    config = NamesrvConfig(kvConfigPath=str(tmp_path / "kvConfig.json"), configStorePath=str(tmp_path / "ns.conf"))
    controller = SimpleNamespace(namesrv_config=config, server_config=ServerConfig(),
                                 route_info_manager=RouteInfoManager())
    controller.configuration = Configuration(default_request_processor.log, config, controller.server_config)
    controller.configuration.set_store_path_from_config(config, "configStorePath")
    controller.kv_config_manager = KVConfigManager(controller.namesrv_config)
    return controller


def new_processor(controller) -> DefaultRequestProcessor:
    return DefaultRequestProcessor(controller.namesrv_config, controller.configuration, controller.kv_config_manager,
                                   controller.route_info_manager)


@pytest.fixture
def ask(controller):
    processor = new_processor(controller)

    def call(code, body=None, version=V4_9_8, **fields):
        request = RemotingCommand(code)
        request.version, request.body = version, body
        request.ext_fields = {key: str(value) for key, value in fields.items()} or None
        return processor.process_request(CHANNEL, request)
    return call


def answer_fields(response):
    response.make_custom_header_to_net()
    return response.ext_fields or {}


def registration(*topics, version=1, **fields):
    body = RegisterBrokerBody()
    for topic in topics:
        body.topicConfigSerializeWrapper.topicConfigTable[topic] = TopicConfig(topicName=topic, **fields)
    body.topicConfigSerializeWrapper.dataVersion.timestamp = 1000
    body.topicConfigSerializeWrapper.dataVersion.counter = version
    return body


def register(ask, *topics, **fields):
    body = remoting_serializable.encode(registration(*topics or ("T",)))
    response = ask(request_code.REGISTER_BROKER, body, **{**BROKER, **fields})
    assert response.code == response_code.SUCCESS, response.remark
    return response


def names(response):
    assert response.code == response_code.SUCCESS
    return set(json.loads(response.body)["topicList"])


def test_kv_is_put_read_listed_and_deleted(ask, controller, tmp_path):
    assert ask(request_code.PUT_KV_CONFIG, namespace="ns", key="k", value="v").code == 0
    assert answer_fields(ask(request_code.GET_KV_CONFIG, namespace="ns", key="k")) == {"value": "v"}
    assert json.loads(ask(request_code.GET_KVLIST_BY_NAMESPACE, namespace="ns").body) == {"table": {"k": "v"}}
    assert (tmp_path / "kvConfig.json").read_text() == '{"configTable":{"ns":{"k":"v"}}}'
    assert ask(request_code.DELETE_KV_CONFIG, namespace="ns", key="k").code == 0
    assert ask(request_code.DELETE_KV_CONFIG, namespace="other", key="k").code == 0
    response = ask(request_code.GET_KV_CONFIG, namespace="ns", key="k")
    assert (response.code, response.remark) == (22, "No config item, Namespace: ns Key: k")


def test_kv_survives_a_restart(ask, controller):
    ask(request_code.PUT_KV_CONFIG, namespace="ns", key="k", value="é")
    again = KVConfigManager(controller.namesrv_config)
    again.load()
    assert again.get_kv_config("ns", "k") == "é"


def test_unknown_namespace_is_not_found(ask):
    response = ask(request_code.GET_KVLIST_BY_NAMESPACE, namespace="ns")
    assert (response.code, response.remark) == (22, "No config item, Namespace: ns")


@pytest.mark.parametrize("fields", [{}, {"namespace": "ns", "value": "v"}, {"key": "k", "value": "v"}])
def test_null_kv_key_is_an_error(ask, fields):
    response = ask(request_code.PUT_KV_CONFIG, **fields)
    assert (response.code, response.remark) == (1, "namespace or key is null")


def test_damaged_kv_file_falls_back_to_its_backup(controller, tmp_path):
    manager = KVConfigManager(controller.namesrv_config)
    manager.put_kv_config("ns", "k", "1")
    manager.put_kv_config("ns", "k", "2")
    (tmp_path / "kvConfig.json").write_text('{"configTable":{')
    again = KVConfigManager(controller.namesrv_config)
    again.load()
    assert again.get_kv_config("ns", "k") == "1"


def test_damaged_kv_file_without_a_backup_is_an_error_with_its_name(controller, tmp_path):
    (tmp_path / "kvConfig.json").write_text("{]")
    with pytest.raises(ConfigError, match="kvConfig.json"):
        KVConfigManager(controller.namesrv_config).load()


def test_null_kv_table_is_an_empty_table(controller, tmp_path):
    (tmp_path / "kvConfig.json").write_text("{}")
    manager = KVConfigManager(controller.namesrv_config)
    manager.load()
    assert manager.get_kv_list_by_namespace("ns") is None


def test_route_is_standard_json_from_4_9_4_on(ask):
    register(ask)
    standard = b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911"},"brokerName":"broker-a","cluster":"c1"}],' \
               b'"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":16,' \
               b'"topicSysFlag":0,"writeQueueNums":16}]}'
    bare = standard.replace(b'"0"', b"0")
    assert ask(request_code.GET_ROUTEINFO_BY_TOPIC, topic="T").body == standard
    assert ask(request_code.GET_ROUTEINFO_BY_TOPIC, version=V4_9_3, topic="T").body == bare
    assert ask(request_code.GET_ROUTEINFO_BY_TOPIC, version=V4_9_3, topic="T",
               acceptStandardJsonOnly="true").body == standard


def test_unknown_topic_has_javas_remark(ask):
    response = ask(request_code.GET_ROUTEINFO_BY_TOPIC, topic="T")
    assert response.code == response_code.TOPIC_NOT_EXIST
    assert response.remark == ("No topic route info in name server for the topic: T\n"
                               "See http://rocketmq.apache.org/docs/faq/ for further details.")


def test_order_topic_config_is_in_routes_only_when_enabled(ask, controller):
    register(ask)
    ask(request_code.PUT_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="T", value="broker-a:4")
    assert b"orderTopicConf" not in ask(request_code.GET_ROUTEINFO_BY_TOPIC, topic="T").body
    controller.namesrv_config.orderMessageEnable = True
    assert json.loads(ask(request_code.GET_ROUTEINFO_BY_TOPIC, topic="T").body)["orderTopicConf"] == "broker-a:4"


def test_registering_broker_receives_the_order_topics(ask):
    assert register(ask).body is None
    ask(request_code.PUT_KV_CONFIG, namespace="ORDER_TOPIC_CONFIG", key="T", value="broker-a:4")
    assert json.loads(register(ask).body) == {"table": {"T": "broker-a:4"}}


def test_slave_receives_its_masters_address(ask):
    assert answer_fields(register(ask)) == {}
    slave = register(ask, brokerAddr="10.0.0.2:10911", brokerId=1)
    assert answer_fields(slave) == {"haServerAddr": "10.0.0.1:10912", "masterAddr": "10.0.0.1:10911"}


def test_compressed_registration_is_accepted(ask):
    body = registration("T", perm=4)
    response = ask(request_code.REGISTER_BROKER, body.encode_compressed(), compressed="true", **BROKER)
    assert response.code == 0
    assert json.loads(ask(request_code.GET_ROUTEINFO_BY_TOPIC, topic="T").body)["queueDatas"][0]["perm"] == 4


def test_registration_before_3_0_11_is_the_bare_topic_table(ask):
    wrapper = registration("T").topicConfigSerializeWrapper
    response = ask(request_code.REGISTER_BROKER, remoting_serializable.encode(wrapper), version=V3_0_10, **BROKER)
    assert response.code == 0 and names(ask(request_code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)) == {"T"}


@pytest.mark.parametrize("version", [V3_0_10, V4_9_8])
def test_registration_without_a_body_is_accepted_without_topics(ask, controller, version):
    assert ask(request_code.REGISTER_BROKER, version=version, **BROKER).code == 0
    version = controller.route_info_manager.query_broker_topic_config("10.0.0.1:10911")
    assert (version.timestamp, version.counter) == (0, 0)


def test_crc_is_checked_unless_zero(ask):
    body = remoting_serializable.encode(registration("T"))
    good = util_all.crc32(body)
    response = ask(request_code.REGISTER_BROKER, body, bodyCrc32=good ^ 1, **BROKER)
    assert (response.code, response.remark) == (1, "crc32 not match")
    assert names(ask(request_code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)) == set()
    assert ask(request_code.REGISTER_BROKER, body, bodyCrc32=good, **BROKER).code == 0


# A value may be a function that makes the body, so that it is made only for a test that needs it.
BAD_BODIES = {
    "no JSON": (b"{", "false"), "wrong type": (b"[]", "false"), "NaN": (b'{"filterServerList":NaN}', "false"),
    "deep": (b"[" * 200_000, "false"), "no deflate": (b"nonsense", "true"),
    "empty deflate": (zlib.compress(b""), "true"),
    "bomb": (lambda: zlib.compress(bytes(200_000_000), 9), "true"),
    "huge count": (zlib.compress(b"\0\0\0\x02{}\x7f\xff\xff\xff"), "true"),
    "negative count": (zlib.compress(b"\0\0\0\x02{}\xff\xff\xff\xff"), "true"),
    "huge length": (zlib.compress(b"\x7f\xff\xff\xff{}"), "true"),
    "topic of two parts": (zlib.compress(b"\0\0\0\x02{}\0\0\0\x01\0\0\0\x03T 1\0\0\0\x02[]"), "true"),
}


@pytest.mark.parametrize(("body", "compressed"), BAD_BODIES.values(), ids=BAD_BODIES)
def test_invalid_registration_body_is_an_error_and_changes_nothing(ask, body, compressed):
    register(ask)
    with pytest.raises((RemotingCommandException, ValueError)):
        ask(request_code.REGISTER_BROKER, body() if callable(body) else body, compressed=compressed,
            **{**BROKER, "brokerName": "evil"})
    info = json.loads(ask(request_code.GET_BROKER_CLUSTER_INFO).body.replace(b"{0:", b'{"0":'))
    assert list(info["brokerAddrTable"]) == ["broker-a"]
    assert names(ask(request_code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)) == {"T"}


@pytest.mark.parametrize("fields", [{"brokerId": "-1"}, {"brokerId": "x"}, {"brokerId": str(1 << 63)},
                                    {"brokerName": ""}, {"bodyCrc32": "many"}])
def test_invalid_registration_header_is_an_error_and_changes_nothing(ask, fields):
    with pytest.raises((RemotingCommandException, ValueError)):
        ask(request_code.REGISTER_BROKER, **{**BROKER, **fields})
    assert json.loads(ask(request_code.GET_BROKER_CLUSTER_INFO).body) == {"brokerAddrTable": {}, "clusterAddrTable": {}}


@pytest.mark.parametrize("missing", [name for name in BROKER if name != "haServerAddr"])
def test_missing_registration_field_is_an_error(ask, missing):
    with pytest.raises(RemotingCommandException, match=missing):
        ask(request_code.REGISTER_BROKER, **{key: value for key, value in BROKER.items() if key != missing})


def test_negative_version_is_an_error(ask):
    with pytest.raises(RemotingCommandException):
        ask(request_code.REGISTER_BROKER, version=-1, **BROKER)


def test_unregistered_broker_is_removed(ask):
    register(ask)
    fields = {key: value for key, value in BROKER.items() if key != "haServerAddr"}
    assert ask(request_code.UNREGISTER_BROKER, **fields).code == 0
    assert ask(request_code.GET_ROUTEINFO_BY_TOPIC, topic="T").code == response_code.TOPIC_NOT_EXIST


def test_shared_address_is_given_up_by_a_request_that_names_no_broker(ask):
    fields = {"brokerName": "broker-a", "brokerAddr": "-", "clusterName": "c1", "brokerId": "-1"}
    register(ask)
    assert ask(request_code.UNREGISTER_BROKER, **fields).code == 0
    assert ask(request_code.GET_ROUTEINFO_BY_TOPIC, topic="T").code == 0
    assert ask(request_code.UNREGISTER_BROKER, sharedAddress=BROKER["brokerAddr"], **fields).code == 0
    assert ask(request_code.GET_ROUTEINFO_BY_TOPIC, topic="T").code == response_code.TOPIC_NOT_EXIST


@pytest.mark.parametrize("epoch, known", [("6", 6), ("", 0), ("x", 0), ("-1", 0), ("\u0666", 0), ("9" * 30, 0)])
def test_epoch_of_a_registration_is_read(ask, controller, epoch, known):
    register(ask, masterEpoch=epoch)
    assert controller.route_info_manager._broker_live_table[BROKER["brokerAddr"]].master_epoch == known


def test_data_version_shows_whether_to_register_again(ask):
    query = {key: value for key, value in BROKER.items() if key != "haServerAddr"}
    same, other = b'{"counter":1,"timestamp":1000}', b'{"counter":2,"timestamp":1000}'
    response = ask(request_code.QUERY_DATA_VERSION, same, **query)
    assert answer_fields(response) == {"changed": "true"} and response.body is None
    register(ask)
    response = ask(request_code.QUERY_DATA_VERSION, same, **query)
    assert answer_fields(response) == {"changed": "false"} and response.body == same
    response = ask(request_code.QUERY_DATA_VERSION, other, **query)
    assert answer_fields(response) == {"changed": "true"} and response.body == same
    with pytest.raises(RemotingCommandException):
        ask(request_code.QUERY_DATA_VERSION, **query)


def test_cluster_info_has_bare_broker_ids(ask):
    register(ask)
    register(ask, brokerAddr="10.0.0.2:10911", brokerId=1)
    assert ask(request_code.GET_BROKER_CLUSTER_INFO).body == (
        b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},'
        b'"brokerName":"broker-a","cluster":"c1"}},"clusterAddrTable":{"c1":["broker-a"]}}')


def test_write_permission_is_wiped_and_added(ask):
    register(ask, "T", "U")
    assert answer_fields(ask(request_code.WIPE_WRITE_PERM_OF_BROKER, brokerName="broker-a")) == {"wipeTopicCount": "2"}
    assert json.loads(ask(request_code.GET_ROUTEINFO_BY_TOPIC, topic="T").body)["queueDatas"][0]["perm"] == 4
    assert answer_fields(ask(request_code.ADD_WRITE_PERM_OF_BROKER, brokerName="broker-a")) == {"addTopicCount": "2"}
    assert json.loads(ask(request_code.GET_ROUTEINFO_BY_TOPIC, topic="T").body)["queueDatas"][0]["perm"] == 6
    assert answer_fields(ask(request_code.WIPE_WRITE_PERM_OF_BROKER, brokerName="x")) == {"wipeTopicCount": "0"}


def test_topic_lists(ask):
    register(ask, "T", "U")
    assert names(ask(request_code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)) == {"T", "U"}
    assert names(ask(request_code.GET_TOPICS_BY_CLUSTER, cluster="c1")) == {"T", "U"}
    assert names(ask(request_code.GET_TOPICS_BY_CLUSTER, cluster="c9")) == set()
    system = ask(request_code.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    assert names(system) == {"c1", "broker-a"} and json.loads(system.body)["brokerAddr"] == "10.0.0.1:10911"
    for code in (request_code.GET_UNIT_TOPIC_LIST, request_code.GET_HAS_UNIT_SUB_TOPIC_LIST,
                 request_code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST):
        assert ask(code).body == b'{"topicList":[]}'


def test_topic_is_deleted_in_a_cluster_or_everywhere(ask):
    register(ask, "T", "U")
    assert ask(request_code.DELETE_TOPIC_IN_NAMESRV, topic="T", clusterName="c9").code == 0
    assert names(ask(request_code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)) == {"T", "U"}
    ask(request_code.DELETE_TOPIC_IN_NAMESRV, topic="T", clusterName="c1")
    ask(request_code.DELETE_TOPIC_IN_NAMESRV, topic="U", clusterName="")
    assert names(ask(request_code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)) == set()


def test_config_is_read_and_updated(ask, controller, tmp_path):
    assert b"\nserverWorkerThreads=8\n" in ask(request_code.GET_NAMESRV_CONFIG).body
    body = b"serverWorkerThreads=3\norderMessageEnable=true\nnoSuchKey=1\n"
    assert ask(request_code.UPDATE_NAMESRV_CONFIG, body).code == 0
    assert controller.server_config.serverWorkerThreads == 3 and controller.namesrv_config.orderMessageEnable
    assert "serverWorkerThreads=3\n" in (tmp_path / "ns.conf").read_text()
    assert ask(request_code.UPDATE_NAMESRV_CONFIG).code == 0


@pytest.mark.parametrize("key", ["configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome", "metricsHost"])
def test_black_listed_key_is_refused(ask, controller, key):
    response = ask(request_code.UPDATE_NAMESRV_CONFIG, f"{key}=/etc/passwd\nserverWorkerThreads=3\n".encode())
    assert (response.code, response.remark) == (response_code.NO_PERMISSION, "Can not update config in black list.")
    assert controller.server_config.serverWorkerThreads == 8


def test_black_list_can_be_extended(controller):
    controller.namesrv_config.configBlackList = "listenPort;productEnvName"
    assert {"listenPort", "productEnvName", "kvConfigPath"} < new_processor(controller).config_black_list


def test_malformed_properties_are_refused(ask):
    response = ask(request_code.UPDATE_NAMESRV_CONFIG, b"a=\\uzzzz")
    assert (response.code, response.remark) == (1, "string2Properties error")


def test_invalid_config_value_is_an_error(ask, controller):
    response = ask(request_code.UPDATE_NAMESRV_CONFIG, b"serverWorkerThreads=many")
    assert response.code == 1 and "serverWorkerThreads" in response.remark
    assert controller.server_config.serverWorkerThreads == 8


def test_unknown_code_is_not_answered(ask):
    assert ask(9999) is None


CODES = sorted(value for name, value in vars(request_code).items() if name.isupper() and isinstance(value, int))
TEXTS = st.one_of(st.text(max_size=8), st.sampled_from(["-1", "9" * 30, "true", "", "T", "c1", "broker-a"]))
FIELDS = st.dictionaries(st.sampled_from([*BROKER, "namespace", "key", "value", "topic", "cluster", "compressed",
                                          "bodyCrc32", "acceptStandardJsonOnly"]), TEXTS)


@settings(max_examples=drawn(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(CODES), st.none() | st.binary(max_size=60), FIELDS, st.integers(-1, 2**31 - 1))
def test_any_request_is_answered_or_a_plain_error(ask, code, body, fields, version):
    try:
        response = ask(code, body, version=version, **fields)
    except (RemotingCommandException, ConfigError, ValueError):
        return
    assert response is None or response.code in (0, 1, 16, 17, 22)
    if response is not None:
        response.encode()


# Many new names for each request code of a name server: the entries that remain are limited, and go with their
# connection.

NAMES, LIMIT = 200, 30
KEPT_OBJECTS = 100
# Part of all new names, and of no other text.
MARK = f"-new{LIMIT}-"
PLACE = ("brokerName", "brokerAddr", "clusterName")
RENAMED = ("namespace", "key", *PLACE)


def table_sizes(controller) -> dict[str, int]:
    """Return the number of entries of each table."""
    routes, kv = controller.route_info_manager, controller.kv_config_manager
    return {name: len(getattr(routes, name)) for name in (
        "_topic_queue_table", "_broker_addr_table", "_cluster_addr_table", "_broker_live_table",
        "_filter_server_table")} | {
        "places": sum(len(places) for _channel, places in routes._limits._places.values()),
        "topics": sum(map(len, routes._limits._topics.values())), "departed": len(routes._departed._gone),
        "namespaces": len(kv._config_table), "keys": sum(map(len, kv._config_table.values()))}


def flood(ask, code, names: range) -> int:
    """Send a request with a new name for each number; return how many were refused."""
    refused = 0
    for number in names:
        fields = {name: f"{field.right}{MARK}{number}" if "unknown" in field.wrong or name in RENAMED else field.right
                  for name, field in code.fields.items()}
        body = code.body.replace(b"{n}", f"{MARK}{number}".encode()) or None
        if code.number == request_code.UPDATE_NAMESRV_CONFIG:
            body = f"nobody{MARK}{number}=1\n".encode()
        try:
            ask(code.number, body, **{**fields, **({"bodyCrc32": 0} if "bodyCrc32" in fields else {})})
        except RemotingCommandException:
            refused += 1
    return refused


def left_objects(ask, code, controller, names: range) -> bool:
    """Return whether a flood of new names left objects of ours."""
    before = own_objects(controller)
    flood(ask, code, names)
    return any(count >= KEPT_OBJECTS for count in (own_objects(controller) - before).values())


@pytest.fixture
def silent():
    """Silence the log, every line of which pytest would keep."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("code", NAMESRV_CODES, ids=lambda code: f"{code.number}-{code.name}")
def test_new_names_leave_only_limited_entries(ask, controller, monkeypatch, code):
    monkeypatch.setattr(registrations, "MAX_PLACES_OF_CHANNEL", LIMIT)
    monkeypatch.setattr(kv_config_manager, "MAX_CHARACTERS", LIMIT * 200)
    register(ask, "T")
    flood(ask, code, range(3))
    before = table_sizes(controller)
    refused = flood(ask, code, range(NAMES))
    grown = {name: size - before[name] for name, size in table_sizes(controller).items() if size > before[name]}
    if code.number == request_code.PUT_KV_CONFIG:
        assert refused and set(grown) == {"namespaces", "keys"} and max(grown.values()) <= 3 * LIMIT
    elif code.number == request_code.REGISTER_BROKER:
        assert refused >= NAMES - LIMIT and max(grown.values()) <= LIMIT
    else:
        assert not grown
        assert not names_kept(MARK, controller)
        # Other threads of ours may create objects during one flood or two.
        assert not all(left_objects(ask, code, controller, range(first, first + NAMES))
                       for first in (NAMES, 2 * NAMES, 3 * NAMES))
    controller.route_info_manager.on_channel_destroy("127.0.0.1:40000", CHANNEL)
    gone = {name: size for name, size in table_sizes(controller).items()
            if name not in ("namespaces", "keys", "departed")}
    assert not any(gone.values()), gone


def test_values_of_a_full_kv_config_can_still_be_changed_and_deleted(ask, controller, monkeypatch):
    monkeypatch.setattr(kv_config_manager, "MAX_CHARACTERS", 300)
    ask(request_code.PUT_KV_CONFIG, namespace="n", key="k", value="v" * 100)
    with pytest.raises(RemotingCommandException, match="the KV config is full"):
        ask(request_code.PUT_KV_CONFIG, namespace="n", key="other", value="v" * 100)
    assert ask(request_code.PUT_KV_CONFIG, namespace="n", key="k", value="w" * 90).code == 0
    assert ask(request_code.DELETE_KV_CONFIG, namespace="n", key="k").code == 0
    assert controller.kv_config_manager._size == 0 and not controller.kv_config_manager._config_table


def test_deleting_a_missing_key_writes_no_file(ask, tmp_path):
    ask(request_code.DELETE_KV_CONFIG, namespace="n", key="k")
    assert not (tmp_path / "kvConfig.json").exists()


def test_broker_with_too_many_topics_is_refused_and_keeps_its_registered_ones(ask, controller, monkeypatch):
    monkeypatch.setattr(registrations, "MAX_TOPICS_OF_BROKER", 3)
    register(ask, "A", "B")
    body = json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": {
        "dataVersion": {"counter": 9, "timestamp": 9},
        "topicConfigTable": {name: {"topicName": name} for name in "CDE"}}}).encode()
    with pytest.raises(registrations.RegistrationError, match="too many"):
        ask(request_code.REGISTER_BROKER, body, **BROKER)
    assert set(controller.route_info_manager._topic_queue_table) == {"A", "B"}
    assert ask(request_code.DELETE_TOPIC_IN_NAMESRV, topic="A").code == 0
    assert controller.route_info_manager._limits.topics_of("broker-a") == ["B"]


def test_lengths_of_broker_and_topic_names_are_limited(ask, controller):
    for field in PLACE + ("haServerAddr",):
        with pytest.raises(registrations.RegistrationError, match="256 characters"):
            register(ask, "T", **{field: "n" * 256})
    with pytest.raises(registrations.RegistrationError, match="300 characters"):
        register(ask, "t" * 300)
    assert not controller.route_info_manager._broker_addr_table


def test_unregistering_under_a_wrong_name_leaves_no_immortal_broker(ask, controller):
    register(ask, "T")
    ask(request_code.UNREGISTER_BROKER, brokerName="other", brokerAddr=BROKER["brokerAddr"], clusterName="c1",
        brokerId=0)
    routes = controller.route_info_manager
    assert set(routes._broker_live_table) == {BROKER["brokerAddr"]}
    routes._clock = lambda: 1 << 60
    assert routes.scan_not_active_broker() == 1
    assert not routes._broker_addr_table and not routes._topic_queue_table


def test_broker_registered_in_two_clusters_leaves_both(ask, controller):
    register(ask, "T")
    register(ask, "T", clusterName="c2")
    channel = SimpleNamespace()
    controller.route_info_manager.on_channel_destroy(BROKER["brokerAddr"], channel)
    assert not controller.route_info_manager._cluster_addr_table
