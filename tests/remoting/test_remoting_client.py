"""Calling a server: timeouts, lost and refused connections, limits; and detecting the end of a peer's process."""
import os
import signal
import socket
import subprocess
import sys
import threading

import pytest

from rmqha.common.futures import Round
from rmqha.remoting.exception import (
    RemotingConnectException,
    RemotingSendRequestException,
    RemotingTimeoutException,
    RemotingTooMuchRequestException,
)
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_client import PeerWatch, RemotingClient
from rmqha.remoting.remoting_config import RemotingClientConfig
from tests.remoting.support import ECHO, Processor, address, echo, request, running_client, running_server
from tests.support.wait import lasting, stays, wait_until

# Calling a server: timeouts, lost and refused connections, name servers, limits.

SILENT = 7


@pytest.fixture
def server():
    with running_server() as started:
        started.register_processor(SILENT, Processor(lambda *_: None))
        yield started


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_calls_share_one_connection(server, client):
    for _ in range(5):
        client.invoke_sync(address(server), request(), 30_000)
    assert len(server.io.channels) == 1 and list(client.channel_tables) == [address(server)]


def test_concurrent_callers_share_one_connection(server, client):
    answers = []

    def call() -> None:
        answers.append(client.invoke_sync(address(server), request(body=b"x"), 30_000).body)

    threads = [threading.Thread(target=call) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [b"x"] * 20 and len(server.io.channels) == 1


def test_async_calls_run_their_callbacks_in_the_pool(server, client):
    done, names = [], set()

    def called(future):
        names.add(threading.current_thread().name)
        done.append(future.response_command.body)

    for index in range(100):
        client.invoke_async(address(server), request(body=b"%d" % index), 30_000, called)
    wait_until(lambda: len(done) == 100, 60_000, "all called back")
    assert sorted(done, key=int) == [b"%d" % index for index in range(100)]
    assert all(name.startswith("NettyClientPublicExecutor_") for name in names)
    wait_until(lambda: client.semaphore_async._value == 65535, 60_000, "permits are back")


def test_callback_may_make_another_call(server, client):
    done = []

    def called(_future):
        done.append(client.invoke_sync(address(server), request(body=b"inner"), 30_000).body)

    client.invoke_async(address(server), request(), 30_000, called)
    wait_until(lambda: done == [b"inner"], 60_000, "the inner call")


def test_failing_callback_does_no_harm(server, client):
    client.invoke_async(address(server), request(), 30_000, lambda _future: 1 / 0)
    assert client.invoke_sync(address(server), request(), 30_000).code == 0


@pytest.mark.own_timeouts
def test_silent_server_is_a_timeout_and_closes_the_connection(server, client):
    client.invoke_sync(address(server), request(), 30_000)
    with lasting(0.9), pytest.raises(RemotingTimeoutException, match=r"timeout, \d+\(ms\)"):
        client.invoke_sync(address(server), request(SILENT), 1000)
    assert client.channel_tables == {} and client.response_table == {}
    assert client.invoke_sync(address(server), request(), 30_000).code == 0


def test_timeout_keeps_the_connection_when_configured(server):
    with running_client(clientCloseSocketIfTimeout=False) as client:
        with pytest.raises(RemotingTimeoutException):
            client.invoke_sync(address(server), request(SILENT), 50)
        assert list(client.channel_tables) == [address(server)]


def test_timeout_ends_an_async_call(server, client):
    done = []
    client.invoke_async(address(server), request(SILENT), 100, done.append)
    wait_until(lambda: done, 60_000, "the scan ends it")
    future = done[0]
    assert future.response_command is None and future.send_request_ok and future.is_timeout
    assert client.response_table == {}


def test_one_way_request_is_served_and_not_answered(server, client):
    seen = []
    server.register_processor(8, Processor(lambda *args: seen.append(args[1].is_oneway_rpc) or echo(*args)))
    client.invoke_oneway(address(server), request(8), 30_000)
    wait_until(lambda: seen == [True], 60_000, "served")
    assert client.semaphore_oneway._value == 65535


@pytest.mark.parametrize("addr", ["", "nonsense", "127.0.0.1:99999", "127.0.0.1:", ":-1", "no.such.host.invalid:1"])
def test_invalid_address_is_a_connect_error(client, addr):
    with pytest.raises(RemotingConnectException):
        client.invoke_sync(addr, request(), 1000)


def test_refused_connection_is_a_connect_error(client):
    addr = f"127.0.0.1:{free_port()}"
    for call in (lambda: client.invoke_sync(addr, request(), 1000), lambda: client.invoke_oneway(addr, request(), 1000),
                 lambda: client.invoke_async(addr, request(), 1000, print)):
        with pytest.raises(RemotingConnectException, match=addr):
            call()


def test_connection_to_itself_is_refused(client):
    port = free_port()

    def adopt() -> None:
        with socket.socket() as both:
            both.bind(("127.0.0.1", port))
            both.connect(("127.0.0.1", port))
            client._adopt(both, 0)

    with pytest.raises(ConnectionRefusedError):
        adopt()


def test_server_that_closes_ends_its_calls_at_once(client):
    with running_server() as server:
        server.register_processor(SILENT, Processor(lambda channel, _asked: channel.close()))
        with pytest.raises(RemotingSendRequestException):
            client.invoke_sync(address(server), request(SILENT), 60_000)
        done = []
        client.invoke_async(address(server), request(SILENT), 60_000, done.append)
        wait_until(lambda: done, 60_000, "called back")
        assert not done[0].send_request_ok and done[0].response_command is None
        wait_until(lambda: client.channel_tables == {}, 60_000, "forgotten")


def test_restarted_server_is_reconnected_to(client):
    with running_server() as server:
        port = server.local_listen_port
        client.invoke_sync(address(server), request(), 30_000)
    with pytest.raises((RemotingConnectException, RemotingSendRequestException)):
        client.invoke_sync(f"127.0.0.1:{port}", request(), 30_000)
    with running_server(listenPort=port) as server:
        assert client.invoke_sync(address(server), request(), 30_000).code == 0


def test_close_channel_closes_the_connection(server, client):
    client.invoke_sync(address(server), request(), 30_000)
    client.close_channel(address(server))
    client.close_channel("10.0.0.1:1")
    wait_until(lambda: not server.io.channels, 60_000, "the server knows")
    assert client.channel_tables == {}


def test_idle_connection_is_closed_by_the_client(server):
    with running_client(clientChannelMaxIdleTimeSeconds=1) as client:
        client.invoke_sync(address(server), request(), 30_000)
        wait_until(lambda: not server.io.channels, 60_000, "closed")


def test_permits_limit_the_pending_calls(server):
    with running_client(clientAsyncSemaphoreValue=1, clientOnewaySemaphoreValue=0) as client:
        done = []
        client.invoke_async(address(server), request(SILENT), 600_000, done.append)
        with pytest.raises(RemotingTimeoutException):
            client.invoke_async(address(server), request(), 50, done.append)
        with pytest.raises(RemotingTooMuchRequestException):
            client.invoke_async(address(server), request(), 0, done.append)
        with pytest.raises(RemotingTooMuchRequestException):
            client.invoke_oneway(address(server), request(), 0)
        client.close_channel(address(server))
        wait_until(lambda: done, 60_000, "the first call has ended")
        client.invoke_async(address(server), request(), 30_000, done.append)
        wait_until(lambda: len(done) == 2, 60_000, "its permit is back")


def test_blocking_call_inside_a_round_is_sent(server, client):
    with Round():
        assert client.invoke_sync(address(server), request(), 30_000).code == 0


def test_blocking_call_on_the_io_thread_is_refused(server, client):
    client.callback_executor = None
    errors = []

    def called(_future):
        try:
            client.invoke_sync(address(server), request(), 1000)
        except RuntimeError as error:
            errors.append(error)

    client.invoke_async(address(server), request(), 30_000, called)
    wait_until(lambda: errors, 60_000, "refused")


def test_no_name_server_is_a_connect_error(client):
    with pytest.raises(RemotingConnectException):
        client.invoke_sync(None, request(), 1000)


def test_failed_name_server_is_replaced_by_the_next(client):
    with running_server() as first, running_server() as second:
        client.update_name_server_address_list([address(first), address(second), f"127.0.0.1:{free_port()}"])
        assert client.invoke_sync(None, request(), 30_000).code == 0
        chosen = client._namesrv_addr_choosed
        for _ in range(5):
            client.invoke_sync(None, request(), 30_000)
        assert client._namesrv_addr_choosed == chosen
        (first if chosen == address(first) else second).shutdown()
        wait_until(lambda: chosen not in client.channel_tables, 60_000, "the loss is seen")
        assert client.invoke_sync(None, request(), 30_000).code == 0
        assert client._namesrv_addr_choosed != chosen


def test_name_server_list_changes_only_for_different_servers(client):
    client.update_name_server_address_list([])
    assert client.get_name_server_address_list() is None
    client.update_name_server_address_list(["a:1", "b:1"])
    before = client.get_name_server_address_list()
    client.update_name_server_address_list(["b:1", "a:1"])
    assert client.get_name_server_address_list() is before
    client.update_name_server_address_list(["b:1", "c:1"])
    assert sorted(client.get_name_server_address_list()) == ["b:1", "c:1"]


def test_hooks_are_called_around_a_call(server, client):
    seen = []

    class Hook:
        def do_before_request(self, addr, asked):
            asked.make_custom_header_to_net()
            asked.add_ext_field("Signature", "s")
            seen.append(addr)

        def do_after_response(self, addr, _asked, response):
            seen.append((addr, response.ext_fields))

    client.register_rpc_hook(Hook())
    client.invoke_sync(address(server), request(), 30_000)
    assert seen == [address(server), (address(server), {"Signature": "s"})]


def test_large_bodies_pass_in_both_directions(server, client):
    body = bytes(range(256)) * (4 << 12)
    assert client.invoke_sync(address(server), request(body=body), 10_000).body == body


def test_call_after_shutdown_is_an_error_and_leaves_nothing(server):
    client = RemotingClient(RemotingClientConfig())
    client.start()
    client.shutdown()
    client.shutdown()
    with pytest.raises((RemotingConnectException, RemotingSendRequestException)):
        client.invoke_sync(address(server), request(), 1000)
    wait_until(lambda: not server.io.channels, 60_000, "no connection is left")


def test_shutdown_ends_pending_calls(server):
    with running_client() as client:
        errors = []

        def call() -> None:
            try:
                client.invoke_sync(address(server), request(SILENT), 60_000)
            except RemotingSendRequestException as error:
                errors.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        wait_until(lambda: client.response_table, 60_000, "the call is under way")
        client.shutdown()
        thread.join(240)
        assert errors


def test_late_response_is_dropped(server, client):
    held = []
    server.register_processor(9, Processor(lambda channel, asked: held.append((channel, asked))))
    client.config.clientCloseSocketIfTimeout = False
    client.invoke_sync(address(server), request(), 30_000)
    with pytest.raises(RemotingTimeoutException):
        client.invoke_sync(address(server), request(9), 500)
    channel, asked = wait_until(lambda: held, what="it is served in the end")[0]
    late = RemotingCommand.create_response_command(0, "late")
    late.opaque = asked.opaque
    channel.write(late)
    assert client.invoke_sync(address(server), request(ECHO), 30_000).code == 0


def test_connection_lost_before_it_is_watched_ends_its_calls(server, client, monkeypatch):
    add, lost = client.io.add, []

    def add_lost(channel):
        channel.close()
        lost.append(channel)
        add(channel)

    monkeypatch.setattr(client.io, "add", add_lost)
    with pytest.raises(RemotingSendRequestException):
        client.invoke_sync(address(server), request(), 60_000)
    assert lost and client.channel_tables == {}
    wait_until(lambda: not server.io.channels, 60_000, "nothing is left open")


# The end of a peer's process is reported; silence, addresses without a listener, and single closed connections are
# not.

_LISTENER = """
import socket
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
accepted = []
while True:
    accepted.append(listener.accept())
    print("accepted", flush=True)
"""


@pytest.fixture
def watched():
    """Start a watch of an address that may be changed; return the (mutable) address and the reported addresses."""
    started, told, address = [], [], [None]
    service = PeerWatch("watch", lambda: address[0], told.append)

    def start(first):
        address[0] = first
        started.append(service)
        service.start()
        return address, told
    yield start
    for one in started:
        one.shutdown()


def _listener():
    process = subprocess.Popen([sys.executable, "-c", _LISTENER], stdout=subprocess.PIPE, text=True)
    return process, f"127.0.0.1:{process.stdout.readline().strip()}"


def test_killed_process_is_reported_at_once(watched):
    process, address = _listener()
    _address, told = watched(address)
    assert process.stdout.readline() == "accepted\n"
    process.kill()
    wait_until(lambda: told == [address])
    process.wait()
    stays(lambda: told == [address], 500, "it is reported only once")


def test_hanging_process_is_not_reported(watched):
    process, address = _listener()
    _address, told = watched(address)
    assert process.stdout.readline() == "accepted\n"
    os.kill(process.pid, signal.SIGSTOP)
    stays(lambda: told == [], 600)
    process.kill()
    wait_until(lambda: told == [address])
    process.wait()


def test_single_closed_connection_is_reopened(watched):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = "127.0.0.1:%d" % listener.getsockname()[1]
        _address, told = watched(address)
        for _ in range(3):
            listener.accept()[0].close()
        listener.accept()
        assert told == []


@pytest.mark.parametrize("address", ["127.0.0.1:1", "no address", "host.invalid:1", "127.0.0.1:99999", "[::1]:1"])
def test_address_without_a_listener_is_not_reported(watched, address):
    _address, told = watched(address)
    stays(lambda: told == [], 300)


def test_changed_address_replaces_the_first(watched):
    first, first_address = _listener()
    second, second_address = _listener()
    address, told = watched(first_address)
    for process, one in ((first, first_address), (second, second_address)):
        address[0] = one
        assert process.stdout.readline() == "accepted\n"
    first.kill()
    second.kill()
    wait_until(lambda: told == [second_address])
    first.wait()
    second.wait()
    address[0] = None


def test_process_whose_connections_end_before_its_port_is_reported(watched):
    """The kernel may close them in this order when a process is killed."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = "127.0.0.1:%d" % listener.getsockname()[1]
        _address, told = watched(address)
        first = listener.accept()[0]
        first.close()
        second = listener.accept()[0]
    second.close()
    wait_until(lambda: told == [address])
