"""TLS on a remoting port, which delivers every byte and withstands hostile peers; and keys that OpenSSL encrypted
with RC4."""
import base64
import builtins
import contextlib
import dataclasses
import logging
import os
import socket
import ssl
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmqha.common.configuration import ConfigError
from rmqha.remoting import io_thread
from rmqha.remoting.exception import RemotingConnectException, RemotingException, RemotingSendRequestException
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.tls import _decrypt_rc4_key, build_ssl_context
from rmqha.remoting.tls_system_config import TlsMode, TlsSystemConfig
from tests.remoting.support import Processor, Raw, address, json_frame, request, running_client, running_server
from tests.support.programs import Authority, encrypted, openssl
from tests.support.tiers import drawn
from tests.support.wait import wait_until

# TLS on a remoting port: the connections that each mode serves and closes, the delivery of every byte, and hostile
# peers. RMQHA_TLS_INPUTS sets how many inputs each fuzz test makes.

WAIT_MS = 60_000
CALL_MS = 60_000
REGION, CLOSE = 101, 102
INPUTS = int(os.environ.get("RMQHA_TLS_INPUTS", "150"))  # of each fuzz test


def mode(which: TlsMode) -> TlsSystemConfig:
    return TlsSystemConfig(tls_mode=which)


def trusting() -> ssl.SSLContext:
    """Return a client's context that accepts any certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def secured(raw: Raw, context: ssl.SSLContext | None = None) -> Raw:
    raw.socket = (context or trusting()).wrap_socket(raw.socket)
    return raw


class Wire:
    """A hand-made TLS client: outgoing bytes are held back, and may be cut or corrupted before they are sent.

    `flush` may run on a thread of its own; everything else must run on one thread, since OpenSSL's connections are not
    thread-safe.
    """

    def __init__(self, raw: Raw) -> None:
        self.raw = raw
        self._plain = bytearray()  # read but not yet consumed
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = trusting().wrap_bio(self.incoming, self.outgoing)

    def hello(self) -> None:
        """Produce the first step of the handshake without sending it."""
        with pytest.raises(ssl.SSLWantReadError):
            self.tls.do_handshake()

    def shake_hands(self, piece: int = 1 << 20) -> None:
        """Run the handshake to its end; its last bytes are not sent yet."""
        while True:
            try:
                return self.tls.do_handshake()
            except ssl.SSLWantReadError:
                self.flush(piece)
                assert self.receive()

    def flush(self, piece: int = 1 << 20) -> None:
        """Send everything, `piece` bytes at a time."""
        data = memoryview(self.outgoing.read())
        for at in range(0, len(data), piece):
            self.raw.send(data[at:at + piece])

    def write(self, data: bytes) -> None:
        """Encrypt the data."""
        rest = memoryview(data)
        while rest:
            rest = rest[self.tls.write(rest):]

    def read_command(self) -> RemotingCommand:
        """Return the next whole frame."""
        data = self._plain
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
            more = self.read()
            assert more, "the server closed the connection"
            data += more
        size = 4 + int.from_bytes(data[:4], "big")
        frame, self._plain = bytes(data[4:size]), data[size:]
        return RemotingCommand.decode(memoryview(frame))

    def receive(self) -> bool:
        """Receive the server's bytes; return False at the end."""
        try:
            data = self.raw.socket.recv(1 << 16)
        except ConnectionResetError:
            return False
        self.incoming.write(data)
        return bool(data)

    def read(self) -> bytes:
        """Return the next plain bytes; nothing at the end, however it is signalled."""
        while True:
            try:
                return self.tls.read(1 << 16)
            except ssl.SSLWantReadError:
                if not self.receive():
                    return b""
            except ssl.SSLError:
                return b""


@pytest.fixture(scope="module")
def served():
    """A permissive server in test mode, a client with TLS, and one without."""
    with running_server() as server, running_client(useTLS=True) as client, running_client() as plain:
        yield server, client, plain
        assert_unharmed((server, client, plain))


def assert_unharmed(served) -> None:
    server, client, plain = served
    for each in (client, plain):
        assert each.invoke_sync(address(server), request(body=b"good"), CALL_MS).body == b"good"


# Modes

def test_permissive_mode_serves_both_kinds_on_one_port(served):
    assert_unharmed(served)
    with Raw(served[0]) as raw:
        secured(raw).send(json_frame(b"x", opaque=3))
        assert raw.socket.version() == "TLSv1.3" and raw.read().opaque == 3


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_tls_versions_are_supported(served, version):
    context = trusting()
    context.minimum_version = context.maximum_version = version
    with Raw(served[0]) as raw:
        secured(raw, context).send(json_frame(opaque=4))
        assert raw.read().opaque == 4


def test_enforcing_mode_closes_plain_connections_with_one_log_line(caplog):
    with running_server(tls=mode(TlsMode.ENFORCING)) as server, running_client(useTLS=True) as client:
        assert client.invoke_sync(address(server), request(body=b"in"), CALL_MS).body == b"in"
        with caplog.at_level(logging.WARNING, "RocketmqRemoting"), Raw(server) as raw:
            raw.send(json_frame())
            assert raw.is_closed()
        assert client.invoke_sync(address(server), request(body=b"in"), CALL_MS).body == b"in"
    line, = [record.getMessage() for record in caplog.records]
    assert line.startswith("Clients intend to establish an insecure connection") and "127.0.0.1:" in line


def test_disabled_mode_closes_tls_connections_with_one_log_line(caplog):
    with running_server(tls=mode(TlsMode.DISABLED)) as server, running_client() as plain:
        with caplog.at_level(logging.WARNING, "RocketmqRemoting"), Raw(server) as raw:
            with pytest.raises((ssl.SSLError, ConnectionError)):
                secured(raw)
        assert plain.invoke_sync(address(server), request(body=b"in"), CALL_MS).body == b"in"
    line, = [record.getMessage() for record in caplog.records]
    assert line.startswith("Clients intend to establish an SSL connection") and "127.0.0.1:" in line


def test_client_reports_that_the_server_has_no_tls():
    with running_server(tls=mode(TlsMode.DISABLED)) as server, running_client(useTLS=True) as client:
        with pytest.raises(RemotingConnectException):
            client.invoke_sync(address(server), request(), CALL_MS)
        wait_until(lambda: not server.io.channels, WAIT_MS, "nothing is left")


# Delivery of every byte

@pytest.mark.parametrize("size", [0, 1, 16_383, 16_384, 16_385, 262_144, 300_000, 5_000_000])
def test_bodies_of_any_size_are_returned(served, size):
    server, client, _ = served
    body = os.urandom(size)
    assert (client.invoke_sync(address(server), request(body=body), CALL_MS).body or b"") == body


def test_handshake_and_request_sent_byte_by_byte_are_served(served):
    """Each byte of the handshake and of the records is a packet of its own."""
    with Raw(served[0]) as raw:
        raw.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wire = Wire(raw)
        wire.shake_hands(piece=1)
        wire.tls.write(json_frame(b"body", opaque=9))
        wire.flush(piece=1)
        assert b'"opaque":9' in wire.read()


def test_request_in_the_packet_that_ends_the_handshake_is_served(served):
    with Raw(served[0]) as raw:
        wire = Wire(raw)
        wire.shake_hands()
        wire.tls.write(json_frame(opaque=11) + json_frame(opaque=12))
        # Includes the client's end of the handshake.
        raw.send(wire.outgoing.read())
        data = b""
        while data.count(b'"opaque"') < 2:
            data += wire.read()
        assert b'"opaque":11' in data and b'"opaque":12' in data


def test_flood_of_requests_on_one_connection_is_answered_in_order(served):
    count = 3000
    with Raw(served[0]) as raw:
        wire = Wire(raw)
        wire.shake_hands()
        for opaque in range(count):
            wire.write(json_frame(b"x" * (opaque % 400), opaque=opaque))
        sender = threading.Thread(target=wire.flush)
        sender.start()
        assert [wire.read_command().opaque for _ in range(count)] == list(range(count))
        sender.join()


def test_answers_wait_for_a_slow_reader(served):
    """Answers beyond the socket buffers are queued; the server stops reading meanwhile, and every byte arrives in
    the end."""
    server, _, _ = served
    bodies = [os.urandom(1 << 20) for _ in range(24)]
    with Raw(server) as raw:
        raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        wire = Wire(raw)
        wire.shake_hands()
        for number, body in enumerate(bodies):
            wire.write(json_frame(body, opaque=number))
        asked = threading.Thread(target=wire.flush)
        asked.start()
        wait_until(lambda: any(channel.is_blocked for channel in list(server.io.channels)), WAIT_MS, "a full socket")
        assert_unharmed(served)
        for number, body in enumerate(bodies):
            answer = wire.read_command()
            assert (answer.opaque, answer.body == body) == (number, True)
        asked.join()


def test_pieces_of_a_file_are_sent_and_released(served):
    server, client, _ = served
    parts = [memoryview(os.urandom(size)) for size in (10, 40_000, 1, 600_000)]
    released = threading.Event()

    def region(_channel, _asked) -> RemotingCommand:
        response = RemotingCommand.create_response_command(0, None)
        response.file_region, response.release_region = parts, released.set
        return response

    server.register_processor(REGION, Processor(region))
    assert client.invoke_sync(address(server), request(REGION), CALL_MS).body == b"".join(parts)
    assert released.wait(WAIT_MS / 1000)


def test_server_that_closes_ends_its_calls_at_once(served):
    server, client, _ = served
    server.register_processor(CLOSE, Processor(lambda channel, _asked: channel.close()))
    with pytest.raises(RemotingSendRequestException):
        client.invoke_sync(address(server), request(CLOSE), 60_000)


def test_both_sides_close_tls_properly(served):
    server, _, _ = served
    with Raw(server) as raw:
        secured(raw).send(json_frame(opaque=1))
        raw.read()
        # Raises unless the server sends close_notify.
        raw.socket.unwrap()
    with Raw(server) as raw:
        server.register_processor(CLOSE, Processor(lambda channel, _asked: channel.close()))
        secured(raw).send(json_frame(code=CLOSE))
        # SSLEOFError without close_notify.
        assert raw.socket.recv(1) == b""


# Hostile peers

def test_stalled_handshake_is_closed_after_a_while(monkeypatch, caplog):
    monkeypatch.setattr(io_thread, "TLS_HANDSHAKE_TIMEOUT_NS", 300_000_000)
    with running_server() as server, running_client() as plain:
        with caplog.at_level(logging.WARNING, "RocketmqRemoting"), Raw(server) as raw:
            raw.send(b"\x16\x03\x01")
            assert raw.is_closed()
        assert plain.invoke_sync(address(server), request(), CALL_MS).code == 0
        wait_until(lambda: not server.io._handshakes, WAIT_MS, "forgotten")
    assert [record.getMessage().split(",")[0] for record in caplog.records] == ["TLS handshake timed out"]


def test_client_waits_no_longer_for_a_handshake_than_for_an_answer():
    with socket.create_server(("127.0.0.1", 0)) as silent, running_client(useTLS=True) as client:
        with pytest.raises(RemotingConnectException):
            client.invoke_sync(f"127.0.0.1:{silent.getsockname()[1]}", request(), 300)


def test_pending_handshakes_block_no_other_client(served):
    server, _, _ = served
    begun = [socket.create_connection(("127.0.0.1", server.local_listen_port)) for _ in range(200)]
    try:
        for each in begun:
            each.sendall(b"\x16\x03\x01\x00\xc8\x01")
        wait_until(lambda: len(server.io._handshakes) >= len(begun), WAIT_MS, "all have begun")
        assert_unharmed(served)
    finally:
        for each in begun:
            each.close()
    wait_until(lambda: not server.io._handshakes, WAIT_MS, "all are gone")


def test_failed_handshakes_leave_nothing(served):
    server, _, _ = served
    wait_until(lambda: len(server.io.channels) <= 2, WAIT_MS, "only the two clients")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(100):
        with Raw(server) as raw:
            raw.send(b"\x16\x03\x01\x00\x05hello")
            # An alert, then the end.
            while raw.socket.recv(100):
                pass
    wait_until(lambda: len(os.listdir("/proc/self/fd")) <= before, WAIT_MS, "descriptors are back")
    assert_unharmed(served)


@settings(max_examples=INPUTS, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300) | st.builds(lambda size, body: b"\x03\x01" + size.to_bytes(2, "big") + body,
                                           st.integers(0, 400), st.binary(max_size=400)))
def test_arbitrary_bytes_after_the_first_do_not_harm_the_server(served, data):
    with Raw(served[0]) as raw:
        raw.send(b"\x16" + data)
        raw.end()
    assert_unharmed(served)


@settings(max_examples=INPUTS // 2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(spoilt=st.integers(0, 2), place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_flipped_bit_harms_only_its_own_connection(served, spoilt, place, bit):
    """The bit is in the client's hello, in its end of the handshake, or in the record with its request."""
    with Raw(served[0]) as raw:
        wire = Wire(raw)
        for flight, step in enumerate((wire.hello, wire.shake_hands, lambda: wire.tls.write(json_frame()))):
            step()
            if flight == spoilt:
                data = bytearray(wire.outgoing.read())
                data[int(place * len(data))] ^= 1 << bit
                raw.send(data)
                with contextlib.suppress(OSError):  # closed already
                    raw.socket.shutdown(socket.SHUT_WR)
                break
            wire.flush()
        answer = wire.read()
        # The request was not served.
        assert spoilt < 2 or not answer
    assert_unharmed(served)


def test_client_survives_nonsense_from_a_server():
    with socket.create_server(("127.0.0.1", 0)) as liar, running_client(useTLS=True) as client:
        def lie() -> None:
            for _ in range(5):
                connected, _address = liar.accept()
                with connected:
                    connected.recv(1000)
                    connected.sendall(b"\x16" + os.urandom(200))

        lying = threading.Thread(target=lie)
        lying.start()
        for _ in range(5):
            with pytest.raises(RemotingException):
                client.invoke_sync(f"127.0.0.1:{liar.getsockname()[1]}", request(), CALL_MS)
        lying.join()
        with running_server() as server:
            assert client.invoke_sync(address(server), request(body=b"good"), CALL_MS).body == b"good"


# Keys that OpenSSL encrypted with RC4, as RocketMQ's guide has them made, and inputs that are not such keys.

# openssl pkcs8 -topk8 -v1 PBE-SHA1-RC4-128 -provider legacy -provider default -passout pass:123456
RC4_128 = b"""-----BEGIN ENCRYPTED PRIVATE KEY-----
MIGrMBwGCiqGSIb3DQEMAQEwDgQIza0NWG4UKl8CAggABIGK+pxaoV/lpmJFOPzW
m44nxLjl2Ip1UtOap8fAqq0n/TJ+PXrbIqBrwwMw80uGKTuuBOf9vjgDJ2kDSTFp
A/743BNgBPJtsXQZMgp4KbSiWzDwrwFZ4OaNu8FjwId6PaY3Rkta4M1IDr0hLlMx
n8y8cjpDdXTwspkx3NEYs3VjjrYewgc59IYazuDP
-----END ENCRYPTED PRIVATE KEY-----
"""
RC4_40 = b"""-----BEGIN ENCRYPTED PRIVATE KEY-----
MIGrMBwGCiqGSIb3DQEMAQIwDgQIv6DrzVij8JACAggABIGK1ffl99s0HnKdS1Ub
ykODOiXqt8L6Jgu05Jg1dLnswKBXB+Fbk3Jh6HfK/PFkU/tafhSAaOcGfzeLgltM
f7yRe9eVe+/PoWMZltz5GRKBAp9Fl5uXf0dWL5bDuDZzN5YgsgZwXe8zrq/9NXX/
4wtPM0/5uxZNpnMB2+h4us5J/JmiXSyACrFvHEs9
-----END ENCRYPTED PRIVATE KEY-----
"""
BODY = base64.b64decode(b"".join(RC4_128.splitlines()[1:-1]))


def pem(body: bytes) -> bytes:
    label = b"ENCRYPTED PRIVATE KEY-----\n"
    return b"-----BEGIN " + label + base64.encodebytes(body) + b"-----END " + label


def decrypted(data: bytes, password: str = "123456") -> str | None:
    """Return the key without encryption, or None for an error that users are shown."""
    try:
        return _decrypt_rc4_key(data, password)
    except ValueError:
        return None


@pytest.fixture
def pair(tmp_path):
    """A server's settings whose key is `rc4.key`."""
    key, certificate = tmp_path / "plain.key", tmp_path / "cert.pem"
    key.write_text(_decrypt_rc4_key(RC4_128, "123456"))
    openssl("req", "-x509", "-key", key, "-subj", "/CN=rc4", "-days", "30", "-out", certificate)
    return TlsSystemConfig(
        tls_mode=TlsMode.ENFORCING, tls_test_mode_enable=False, tls_server_key_password="123456",
        tls_server_cert_path=str(certificate), tls_server_key_path=str(tmp_path / "rc4.key"))


def test_openssl_accepts_the_decrypted_key(tmp_path):
    (tmp_path / "plain.key").write_text(_decrypt_rc4_key(RC4_128, "123456"))
    assert "Key is valid" in openssl("pkey", "-in", tmp_path / "plain.key", "-check", "-noout")


@pytest.mark.parametrize("file", [RC4_128, b"# a comment\n" + RC4_128], ids=["alone", "comment"])
def test_server_serves_with_an_rc4_key(pair, file, tmp_path):
    (tmp_path / "rc4.key").write_bytes(file)
    with running_server(tls=pair) as server, running_client(useTLS=True) as client:
        assert client.invoke_sync(address(server), request(body=b"in"), 20_000).body == b"in"


def test_wrong_password_is_a_config_error(pair, tmp_path):
    (tmp_path / "rc4.key").write_bytes(RC4_128)
    for password in ("1234567", "", None):
        with pytest.raises(ConfigError, match="can't be loaded"):
            build_ssl_context(False, dataclasses.replace(pair, tls_server_key_password=password))


def test_forty_bit_key_is_refused_with_a_remedy(pair, tmp_path):
    (tmp_path / "rc4.key").write_bytes(RC4_40)
    with pytest.raises(ConfigError, match="PBE-SHA1-RC4-40, which is not supported; re-encrypt the key with openssl"):
        build_ssl_context(False, pair)


def test_error_without_the_library_names_what_to_install(pair, tmp_path, monkeypatch):
    (tmp_path / "rc4.key").write_bytes(RC4_128)
    there = builtins.__import__

    def gone(name, *rest):
        if name.startswith("cryptography"):
            raise ImportError(name)
        return there(name, *rest)

    monkeypatch.setattr(builtins, "__import__", gone)
    with pytest.raises(ConfigError, match=r"which needs the library cryptography: .* -m pip install .*\[tls\]"):
        build_ssl_context(False, pair)


def test_other_files_are_left_to_openssl(tmp_path_factory):
    identity = Authority(tmp_path_factory.mktemp("other")).sign("other")
    for path in (identity.key, identity.certificate, encrypted(identity.key, "x")):
        assert _decrypt_rc4_key(path.read_bytes(), "x") == "", path
    assert _decrypt_rc4_key(b"", "x") == ""
    assert _decrypt_rc4_key(RC4_128[:200], "x") == ""


@settings(max_examples=drawn(300), deadline=None)
@given(st.integers(0, 40), st.binary(min_size=1, max_size=3))
def test_damaged_keys_are_decrypted_or_errors(at, wrong):
    result = decrypted(pem(BODY[:at] + wrong + BODY[at + len(wrong):]))
    assert not result or result.startswith("-----BEGIN PRIVATE KEY-----")


@settings(max_examples=drawn(300), deadline=None)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_not_keys(data):
    assert not decrypted(pem(data))
