"""The console's API on a running cluster, and its answers to malformed requests and brokers' malformed responses."""
import json
import math
import socket
import threading
from contextlib import closing, contextmanager
from types import SimpleNamespace

import pytest
import uvicorn
from starlette.testclient import TestClient

from rmqha.common.message.message import MessageClientExt
from rmqha.remoting.protocol.fastjson import FastjsonError, loads
from rmqha.tools.admin.cluster_admin import Broker, ClusterAdmin
from rmqha.tools.console.access import Access, Role
from rmqha.tools.console.app import MAX_BODY_BYTES, PAGES, POLICY, _files, create_app, json_answer
from rmqha.tools.console.server import PatientProtocol
from rmqha.tools.console.source import Source, Wanted
from rmqha.tools.view.browse import Browser
from rmqha.tools.view.questions import Messages, Questions, ViewPoller
from rmqha.tools.view.snapshot import BrokerState, GroupState, History, QueuePlace, picture
from tests.support.wait import at_least, wait_until
from tests.tools.console.conftest import EVIL, GROUP, TOPIC
from tests.tools.pictures import MASTER, snapshot

pytest.importorskip("starlette", reason="the extra `console` is not installed")


TOKEN = "token-for-tests-only"
WRITE = {"X-Rmqha-Console": "1", "Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="module")
def source(orders):
    with Source(Wanted(orders.namesrv, interval_s=1.0, timeout_s=5.0)) as opened:
        wait_until(lambda: opened.poller.latest is not None, what="a picture")
        yield opened


@pytest.fixture
def client(source):
    """A client of a console that may change things."""
    return TestClient(create_app(source, Access(TOKEN, False, Role.ADMINISTER)), "http://127.0.0.1:8088")


def get(client, path, **query):
    answer = client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_cluster_is_returned_with_lag_and_history(client, orders):
    told = get(client, "/api/cluster")
    slave = told["replication"][0]["slaves"][0]
    assert (slave["address"], slave["state"], slave["in_sync"]) == (orders.cluster.slave.address, "TRANSFER", True)
    assert slave["lag_bytes"] == 0 and told["error"] == ""
    assert told["lines"]["lag"][orders.cluster.slave.address][-1] == 0
    assert "" in told["lines"]["in"] and "groups" not in told


def test_group_is_returned_with_queues_clients_and_backlog_over_time(client, source):
    wait_until(lambda: GROUP in {group["name"] for group in get(client, "/api/groups")["groups"]}, what="the group")
    wait_until(lambda: len(source.history.line("behind", GROUP)) > 1, what="a line")
    group = get(client, f"/api/groups/{GROUP}")
    assert sum(place["end"] for place in group["places"] if place["topic"] == TOPIC) == 3
    assert group["behind"] == 0 and group["delay_ms"] == 0 and group["clients_error"] == ""
    assert [each["language"] for each in group["clients"]["clients"]] == ["JAVA"]
    assert [TOPIC, "*"] in group["clients"]["subscriptions"]
    assert group["unread"] == 0 and group["warnings"] == []
    points = get(client, "/api/history", kind="behind", name=GROUP)["points"]
    assert len(points) > 1 and get(client, "/api/history", kind="behind", name=GROUP, minutes=1)["points"][-1] in points


def test_topics_are_returned_by_kind_and_one_with_its_queues(client):
    kinds = {topic["name"]: topic["kind"] for topic in get(client, "/api/topics")["topics"]}
    assert (kinds[TOPIC], kinds[f"%RETRY%{GROUP}"], kinds["SCHEDULE_TOPIC_XXXX"], kinds["broker-a"]) == (
        "user", "retry", "system", "system")
    topic = get(client, f"/api/topics/{TOPIC}")
    assert sum(queue["end"] for queue in topic["queues"]) == 3 and topic["groups"][0]["name"] == GROUP
    assert get(client, f"/api/topics/%25RETRY%25{GROUP}")["name"] == f"%RETRY%{GROUP}"


def test_store_is_returned(client, orders):
    brokers = {broker["address"]: broker for broker in get(client, "/api/store")["brokers"]}
    master = brokers[orders.cluster.master.address]
    assert master["max_offset"] == orders.cluster.master.store.get_max_phy_offset()
    assert master["segments"] == 1 and 0 < master["disk_used"] < 1 and master["disk_text"].startswith("Total")


def test_a_message_is_found_by_both_ids_and_by_key_with_a_safe_body(client, orders):
    evil, binary, text = orders.sent
    by_unique = get(client, "/api/messages", topic=TOPIC, id=evil.msg_id)["messages"]
    by_offset = get(client, "/api/messages", id=evil.offset_msg_id)["messages"]
    assert by_unique == by_offset and by_unique[0]["keys"] == "key-0 all"
    assert by_unique[0]["body"]["text"] == EVIL
    (found,) = get(client, "/api/messages", topic=TOPIC, key="key-1")["messages"]
    assert found["body"]["text"] is None and found["body"]["hex"].startswith("00000000  00 ff 00 ff")
    times = [each["storeTimestamp"] for each in get(client, "/api/messages", topic=TOPIC, key="all")["messages"]]
    assert len(times) == 3 and times == sorted(times, reverse=True)
    assert get(client, "/api/messages", topic=TOPIC, key="nothing")["messages"] == []
    assert get(client, "/api/messages", topic=TOPIC, id=text.msg_id)["messages"][0]["body"]["text"] == "tää" * 10


def test_id_never_leads_to_a_host_outside_the_cluster(client):
    elsewhere = "7F0000010000000100000000000000FF"  # 127.0.0.1:1
    answer = client.get("/api/messages", params={"id": elsewhere})
    assert answer.status_code == 400 and "not an offset id of a broker of this cluster" in answer.json()["error"]
    assert get(client, "/api/messages", id=elsewhere, topic=TOPIC)["messages"] == []
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        stranger.setblocking(False)
        there = f"7F000001{stranger.getsockname()[1]:08X}00000000000000FF"
        assert client.get("/api/messages", params={"id": there}).status_code == 400
        assert get(client, "/api/messages", id=there, topic=TOPIC)["messages"] == []
        with pytest.raises(BlockingIOError):
            stranger.accept()


def test_trace_includes_the_send_and_each_group(client, orders):
    told = get(client, "/api/trace", topic=TOPIC, id=orders.sent[0].msg_id)
    assert [(event["type"], event["group"], event["status"]) for event in told["events"]] == [
        ("Pub", "makers", "success")]
    assert [(track["group"], track["state"]) for track in told["tracks"]] == [(GROUP, "CONSUMED")]


@pytest.mark.parametrize(("path", "status", "wanted"), [
    ("/api/groups/nobody", 404, "group 'nobody' has no offsets yet"),
    ("/api/topics/nothing", 404, "No topic route info"),
    ("/api/messages", 400, "give a message id"),
    ("/api/messages?id=zz", 400, "give its topic too"),
    ("/api/trace", 400, "give a message id"),
    ("/api/trace?topic=Orders&id=AAAA", 404, "message 'AAAA' not found"),
    ("/api/history?kind=odd", 400, "kind must be one of in, out"),
    ("/api/odd", 404, "is not available here"),
    ("/odd", 404, "is not available here"),
    ("/static/../app.py", 404, "is not available here"),
])
def test_errors_have_a_status_and_a_reason(client, path, status, wanted):
    answer = client.get(path)
    assert answer.status_code == status and wanted in answer.json()["error"], answer.text


def test_pages_and_files_are_served_with_a_strict_policy(client):
    for path in [page.format(name="x") for page in PAGES] + ["/static/app.js", "/static/console.css"]:
        answer = client.get(path)
        assert answer.status_code == 200 and answer.headers["content-security-policy"] == POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert "unsafe" not in POLICY and "http" not in POLICY and "default-src 'none'" in POLICY
    assert "content-security-policy" in client.get("/", headers={"Host": "evil.example.org"}).headers


def test_no_file_refers_to_another_site_or_has_inline_code(client):
    for path in ("/", *(f"/static/{name}" for name in _files())):
        text = client.get(path).text.replace("http://www.w3.org/2000/svg", "")
        assert not [word for word in ("http://", "https://", "innerHTML", "outerHTML", "eval(") if word in text], path
    page = client.get("/").text
    assert " style=" not in page and " onclick=" not in page and "<script>" not in page


def test_reading_with_the_token_where_others_reach_it(source):
    far = TestClient(create_app(source, Access(TOKEN, True)), "http://10.1.2.3:8088")
    answer = far.get("/api/cluster")
    assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
    assert far.get("/api/cluster", headers=WRITE).status_code == 200
    assert far.get("/api/session").json()["namesrv"] is None
    assert far.post("/api/topics", headers=WRITE, json={"topic": "T9"}).status_code == 403


# ---- changes


def post(client, path, **body):
    answer = client.post(path, headers=WRITE, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_topic_is_created_altered_and_deleted(client, orders):
    configs = orders.cluster.master.controller.topic_config_manager
    assert post(client, "/api/topics", topic="Made", queues=3)["brokers"] == ["broker-a"]
    config = configs.select_topic_config("Made")
    assert (config.readQueueNums, config.writeQueueNums, config.perm) == (3, 3, 6)
    again = client.post("/api/topics", headers=WRITE, json={"topic": "Made"})
    assert again.status_code == 409 and "topic Made exists on broker-a" in again.json()["error"]
    post(client, "/api/topics/Made/alter", read_queues=5, perm="r")
    config = configs.select_topic_config("Made")
    assert (config.readQueueNums, config.writeQueueNums, config.perm) == (5, 3, 4)
    assert get(client, "/api/topics/Made/settings") == {"config": [
        {"broker": "broker-a", "read_queues": 5, "write_queues": 3, "perm": "R-", "order": False}], "differs": [],
        "errors": []}
    post(client, "/api/topics/Made/delete")
    assert configs.select_topic_config("Made") is None
    assert client.post("/api/topics", json={"topic": "Other"}).status_code == 403
    assert configs.select_topic_config("Other") is None


def test_lists_come_in_pages(client):
    every = get(client, "/api/topics", kind="all")
    assert every["total"] == len(every["topics"]) == sum(every["kinds"].values())
    parts = [get(client, "/api/topics", kind="all", offset=at, limit=3)["topics"] for at in range(0, every["total"], 3)]
    assert [row for part in parts for row in part] == every["topics"]
    assert [row["name"] for row in get(client, "/api/topics", kind="user", q="ORD")["topics"]] == [TOPIC]
    groups = get(client, "/api/groups", q=GROUP[:4])
    assert groups["total"] == 1 and groups["groups"][0]["name"] == GROUP
    assert get(client, "/api/search", q="rea")["groups"] == [GROUP]
    assert get(client, "/api/search", q=TOPIC.lower())["topics"][0] == TOPIC
    assert get(client, "/api/search", q="") == {"topics": [], "groups": [], "brokers": []}


def browsed(client, **query) -> list[dict]:
    rows, cursor = [], {}
    while True:
        page = get(client, f"/api/topics/{TOPIC}/messages", **query, **cursor)
        assert page["errors"] == []
        rows += page["rows"]
        if page["at_end"]:
            return rows
        cursor = {"cursor": page["cursor"]}


def test_messages_of_a_topic_are_browsed_filtered_and_followed(client, orders):
    oldest = browsed(client, begin="earliest", limit=1)
    assert [row["keys"][0] for row in oldest] == ["key-0", "key-1", "key-2"]
    assert [row["message_id"] for row in browsed(client, begin="latest", backwards=1)] == [
        row["message_id"] for row in reversed(oldest)]
    assert oldest[0]["text"] == EVIL and oldest[1]["text"] is None and oldest[1]["hex"].startswith("00000000  00 ff")
    assert [row["keys"][0] for row in browsed(client, key="key-2")] == ["key-2"]
    assert [row["keys"][0] for row in browsed(client, text="onerror")] == ["key-0"]
    assert browsed(client, tag="B") == [] and len(browsed(client, tag="A || B")) == 3
    assert browsed(client, time=oldest[2]["store_ms"] + 1) == []
    cursor = get(client, f"/api/topics/{TOPIC}/tail")["cursor"]
    sent = post(client, f"/api/topics/{TOPIC}/publish", body="followed", tags="A", keys="late", queue="broker-a:1",
                properties={"colour": "red"})
    assert (sent["status"], sent["broker"], sent["queue_id"]) == ("SEND_OK", "broker-a", 1)
    rows = wait_until(lambda: get(client, f"/api/topics/{TOPIC}/tail", cursor=cursor)["rows"], what="the new message")
    assert [(row["text"], row["properties"]["colour"], row["message_id"]) for row in rows] == [
        ("followed", "red", sent["id"])]
    body = client.get("/api/messages/download", params={"topic": TOPIC, "id": sent["id"]})
    assert body.content == b"followed" and "attachment" in body.headers["content-disposition"]
    offsets = orders.cluster.master.controller.consumer_offset_manager
    wait_until(lambda: sum(offsets.query_offset(GROUP, TOPIC, queue) for queue in range(2)) == 4, what="consumed")


def test_bytes_and_delayed_messages_are_published(client, orders):
    encoded = post(client, "/api/topics/Bytes/publish", body="AP8=", encoding="base64")
    assert client.get("/api/messages/download", params={"id": encoded["id"]}).content == b"\x00\xff"


def test_offsets_of_a_stopped_group_are_moved_after_a_dry_run(client, orders):
    offsets = orders.cluster.master.controller.consumer_offset_manager
    group_configs = orders.cluster.master.controller.subscription_group_manager
    group_configs.find_subscription_group_config("sleepers")  # creates it
    ends = sum(get(client, f"/api/topics/{TOPIC}")["queues"][queue]["end"] for queue in range(2))
    for to, wanted in (("latest", ends), ("earliest", 0), ("latest", ends), (1_600_000_000_000, 0)):
        before = [offsets.query_offset("sleepers", TOPIC, queue) for queue in range(2)]
        plan = post(client, "/api/groups/sleepers/seek", topic=TOPIC, to=to)
        assert plan["dry_run"] and sum(row["target"] for row in plan["plan"]) == wanted and not plan["online"]
        assert [offsets.query_offset("sleepers", TOPIC, queue) for queue in range(2)] == before
        done = post(client, "/api/groups/sleepers/seek", topic=TOPIC, to=to, dry_run=False)
        assert [row["error"] for row in done["plan"]] == ["", ""]
        assert sum(offsets.query_offset("sleepers", TOPIC, queue) for queue in range(2)) == wanted
    post(client, "/api/groups/sleepers/seek", topic=TOPIC, to={"offset": 1, "queue": "broker-a:1"}, dry_run=False)
    assert offsets.query_offset("sleepers", TOPIC, 1) == 1
    # The other tests expect one group for the topic.
    post(client, "/api/groups/sleepers/delete")
    assert f"{TOPIC}@sleepers" not in offsets.offset_table


def test_offsets_of_a_running_group_are_moved_through_its_clients(client, orders):
    done = post(client, f"/api/groups/{GROUP}/seek", topic=TOPIC, to="latest", dry_run=False)
    assert done["online"] and [row["error"] for row in done["plan"]] == ["", ""]


def test_group_is_paused_and_resumed(client, orders):
    for what, wanted in (("pause", False), ("resume", True)):
        post(client, f"/api/groups/{GROUP}/{what}")
        settings = get(client, f"/api/groups/{GROUP}/settings")
        assert [row["consume_enable"] for row in settings["config"]] == [wanted] and settings["differs"] == []


def test_setting_is_changed_and_differences_are_shown(client, orders):
    config = get(client, "/api/brokers/broker-a/config")
    assert {broker["broker_id"] for broker in config["brokers"]} == {0, 1}
    (before,) = [row for row in config["rows"] if row["key"] == "fetchNameServerAddrInterval"] or [None]
    assert before is None or not before["differs"]
    master = orders.cluster.master.address
    (row,) = [row for row in config["rows"] if row["key"] == "waitTimeMillsInSendQueue"]
    assert row["values"][master] and row["meaning"]
    planned = post(client, "/api/brokers/broker-a/config", key="waitTimeMillsInSendQueue", value="321", dry_run=True)
    assert {each["after"] for each in planned["results"]} == {"321"}
    assert row["values"] == {each["address"]: each["before"] for each in planned["results"]}
    for value in ("321", row["values"][master]):
        done = post(client, "/api/brokers/broker-a/config", key="waitTimeMillsInSendQueue", value=value)
        assert {each["after"] for each in done["results"]} == {value}
    fixed = client.post("/api/brokers/broker-a/config", headers=WRITE, json={"key": "listenPort", "value": "1"})
    assert fixed.status_code == 502 and "can't be changed while a broker runs" in fixed.json()["error"]
    assert "rows" in get(client, "/api/config/diff")


def test_accounts_of_a_cluster_without_access_control(client):
    assert get(client, "/api/accounts") == {"accounts": [], "white_addresses": [], "errors": [], "enabled": False}
    found = get(client, "/api/accounts/check", account="anyone", topic=TOPIC, permission="PUB")
    assert found["allowed"] is True and "access control is off" in found["because"]


def test_write_permission_is_removed_and_restored(client, orders):
    for allow, wanted in ((False, 4), (True, 6)):
        answer = client.post("/api/brokers/broker-a/write-permission", headers=WRITE, json={"allow": allow})
        assert answer.status_code == 200 and answer.json()["topics"] > 0
        route = orders.admin.examine_topic_route_info(TOPIC)
        assert {queue.perm for queue in route.queueDatas} == {wanted}


@pytest.mark.parametrize(("path", "body", "status", "wanted"), [
    ("/api/topics", {}, 400, "topic: a text"),
    ("/api/topics", {"topic": "no blanks"}, 502, "is not a valid topic name"),
    ("/api/topics", {"topic": "X", "perm": "x"}, 400, "perm must be rw, r or w"),
    ("/api/topics/T/publish", {"body": ""}, 400, "the body is empty"),
    ("/api/topics/T/publish", {"body": "?", "encoding": "base64"}, 400, "the body is not Base64"),
    ("/api/topics/T/publish", {"body": "x", "properties": {"KEYS": "k"}}, 400, "KEYS"),
    ("/api/topics/T/publish", {"body": "x", "queue": "broker-a"}, 400, "is not a queue such as broker-a:0"),
    ("/api/topics/T/publish", {"body": "x", "delay_level": 19}, 400, "delay_level must be 0 to 18"),
    ("/api/dead-letters/nobody/resend", {"all": True}, 502, "nobody"),
    ("/api/dead-letters/g/resend", {"ids": []}, 400, "ids must be a list"),
    ("/api/brokers/broker-a/config", {"key": "nonsense", "value": "1"}, 502, "unknown config key"),
    ("/api/accounts", {"access_key": "a"}, 400, "secret_key: a text"),
    ("/api/session", {"access_key": "a", "secret_key": "b"}, 400, "this console has no accounts"),
    ("/api/topics", {"topic": "X", "queues": 0}, 400, "queues must be 1 to 1024"),
    ("/api/topics", {"topic": "X", "queues": True}, 400, "queues must be 1 to 1024"),
    ("/api/groups/g/seek", {"topic": TOPIC, "to": "yesterday"}, 400, "to must be"),
    ("/api/groups/g/seek", {"topic": TOPIC, "to": True}, 400, "to must be"),
    ("/api/groups/g/seek", {"to": 1}, 400, "topic: a text"),
    ("/api/groups/nobody/seek", {"topic": TOPIC, "to": "latest"}, 502, "no group 'nobody'"),
    ("/api/brokers/nobody/write-permission", {"allow": True}, 404, "unknown broker 'nobody'"),
    ("/api/brokers/broker-a/write-permission", {"allow": "no"}, 400, "allow must be true or false"),
])
def test_invalid_change_is_refused_with_the_reason(client, path, body, status, wanted):
    answer = client.post(path, headers=WRITE, json=body)
    assert answer.status_code == status and wanted in answer.json()["error"], answer.text


@pytest.mark.parametrize(("body", "status"), [
    (b"{", 400), (b"[]", 400), (b"", 400), (b" " * (MAX_BODY_BYTES + 1), 413)])
def test_body_that_is_not_an_object_is_refused(client, body, status):
    headers = {**WRITE, "Content-Type": "application/json"}
    assert client.post("/api/topics", headers=headers, content=body).status_code == status


# The console with malformed requests, and with malformed responses of brokers: never an internal error.


TOKEN = "token-for-tests-only"
HOSTILE_WRITE = {"X-Rmqha-Console": "1", "Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
DEEP = "[" * 30_000
READS = ("/api/session", "/api/cluster", "/api/groups", "/api/groups/readers", "/api/topics", "/api/topics/T",
         "/api/store", "/api/history?kind=in", "/api/messages?topic=T&key=k", "/api/messages?topic=T&id=x",
         "/api/trace?topic=T&id=x", "/api/topics/T/messages", "/api/topics/T/tail", "/api/topics/T/settings",
         "/api/groups/readers/settings", "/api/dead-letters", "/api/dead-letters/readers", "/api/config/diff",
         "/api/brokers/broker-a/config", "/api/accounts", "/api/accounts/check?account=a&topic=T&permission=PUB",
         "/api/search?q=b", "/api/messages/download?topic=T&id=x")
WRITES = ("/api/topics", "/api/topics/T/alter", "/api/topics/T/publish", "/api/groups/readers/seek",
          "/api/dead-letters/readers/resend", "/api/brokers/broker-a/write-permission", "/api/brokers/broker-a/config",
          "/api/accounts")
FAULTS = (FastjsonError("more than 512 levels", 0), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "odd"),
          ValueError("\ud800"))


class Admin:
    """An admin client that gives the same answer to every request: an error, or a list of messages."""

    timeout_millis = 1000

    asked = ClusterAdmin.asked
    namesrv_addr = "n:1"

    def __init__(self, answer):
        self.answer = answer
        self.api = self.mq_admin = self.remoting_client = self
        self.channel_tables = {}

    def __getattr__(self, _name):
        def ask(*_arguments, **_more):
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer
        return ask


def client_of(now, admin_answer=()):
    history, admin = History(), Admin(admin_answer)
    made = picture(now, None, None)
    history.add(made)
    questions = Questions(admin)
    broker = Broker("C", "broker-a", 0, "10.0.0.1:10911")
    source = SimpleNamespace(wanted=SimpleNamespace(namesrv="n:1"), poller=SimpleNamespace(interval_s=1.0, error=""),
                             history=history, picture=lambda: made, questions=questions, messages=Messages(questions),
                             admin=admin, producer=admin, browser=Browser(admin), masters=lambda: [broker],
                             brokers=lambda name=None: [broker])
    source.dead_letter_counts = lambda: Source.dead_letter_counts(source)
    return TestClient(create_app(source, Access(TOKEN, False, Role.ADMINISTER)), "http://127.0.0.1:8088",
                      raise_server_exceptions=False)


def odd_snapshot():
    odd = BrokerState("C\ud800", "broker-\ud800", "o:1", 0, latency_99="\ud800 nan")
    group = GroupState("readers", (QueuePlace("T\ud800", "b", 0, 1 << 62, 1, (1 << 63) - 1),))
    return snapshot(brokers=(MASTER, odd), groups=(group,))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault).__name__)
def test_unreadable_response_of_a_broker_is_a_bad_gateway(fault):
    client = client_of(odd_snapshot(), fault)
    codes = {path: client.get(path).status_code for path in READS}
    assert set(codes.values()) <= {200, 502}, codes
    assert codes["/api/topics"] == codes["/api/messages?topic=T&key=k"] == 502 and codes["/api/cluster"] == 200
    assert "malformed answer" in client.get("/api/topics").json()["error"]
    assert client.get("/api/groups/readers").json()["clients_error"]


ODD_PATHS = ("/api/topics/%FF%00", f"/api/groups/{DEEP[:5000]}", f"/api/messages?topic=T&key={DEEP[:5000]}",
             "/api/messages?topic=%ED%A0%80&id=%FF", f"/api/history?kind={DEEP[:5000]}",
             "/api/trace?id=%00&topic=%5B%5B", f"/api/topics/T/messages?cursor={DEEP[:5000]}",
             "/api/topics/T/messages?cursor={%22queues%22:{%22b%22:{%220%22:1e999}}}", "/api/topics/T/tail?queue=:-1",
             "/api/topics/T/messages?offset=99999999999999999999", "/api/topics?limit=-1",
             "/api/history?kind=in&minutes=x", "/api/topics/T/messages?sql=%28%28%28",
             "/api/accounts/check?account=%00&group=%FF&permission=SUB")


@pytest.mark.parametrize(("where", "header"), [
    *((path, "") for path in (*READS, *ODD_PATHS)),
    *(("/api/cluster", header) for header in (DEEP[:5000], "\xff", '{"a":' * 500, "Bearer \xff", "Bearer "))])
def test_odd_parameters_and_headers_cause_no_internal_error(where, header):
    client = client_of(odd_snapshot(), FAULTS[0])
    answer = client.get(where, headers={"X-Odd": header.encode("latin-1"), "Authorization": header.encode("latin-1")})
    assert answer.status_code in (200, 400, 401, 404, 502), answer.text
    answer.json()


@pytest.mark.parametrize("path", WRITES)
@pytest.mark.parametrize("body", [DEEP, '{"a":' * 12_000, "NaN", '{"to": NaN, "topic": "T"}', '{"topic": "\\ud800"}',
                                  '{"topic": "T", "to": 1e999}', '{"topic": "T", "to": %s}' % ("9" * 5000),
                                  '{"topic": "T", "to": %s}' % ("9" * 400), '{"topic": "T", "queues": -1, "to": -2}',
                                  "[]", "\xff", "", '{"topic": [[[]]], "to": [[[]]], "allow": [[[]]]}'])
def test_odd_bodies_are_refused(path, body):
    answer = client_of(odd_snapshot(), FAULTS[0]).post(path, content=body.encode("latin-1"), headers=HOSTILE_WRITE)
    assert answer.status_code in (400, 502) and answer.json()["error"], answer.text


def test_message_with_any_time_has_a_page():
    message = MessageClientExt("T", b"x")
    message.born_timestamp, message.store_timestamp, message.offset_msg_id = 1_764_000_000 * 10**9, -(1 << 63), "00"
    message.born_host = message.store_host = ("127.0.0.1", 1)
    admin = SimpleNamespace(message_list=[message])
    (found,) = client_of(odd_snapshot(), admin).get("/api/messages?topic=T&key=k").json()["messages"]
    assert found["bornTimestamp"] == message.born_timestamp


def test_fastjson_of_brokers_refuses_deep_nesting_without_a_recursion_error():
    for text in (DEEP, '{"a":' * 30_000, "[" * 3000 + "]" * 3000):
        with pytest.raises(FastjsonError):
            loads(text)


def test_failed_round_is_reported_and_the_next_one_is_shown():
    rounds = iter([ZeroDivisionError("odd"), OverflowError("nan"), snapshot()])

    def collect():
        what = next(rounds)
        if isinstance(what, Exception):
            raise what
        return what
    poller = ViewPoller(SimpleNamespace(collect=collect), History(), 1.0)
    for expected in ("odd", "nan"):
        poller._round()
        assert expected in poller.error and poller.latest is None
    poller._round()
    assert poller.error == "" and poller.latest is not None


def test_values_without_a_json_form_are_never_sent():
    with pytest.raises(ValueError):
        json_answer({"value": math.nan})
    assert json.loads(json_answer({"value": "\ud800ä"}).body) == {"value": "\ud800ä"}


# ---- incomplete requests


@contextmanager
def server(request_s, monkeypatch):
    """Yield the port of a console whose requests have to arrive within `request_s`."""
    monkeypatch.setattr(PatientProtocol, "request_s", request_s)
    app = client_of(odd_snapshot()).app
    config = uvicorn.Config(app, log_config=None, ws="none", lifespan="off", http=PatientProtocol,
                            timeout_graceful_shutdown=1)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        running = uvicorn.Server(config)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            running.should_exit = True
            thread.join(240)


HEAD = (f"POST /api/topics HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Rmqha-Console: 1\r\nAuthorization: Bearer {TOKEN}\r\n"
        "Content-Type: application/json\r\nContent-Length: 500\r\n\r\n").encode()


@pytest.mark.parametrize("begin, more", [(b"", b""), (b"GET / HTTP/1.1\r\nHost: x\r\n", b""),
                                         (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n", b"X: y\r\n"), (HEAD, b""),
                                         (HEAD, b" ")])
def test_incomplete_request_is_ended_even_if_it_trickles(begin, more, monkeypatch):
    with server(0.5, monkeypatch) as port, closing(socket.create_connection(("127.0.0.1", port), 60)) as connection:
        connection.sendall(begin)
        connection.settimeout(0.1)
        got, rounds = b"", 0
        while True:
            try:
                part = connection.recv(4096)
            except TimeoutError:
                rounds += 1
                assert rounds < 600, "the connection is still open after a minute"
                if more:
                    connection.sendall(more)
                continue
            except ConnectionError:
                break
            if not part:
                break
            got += part
    assert not got or b" 408 " in got.split(b"\r\n")[0]


def test_complete_requests_are_served_in_order_however_long_the_connection_lasts(monkeypatch):
    request = b"GET /api/session HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with server(8.0, monkeypatch) as port, closing(socket.create_connection(("127.0.0.1", port), 60)) as connection:
        for _ in range(8):  # 9 s in all
            connection.sendall(request[:20])
            at_least(1.1)
            connection.sendall(request[20:])
            got = b""
            while b'"namesrv":"n:1"' not in got:
                part = connection.recv(4096)
                assert part, got
                got += part
            assert got.startswith(b"HTTP/1.1 200")
