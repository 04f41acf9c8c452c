"""TLS: contexts of `ssl` made from the settings, and a socket that encrypts.

docs/tls.md lists what is not supported. A host name is never compared with a certificate, as in the original.

`TlsSocket` is used like the plain, non-blocking socket below it:

    socket --recv--> [incoming BIO] --SSLObject--> plain bytes         (IO thread)
    plain bytes --SSLObject--> [outgoing BIO] --> [unsent] --> socket  (any thread)

All bytes that have arrived are decrypted at once, so nothing readable waits where a selector cannot see it. Bytes count
as sent when the socket has taken the last of their records, so a queue in front of it works as in front of a socket.
"""
import base64
import contextlib
import errno
import logging
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from rmqha.common.configuration import ConfigError
from rmqha.common.filesystem import how_to_install
from rmqha.common.texts import Secret
from rmqha.remoting.protocol.remoting_command import Buffer
from rmqha.remoting.tls_system_config import TlsSystemConfig

log = logging.getLogger("RocketmqRemoting")

# In test mode nobody compares a server's certificate with anything: one pair serves all servers. It proves no identity.
_TEST_MODE_PAIR = """\
-----BEGIN CERTIFICATE-----
MIIBgDCCASWgAwIBAgIUBp7szT+HbtA50ur3bf0yLDkfcfowCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyOTA3MTE1OFoYDzIxMjYxMTA1
MDcxMTU4WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAASgu/IoKIcUrpZ/AVcA97iYUGtzRhL9/dfDnr1piPkvjJEf5TxfQHqQ
YUZ9sBs4qiI+D+KIOLZCIunrmSpD/UoXo1MwUTAdBgNVHQ4EFgQU9d1nJLt8DbN9
xTs8aQ0S9oen210wHwYDVR0jBBgwFoAU9d1nJLt8DbN9xTs8aQ0S9oen210wDwYD
VR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNJADBGAiEAnaRM2wbwJqYACd0OJ6Od
JxbR6hY6JOW0kUOmY3ygx7oCIQCuo4KSpGjMbHzsqKgX2n9HadCaQszYelS2V/cc
pn3VvA==
-----END CERTIFICATE-----
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg4J+GdohJbPKxN9Qr
aTOlDhF1vqxWJjtSbsHID8bxS96hRANCAASgu/IoKIcUrpZ/AVcA97iYUGtzRhL9
/dfDnr1piPkvjJEf5TxfQHqQYUZ9sBs4qiI+D+KIOLZCIunrmSpD/UoX
-----END PRIVATE KEY-----
"""
# pbeWithSHAAnd128BitRC4 and pbeWithSHAAnd40BitRC4 (RFC 7292, C) begin with these bytes of an OID, as DER
_RC4_SCHEMES = {bytes.fromhex("060a2a864886f70d010c0101"): 128, bytes.fromhex("060a2a864886f70d010c0102"): 40}

_VERIFY_MODES = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}


def build_ssl_context(for_client: bool, settings: TlsSystemConfig) -> ssl.SSLContext:
    """A context for all connections of a client, or of a server. Reads the config file and the PEM files.

    Raises ConfigError for what can't be read, what does not fit together, and what `ssl` has no way to do.

    Java: org.apache.rocketmq.remoting.netty.TlsHelper (4.9.8)
    """
    # Differs: no DecryptionStrategy: OpenSSL decrypts keys by their password
    settings = settings.with_config_file()
    settings.log_final()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT if for_client else ssl.PROTOCOL_TLS_SERVER)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    # a trusted certificate is an end of the chain, whoever signed it, as for Java
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.options |= ssl.OP_NO_RENEGOTIATION
    if for_client:
        if not settings.tls_test_mode_enable:
            _set_up_client(context, settings)
    elif settings.tls_test_mode_enable:
        _set_up_test_server(context)
    else:
        _set_up_server(context, settings)
    return context


def _set_up_client(context: ssl.SSLContext, settings: TlsSystemConfig) -> None:
    if settings.tls_client_auth_server:
        context.verify_mode = ssl.CERT_REQUIRED
        _load_trusted(context, settings.tls_client_trust_cert_path, "tls.client.trustCertPath")
    if settings.tls_client_cert_path:
        _load_key(context, "tls.client", settings.tls_client_cert_path, settings.tls_client_key_path,
                  settings.tls_client_key_password)
    elif settings.tls_client_key_path:
        raise ConfigError("there is a key, but no certificate", key="tls.client.certPath")


def _set_up_test_server(context: ssl.SSLContext) -> None:
    # Differs: Java asks for a certificate and takes none as well; asking has no use, and `ssl` would refuse more
    with _file_in_memory(_TEST_MODE_PAIR) as both:
        context.load_cert_chain(both)


def _set_up_server(context: ssl.SSLContext, settings: TlsSystemConfig) -> None:
    if not settings.tls_server_cert_path:
        raise ConfigError("not set, and tls.test.mode.enable is not true", key="tls.server.certPath")
    _load_key(context, "tls.server", settings.tls_server_cert_path, settings.tls_server_key_path,
              settings.tls_server_key_password)
    need = settings.tls_server_need_client_auth
    trusted = settings.tls_server_trust_cert_path
    if not settings.tls_server_auth_client:
        if need == "require" and not trusted:
            # Differs: Java can ask for a certificate and take any; `ssl` compares with what is trusted, or does not ask
            raise ConfigError("`require` needs certificates to compare with: set tls.server.authClient=true, and "
                              "tls.server.trustCertPath unless the system's authorities sign them",
                              key="tls.server.need.client.auth")
        if need == "require":
            # Differs: as above, but there is something to compare with
            log.warning("tls.server.authClient is not true, but tls.server.need.client.auth=require: clients need a "
                        "certificate that %s vouches for", trusted)
        else:
            need = "none"  # no certificate, or any: nothing to ask for
    context.verify_mode = _VERIFY_MODES[need]
    if need != "none":
        _load_trusted(context, trusted, "tls.server.trustCertPath")


def _load_key(context: ssl.SSLContext, side: str, certificate: str, key: str | None, secret: Secret | None) -> None:
    """The certificate chain and its private key; without a key's path it stands in the certificate's file."""
    for name, path in ((f"{side}.certPath", certificate), (f"{side}.keyPath", key)):
        _check_readable(name, path)
    password = secret.reveal() if secret is not None else ""
    try:
        with open(key or certificate, "rb") as file:
            decrypted = _decrypt_rc4_key(file.read(), password)
        with _file_in_memory(decrypted) as in_memory:
            # the callback keeps OpenSSL from asking at the terminal
            context.load_cert_chain(certificate, in_memory if decrypted else key or None, lambda: password)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"certificate and key ({certificate}, {key or 'in the same file'}) can't be loaded: {error}; "
                          f"PEM is needed, both of one pair, and {side}.keyPassword for an encrypted key",
                          key=f"{side}.keyPath") from error


def _decrypt_rc4_key(pem: bytes, password: str) -> str:
    """A key that is encrypted under RC4, as PEM without encryption; '' for all other keys, which OpenSSL reads itself.

    RocketMQ's own guide makes such keys (`openssl pkcs8 -topk8 -v1 PBE-SHA1-RC4-128`). OpenSSL 3 reads them only where
    its legacy provider is switched on, so the library `cryptography` does. Raises ValueError.
    """
    marks = b"-----BEGIN ENCRYPTED PRIVATE KEY-----", b"-----END ENCRYPTED PRIVATE KEY-----"
    begin, end = pem.find(marks[0]), pem.find(marks[1])
    if not 0 <= begin < end:
        return ""
    head = base64.b64decode(pem[begin + len(marks[0]):end])[:32]
    bits = next((bits for oid, bits in _RC4_SCHEMES.items() if oid in head), None)
    if bits is None:
        return ""
    instead = "encrypt the key as others: openssl pkcs8 -topk8 -v2 aes-256-cbc"
    if bits != 128:
        raise ValueError(f"the key is encrypted with PBE-SHA1-RC4-{bits}, which can't be read; {instead}")
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
    except ImportError:
        raise ValueError("the key is encrypted with PBE-SHA1-RC4-128, which the library cryptography reads: "
                         f"{how_to_install('tls')}, or {instead}") from None
    try:
        key = serialization.load_pem_private_key(pem[begin:end + len(marks[1])] + b"\n", password.encode())
    except (TypeError, UnsupportedAlgorithm) as error:  # no password; a damaged key
        raise ValueError(str(error)) from error
    plain: bytes = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                     serialization.NoEncryption())
    return plain.decode()


def _load_trusted(context: ssl.SSLContext, path: str | None, name: str) -> None:
    """What certificates are compared with: a PEM file, else the system's authorities."""
    if not path:
        context.load_default_certs()
        return
    _check_readable(name, path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise ConfigError(f"no PEM certificates: {error}", path, name) from error


@contextlib.contextmanager
def _file_in_memory(text: str) -> Iterator[str]:
    """The path of a file that is on no disk: `ssl` takes keys from files only."""
    with open(os.memfd_create("rmqha-tls"), "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"


def _check_readable(name: str, path: str | None) -> None:
    if not path:
        return
    try:
        with open(path, "rb"):
            return
    except OSError as error:
        raise ConfigError(f"cannot be read: {os.strerror(error.errno or 0)}", path, name) from error


MAX_RECORD = 5 + (1 << 14) + 2048  # bytes: header, content, what encryption adds at most (RFC 5246, 6.2.3)
ENCRYPT_AT_ONCE = 256 << 10  # plain bytes

_HANDSHAKE_READ = 16 << 10


class TlsSocket:
    """A connected socket and its TLS state. `on_full()` is called when a handshake's bytes wait for room in the socket.

    Java: io.netty.handler.ssl.SslHandler
    """

    def __init__(self, connected: socket.socket, context: ssl.SSLContext, server_side: bool,
                 on_full: Callable[[], None] | None = None) -> None:
        self._socket = connected
        self._on_full = on_full
        # Guarded by _lock, with the two BIOs and the SSLObject:
        self._lock = threading.Lock()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_side)
        self._unsent: Buffer = b""  # encrypted, not taken by the socket yet
        self._encrypted = 0  # plain bytes of a send that _unsent ends with; not reported as sent yet
        self._established = False
        self._ended = False  # the peer has said that it sends no more

    @property
    def is_established(self) -> bool:
        """True once the handshake is done."""
        return self._established

    def handshake(self, timeout_s: float) -> None:
        """Shake hands, blocking, on the thread that connects; the socket is left with a time-out.

        Raises OSError: ssl.SSLError, TimeoutError, or what the socket says.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            with self._lock:
                try:
                    self._shake_hands()
                finally:  # what comes next, or the alert
                    self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
                    self._socket.sendall(self._outgoing.read())
                if self._established:  # no plain bytes are left in the BIO: a server does not speak first
                    return
            data = self._socket.recv(_HANDSHAKE_READ)
            if not data:
                raise ConnectionResetError(errno.ECONNRESET, "closed during the TLS handshake")
            self._incoming.write(data)

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._socket.fileno()

    def getsockname(self) -> tuple[str, int]:
        """The socket's own address."""
        address: tuple[str, int] = self._socket.getsockname()
        return address

    def recv_into(self, buffer: memoryview) -> int:
        """Plain bytes read; 0 at the end. BlockingIOError when there are none yet. `buffer` > MAX_RECORD."""
        size = self._socket.recv_into(buffer[:-MAX_RECORD])  # with a record begun before: never more than `buffer`
        return self.decrypt_in(buffer, size) if size else 0

    def decrypt_in(self, buffer: memoryview, size: int) -> int:
        """As `recv_into`, for `size` bytes which are at the start of `buffer` already."""
        with self._lock:
            self._incoming.write(buffer[:size])
            try:
                self._shake_hands()
                size = self._decrypt(buffer) if self._established else 0
            except ssl.SSLError:
                with contextlib.suppress(OSError):  # the alert that tells the peer
                    self._push()
                raise
            is_full = not self._push()
        if is_full and self._on_full is not None:
            self._on_full()
        if size or self._ended:
            return size
        raise BlockingIOError(errno.EAGAIN, "no whole record yet")

    def push(self) -> bool:
        """Send what is encrypted; False when the socket is full."""
        with self._lock:
            return self._push()

    def send(self, data: Buffer) -> int:
        """How many bytes of `data` the socket has taken, encrypted; BlockingIOError while it is full."""
        return self.sendmsg((data,))

    def sendmsg(self, buffers: Sequence[Buffer]) -> int:
        """As `send`. After a BlockingIOError the next call has to begin with the same bytes."""
        with self._lock:
            if not self._established:  # nobody knows of a connection before its first request
                raise ConnectionError(errno.ENOTCONN, "the TLS handshake is not done")
            if not self._encrypted:
                chunk = _gather(buffers)
                self._encrypted, rest = len(chunk), memoryview(chunk)
                while rest:
                    rest = rest[self._ssl.write(rest):]
            if not self._push():
                raise BlockingIOError(errno.EAGAIN, "the socket is full")
            sent, self._encrypted = self._encrypted, 0
            return sent

    def shutdown(self, how: int) -> None:
        """Say goodbye to the peer if that is possible at once, and shut the socket down."""
        with self._lock, contextlib.suppress(OSError):  # `unwrap` always misses the peer's goodbye
            if self._established and not self._unsent:
                with contextlib.suppress(ssl.SSLError):
                    self._ssl.unwrap()
                self._push()
        self._socket.shutdown(how)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _shake_hands(self) -> None:
        """Go on with the handshake as far as the bytes reach. Under _lock."""
        if not self._established:
            with contextlib.suppress(ssl.SSLWantReadError):
                self._ssl.do_handshake()
                self._established = True

    def _decrypt(self, buffer: memoryview) -> int:
        """All plain bytes there are, into `buffer`. Under _lock."""
        taken = 0
        while taken < len(buffer) and not self._ended:
            try:
                size: int = self._ssl.read(len(buffer) - taken, buffer[taken:])  # type: ignore[assignment]  # a count
            except ssl.SSLWantReadError:
                break
            except ssl.SSLZeroReturnError:
                size = 0
            taken += size
            self._ended = not size
            if not (self._incoming.pending or self._ssl.pending()):  # cheaper than asking in vain
                break
        return taken

    def _push(self) -> bool:
        """Send until nothing is left (True) or the socket is full. Under _lock."""
        if self._outgoing.pending:
            encrypted = self._outgoing.read()
            self._unsent = b"".join((self._unsent, encrypted)) if self._unsent else encrypted
        while self._unsent:
            try:
                sent = self._socket.send(self._unsent)
            except (BlockingIOError, InterruptedError):
                return False
            self._unsent = memoryview(self._unsent)[sent:] if sent < len(self._unsent) else b""
        return True


def _gather(buffers: Sequence[Buffer]) -> Buffer:
    """The first bytes of `buffers`, ENCRYPT_AT_ONCE at most: small ones share a record, large ones are not copied."""
    first = buffers[0]
    if len(buffers) == 1 or len(first) >= ENCRYPT_AT_ONCE:
        return memoryview(first)[:ENCRYPT_AT_ONCE]
    parts, room = [], ENCRYPT_AT_ONCE
    for buffer in buffers:
        if room <= 0:
            break
        parts.append(memoryview(buffer)[:room])
        room -= len(buffer)
    return b"".join(parts)
