"""Sub-commands about messages and consumers on a running cluster: rows as JSON, endless commands, the monitor."""
import json
import os
import signal
import subprocess
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import pytest

from rmqha.client.consumer.default_mq_push_consumer import DefaultMQPushConsumer
from rmqha.client.consumer.listeners import ConsumeConcurrentlyStatus
from rmqha.client.producer.default_mq_producer import DefaultMQProducer
from rmqha.common.message.message import Message, MessageExt, MessageQueue
from rmqha.common.protocol import request_code
from rmqha.common.protocol.client_bodies import OffsetMovedEvent
from rmqha.common.subscriptions import ConsumeFromWhere
from rmqha.remoting.protocol import remoting_serializable
from rmqha.tools.admin.default_mq_admin_ext import DefaultMQAdminExt
from rmqha.tools.command import commons_cli, message_query
from rmqha.tools.command.consumer import StartMonitoringSubCommand
from rmqha.tools.command.message_send import CLusterSendMsgRTCommand
from rmqha.tools.command.mq_admin_startup import main0
from rmqha.tools.command.sub_command import Row
from rmqha.tools.monitor import DefaultMonitorListener, MonitorConfig, MonitorService
from tests.support import patience, start_as
from tests.support.in_process import running_name_server
from tests.support.raw_remoting import RawClient
from tests.support.wait import wait_until
from tests.tools.conftest import broker_at

ROOT = Path(__file__).resolve().parents[3]
TOPIC, GROUP, MESSAGES = "Orders", "readers", 6


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """The name server and broker addresses of a cluster with messages, a consumer of them and a producer."""
    folder = tmp_path_factory.mktemp("asked")
    with ExitStack() as stack:
        namesrv = stack.enter_context(running_name_server(folder))
        broker = stack.enter_context(broker_at(folder / "broker", namesrv, brokerClusterName="C"))
        producer = stack.enter_context(DefaultMQProducer("makers", namesrv))
        main0(["updateTopic", "-n", namesrv, "-b", broker.address, "-t", TOPIC, "-r", "2", "-w", "2"])
        wait_until(lambda: broker.controller.topic_config_manager.select_topic_config(TOPIC) is not None, 60_000)
        wait_until(lambda: routed(namesrv), 60_000, "a route")
        for number in range(MESSAGES):
            msg = Message(TOPIC, b"order %d" % number, tags="TagA" if number % 2 else "TagB", keys=f"k{number}")
            producer.send(msg, queue=MessageQueue(TOPIC, "broker-a", number % 2))
        producer.default_mq_producer_impl.mq_client_factory.send_heartbeat_to_all_broker_with_lock(wait=True)
        seen = []

        def listen(messages):
            seen.extend(messages)
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS
        consumer = DefaultMQPushConsumer(GROUP, namesrv, listen)
        consumer.consume_from_where = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        consumer.subscribe(TOPIC, "TagA")
        stack.enter_context(consumer)
        wait_until(lambda: len(seen) == MESSAGES // 2, 60_000, "what the group wants")
        wait_until(lambda: stored_offsets(consumer, broker) == [3, 3], 60_000, "the group's offsets at the broker")
        yield namesrv, broker.address


def stored_offsets(consumer, broker):
    """Return the group's offset in each queue, once its consumer has reported them to the broker."""
    consumer.default_mq_push_consumer_impl.persist_consumer_offset()
    offsets = broker.controller.consumer_offset_manager
    return [offsets.query_offset(GROUP, TOPIC, queue_id) for queue_id in range(2)]


def routed(namesrv):
    admin = DefaultMQAdminExt(namesrv)
    try:
        return TOPIC in admin.fetch_all_topic_list().topicList
    finally:
        admin.shutdown()


@pytest.fixture(autouse=True)
def bodies(tmp_path, monkeypatch):
    """Write message bodies to a folder of the test: RocketMQ's belongs to the first user who printed one."""
    monkeypatch.setattr(message_query, "BODY_FOLDER", tmp_path / "bodies")


@pytest.fixture
def rows(asked, capsys):
    """rows(line) -> the objects that a command prints with --output json; {n} and {b} as in `asked`."""
    def ask(line, **names):
        args = line.format(n=asked[0], b=asked[1], **names).split()
        assert main0([*args, "--output", "json"]) == 0, capsys.readouterr().err
        return [json.loads(each) for each in capsys.readouterr().out.splitlines()]
    return ask


def test_a_message_is_found_by_key_by_offset_and_by_both_ids(rows):
    by_key = wait_for(lambda: rows("queryMsgByKey -n {n} -t Orders -k k3"))
    assert [(row["queueId"], row["queueOffset"]) for row in by_key] == [(1, 1)]
    by_offset = rows("queryMsgByOffset -n {n} -t Orders -b broker-a -i 1 -o 1")[0]
    assert by_offset["msgId"] == by_key[0]["msgId"] and by_offset["keys"] == "k3"
    by_id = rows("queryMsgById -n {n} -i {id}", id=by_offset["offsetMsgId"])[0]
    by_unique_key = rows("queryMsgByUniqueKey -n {n} -t Orders -i {id}", id=by_offset["msgId"])[0]
    assert by_id == by_unique_key
    assert Path(by_id["bodyPath"]).read_bytes() == b"order 3"


def wait_for(ask):
    """Return the result of `ask` once it is not empty; until then it may fail."""
    found = []

    def answered():
        try:
            found[:] = ask()
        except AssertionError:
            return False
        return bool(found)
    wait_until(answered, 60_000)
    return found


def test_message_before_the_groups_offset_is_consumed_or_filtered(rows):
    def tracks(offset, queue):
        found = rows(f"queryMsgByOffset -n {{n}} -t Orders -b broker-a -i {queue} -o {offset}")
        return [row["trackType"] for row in found if row.get("consumerGroup") == GROUP]
    assert tracks(1, 1) == ["CONSUMED"]
    assert tracks(0, 0) == ["CONSUMED_BUT_FILTERED"]


def test_printed_messages_are_objects_with_their_bodies(rows):
    printed = rows("printMsg -n {n} -t Orders")
    assert sorted(row["body"] for row in printed) == [f"order {number}" for number in range(MESSAGES)]
    tagged = rows("printMsgByQueue -n {n} -t Orders -a broker-a -i 0 -p true -f true -s TagB")
    assert [row.get("keys") for row in tagged] == ["k0", "k2", "k4", None]
    assert tagged[-1] == {"tag": "TagB", "count": 3} and "body" not in tagged[0]
    assert [row["keys"] for row in rows("consumeMessage -n {n} -t Orders -b broker-a -i 1 -c 2 -o 0")
            ] == ["k1", "k3"]


def test_sends_print_the_queue_of_each_message(rows):
    (sent,) = rows("sendMessage -n {n} -t broker-a -p text -b broker-a -i 0")
    assert (sent["brokerName"], sent["queueId"], sent["sendStatus"]) == ("broker-a", 0, "SEND_OK")
    *sends, average = rows("checkMsgSendRT -n {n} -t broker-a -a 3")
    assert [send["sendResult"] for send in sends] == [True] * 3 and average["avgRt"] >= 0
    assert [row["sendStatus"] for row in rows("sendMsgStatus -n {n} -b broker-a -c 2")] == ["SEND_OK"] * 2


def test_consumer_reports_its_state_and_consumes_a_message_on_demand(rows, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    client, *subscriptions, kinds = rows("consumerConnection -n {n} -g readers")
    assert {each["topic"]: each["subExpression"] for each in subscriptions} == {TOPIC: "TagA", "%RETRY%readers": "*"}
    assert kinds == {"consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
                     "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET"}
    one, findings = rows("consumerStatus -n {n} -g readers -b {b} -s")
    assert one["clientId"] == client["clientId"] and findings == {
        "sameSubscription": True, "rebalance": True, "stuck": []}
    text = (tmp_path / one["consumerRunningInfoFile"]).read_text("utf-8")
    assert "#Consumer jstack#" in text and "STATE: UNKNOWN" in text
    (info,) = rows("consumerStatus -n {n} -g readers -i {client}", client=client["clientId"])
    assert info["properties"]["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY" and "jstack" not in info
    msg = rows("queryMsgByOffset -n {n} -t Orders -b broker-a -i 1 -o 0")[0]
    (result,) = rows("queryMsgById -n {n} -i {id} -g readers -d {client}", id=msg["offsetMsgId"],
                     client=client["clientId"])
    assert result["consumeResult"] == "CR_SUCCESS"


def test_progress_counts_remaining_messages_and_names_each_queues_client(rows):
    *queues, total = rows("consumerProgress -n {n} -g readers -s true")
    assert total["diffTotal"] == 0
    assert {(row["queueId"], row["diff"]) for row in queues if row["topic"] == TOPIC} == {(0, 0), (1, 0)}
    assert all("." in row["clientIp"] or ":" in row["clientIp"] for row in queues if row["topic"] == TOPIC)
    groups = {row["group"]: row for row in rows("consumerProgress -n {n}")}
    assert (groups[GROUP]["count"], groups[GROUP]["type"], groups[GROUP]["model"]) == (1, "PUSH", "CLUSTERING")


def test_groups_are_created_shown_and_deleted(rows, asked):
    assert rows("updateSubGroup -n {n} -c C -g mine -r 3")[0]["retryMaxTimes"] == 3
    (config,) = rows("getConsumerConfig -n {n} -g mine")
    assert (config["clusterName"], config["brokerName"], config["retryMaxTimes"]) == ("C", "broker-a", 3)
    assert rows("deleteSubGroup -n {n} -b {b} -g mine -r true") == []
    assert rows("getConsumerConfig -n {n} -g mine") == []


def test_producers_are_listed_by_group(rows):
    assert "makers" in {row["group"] for row in rows("producer -n {n} -b {b}")}
    (one,) = rows("producerConnection -n {n} -g makers -t Orders")
    assert (one["index"], one["version"]) == (1, "V4_9_8")


def test_units_of_a_queue_and_shares_of_a_topic_are_documents(rows):
    bounds, *units = rows("queryCq -n {n} -t Orders -q 0 -i 1 -c 2")
    assert bounds == {"maxQueueIndex": 3, "minQueueIndex": 0} and [unit["index"] for unit in units] == [1, 2]
    subscription = rows("queryCq -n {n} -t Orders -q 0 -i 0 -c 1 -g readers")[0]
    assert subscription["subscriptionData"]["subString"] == "TagA"
    (shares,) = rows("allocateMQ -n {n} -t Orders -i 1,2")
    assert sorted(len(queues) for queues in shares["result"].values()) == [1, 1]


def test_failures_have_an_exit_code_with_json_and_none_without(asked, capsys):
    for args, code in (([], 0), (["--json"], 1)):
        assert main0(["queryMsgByKey", "-n", asked[0], "-t", "Nowhere", "-k", "k", *args]) == code
        assert "The topic[Nowhere] not matched route info" in capsys.readouterr().err


def executed(command, namesrv, *args):
    """Return the parts that a command yields."""
    admin = DefaultMQAdminExt(namesrv)
    try:
        yield from command.execute(commons_cli.parse(command.options_to_parse(), args), admin)
    finally:
        admin.shutdown()


def test_response_times_of_a_cluster_are_printed_every_round(asked):
    parts = executed(CLusterSendMsgRTCommand(), asked[0], "-a", "2", "-i", "0")
    rounds = list(islice((part for part in parts if isinstance(part, Row)), 2))
    parts.close()
    assert [(row.fields["clusterName"], row.fields["brokerName"], row.fields["successCount"]) for row in rounds
            ] == [("C", "broker-a", 2)] * 2
    as_log = executed(CLusterSendMsgRTCommand(), asked[0], "-a", "2", "-p", "true", "-m", "room")
    assert next(as_log).text.split("|")[1:4] == ["room", "C", "broker-a"]
    as_log.close()
    assert "".join(part for part in executed(CLusterSendMsgRTCommand(), asked[0], "-c", "none") if isinstance(part, str)
                   ) == "cluster [none] not exist"


class Recorder(DefaultMonitorListener):
    """Records its calls."""

    def __init__(self):
        self.heard = []

    def begin_round(self):
        self.heard.append("begin")

    def report_undone_msgs(self, undone_msgs):
        self.heard.append(str(undone_msgs))

    def report_delete_msgs_event(self, delete_msgs_event):
        self.heard.append(str(delete_msgs_event))

    def report_consumer_running_info(self, cri_table):
        super().report_consumer_running_info(cri_table)
        self.heard.append(sorted(info.properties["consumerGroup"] for info in cri_table.values()))

    def end_round(self):
        self.heard.append("end")


def test_monitor_reports_the_lag_of_groups_and_lost_messages(asked):
    listener = Recorder()
    service = MonitorService(MonitorConfig(asked[0]), listener)
    service.start()
    try:
        service.do_monitor_work()
        assert (listener.heard[0], listener.heard[-1]) == ("begin", "end")
        assert [GROUP] in listener.heard
        assert any(f"consumerGroup={GROUP}, topic={TOPIC}, undoneMsgsTotal=" in str(each) for each in listener.heard)
        listener.heard.clear()
        event, broken = MessageExt("OFFSET_MOVED_EVENT"), MessageExt("OFFSET_MOVED_EVENT", b"{")
        event.body = remoting_serializable.encode(OffsetMovedEvent("g", MessageQueue("T", "b", 1), 5, 9))
        event.store_timestamp = 17
        assert service.take_event([broken, event]) is ConsumeConcurrentlyStatus.CONSUME_SUCCESS
        assert listener.heard == [
            "DeleteMsgsEvent [offsetMovedEvent=OffsetMovedEvent [consumerGroup=g, messageQueue=MessageQueue [topic=T, "
            "brokerName=b, queueId=1], offsetRequest=5, offsetNew=9], eventTimestamp=17]"]
    finally:
        service.shutdown()
        service.shutdown()


def test_monitoring_ends_on_an_interrupt(asked, tmp_path):
    process = subprocess.Popen(
        start_as.command(patience.command(["-m", "rmqha.tools.command.mq_admin_startup", "startMonitoring", "-n",
                                           asked[0]]), ctrl_c=True),
        cwd=ROOT, env={**os.environ, "HOME": str(tmp_path)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        with RawClient(asked[1]) as client:
            code, group = request_code.GET_CONSUMER_CONNECTION_LIST, "__MONITOR_CONSUMER"
            wait_until(lambda: client.request(code, consumerGroup=group).code == 0, 60_000, "the monitor at work")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=600)
    finally:
        process.kill()
    assert (process.returncode, errors) == (130, "")


def test_monitoring_ends_on_request(asked):
    command = StartMonitoringSubCommand()
    command.end()
    assert list(executed(command, asked[0])) == []
