"""A listening socket takes peers of both families, and shows each by its plain address."""
import socket

import pytest

from rmqha.remoting.addresses import listening_socket, plain_address, resolved_host
from tests.remoting.support import has_ipv6_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_peer_of_either_family_is_taken_and_known_by_its_own_address(host):
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
def test_names_become_addresses_of_ipv4_first(host, address):
    assert resolved_host(host) == address


def test_name_that_has_ipv6_only_becomes_that(monkeypatch):
    six = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("2001:db8::1", 0, 0, 0))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_options: [six])
    assert resolved_host("six") == "2001:db8::1"


def test_unknown_name_is_an_error():
    with pytest.raises(OSError):
        resolved_host("no-such-host.invalid")
