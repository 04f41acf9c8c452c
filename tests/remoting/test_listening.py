"""Which port can't be listened on, why, and who holds it."""
import errno
import os
import socket

import psutil
import pytest

from rmqha.remoting import addresses
from rmqha.remoting.addresses import FAST_PORT, HA_PORT, LISTEN_PORT, PortError, listen


def test_taken_port_names_its_use_and_its_holder():
    with listen(0, LISTEN_PORT, 5) as holder:
        port = holder.getsockname()[1]
        with pytest.raises(PortError) as failed:
            listen(port, HA_PORT, 5)
    text = str(failed.value)
    assert text.startswith(f"port {port} (the HA port, listenPort + 1) is in use by pid {os.getpid()} (")
    assert psutil.Process().cmdline()[0] in text and text.endswith("; stop it, or choose another listenPort")
    assert failed.value.errno == errno.EADDRINUSE and "\n" not in text


def test_port_of_an_outgoing_connection_names_who_has_it():
    with listen(0, LISTEN_PORT, 5) as server, socket.socket() as client:
        client.connect(("127.0.0.1", server.getsockname()[1]))
        port = client.getsockname()[1]
        with pytest.raises(PortError, match=f"port {port} .* is in use by pid {os.getpid()} "):
            listen(port, LISTEN_PORT, 5)


def test_holder_that_can_not_be_seen_is_said(monkeypatch):
    with listen(0, LISTEN_PORT, 5) as holder:
        def denied(_kind):
            raise psutil.AccessDenied
        monkeypatch.setattr(psutil, "net_connections", denied)
        with pytest.raises(PortError, match="is in use by a process of somebody else; stop it"):
            listen(holder.getsockname()[1], FAST_PORT, 5)


class Forbidden(socket.socket):
    def bind(self, _address):
        raise PermissionError(errno.EACCES, "Permission denied")


@pytest.mark.parametrize(("port", "text"), [
    (80, "port 80 (listenPort) may not be listened on by this user; ports below 1024 need root or"),
    (10911, "port 10911 (listenPort) may not be listened on by this user; choose another listenPort"),
])
def test_forbidden_port_says_what_is_missing(monkeypatch, port, text):
    monkeypatch.setattr(addresses, "listening_socket", Forbidden)
    with pytest.raises(PortError) as failed:
        listen(port, LISTEN_PORT, 5)
    assert text in str(failed.value)


def test_number_that_is_no_port_is_said():
    with pytest.raises(PortError, match=r"65536 \(the HA port, listenPort \+ 1\) is no port"):
        listen(65_536, HA_PORT, 5)


def test_control_characters_of_a_command_are_not_printed(monkeypatch):
    monkeypatch.setattr(psutil.Process, "cmdline", lambda _self: ["java", "-Dx=\x1b[31m\n" + "y" * 500])
    with listen(0, LISTEN_PORT, 5) as holder:
        (text,) = addresses.holders(holder.getsockname()[1])
    assert text.startswith(f"pid {os.getpid()} (java -Dx=?[31m?yyy") and text.isprintable() and len(text) < 200
