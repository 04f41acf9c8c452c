"""The end of a process is told; silence, addresses where nobody was, and connections that end alone are not."""
import os
import signal
import socket
import subprocess
import sys

import pytest

from rmqha.remoting.remoting_client import PeerWatch
from tests.support.wait import stays, wait_until

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
    """Starts a watch of an address that may be changed; (what is watched, what was told)."""
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




def test_a_killed_process_is_told_at_once(watched):
    process, address = _listener()
    _address, told = watched(address)
    assert process.stdout.readline() == "accepted\n"
    process.kill()
    wait_until(lambda: told == [address])
    process.wait()
    stays(lambda: told == [address], 500, "it is told once")


def test_one_that_hangs_is_not_told(watched):
    process, address = _listener()
    _address, told = watched(address)
    assert process.stdout.readline() == "accepted\n"
    os.kill(process.pid, signal.SIGSTOP)
    stays(lambda: told == [], 600)
    process.kill()
    wait_until(lambda: told == [address])
    process.wait()


def test_a_connection_that_ends_alone_is_made_again(watched):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = "127.0.0.1:%d" % listener.getsockname()[1]
        _address, told = watched(address)
        for _ in range(3):
            listener.accept()[0].close()
        listener.accept()
        assert told == []


@pytest.mark.parametrize("address", ["127.0.0.1:1", "no address", "host.invalid:1", "127.0.0.1:99999", "[::1]:1"])
def test_where_nobody_was_nobody_has_gone(watched, address):
    _address, told = watched(address)
    stays(lambda: told == [], 300)


def test_another_address_takes_the_place_of_the_first(watched):
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


def test_one_that_ends_its_connections_before_its_port_is_told(watched):
    """As the kernel may do it for a process that is killed."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = "127.0.0.1:%d" % listener.getsockname()[1]
        _address, told = watched(address)
        first = listener.accept()[0]
        first.close()
        second = listener.accept()[0]
    second.close()
    wait_until(lambda: told == [address])
