"""The HTTP port of metrics: accepted and refused requests, and clients that cannot block it."""
import socket
import threading

import pytest

from rmqha.common.metrics import Page, RolePage, Subject, role_page
from rmqha.remoting import http_handler, http_port
from rmqha.remoting.addresses import PortError
from rmqha.remoting.http_port import HttpPort, MetricsPort
from tests.remoting.support import has_ipv6_loopback
from tests.support.raw_remoting import http_get
from tests.support.wait import own_threads, wait_until


@pytest.fixture
def port(request):
    made = HttpPort("127.0.0.1", 0, "metricsPort", getattr(request, "param", _page))
    made.start()
    yield made
    made.shutdown()


def _page(path: str) -> Page:
    return Page(200, "text/plain", [b"you asked ", b"for ", path.encode()])


def _broken(path: str) -> Page:
    raise RuntimeError("planted")


def _says(port: HttpPort, sent: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port.local_port), timeout=600) as sock:
        sock.sendall(sent)
        answer = b""
        while piece := sock.recv(4096):
            answer += piece
        return answer


def test_get_and_head(port):
    status, body, headers = http_get(port.local_port, "/a?b=c")
    assert (status, body) == (200, b"you asked for /a?b=c") and headers["Content-Length"] == str(len(body))
    status, nothing, of_head = http_get(port.local_port, "/a?b=c", "HEAD")
    assert (status, nothing) == (200, b"") and of_head["Content-Length"] == str(len(body))
    assert headers["Cache-Control"] == of_head["Cache-Control"] == "no-store"


def test_options_are_answered_with_the_status_only(port):
    assert _says(port, b"OPTIONS /a HTTP/1.0\r\n\r\n") == b"HTTP/1.0 200 OK\r\n\r\n"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "CONNECT", "TRACE", "PATCH", "get", "x" * 100])
def test_other_methods_are_not_allowed(port, method):
    status, body, headers = http_get(port.local_port, "/a", method)
    assert (status, body) == (405, b"methods: GET, HEAD, OPTIONS\n") and headers["Allow"] == "GET, HEAD, OPTIONS"


@pytest.mark.parametrize("sent, code", [
    (b"POST / HTTP/1.1\r\n\r\n", b" 405 "), (b"GET\r\n\r\n", b" 400 "), (b"\x00\x00\x01\x00\r\n", b"400"),
    (b"GET / HTTP/9.9\r\n\r\n", b" 505 "), (b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", b" 414 "),
    (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n", b" 431 ")])
def test_invalid_requests_get_a_status_and_the_next_one_is_served(port, sent, code):
    assert code in _says(port, sent)
    assert http_get(port.local_port, "/x")[0] == 200


@pytest.mark.parametrize("port", [_broken], indirect=True)
def test_failing_page_is_a_500_with_the_reason(port, caplog):
    status, body, _headers = http_get(port.local_port, "/x")
    assert status == 500 and b"planted" in body and "the page '/x' failed" in caplog.text


def test_silent_connections_block_no_other_client(port, monkeypatch):
    monkeypatch.setattr(http_handler.Handler, "timeout", 60)  # for each read
    silent = [socket.create_connection(("127.0.0.1", port.local_port)) for _ in range(http_port._THREADS)]
    wait_until(lambda: len(port._open) == len(silent))
    for sock in list(port._open):
        port._open[sock] -= http_port.MAX_CONNECTION_S
    assert http_get(port.local_port, "/x")[0] == 200
    for sock in silent:
        sock.close()


def test_connections_beyond_the_limit_are_closed(port, monkeypatch, caplog):
    monkeypatch.setattr(http_handler.Handler, "timeout", 20)
    room = http_port._ASKING
    held = [socket.create_connection(("127.0.0.1", port.local_port), timeout=600) for _ in range(room + 5)]
    wait_until(lambda: caplog.text.count("too many connections at a time") >= 5)
    for sock in held:
        sock.close()
    wait_until(lambda: not port._open)
    assert http_get(port.local_port, "/x")[0] == 200


class _SlowPage:
    """/healthz is ready at once, every other page when `gate` is set."""

    def __init__(self):
        self.gate, self.asked = threading.Event(), 0

    def __call__(self, path: str) -> Page:
        if path != "/healthz":
            self.asked += 1
            assert self.gate.wait(240)
        return Page(200, "text/plain", [b"ok"])


def test_health_is_answered_beside_any_number_of_slow_peers():
    page = _SlowPage()
    port = HttpPort("127.0.0.1", 0, "metricsPort", page, frozenset({"/healthz"}))
    port.start()
    held = []
    try:
        for _ in range(http_port._THREADS + http_port._WAITING + 4):
            held.append(socket.create_connection(("127.0.0.1", port.local_port), timeout=600))
            held[-1].sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        held += [socket.create_connection(("127.0.0.1", port.local_port), timeout=600) for _ in range(24)]
        held[-1].sendall(b"GET /healthz HTTP/1.0\r\nslow: ")
        wait_until(lambda: page.asked == http_port._THREADS, 60_000)
        for _ in range(3):
            assert http_get(port.local_port, "/healthz")[:2] == (200, b"ok")
        held[-1].sendall(b"yes\r\n\r\n")
        assert held[-1].recv(1000).startswith(b"HTTP/1.0 200")
    finally:
        page.gate.set()
        for sock in held:
            sock.close()
        port.shutdown()


@pytest.mark.parametrize("pieces", [
    [b"GET /x HTTP/1.0\r\n\r\n"], [b"GET /x HTTP/1.0\n", b"\n"], [b"GET /x HT", b"TP/1.0\r", b"\n", b"\r", b"\n"],
    [b"GET /x HTTP/1.0\r\n", b"a: b\r\n\r\n"], [b"HEAD /x HTTP/1.1\r\n", b"a: b\n", b"\n"], [b"GET /x\r\n"]])
def test_request_may_arrive_in_pieces(port, pieces):
    with socket.create_connection(("127.0.0.1", port.local_port), timeout=600) as sock:
        for piece in pieces:
            sock.sendall(piece)
        answer = b""
        while piece := sock.recv(4096):
            answer += piece
        assert answer.endswith(b"\r\n\r\n" if pieces[0].startswith(b"HEAD") else b"/x")


def test_shutdown_ends_open_connections_at_once_and_frees_the_port(port, monkeypatch):
    monkeypatch.setattr(http_handler.Handler, "timeout", 600)
    monkeypatch.setattr(http_port, "MAX_CONNECTION_S", 600)
    with socket.create_connection(("127.0.0.1", port.local_port), timeout=600) as sock:
        wait_until(lambda: port._open)
        port.shutdown()
        port.shutdown()
        assert sock.recv(100) == b""
    again = HttpPort("127.0.0.1", port.local_port, "metricsPort", _page)
    again.start()
    again.shutdown()


def test_error_for_a_port_in_use_names_key_and_holder(port):
    with pytest.raises(PortError, match=rf"port {port.local_port} of 127.0.0.1 \(metricsPort\) is in use by .*"
                                        "choose another metricsPort"):
        HttpPort("127.0.0.1", port.local_port, "metricsPort", _page).start()


def test_unknown_host_is_named():
    with pytest.raises(PortError, match="unknown host no.such.host.invalid, the address for port 9 .metricsPort."):
        HttpPort("no.such.host.invalid", 9, "metricsPort", _page).start()


def test_ipv6_address():
    if not has_ipv6_loopback():
        pytest.skip("this host has no ::1")
    made = HttpPort("[::1]", 0, "metricsPort", _page)
    made.start()
    with socket.create_connection(("::1", made.local_port), timeout=600) as sock:
        sock.sendall(b"GET /x HTTP/1.0\r\n\r\n")
        assert b"200" in sock.recv(1000)
    made.shutdown()


def test_no_socket_is_opened_without_a_port():
    made, before = MetricsPort("127.0.0.1", None, Subject), len(own_threads())
    made.start()
    assert made.local_port == 0 and not made.is_alive and len(own_threads()) == before
    made.shutdown()


class _Healthy(Subject):
    """A subject without metrics; its page /role says which query it gets."""

    def why_not_healthy(self):
        return []

    def why_not_ready(self):
        return ["not yet"]

    def role_pages(self):
        return {"/role": RolePage(lambda query: role_page(503, {"query": query}), "a role")}


def test_port_without_the_library_serves_all_pages_but_the_metrics(monkeypatch, caplog):
    monkeypatch.setattr(http_port.metrics, "is_available", lambda: False)
    made = MetricsPort("127.0.0.1", 0, _Healthy)
    for _ in range(2):
        made.start()
    try:
        assert caplog.text.count("/metrics answers 501, the other pages work: metrics need prometheus-client: ") == 1
        status, body, _headers = http_get(made.local_port, "/metrics")
        assert status == 501 and body == f"{http_port.metrics.HOW_TO_INSTALL}\n".encode()
        assert http_get(made.local_port, "/healthz")[0] == 200 and http_get(made.local_port, "/readyz")[0] == 503
        assert http_get(made.local_port, "/role?a=b")[:2] == (503, b'{"query": "a=b"}\n')
        assert b"/role     a role\n" in http_get(made.local_port, "/")[1]
    finally:
        made.shutdown()
