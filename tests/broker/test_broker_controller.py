"""A broker's life in one process: start and shutdown, TLS settings, log files, and arbitrary requests."""
import json
import socket
import sys
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqha.broker import broker_startup
from rmqha.common import sys_flags
from rmqha.common.message import message_decoder
from rmqha.common.protocol import admin_headers, client_headers, request_code, response_code
from rmqha.common.protocol import request_code as codes
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.tls_system_config import TlsMode
from rmqha.store.message_store_config import BrokerRole
from tests.broker.support import bodies, new_controller, running_broker
from tests.support.ports import free_broker_port, free_port
from tests.support.processes import ServerProcess
from tests.support.raw_remoting import RawClient
from tests.support.sources import ROOT
from tests.support.tiers import drawn
from tests.support.wait import own_threads, wait_until


def test_messages_and_tables_survive_a_restart(tmp_path):
    with running_broker(tmp_path) as broker:
        broker.send("Topic", b"one")
        broker.send("Topic", b"two")
    with running_broker(tmp_path) as broker:
        assert bodies(broker.pull("Topic", 0)) == [b"one", b"two"]
        assert broker.send("Topic").ext_fields["queueOffset"] == "2"


def test_two_brokers_run_in_one_process(tmp_path):
    with running_broker(tmp_path / "a") as one, running_broker(tmp_path / "b", brokerName="broker-b") as other:
        one.send("Topic", b"one")
        other.send("Topic", b"other")
        wait_until(lambda: one.next_offset("Topic") and other.next_offset("Topic"), 60_000, "both")
        assert bodies(one.pull("Topic", 0)) == [b"one"] and bodies(other.pull("Topic", 0)) == [b"other"]


def test_nothing_is_left_running_after_shutdown(tmp_path):
    before = own_threads()
    with running_broker(tmp_path) as broker:
        broker.send("Topic")
        broker.pull("Topic", 5)
        broker.heartbeat("group", "Topic")
        broker.call(request_code.GET_BROKER_RUNTIME_INFO)
    wait_until(lambda: own_threads() <= before, 60_000, "all threads ended")


def test_shutdown_twice_and_before_start_is_fine(tmp_path):
    controller = new_controller(tmp_path)
    controller.shutdown()
    controller.shutdown()


def test_port_in_use_is_an_error_and_leaves_nothing_running(tmp_path):
    before = own_threads()
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        controller = new_controller(tmp_path, listenPort=taken.getsockname()[1])
        assert controller.initialize()
        with pytest.raises(OSError):
            controller.start()
        controller.shutdown()
    wait_until(lambda: own_threads() <= before, 60_000, "all threads ended")


def test_broker_may_be_known_by_a_host_name(tmp_path):
    with running_broker(tmp_path, brokerIP1="localhost") as broker:
        assert broker.address.startswith("localhost:")
        # The first send creates the topic.
        ids = [broker.send("Topic").ext_fields["msgId"] for _ in range(3)]
        assert all(message_decoder.decode_message_id(one)[0] == ("127.0.0.1", broker.controller.addresses.store_host[1])
                   for one in ids), ids
        assert broker.next_offset("Topic") == 3
        assert bodies(broker.pull("Topic", 0)) == [b"body"] * 3


def test_unknown_host_name_keeps_the_broker_from_starting(tmp_path):
    controller = new_controller(tmp_path, brokerIP1="no-such-host.invalid")
    assert controller.initialize()
    with pytest.raises(OSError, match="brokerIP1=no-such-host.invalid is neither"):
        controller.start()
    controller.shutdown()


@pytest.mark.parametrize("name", ["topics.json", "consumerOffset.json", "subscriptionGroup.json"])
def test_broken_table_without_backup_keeps_the_broker_from_starting(tmp_path, name):
    config = tmp_path / "store" / "config"
    config.mkdir(parents=True)
    (config / name).write_text("{broken")
    controller = new_controller(tmp_path)
    assert not controller.initialize()
    controller.shutdown()
    assert (config / name).read_text() == "{broken"


def test_fast_port_is_two_below(tmp_path):
    controller = new_controller(tmp_path, listenPort=25110)
    assert controller.fast_remoting_server.config.listenPort == 25108 and controller.server_config.listenPort == 25110
    controller.shutdown()


def test_broker_synchronises_only_while_it_is_a_slave(tmp_path):
    controller = new_controller(tmp_path, brokerRole=BrokerRole.SLAVE, brokerId=1)
    assert controller.initialize()
    calls = []
    controller.slave_synchronize.sync_all = lambda: calls.append(1)
    scheduled = []
    controller._scheduler.schedule = lambda task, delay_ms: scheduled.append((task, delay_ms))
    controller.role_services.handle_slave_synchronize(BrokerRole.SLAVE)
    (first, delay_ms), = scheduled
    first()
    assert delay_ms == 3000 and calls == [1]
    (_, (second, delay_ms)) = scheduled
    controller.role_services.handle_slave_synchronize(BrokerRole.ASYNC_MASTER)
    second()
    assert delay_ms == 10_000 and calls == [1] and len(scheduled) == 2
    controller.shutdown()


def test_slave_synchronises_with_one_task_however_often_its_role_changes(tmp_path):
    controller = new_controller(tmp_path, brokerRole=BrokerRole.SLAVE, brokerId=1)
    assert controller.initialize()
    calls, scheduled = [], []
    controller.slave_synchronize.sync_all = lambda: calls.append(1)
    controller._scheduler.schedule = lambda task, _delay_ms: scheduled.append(task)
    for role in (BrokerRole.SLAVE, BrokerRole.SYNC_MASTER) * 5 + (BrokerRole.SLAVE, BrokerRole.SLAVE):
        controller.role_services.handle_slave_synchronize(role)
    for rounds in range(1, 4):
        waiting, scheduled[:] = scheduled[:], []
        for task in waiting:
            task()
        assert len(calls) == rounds and len(scheduled) == 1
    controller.shutdown()


def test_slow_consumers_are_stopped_when_the_configuration_says_so(broker):
    controller = broker.controller
    controller.subscription_group_manager.find_subscription_group_config("slow")
    controller.broker_stats_manager.record_disk_fall_behind_size("slow", "Topic", 0, 1 << 40)
    controller.protect_broker()
    assert controller.subscription_group_manager.find_subscription_group_config("slow").consumeEnable
    controller.broker_config.disableConsumeIfConsumerReadSlowly = True
    controller.protect_broker()
    assert not controller.subscription_group_manager.find_subscription_group_config("slow").consumeEnable


def test_request_that_waited_too_long_for_a_thread_is_refused(broker):
    controller = broker.controller
    answer = controller.broker_fast_failure.run_in(controller.pools.send_message_executor, 0, lambda: None).get(60_000)
    assert answer.code == response_code.SYSTEM_BUSY and answer.remark.startswith("[TIMEOUT_CLEAN_QUEUE]broker busy")
    controller.broker_config.brokerFastFailureEnable = False
    answer = controller.broker_fast_failure.run_in(controller.pools.send_message_executor, 0, lambda: None).get(60_000)
    assert answer is None


def test_failure_in_a_pool_is_answered(broker):
    def fail() -> RemotingCommand:
        raise RuntimeError("no luck")

    controller = broker.controller
    answer = controller.broker_fast_failure.run_in(controller.pools.send_message_executor, 60_000, fail).get(60_000)
    assert answer.code == response_code.SYSTEM_ERROR and "no luck" in answer.remark
    controller.pools.send_message_executor.shutdown()
    answer = controller.broker_fast_failure.run_in(controller.pools.send_message_executor, 60_000, fail).get(60_000)
    assert answer.code == response_code.SYSTEM_BUSY and answer.remark.startswith("[OVERLOAD]")


def test_watermarks_and_periodic_tasks_run(broker, caplog):
    caplog.set_level("INFO")
    controller = broker.controller
    controller.print_water_mark()
    controller._print_dispatch_behind()
    controller._print_master_and_slave_diff()
    controller.registration.register_periodically()
    controller.broker_stats.record()
    assert "[WATERMARK] Send Queue Size: 0 SlowTimeMills: 0" in caplog.text
    assert "Slave fall behind master: 0 bytes" in caplog.text
    assert "dispatch behind commit log" in caplog.text


# The config keys of log files, in server processes that write logs.

SMALL = "mappedFileSizeCommitLog=1048576\nmaxHashSlotNum=1000\nmaxIndexNum=4000\n"


@contextmanager
def server(tmp_path, program, port, text):
    """Run a server in its own process, with `tmp_path` as its home."""
    name = f"{program}-{port}"
    file = tmp_path / f"{name}.conf"
    file.write_text(f"listenPort={port}\n{text}")
    command = [sys.executable, "-m", "rmqha.launch", program, "-c", str(file)]
    process = ServerProcess(name, command, tmp_path, "boot success",
                            {"HOME": str(tmp_path), "ROCKETMQ_LOG_DIR": "", "PYTHONPATH": str(ROOT)})
    try:
        yield process.start()
        assert process.stop() == 0
    finally:
        process.kill()


def broker(tmp_path, name, text=""):
    port = free_broker_port()
    return server(tmp_path, "mqbroker", port, f"storePathRootDir={tmp_path}/{name}\nbrokerIP1=127.0.0.1\n"
                  f"brokerName={name}\n{SMALL}{text}")


def ask(process, code, text):
    """Send a configuration to a server and return the answer."""
    with RawClient(f"127.0.0.1:{process.name.rpartition('-')[2]}") as client:
        return client.request(code, text.encode())


def test_broker_logs_json_in_utc_and_changes_its_level(tmp_path):
    style = "logFormat=JSON\nlogTimeZone=UTC\nlogLevel=WARN\nisolateLogEnable=true\n"
    logs = tmp_path / "logs" / "rocketmqlogs" / "b_0"
    with broker(tmp_path, "b", style) as process:
        assert {json.loads(line)["level"] for line in (logs / "store.log").read_text().splitlines()} == {"WARN"}
        assert ask(process, codes.UPDATE_BROKER_CONFIG, "logLevel=LOUD\n").code == response_code.SYSTEM_ERROR
        assert ask(process, codes.UPDATE_BROKER_CONFIG, "logLevel=INFO\n").code == 0
        assert ask(process, codes.UPDATE_BROKER_CONFIG, "logFormat=TEXT\n").code == response_code.NO_PERMISSION
        assert "logLevel=INFO\n" in (tmp_path / f"{process.name}.conf").read_text()
    lines = [json.loads(line) for line in (logs / "broker.log").read_text("utf-8").splitlines()]
    assert {(line["brokerName"], line["brokerId"]) for line in lines} == {("b", 0)}
    first, *_, last = [line["message"] for line in lines if line["level"] == "INFO"]
    assert first.startswith("updateBrokerConfig called by") and last.startswith("Shutdown hook over")
    moments = [datetime.fromisoformat(line["time"]) for line in lines]
    assert {moment.utcoffset() for moment in moments} == {timedelta(0)} and moments == sorted(moments)
    assert datetime.now(UTC) - moments[-1] < timedelta(minutes=5)


def test_name_server_changes_its_level(tmp_path):
    port = free_port()
    with server(tmp_path, "mqnamesrv", port, f"kvConfigPath={tmp_path}/kv.json\nlogLevel=ERROR\n") as process:
        log = tmp_path / "logs" / "rocketmqlogs" / "namesrv.log"
        assert log.read_text() == ""
        assert ask(process, codes.UPDATE_NAMESRV_CONFIG, "logLevel=DEBUG\n").code == 0
        assert ask(process, codes.GET_NAMESRV_CONFIG, "").code == 0
        assert " DEBUG " in log.read_text() and "receive request, 319 127.0.0.1:" in log.read_text()


@pytest.mark.parametrize("text, warns", [("", True), ("isolateLogEnable=true\n", False)])
def test_broker_that_shares_its_log_files_warns(tmp_path, text, warns):
    with broker(tmp_path, "a"), broker(tmp_path, "b", text) as second:
        told = f"another process also writes to {tmp_path}/logs/rocketmqlogs/broker.log;"
        assert (told in second.output()) is warns
        assert (tmp_path / "logs" / "rocketmqlogs" / "b_0" / "broker.log").exists() is not warns


# Every request gets one answer, whatever it contains, and a well-behaved client beside it is served.

_MODULES = (admin_headers, client_headers)
FIELD_NAMES = sorted({field.name for module in _MODULES for header in vars(module).values()
                      if hasattr(header, "__dataclass_fields__") for field in fields(header)})
CODES = sorted({code for name, code in vars(request_code).items() if name.isupper()})
TEXTS = st.one_of(
    st.integers(-(2**64), 2**64).map(str), st.text(max_size=8),
    st.sampled_from(["0", "1", "true", "%RETRY%", "TBW102", "Known", "../x", "*"]))
BODIES = st.one_of(
    st.none(), st.binary(max_size=64), st.sampled_from([b"{}", b"[]", b"null", b"{", b'{"clientID":"c"}', b"\xff" * 9]),
    st.dictionaries(st.sampled_from(["mqSet", "consumerGroup", "clientId", "groupName", "consumerDataSet"]),
                    st.sampled_from(["[]", "[1]", "null", '"x"', "{}", "-1"])).map(
        lambda pairs: ("{" + ",".join(f'"{name}":{value}' for name, value in pairs.items()) + "}").encode()))


WELL_FORMED = {
    request_code.SEND_MESSAGE: client_headers.SendMessageRequestHeader,
    request_code.SEND_MESSAGE_V2: client_headers.SendMessageRequestHeaderV2,
    request_code.SEND_BATCH_MESSAGE: client_headers.SendMessageRequestHeaderV2,
    request_code.CONSUMER_SEND_MSG_BACK: client_headers.ConsumerSendMsgBackRequestHeader,
    request_code.PULL_MESSAGE: client_headers.PullMessageRequestHeader,
    request_code.QUERY_MESSAGE: client_headers.QueryMessageRequestHeader,
    request_code.VIEW_MESSAGE_BY_ID: client_headers.ViewMessageRequestHeader,
    request_code.QUERY_CONSUME_QUEUE: client_headers.QueryConsumeQueueRequestHeader,
    request_code.GET_CONSUMER_LIST_BY_GROUP: admin_headers.GetConsumerListByGroupRequestHeader,
    request_code.UPDATE_CONSUMER_OFFSET: admin_headers.UpdateConsumerOffsetRequestHeader,
    request_code.QUERY_CONSUMER_OFFSET: admin_headers.QueryConsumerOffsetRequestHeader,
    request_code.UNREGISTER_CLIENT: admin_headers.UnregisterClientRequestHeader,
    request_code.UPDATE_AND_CREATE_TOPIC: admin_headers.CreateTopicRequestHeader,
    request_code.GET_TOPIC_STATS_INFO: admin_headers.GetTopicStatsInfoRequestHeader,
    request_code.DELETE_SUBSCRIPTIONGROUP: admin_headers.DeleteSubscriptionGroupRequestHeader,
    request_code.SEARCH_OFFSET_BY_TIMESTAMP: client_headers.SearchOffsetRequestHeader,
    request_code.GET_MAX_OFFSET: client_headers.GetMaxOffsetRequestHeader,
    request_code.GET_MIN_OFFSET: client_headers.GetMinOffsetRequestHeader,
    request_code.GET_EARLIEST_MSG_STORETIME: client_headers.GetEarliestMsgStoretimeRequestHeader,
    request_code.GET_CONSUME_STATS: admin_headers.GetConsumeStatsRequestHeader,
    request_code.INVOKE_BROKER_TO_RESET_OFFSET: admin_headers.ResetOffsetRequestHeader,
    request_code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: admin_headers.GetConsumerStatusRequestHeader,
    request_code.QUERY_CONSUME_TIME_SPAN: admin_headers.QueryConsumeTimeSpanRequestHeader,
    request_code.QUERY_CORRECTION_OFFSET: admin_headers.QueryCorrectionOffsetHeader,
    request_code.CLONE_GROUP_OFFSET: admin_headers.CloneGroupOffsetRequestHeader,
    request_code.SEND_REPLY_MESSAGE: client_headers.SendMessageRequestHeader,
    request_code.SEND_REPLY_MESSAGE_V2: client_headers.SendMessageRequestHeaderV2,
    request_code.END_TRANSACTION: client_headers.EndTransactionRequestHeader,
    request_code.RESUME_CHECK_HALF_MESSAGE: client_headers.ResumeCheckHalfMessageRequestHeader,
    request_code.CONSUME_MESSAGE_DIRECTLY: admin_headers.ConsumeMessageDirectlyResultRequestHeader,
}
NAMES = st.sampled_from(["Known", "g", "%RETRY%g", "%DLQ%g", "", "../x", "t" * 128, "TBW102", "a@b", "\x00", "Ä",
                         "A" * 32])
REQUESTS_SMALL = st.sampled_from([0, 1, -1, 3, 4, 31])
INTS = st.one_of(REQUESTS_SMALL, st.sampled_from([2**31 - 1, -(2**31)]))
LONGS = st.one_of(REQUESTS_SMALL, st.sampled_from([2**63 - 1, -(2**63)]))


@st.composite
def well_formed_requests(draw):
    """Return a code with a header whose fields all have the right type."""
    code = draw(st.sampled_from(sorted(WELL_FORMED)))
    values = {}
    for field in fields(WELL_FORMED[code]):
        if field.type is bool or field.type == "bool":
            values[field.name] = draw(st.booleans())
        elif field.metadata.get("bits"):
            values[field.name] = draw(INTS if field.metadata["bits"] == 32 else LONGS)
        else:
            values[field.name] = draw(NAMES)
    if code == request_code.PULL_MESSAGE:
        values["sysFlag"] &= ~sys_flags.FLAG_SUSPEND
    # An unknown outcome gets no answer.
    if code == request_code.END_TRANSACTION:
        values["commitOrRollback"] = draw(st.sampled_from([4, 8, 12]))
    return code, WELL_FORMED[code](**values)


@pytest.fixture(scope="module")
def known(shared_broker):
    """A broker with a topic `Known`."""
    shared_broker.send("Known")
    return shared_broker


@settings(max_examples=drawn(400), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(CODES), st.dictionaries(st.sampled_from(FIELD_NAMES), TEXTS), BODIES)
def test_every_request_gets_an_answer(known, code, ext_fields, body):
    # Otherwise a pull may be held for as long as it asks.
    ext_fields.pop("suspendTimeoutMillis", None)
    request = RemotingCommand.create_request_command(code)
    request.ext_fields, request.body = ext_fields, body
    response = known.client.invoke_sync(known.address, request, 60_000)
    assert isinstance(response.code, int) and response.is_response_type


@settings(max_examples=drawn(600), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(well_formed_requests(), st.sampled_from([b"", b"x", b"\x00\x00\x00\x17" + b"\x00" * 20]))
def test_every_well_formed_request_gets_an_answer(known, request_and_header, body):
    code, header = request_and_header
    response = known.call(code, header, body)
    assert isinstance(response.code, int) and response.is_response_type


def test_names_in_requests_create_no_folders_outside_the_store(known):
    root = Path(known.controller.message_store_config.storePathRootDir)
    assert {path.name for path in root.iterdir()} <= {
        "abort", "checkpoint", "checkpoint.positions", "commitlog", "config", "consumequeue", "consumequeue_ext",
        "index", "lock"}
    assert all(set(path.name) <= set(map(chr, range(32, 127))) for path in (root / "consumequeue").iterdir())
    assert {path.name for path in root.parent.iterdir()} <= {"store", "broker.conf", "broker.conf.bak"}


def test_well_behaved_client_is_served_afterwards(known):
    assert known.send("Known").code == response_code.SUCCESS
    assert known.pull("Known", 0).code == response_code.SUCCESS


# The TLS settings that result from a broker's command line.


@pytest.mark.parametrize("options, line, expected", [
    ("", "", False),
    # Expect a name server that accepts only TLS.
    ("-Dtls.server.mode=enforcing", "", True),
    ("-Dtls.server.mode=enforcing -Dtls.enable=false", "", False),
    ("-Dtls.enable=true", "", True),
    ("-Dtls.enable=true", "useTLS=false", False),
    ("-Dtls.server.mode=disabled", "useTLS=true", True),
])
def test_outgoing_connections_use_the_configured_tls(options, line, expected, tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_OPT", options)
    monkeypatch.setattr(broker_startup, "_set_up_logging", lambda *_: None)
    file = tmp_path / "broker.conf"
    file.write_text(f"listenPort=0\nstorePathRootDir={tmp_path}/store\n{line}\n")
    controller = broker_startup.create_broker_controller(broker_startup.parse_command_line(["-c", str(file)]))
    try:
        client = controller.broker_outer_api.remoting_client
        assert (client.config.useTLS, client._ssl_context is not None) == (expected, expected)
        mode = TlsMode.ENFORCING if "enforcing" in options else TlsMode.DISABLED if "disabled" in options else \
            TlsMode.PERMISSIVE
        assert controller.remoting_server.tls.tls_mode is controller.fast_remoting_server.tls.tls_mode is mode
    finally:
        controller.shutdown()
