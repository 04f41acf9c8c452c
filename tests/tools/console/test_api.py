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
from rmqha.tools.console.access import Access
from rmqha.tools.console.app import PAGES, POLICY, Source, Wanted, create_app, json_answer
from rmqha.tools.console.server import PatientProtocol
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
    return TestClient(create_app(source, Access(TOKEN, False, True)), "http://127.0.0.1:8088")


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
    assert group["history"] == get(client, "/api/history", kind="behind", name=GROUP)["points"][:len(group["history"])]


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
    ("/api/groups/nobody", 404, "unknown group 'nobody'"),
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
    for path in ("/", "/static/app.js", "/static/pages.js", "/static/charts.js", "/static/dom.js",
                 "/static/messages.js", "/static/console.css"):
        text = client.get(path).text.replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text and "https://" not in text and "innerHTML" not in text, path
    page = client.get("/").text
    assert " style=" not in page and " onclick=" not in page and "<script>" not in page


def test_reading_with_the_token_where_others_reach_it(source):
    far = TestClient(create_app(source, Access(TOKEN, True, False)), "http://10.1.2.3:8088")
    answer = far.get("/api/cluster")
    assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
    assert far.get("/api/cluster", headers=WRITE).status_code == 200
    assert far.get("/api/session").json()["namesrv"] is None
    assert far.post("/api/topics", headers=WRITE, json={"topic": "T9"}).status_code == 403


# ---- changes


def test_topic_is_created(client, orders):
    answer = client.post("/api/topics", headers=WRITE, json={"topic": "Made", "queues": 3})
    assert answer.status_code == 200 and answer.json()["brokers"] == ["broker-a"]
    config = orders.cluster.master.controller.topic_config_manager.select_topic_config("Made")
    assert (config.readQueueNums, config.writeQueueNums, config.perm) == (3, 3, 6)
    assert client.post("/api/topics", json={"topic": "Other"}).status_code == 403
    assert orders.cluster.master.controller.topic_config_manager.select_topic_config("Other") is None


def test_offsets_of_a_stopped_group_are_reset(client, orders):
    offsets = orders.cluster.master.controller.consumer_offset_manager
    for to, wanted in (("latest", 3), ("earliest", 0), ("latest", 3), (1_600_000_000_000, 0)):
        answer = client.post("/api/groups/sleepers/offsets", headers=WRITE, json={"topic": TOPIC, "to": to})
        assert answer.status_code == 200 and answer.json()["queues"] == 2, answer.text
        assert sum(offsets.query_offset("sleepers", TOPIC, queue) for queue in range(2)) == wanted
    # The other tests expect one group for the topic.
    del offsets.offset_table[f"{TOPIC}@sleepers"]


def test_offsets_of_a_running_group_are_reset_through_its_clients(client, orders):
    offsets = orders.cluster.master.controller.consumer_offset_manager
    answer = client.post(f"/api/groups/{GROUP}/offsets", headers=WRITE, json={"topic": TOPIC, "to": "latest"})
    assert answer.status_code == 200 and answer.json()["queues"] == 2, answer.text
    wait_until(lambda: sum(offsets.query_offset(GROUP, TOPIC, queue) for queue in range(2)) == 3, what="the end")


def test_write_permission_is_removed_and_restored(client, orders):
    for allow, wanted in ((False, 4), (True, 6)):
        answer = client.post("/api/brokers/broker-a/write-permission", headers=WRITE, json={"allow": allow})
        assert answer.status_code == 200 and answer.json()["topics"] > 0
        route = orders.admin.examine_topic_route_info(TOPIC)
        assert {queue.perm for queue in route.queueDatas} == {wanted}


@pytest.mark.parametrize(("path", "body", "status", "wanted"), [
    ("/api/topics", {}, 400, "topic: a name"),
    ("/api/topics", {"topic": "no blanks"}, 400, "illegal characters"),
    ("/api/topics", {"topic": "X", "queues": 0}, 400, "queues must be 1 to 1024"),
    ("/api/topics", {"topic": "X", "queues": True}, 400, "queues must be 1 to 1024"),
    ("/api/groups/g/offsets", {"topic": TOPIC, "to": "yesterday"}, 400, "to must be a time in ms"),
    ("/api/groups/g/offsets", {"topic": TOPIC, "to": True}, 400, "to must be a time in ms"),
    ("/api/groups/g/offsets", {"to": 1}, 400, "topic: a name"),
    ("/api/brokers/nobody/write-permission", {"allow": True}, 404, "unknown broker 'nobody'"),
    ("/api/brokers/broker-a/write-permission", {"allow": "no"}, 400, "allow must be true or false"),
])
def test_invalid_change_is_refused_with_the_reason(client, path, body, status, wanted):
    answer = client.post(path, headers=WRITE, json=body)
    assert answer.status_code == status and wanted in answer.json()["error"], answer.text


@pytest.mark.parametrize(("body", "status"), [(b"{", 400), (b"[]", 400), (b"", 400), (b" " * 70_000, 413)])
def test_body_that_is_not_an_object_is_refused(client, body, status):
    headers = {**WRITE, "Content-Type": "application/json"}
    assert client.post("/api/topics", headers=headers, content=body).status_code == status


# The console with malformed requests, and with malformed responses of brokers: never an internal error.


TOKEN = "token-for-tests-only"
HOSTILE_WRITE = {"X-Rmqha-Console": "1", "Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
DEEP = "[" * 30_000
READS = ("/api/session", "/api/cluster", "/api/groups", "/api/groups/readers", "/api/topics", "/api/topics/T",
         "/api/store", "/api/history?kind=in", "/api/messages?topic=T&key=k", "/api/messages?topic=T&id=x",
         "/api/trace?topic=T&id=x")
WRITES = ("/api/topics", "/api/groups/readers/offsets", "/api/brokers/broker-a/write-permission")
FAULTS = (FastjsonError("more than 512 levels", 0), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "odd"),
          ValueError("\ud800"))


class Admin:
    """An admin client that gives the same answer to every request: an error, or a list of messages."""

    timeout_millis = 1000

    def __init__(self, answer):
        self.answer = answer
        self.api = self.mq_admin = self

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
    source = SimpleNamespace(wanted=SimpleNamespace(namesrv="n:1"), poller=SimpleNamespace(interval_s=1.0, error=""),
                             history=history, picture=lambda: made, questions=questions, messages=Messages(questions))
    return TestClient(create_app(source, Access(TOKEN, False, True)), "http://127.0.0.1:8088",
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


@pytest.mark.parametrize("where", [*READS, "/api/topics/%FF%00", f"/api/groups/{DEEP[:5000]}",
                                   f"/api/messages?topic=T&key={DEEP[:5000]}", "/api/messages?topic=%ED%A0%80&id=%FF",
                                   f"/api/history?kind={DEEP[:5000]}", "/api/trace?id=%00&topic=%5B%5B"])
@pytest.mark.parametrize("header", ["", DEEP[:5000], "\xff", '{"a":' * 500])
def test_odd_parameters_and_headers_cause_no_internal_error(where, header):
    client = client_of(odd_snapshot(), FAULTS[0])
    answer = client.get(where, headers={"X-Odd": header.encode("latin-1"), "Authorization": header.encode("latin-1")})
    assert answer.status_code in (200, 400, 404, 502), answer.text
    answer.json()


@pytest.mark.parametrize("path", WRITES)
@pytest.mark.parametrize("body", [DEEP, '{"a":' * 12_000, "NaN", '{"to": NaN, "topic": "T"}', '{"topic": "\\ud800"}',
                                  '{"topic": "T", "to": 1e999}', '{"topic": "T", "to": %s}' % ("9" * 5000),
                                  '{"topic": "T", "to": %s}' % ("9" * 400), '{"topic": "T", "queues": -1, "to": -2}',
                                  "[]", "\xff", "", '{"topic": [[[]]], "to": [[[]]], "allow": [[[]]]}'])
def test_odd_bodies_are_refused(path, body):
    answer = client_of(odd_snapshot(), FAULTS[0]).post(path, content=body.encode("latin-1"), headers=HOSTILE_WRITE)
    # Brokers answer nonsense about a topic with this name.
    assert answer.status_code in (400, 502) and answer.json()["error"], answer.text
    assert answer.status_code == 400 or body.startswith('{"topic": "T"')


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
