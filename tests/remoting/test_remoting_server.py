"""Serving requests: where the server listens; inline, in a pool, or later; refusals; idle and lost connections."""
import errno
import os
import socket
import threading
import time

import psutil
import pytest

from rmqha.common.futures import Completable
from rmqha.common.threads import NamedThreadPool
from rmqha.remoting import addresses
from rmqha.remoting.addresses import (
    FAST_PORT,
    HA_PORT,
    LISTEN_PORT,
    PortError,
    listen,
    listening_socket,
    plain_address,
    resolved_host,
)
from rmqha.remoting.exception import RemotingSendRequestException, RemotingTimeoutException
from rmqha.remoting.interfaces import ChannelEventListener
from rmqha.remoting.protocol.header_codec import SerializeType
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_config import ServerConfig
from rmqha.remoting.remoting_server import RemotingServer
from tests.remoting.support import (
    ECHO,
    Processor,
    Raw,
    address,
    echo,
    has_ipv6_loopback,
    json_frame,
    request,
    running_client,
    running_server,
)
from tests.support.wait import own_threads, wait_until

# Serving: inline, in a pool, or later; refusals; calls to clients; idle and lost connections.


def test_request_is_served_inline_and_answered_with_its_opaque(server, client):
    processor = Processor(echo)
    server.register_processor(7, processor)
    asked = request(7, b"body")
    asked.ext_fields = {"a": "\u00fc"}
    answer = client.invoke_sync(address(server), asked, 30_000)
    assert (answer.code, answer.body, answer.ext_fields, answer.opaque) == (0, b"body", {"a": "\u00fc"}, asked.opaque)
    assert answer.is_response_type and processor.threads == {"NettyServerNIOSelector_1_1"}


def test_request_with_an_executor_is_served_there(server, client):
    processor, pool = Processor(echo), NamedThreadPool("Pool_", 1, 10)
    server.register_processor(7, processor, pool)
    assert client.invoke_sync(address(server), request(7, b"x"), 30_000).body == b"x"
    assert processor.threads == {"Pool_1"} and server.processor_table[7].executor is pool
    pool.shutdown()


def test_deferred_answer_is_sent_once_it_is_completed(server, client):
    answers: list[Completable] = []
    server.register_processor(7, Processor(lambda _channel, _request: answers.append(Completable()) or answers[-1]))
    done = []
    client.invoke_async(address(server), request(7), 30_000, done.append)
    wait_until(lambda: answers, 60_000, "the request is served")
    assert not done
    answers[0].complete(RemotingCommand.create_response_command(5, "late"))
    wait_until(lambda: done, 60_000, "the answer")
    assert (done[0].response_command.code, done[0].response_command.remark) == (5, "late")


def test_nothing_is_written_for_none_and_for_one_way_requests(server):
    released = []

    def with_region(_channel, _request):
        response = RemotingCommand.create_response_command(0, None)
        response.set_file_region([b"x"], lambda: released.append(1))
        return response

    server.register_processor(7, Processor(lambda *_: None))
    server.register_processor(8, Processor(with_region))
    server.register_processor(9, Processor(lambda *_: 1 / 0))
    with Raw(server) as raw:
        for code, flag in ((7, 0), (7, 2), (8, 2), (9, 2), (12345, 2)):
            raw.send(json_frame(code=code, flag=flag, opaque=50))
        raw.send(json_frame(opaque=51))
        assert raw.read().opaque == 51
    assert released == [1]


def test_unknown_request_code_gets_code_3(server, client):
    answer = client.invoke_sync(address(server), request(12345), 30_000)
    assert (answer.code, answer.remark) == (3, " request type 12345 not supported")


def test_default_processor_serves_all_other_codes(server, client):
    server.register_default_processor(Processor(echo))
    assert client.invoke_sync(address(server), request(12345, b"d"), 30_000).body == b"d"


def test_exception_of_a_processor_is_code_1_with_its_text_and_place(server, client):
    def fail(_channel, _request):
        raise ValueError("no such thing")

    server.register_processor(7, Processor(fail))
    answer = client.invoke_sync(address(server), request(7), 30_000)
    assert answer.code == 1
    assert answer.remark.startswith("ValueError: no such thing, ") and "test_remoting_server.py:" in answer.remark
    assert client.invoke_sync(address(server), request(), 30_000).code == 0


def test_rejecting_processor_is_busy(server, client):
    server.register_processor(7, Processor(echo, reject=True))
    answer = client.invoke_sync(address(server), request(7), 30_000)
    assert (answer.code, answer.remark) == (2, "[REJECTREQUEST]system busy, start flow control for a while")


def test_failure_of_the_reject_check_is_code_1(server, client):
    processor = Processor(echo)
    processor.reject_request = lambda: 1 / 0
    server.register_processor(7, processor)
    assert client.invoke_sync(address(server), request(7), 30_000).code == 1


def test_full_executor_is_busy(server):
    pool, gate = NamedThreadPool("Pool_", 1, 1), threading.Event()
    processor = Processor(lambda channel, asked: gate.wait(240) and echo(channel, asked))
    server.register_processor(7, processor, pool)
    with Raw(server) as raw:
        raw.send(json_frame(code=7, opaque=1))
        wait_until(lambda: processor.threads, 60_000, "the pool works")
        raw.send(json_frame(code=7, opaque=2) + json_frame(code=7, opaque=3))
        answer = raw.read()
        assert (answer.opaque, answer.code) == (3, 2)
        assert answer.remark == "[OVERLOAD]system busy, start flow control for a while"
        gate.set()
        assert {raw.read().opaque, raw.read().opaque} == {1, 2}
    pool.shutdown()


def test_answer_has_the_requests_encoding_and_a_refusal_the_servers_own(server):
    with Raw(server) as raw:
        for code, expected in ((ECHO, SerializeType.ROCKETMQ), (12345, SerializeType.JSON)):
            asked = request(code)
            asked.serialize_type = SerializeType.ROCKETMQ
            raw.send(asked.encode())
            assert raw.read().serialize_type == expected


def test_response_that_fails_to_encode_is_code_1(server, client):
    def wrong(_channel, _request):
        response = RemotingCommand.create_response_command(0, None)
        response.ext_fields = {"a": 5}
        return response

    server.register_processor(7, Processor(wrong))
    assert client.invoke_sync(address(server), request(7), 30_000).code == 1


class Hook:
    """Records its calls; raises when told to."""

    def __init__(self, fail_before: bool = False, fail_after: bool = False) -> None:
        self.fail_before, self.fail_after, self.seen = fail_before, fail_after, []

    def do_before_request(self, addr, asked):
        self.seen.append(("before", addr, asked.code))
        if self.fail_before:
            raise PermissionError("denied")

    def do_after_response(self, addr, asked, response):
        self.seen.append(("after", addr, response and response.code))
        if self.fail_after:
            raise PermissionError("denied after")


@pytest.mark.parametrize("hook, code", [(Hook(), 0), (Hook(fail_before=True), 1), (Hook(fail_after=True), 1)])
def test_hooks_are_called_and_may_refuse(server, client, hook, code):
    server.register_rpc_hook(hook)
    server.register_rpc_hook(hook)
    answer = client.invoke_sync(address(server), request(), 30_000)
    assert answer.code == code and (code == 0 or "denied" in answer.remark)
    assert [what for what, *_ in hook.seen] == (["before"] if hook.fail_before else ["before", "after"])


class Listener(ChannelEventListener):
    """Records the events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, object]] = []

    def on_channel_connect(self, remote_addr, channel):
        self.events.append(("connect", channel))

    def on_channel_close(self, remote_addr, channel):
        self.events.append(("close", channel))

    def on_channel_idle(self, remote_addr, channel):
        self.events.append(("idle", channel))

    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.events]


def test_listener_is_notified_of_connections():
    listener = Listener()
    with running_server(listener) as server:
        with Raw(server):
            wait_until(lambda: listener.kinds() == ["connect"], 60_000, "the connection is known")
        wait_until(lambda: listener.kinds() == ["connect", "close"], 60_000, "the end is known")
    assert len({channel for _, channel in listener.events}) == 1


def test_idle_connection_is_closed_and_a_used_one_is_not():
    listener = Listener()
    # This thread may be kept from using the other connection for this long.
    config = {"serverChannelMaxIdleTimeSeconds": 2}
    with running_server(listener, **config) as server, Raw(server) as idle, Raw(server) as used:
        deadline = time.monotonic() + 60
        idle.socket.settimeout(0.1)
        while True:
            used.send(json_frame(opaque=3))
            assert used.read().opaque == 3
            try:
                assert idle.socket.recv(1) == b""
                break
            except TimeoutError:
                assert time.monotonic() < deadline, "the idle connection was not closed"
        wait_until(lambda: sorted(listener.kinds())[:1] == ["close"] and "idle" in listener.kinds(), 60_000, "told")


def test_server_calls_a_client():
    listener = Listener()
    with running_server(listener) as server, running_client() as client:
        client.register_processor(40, Processor(lambda _channel, asked: echo(_channel, asked)))
        client.invoke_sync(address(server), request(), 30_000)
        # The event thread reports the connection before or after the first answer.
        wait_until(lambda: listener.events, 60_000, "the connection is reported")
        channel = listener.events[0][1]
        assert server.invoke_sync(channel, request(40, b"hello"), 30_000).body == b"hello"
        done = []
        server.invoke_async(channel, request(40, b"again"), 30_000, done.append)
        wait_until(lambda: done, 60_000, "called back")
        assert done[0].response_command.body == b"again"
        seen = []
        client.register_processor(41, Processor(lambda _channel, asked: seen.append(asked)))
        server.invoke_oneway(channel, request(41), 30_000)
        wait_until(lambda: seen, 60_000, "told")
        with pytest.raises(RemotingTimeoutException):
            server.invoke_sync(channel, request(41), 50)
        assert server.response_table == {}


def test_response_on_another_connection_than_its_call_is_ignored():
    listener = Listener()
    with running_server(listener) as server, Raw(server) as asked, Raw(server) as liar:
        wait_until(lambda: len(listener.events) == 2, 60_000, "both are connected")
        done = []
        call = request(40)
        channel = next(channel for _, channel in listener.events
                       if channel.remote_address == asked.socket.getsockname())
        server.invoke_async(channel, call, 30_000, done.append)
        liar.send(json_frame(code=99, flag=1, opaque=call.opaque) + json_frame(opaque=5))
        assert liar.read().opaque == 5 and not done
        asked.send(json_frame(code=0, flag=1, opaque=call.opaque))
        wait_until(lambda: done, 60_000, "the right answer")
        assert done[0].response_command.code == 0


def test_call_to_a_client_that_disconnects_fails_at_once():
    listener = Listener()
    with running_server(listener) as server:
        raw = Raw(server)
        wait_until(lambda: listener.events, 60_000, "connected")
        done = []
        server.invoke_async(listener.events[0][1], request(40), 60_000, done.append)
        raw.socket.close()
        wait_until(lambda: done, 60_000, "the call has ended")
        assert done[0].response_command is None and not done[0].send_request_ok
        with pytest.raises(RemotingSendRequestException):
            server.invoke_sync(listener.events[0][1], request(40), 30_000)


def test_blocking_call_on_the_io_thread_is_refused(server, client):
    def call(channel, _request):
        return server.invoke_sync(channel, request(40), 1000)

    server.register_processor(7, Processor(call))
    answer = client.invoke_sync(address(server), request(7), 30_000)
    assert answer.code == 1 and "would have to read its response" in answer.remark


def test_server_stops_reading_from_a_peer_that_does_not_read():
    config = {"writeBufferHighWaterMark": 1 << 20, "writeBufferLowWaterMark": 1 << 19}
    with running_server(**config) as server, Raw(server) as raw:
        body, count = bytes(200_000), 200
        sender = threading.Thread(target=raw.send, args=(json_frame(body) * count,), daemon=True)
        raw.socket.settimeout(None)
        sender.start()
        wait_until(lambda: server.io.channels, what="the connection is known")
        channel = next(iter(server.io.channels))
        wait_until(lambda: channel.reading_paused, what="the sockets' buffers are full")
        assert channel.pending_bytes < 4 << 20 and sender.is_alive()
        for _ in range(count):
            assert raw.read().body == body
        sender.join()


def test_shutdown_works_twice_and_without_a_start():
    with running_server() as server:
        server.shutdown()
    RemotingServer(ServerConfig()).shutdown()


def test_shutdown_closes_connections_and_ends_threads():
    before = own_threads()
    with running_server(Listener()) as server, Raw(server) as raw:
        raw.send(json_frame())
        raw.read()
        server.shutdown()
        assert raw.is_closed()
    assert own_threads() <= before


def test_port_in_use_is_an_error(server):
    other = RemotingServer(ServerConfig(listenPort=server.local_listen_port))
    with pytest.raises(OSError):
        other.start()
    other.shutdown()


def test_requests_of_one_round_are_answered_in_one_write(server):
    count = 200
    with Raw(server) as raw:
        raw.send(b"".join(json_frame(opaque=opaque) for opaque in range(count)))
        assert [raw.read().opaque for _ in range(count)] == list(range(count))


# The reason a port can't be listened on, and the process that holds it.


def test_error_for_a_port_in_use_names_its_use_and_its_holder():
    with listen(0, LISTEN_PORT, 5) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(PortError) as failed:
            listen(port, HA_PORT, 5)
    text = str(failed.value)
    assert text.startswith(f"port {port} (the HA port, listenPort + 1) is in use by pid {os.getpid()} (")
    assert psutil.Process().cmdline()[0] in text and text.endswith("; stop it, or choose another listenPort")
    assert failed.value.errno == errno.EADDRINUSE and "\n" not in text


def test_error_for_a_port_of_an_outgoing_connection_names_its_holder():
    with listen(0, LISTEN_PORT, 5) as server, socket.socket() as client:
        client.connect(("127.0.0.1", server.getsockname()[1]))
        port = client.getsockname()[1]
        with pytest.raises(PortError, match=f"port {port} .* is in use by pid {os.getpid()} "):
            listen(port, LISTEN_PORT, 5)


def test_inaccessible_holder_is_reported_as_another_users(monkeypatch):
    with listen(0, LISTEN_PORT, 5) as holder:
        def denied(_kind):
            raise psutil.AccessDenied
        monkeypatch.setattr(psutil, "net_connections", denied)
        with pytest.raises(PortError, match="is in use by another user's process; stop it"):
            listen(holder.getsockname()[1], FAST_PORT, 5)


class Forbidden(socket.socket):
    def bind(self, _address):
        raise PermissionError(errno.EACCES, "Permission denied")


@pytest.mark.parametrize(("port", "text"), [
    (80, "port 80 (listenPort) may not be opened by this user; ports below 1024 need root or"),
    (10911, "port 10911 (listenPort) may not be opened by this user; choose another listenPort"),
])
def test_error_for_a_forbidden_port_names_the_missing_permission(monkeypatch, port, text):
    monkeypatch.setattr(addresses, "listening_socket", Forbidden)
    with pytest.raises(PortError) as failed:
        listen(port, LISTEN_PORT, 5)
    assert text in str(failed.value)


def test_invalid_port_number_is_reported():
    with pytest.raises(PortError, match=r"65536 \(the HA port, listenPort \+ 1\) is not a valid port"):
        listen(65_536, HA_PORT, 5)


def test_control_characters_of_a_command_are_not_printed(monkeypatch):
    monkeypatch.setattr(psutil.Process, "cmdline", lambda _self: ["java", "-Dx=\x1b[31m\n" + "y" * 500])
    with listen(0, LISTEN_PORT, 5) as holder:
        (text,) = addresses.holders(holder.getsockname()[1])
    assert text.startswith(f"pid {os.getpid()} (java -Dx=?[31m?yyy") and text.isprintable() and len(text) < 200


# A listening socket accepts peers of both families, and shows each by its plain address.


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_peer_of_either_family_is_accepted_and_shown_by_its_own_address(host):
    if host == "::1" and not has_ipv6_loopback():
        pytest.skip("this host has no ::1")
    with listening_socket() as listener:
        listener.bind(("", 0))
        listener.listen()
        with socket.create_connection((host, plain_address(listener.getsockname())[1]), 120) as peer:
            accepted, address = listener.accept()
            with accepted:
                assert plain_address(address) == peer.getsockname()[:2]
                assert plain_address(accepted.getsockname()) == (host, peer.getpeername()[1])


def test_host_without_ipv6_listens_on_ipv4(monkeypatch):
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with listening_socket() as listener:
        assert listener.family == socket.AF_INET


def test_socket_pair_has_no_address():
    one, other = socket.socketpair()
    with one, other:
        assert plain_address(one.getsockname()) == ("", 0)


@pytest.mark.parametrize(("host", "address"), [("10.1.2.3", "10.1.2.3"), ("::1", "::1"), ("localhost", "127.0.0.1")])
def test_names_resolve_to_ipv4_first(host, address):
    assert resolved_host(host) == address


def test_name_with_only_ipv6_resolves_to_that(monkeypatch):
    six = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("2001:db8::1", 0, 0, 0))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_options: [six])
    assert resolved_host("six") == "2001:db8::1"


def test_unknown_name_is_an_error():
    with pytest.raises(OSError):
        resolved_host("no-such-host.invalid")
