"""A link that no longer passes what is sent is seen by the kernel's retransmissions."""
import socket
import subprocess
import threading

import pytest

from rmqha.remoting.addresses import retransmits
from tests.faults import network
from tests.support.wait import wait_until


def test_good_connection_closed_one_and_no_tcp_have_none():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        client.send(b"x")
        assert retransmits(client) == 0
    assert retransmits(client) == 0
    one, other = socket.socketpair()
    with one, other:
        assert retransmits(one) == 0


def test_bytes_that_never_arrive_are_counted_until_they_do():
    if not network.can_drop():
        pytest.skip("not installed: nft")
    seen = []
    thread = threading.Thread(target=lambda: seen.append(_lost_and_found()))  # its network is its own
    thread.start()
    thread.join(240)
    if seen == ["no network"]:
        pytest.skip("network namespaces do not work here")
    assert seen == ["lost and found"]


def _lost_and_found() -> str:
    if not network.isolate():
        return "no network"
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        served, (_host, port) = server.accept()
        with served:
            rules = (f"add table inet t; add chain inet t i {{ type filter hook input priority 0; }}; "
                     f"add rule inet t i tcp dport {port} drop")
            subprocess.run(["nft", rules], check=True, timeout=600)
            served.send(b"lost")
            wait_until(lambda: retransmits(served) >= 4, 60_000, "sent again and again")
            assert retransmits(client) == 0
            subprocess.run(["nft", "flush", "ruleset"], check=True, timeout=600)
            wait_until(lambda: retransmits(served) == 0, 60_000, "arrived at last")
    return "lost and found"
