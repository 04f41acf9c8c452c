"""The console's API on a running cluster, and its answers to malformed requests and brokers' malformed responses."""
import json
import logging
import math
import re
import socket
import threading
import urllib.request
from contextlib import closing, contextmanager
from types import SimpleNamespace

import pytest
import uvicorn
from starlette.testclient import TestClient

from rmqha.common.message import message_decoder
from rmqha.common.message.message import MessageClientExt
from rmqha.common.protocol import request_code
from rmqha.common.protocol.client_headers import ConsumerSendMsgBackRequestHeader
from rmqha.remoting.protocol.fastjson import FastjsonError, loads
from rmqha.tools.admin.cluster_admin import Broker, ClusterAdmin
from rmqha.tools.console import journal
from rmqha.tools.console.access import Access, Role, SignIn
from rmqha.tools.console.app import MAX_BODY_BYTES, PAGES, POLICY, _files, create_app, json_answer
from rmqha.tools.console.reads import Api
from rmqha.tools.console.server import PatientProtocol
from rmqha.tools.console.source import Source, Wanted
from rmqha.tools.view.browse import Browser
from rmqha.tools.view.questions import Messages, Questions, ViewPoller
from rmqha.tools.view.snapshot import BrokerState, GroupState, History, QueuePlace, picture
from tests.support.wait import at_least, wait_until
from tests.tools.console.conftest import EVIL, GROUP, TOPIC
from tests.tools.console.test_browser import TOKEN as CONSOLE_TOKEN
from tests.tools.console.test_browser import start
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
    wait_until(lambda: get(client, f"/api/groups/{GROUP}")["state"] == "running", what="the state")
    points = get(client, "/api/history", kind="behind", name=GROUP)["points"]
    assert len(points) > 1 and get(client, "/api/history", kind="behind", name=GROUP, minutes=1)["points"][-1] in points


def test_topics_are_returned_by_kind_and_one_with_its_queues(client):
    kinds = {topic["name"]: topic["kind"] for topic in get(client, "/api/topics")["topics"]}
    assert (kinds[TOPIC], kinds[f"%RETRY%{GROUP}"], kinds["SCHEDULE_TOPIC_XXXX"], kinds["broker-a"]) == (
        "user", "retry", "system", "system")
    topic = get(client, f"/api/topics/{TOPIC}")
    assert sum(queue["end"] for queue in topic["queues"]) == 3 and topic["groups"][0]["name"] == GROUP
    assert topic["kind"] == "user"
    retry = get(client, f"/api/topics/%25RETRY%25{GROUP}")
    assert (retry["name"], retry["kind"]) == (f"%RETRY%{GROUP}", "retry")


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
    assert "UNIQ_KEY" in by_unique[0]["properties"] and by_unique[0]["userProperties"] == {}
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


def test_answers_count_in_words_and_say_when_nothing_changed(client, orders):
    assert post(client, "/api/topics", topic="Single", queues=1)["done"] == "topic Single created with 1 queue"
    alter, answer = "/api/topics/Single/alter", {"read_queues": 2, "perm": "rw"}
    assert post(client, alter, **answer)["done"] == "topic Single changed on 1 broker"
    assert post(client, alter, **answer)["done"] == "nothing changed: topic Single has these settings already"
    assert post(client, alter, queues=3)["done"] == "topic Single changed on 1 broker"
    (config,) = get(client, "/api/topics/Single/settings")["config"]
    assert (config["read_queues"], config["write_queues"]) == (3, 3)
    post(client, "/api/topics/Single/delete")
    assert post(client, f"/api/groups/{GROUP}/resume")["done"] == f"nothing changed: group {GROUP} is not paused"


def bury(orders, group: str, key: str) -> None:
    """Make a dead letter of a group: send a message, and send it back as a consumer that gives up."""
    master = orders.cluster.master
    sent = master.send("Buried", b"body", properties={"KEYS": key})
    offset = message_decoder.decode_message_id(sent.ext_fields["msgId"]).offset
    header = ConsumerSendMsgBackRequestHeader(offset=offset, group=group, delayLevel=-1)
    assert master.call(request_code.CONSUMER_SEND_MSG_BACK, header).code == 0
    master.next_offset(f"%DLQ%{group}")


def test_dead_letters_that_were_sent_again_are_counted_and_not_sent_twice(client, source, orders, lines):
    resend, page = "/api/dead-letters/buriers/resend", "/api/dead-letters/buriers"
    for number in range(3):
        bury(orders, "buriers", f"key-{number}")
    found = get(client, page)
    assert (found["count"], found["new"], len(found["rows"])) == (3, 3, 3)
    assert post(client, resend, new=True, dry_run=True) == {"count": 3, "sent_before": 0, "errors": []}
    done = post(client, resend, new=True)
    assert (done["sent"], done["failed"], done["done"]) == (3, 0, "3 dead letters of buriers sent again")
    assert post(client, resend, new=True)["sent"] == 0
    bury(orders, "buriers", "key-3")
    source.questions.answers.forget()
    (row,) = get(client, "/api/dead-letters")["groups"]
    assert (row["group"], row["count"], row["new"]) == ("buriers", 4, 1)
    assert post(client, resend, all=True, dry_run=True) == {"count": 4, "sent_before": 3, "errors": []}
    newest, *_others, oldest = (row["message_id"] for row in found["rows"])
    told = post(client, resend, ids=[newest, oldest, "none"], dry_run=True)
    assert (told["count"], told["sent_before"], told["unknown"]) == (2, 2, ["none"])
    done = post(client, resend, ids=[oldest, "none"])
    assert (done["sent"], done["failed"], done["done"]) == (1, 1, "1 dead letter of buriers sent again")
    assert post(client, resend, all=True)["sent"] == 4
    assert (get(client, page)["count"], get(client, page)["new"]) == (4, 0)
    assert lines == [f"console: token from testclient: send {what} of buriers again to its retry topic: {outcome}"
                     for what, outcome in (("new dead letters", "3 sent, 0 failed"),
                                           ("new dead letters", "0 sent, 0 failed"),
                                           ("2 chosen dead letters", "1 sent, 1 failed"),
                                           ("all dead letters", "4 sent, 0 failed"))]


# ---- the log


@pytest.fixture
def lines():
    """The lines of the console's log."""
    found: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: found.append(record.getMessage())
    level = journal.log.level
    journal.log.addHandler(handler)
    journal.log.setLevel(logging.INFO)
    yield found
    journal.log.removeHandler(handler)
    journal.log.setLevel(level)


def test_each_change_is_logged_with_its_user_and_its_outcome(client, source, lines):
    post(client, "/api/topics", topic="Logged", queues=1)
    client.post("/api/topics", headers=WRITE, json={"topic": "Logged"})
    post(client, "/api/topics/Logged/alter", read_queues=2)
    post(client, "/api/topics/Logged/alter", read_queues=2)
    sent = post(client, "/api/topics/Logged/publish", body="private body", properties={"colour": "private"})
    post(client, "/api/topics/Logged/delete")
    post(client, f"/api/groups/{GROUP}/pause")
    post(client, f"/api/groups/{GROUP}/resume")
    post(client, f"/api/groups/{GROUP}/seek", topic=TOPIC, to="latest")  # a dry run
    post(client, f"/api/groups/{GROUP}/seek", topic=TOPIC, to="latest", dry_run=False)
    client.post("/api/groups/nobody/delete", headers=WRITE, json={})
    key = "waitTimeMillsInSendQueue"
    (row,) = [each for each in get(client, "/api/brokers/broker-a/config")["rows"] if each["key"] == key]
    value = next(iter(row["values"].values()))
    post(client, "/api/brokers/broker-a/config", key=key, value=value)
    for allow in (False, True):
        post(client, "/api/brokers/broker-a/write-permission", allow=allow)
    client.post("/api/accounts", headers=WRITE, json={"access_key": "newcomer", "secret_key": "private-secret"})
    client.post("/api/accounts/newcomer/delete", headers=WRITE, json={})
    assert all(line.startswith("console: token from testclient: ") for line in lines), lines
    told = [line.removeprefix("console: token from testclient: ") for line in lines]
    for (what, outcome), line in zip([
            ("create topic Logged with 1 queue", "done"),
            ("create topic Logged with 8 queues", "failed: topic Logged exists on broker-a"),
            ("alter topic Logged: read_queues=2", "done"), ("alter topic Logged: read_queues=2", "nothing changed"),
            ("publish to Logged", f"SEND_OK {sent['id']}"), ("delete topic Logged", "done"),
            (f"pause group {GROUP}", "done"), (f"resume group {GROUP}", "done"),
            (f"move group {GROUP} in topic {TOPIC} to latest", "moved 2 of 2 queues"),
            ("delete group nobody", "failed: "), (f"set {key}={value} at broker-a", ""),
            ("remove the write permission of broker-a", "done"), ("restore the write permission of broker-a", "done"),
            ("create account newcomer", "failed: "), ("delete account newcomer", "failed: ")], told, strict=True):
        assert line.startswith(f"{what}: {outcome}"), line
    assert "private" not in "\n".join(lines)


def test_names_can_not_forge_lines_of_the_log(client, lines):
    evil = "x: done\nconsole: root: delete topic\x1b[2J\u2028"
    assert client.post("/api/topics", headers=WRITE, json={"topic": evil}).status_code == 502
    assert client.post("/api/groups/a%0Ab/delete", headers=WRITE, json={}).status_code == 502
    assert len(lines) == 2 and all(line.isprintable() for line in lines)
    assert lines[0].startswith(
        'console: token from testclient: create topic "x: done\\nconsole: root: delete topic\\u001b[2J\\u2028" with 8')
    assert 'delete group "a\\nb": failed: ' in lines[1]


def test_sign_ins_and_refusals_are_logged_without_secrets(source, tmp_path, lines):
    pytest.importorskip("yaml")
    file = tmp_path / "plain_acl.yml"
    file.write_text("accounts:\n- accessKey: readerKey\n  secretKey: readerSecret\n  defaultTopicPerm: SUB\n", "ascii")
    client = TestClient(create_app(source, Access(TOKEN, False, sign_in=SignIn(str(file)))), "http://127.0.0.1:8088")

    def sign_in(key, secret):
        return client.post("/api/session", headers={"X-Rmqha-Console": "1"},
                           json={"access_key": key, "secret_key": secret})
    token = sign_in("readerKey", "readerSecret").json()["token"]
    for key in ("readerKey", "typed-secret"):
        assert sign_in(key, "typed-secret").status_code == 401
    for _ in range(5):
        refused = sign_in("readerKey", "typed-secret").status_code
    assert refused == 429
    for given in (TOKEN, TOKEN, token, "stranger", "stranger"):
        client.get("/api/session", headers={"Authorization": f"Bearer {given}"})
    assert client.get("/api/cluster", headers={"Authorization": "Bearer stranger"}).status_code == 401
    for given in (token, "stranger"):
        client.post("/api/topics", headers={**WRITE, "Authorization": f"Bearer {given}"}, json={"topic": "T"})
    assert client.post("/api/topics/T/publish", headers={**WRITE, "Authorization": f"Bearer {token}"},
                       json={"body": "x"}).status_code == 403
    wrong = "console: sign-in refused: readerKey with a wrong secret key from testclient"
    ended = "console: refused: a wrong token, or an ended session from testclient"
    assert lines == [
        "console: readerKey from testclient: signed in with the role see",
        wrong, "console: sign-in refused: an unknown access key from testclient", *4 * [wrong],
        "console: sign-in refused: too many failed attempts: wait 60 s from testclient",
        "console: token from testclient: signed in with the role see", ended,
        "console: readerKey: refused: POST /api/topics: this needs the role administer; readerKey has the role see "
        "from testclient",
        "console: readerKey: refused: POST /api/topics/T/publish: this needs the role publish; readerKey has the role "
        "see from testclient"]
    assert "typed-secret" not in str(lines) and "readerSecret" not in str(lines)


@pytest.mark.parametrize("is_writable", [True, False])
def test_running_console_logs_to_tools_log_and_to_standard_error(orders, tmp_path, is_writable):
    folder = tmp_path / "logs"
    if not is_writable:
        folder.write_text("", "ascii")
    process, told = start(orders.namesrv, "--role", "administer", logs=folder)
    try:
        url = re.search(r"http://127\.0\.0\.1:\d+", told).group() + "/api/topics/Nowhere/delete"
        request = urllib.request.Request(url, b"{}", {**WRITE, "Content-Type": "application/json",
                                                      "Authorization": f"Bearer {CONSOLE_TOKEN}"})
        urllib.request.urlopen(request, timeout=60).close()
    finally:
        process.terminate()
    line = "INFO AnyIO worker thread - console: token from 127.0.0.1: delete topic Nowhere: done"
    output = process.stdout.read()
    assert process.wait(240) == 0 and output.count(line) == 1 and output.count("\n") == 1, output
    if is_writable:
        assert line in (folder / "tools.log").read_text("utf-8")
        assert f"changes and sign-ins are logged here and in {folder / 'tools.log'}\n" in told
    else:
        assert "changes and sign-ins are logged here\n" in told


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


def check_ends(client, oldest: list[dict]) -> None:
    """Check that `until` and `until_offset` name the last message, with which the newest first begin."""
    def ids(**query) -> list[str]:
        return [row["message_id"] for row in browsed(client, limit=1, **query)]
    for row in oldest:
        wanted = [each["message_id"] for each in oldest if each["store_ms"] <= row["store_ms"]]
        assert ids(until=row["store_ms"]) == wanted and ids(until=row["store_ms"], backwards=1) == wanted[::-1]
        since = [each for each in wanted if each in ids(time=row["store_ms"])]
        assert ids(time=row["store_ms"], until=row["store_ms"]) == since and row["message_id"] in since
        wanted = [each["message_id"] for each in oldest if each["queue_offset"] <= row["queue_offset"]]
        assert ids(until_offset=row["queue_offset"]) == wanted
        assert ids(until_offset=row["queue_offset"], backwards=1, begin="latest") == wanted[::-1]
    assert ids(until=oldest[0]["store_ms"] - 1) == ids(until=oldest[0]["store_ms"] - 1, backwards=1) == []
    for wrong, reason in (({"until": 1, "until_offset": 1}, "only one of until and until_offset"),
                          ({"until": 1, "time": 1, "backwards": 1}, "pages begin at until"),
                          ({"until": "x"}, "until must be a whole number")):
        answer = client.get(f"/api/topics/{TOPIC}/messages", params=wrong)
        assert answer.status_code == 400 and reason in answer.json()["error"]


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
    check_ends(client, oldest)
    cursor = get(client, f"/api/topics/{TOPIC}/tail")["cursor"]
    sent = post(client, f"/api/topics/{TOPIC}/publish", body="followed", tags="A", keys="late", queue="broker-a:1",
                properties={"colour": "red"})
    (found,) = get(client, "/api/messages", id=sent["id"])["messages"]
    assert found["userProperties"] == {"colour": "red"}
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
    tracks = get(client, "/api/trace", topic=TOPIC, id=orders.sent[0].msg_id)["tracks"]
    assert [each for each in tracks if each["group"] == "sleepers"] == [
        {"group": "sleepers", "state": "NOT_ONLINE", "why": "no member runs"}]
    wait_until(lambda: client.get("/api/groups/sleepers").json().get("state") == "stopped", what="the state")
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
        state = "running" if wanted else "paused"
        wait_until(lambda: get(client, f"/api/groups/{GROUP}")["state"] == state, what=f"the state {state}")


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
    ("/api/dead-letters/g/resend", {"new": True, "all": True}, 400, "one of new and all must be true"),
    ("/api/dead-letters/g/resend", {"new": True, "ids": ["x"]}, 400, "one of new and all must be true"),
    ("/api/brokers/broker-a/config", {"key": "nonsense", "value": "1"}, 502, "unknown config key"),
    ("/api/accounts", {"access_key": "a"}, 400, "secret_key: a text"),
    ("/api/session", {"access_key": "a", "secret_key": "b"}, 400, "this console has no accounts"),
    ("/api/topics", {"topic": "X", "queues": 0}, 400, "queues must be 1 to 1024"),
    ("/api/topics/Orders/alter", {"queues": 0}, 400, "queues must be 1 to 1024"),
    ("/api/topics/Orders/alter", {"queues": 2, "read_queues": 2}, 400, "give it alone"),
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

    asked, ask_broker = ClusterAdmin.asked, ClusterAdmin.ask_broker
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
    source.dead_letter_count = lambda group: Source.dead_letter_count(source, group)
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


def test_unread_messages_and_retries_are_two_numbers_as_in_group_list():
    places = (QueuePlace("T", "b", 0, 10, 8, 1), QueuePlace("%RETRY%readers", "b", 0, 5, 2, 1))
    client = client_of(snapshot(brokers=(MASTER,), groups=(GroupState("readers", places),)), FAULTS[0])
    (row,) = client.get("/api/groups").json()["groups"]
    group = client.get("/api/groups/readers").json()
    for each in (row, group):
        assert (each["unread"], each["retries"], each["behind"]) == (2, 3, 5)
    retrying = Api._group_warnings(GroupState("readers", places), {"clients": []})
    assert retrying == ["No client is connected, and 2 messages are unread, with 3 more in its retry topic."]
    one = Api._group_warnings(GroupState("readers", (QueuePlace("T", "b", 0, 9, 8, 1),)), {"clients": []})
    assert one == ["No client is connected, and 1 message is unread."]


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
