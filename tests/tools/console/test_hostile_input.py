"""The console beside requests and brokers that are not what they should be: no page is an error of its own."""
import json
import math
import socket
import threading
from contextlib import closing, contextmanager
from types import SimpleNamespace

import pytest

from rmqha.common.message.message import MessageClientExt
from rmqha.remoting.protocol.fastjson import FastjsonError, loads
from rmqha.tools.console.app import Access
from rmqha.tools.view.questions import Messages, Questions, ViewPoller
from rmqha.tools.view.snapshot import BrokerState, GroupState, History, QueuePlace, picture
from tests.support.wait import at_least
from tests.tools.view.pictures import MASTER, snapshot

pytest.importorskip("starlette", reason="the extra `console` is not installed")
import uvicorn
from starlette.testclient import TestClient

from rmqha.tools.console.app import create_app, json_answer
from rmqha.tools.console.server import PatientProtocol

TOKEN = "token-for-tests-only"
WRITE = {"X-Rmqha-Console": "1", "Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
DEEP = "[" * 30_000
READS = ("/api/session", "/api/cluster", "/api/groups", "/api/groups/readers", "/api/topics", "/api/topics/T",
         "/api/store", "/api/history?kind=in", "/api/messages?topic=T&key=k", "/api/messages?topic=T&id=x",
         "/api/trace?topic=T&id=x")
WRITES = ("/api/topics", "/api/groups/readers/offsets", "/api/brokers/broker-a/write-permission")
FAULTS = (FastjsonError("more than 512 levels", 0), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "odd"),
          ValueError("\ud800"))


class Admin:
    """An admin client whose every question has the same answer: an error, or a list of messages."""

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
def test_an_answer_of_a_broker_that_cant_be_read_is_a_bad_gateway(fault):
    client = client_of(odd_snapshot(), fault)
    codes = {path: client.get(path).status_code for path in READS}
    assert set(codes.values()) <= {200, 502}, codes
    assert codes["/api/topics"] == codes["/api/messages?topic=T&key=k"] == 502 and codes["/api/cluster"] == 200
    assert "can't be read" in client.get("/api/topics").json()["error"]
    assert client.get("/api/groups/readers").json()["clients_error"]


@pytest.mark.parametrize("where", [*READS, "/api/topics/%FF%00", f"/api/groups/{DEEP[:5000]}",
                                   f"/api/messages?topic=T&key={DEEP[:5000]}", "/api/messages?topic=%ED%A0%80&id=%FF",
                                   f"/api/history?kind={DEEP[:5000]}", "/api/trace?id=%00&topic=%5B%5B"])
@pytest.mark.parametrize("header", ["", DEEP[:5000], "\xff", '{"a":' * 500])
def test_odd_parameters_and_headers_are_no_error_of_the_console(where, header):
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
    answer = client_of(odd_snapshot(), FAULTS[0]).post(path, content=body.encode("latin-1"), headers=WRITE)
    # a topic of this name is asked of brokers that answer nonsense
    assert answer.status_code in (400, 502) and answer.json()["error"], answer.text
    assert answer.status_code == 400 or body.startswith('{"topic": "T"')


def test_a_message_of_any_time_is_a_page_of_its_own():
    message = MessageClientExt("T", b"x")
    message.born_timestamp, message.store_timestamp, message.offset_msg_id = 1_764_000_000 * 10**9, -(1 << 63), "00"
    message.born_host = message.store_host = ("127.0.0.1", 1)
    admin = SimpleNamespace(message_list=[message])
    (found,) = client_of(odd_snapshot(), admin).get("/api/messages?topic=T&key=k").json()["messages"]
    assert found["bornTimestamp"] == message.born_timestamp


def test_the_fastjson_of_the_brokers_refuses_depth_and_not_with_a_recursion_error():
    for text in (DEEP, '{"a":' * 30_000, "[" * 3000 + "]" * 3000):
        with pytest.raises(FastjsonError):
            loads(text)


def test_a_round_that_breaks_is_reported_and_the_next_one_is_shown():
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


def test_what_json_has_no_word_for_is_never_sent():
    with pytest.raises(ValueError):
        json_answer({"value": math.nan})
    assert json.loads(json_answer({"value": "\ud800ä"}).body) == {"value": "\ud800ä"}


# ---- half requests


@contextmanager
def server(request_s, monkeypatch):
    """The port of a console whose requests have so long."""
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
def test_half_a_request_is_ended_even_if_it_trickles(begin, more, monkeypatch):
    with server(0.5, monkeypatch) as port, closing(socket.create_connection(("127.0.0.1", port), 60)) as connection:
        connection.sendall(begin)
        connection.settimeout(0.1)
        got, rounds = b"", 0
        while True:
            try:
                part = connection.recv(4096)
            except TimeoutError:
                rounds += 1
                assert rounds < 600, "it is still open after a minute"
                if more:
                    connection.sendall(more)
                continue
            except ConnectionError:
                break
            if not part:
                break
            got += part
    assert not got or b" 408 " in got.split(b"\r\n")[0]


def test_whole_requests_are_served_one_after_the_other_however_long_the_connection_lasts(monkeypatch):
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
