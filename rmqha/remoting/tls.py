"""TLS: SSL contexts created from the settings, and a socket that encrypts.

docs/tls.md lists what is not supported. Host names are never compared with certificates, as in RocketMQ. For reloading
certificates at run time see `CertificateWatch`.

`TlsSocket` is used like the plain, non-blocking socket below it:

    socket --recv--> [incoming BIO] --SSLObject--> plain bytes         (IO thread)
    plain bytes --SSLObject--> [outgoing BIO] --> [unsent] --> socket  (any thread)

Received bytes are decrypted at once, so no readable data waits where a selector cannot see it. Bytes count as sent when
the socket has taken the last of their records, so a queue of bytes works in front of a TlsSocket as in front of a
socket.
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

# In test mode clients do not verify a server's certificate, so one pair serves all servers. It proves no identity.
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
# The DER encodings of the OIDs of pbeWithSHAAnd128BitRC4 and pbeWithSHAAnd40BitRC4 (RFC 7292, C).
_RC4_SCHEMES = {bytes.fromhex("060a2a864886f70d010c0101"): 128, bytes.fromhex("060a2a864886f70d010c0102"): 40}

_VERIFY_MODES = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "require": ssl.CERT_REQUIRED}


def build_ssl_context(for_client: bool, settings: TlsSystemConfig) -> ssl.SSLContext:
    """Return a context for all connections of a client or a server. Reads the config file and the PEM files.

    Raises ConfigError for files that can't be read, settings that contradict each other, and settings that `ssl` does
    not support.

    Java: org.apache.rocketmq.remoting.netty.TlsHelper (4.9.8)
    """
    # Differs: TLS has no DecryptionStrategy: OpenSSL decrypts keys with their password
    settings = settings.with_config_file()
    settings.log_final()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT if for_client else ssl.PROTOCOL_TLS_SERVER)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    # As in Java, the chain may end with any trusted certificate, even one that is not self-signed.
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
        raise ConfigError("not set, although tls.client.keyPath is", key="tls.client.certPath")


def _set_up_test_server(context: ssl.SSLContext) -> None:
    # Differs: a server in TLS test mode does not ask for a client certificate. Java requests one but does not need it;
    # a request is of no use here, and `ssl` would reject clients that Java accepts
    with _file_in_memory(_TEST_MODE_PAIR) as both:
        context.load_cert_chain(both)


def _set_up_server(context: ssl.SSLContext, settings: TlsSystemConfig) -> None:
    if not settings.tls_server_cert_path:
        raise ConfigError("not set, but required unless tls.test.mode.enable=true", key="tls.server.certPath")
    _load_key(context, "tls.server", settings.tls_server_cert_path, settings.tls_server_key_path,
              settings.tls_server_key_password)
    need = settings.tls_server_need_client_auth
    trusted = settings.tls_server_trust_cert_path
    if not settings.tls_server_auth_client:
        if need == "require" and not trusted:
            # Differs: `tls.server.need.client.auth=require` needs trusted certificates; Java can request a certificate
            # and accept any, but `ssl` verifies it, or does not request one
            raise ConfigError("`require` needs trusted certificates to verify clients with: set "
                              "tls.server.authClient=true, and tls.server.trustCertPath unless the system trusts them",
                              key="tls.server.need.client.auth")
        if need == "require":
            # Differs: as above, but there are trusted certificates
            log.warning("tls.server.authClient is not true, but tls.server.need.client.auth=require: clients need a "
                        "certificate that is trusted by %s", trusted)
        else:
            need = "none"  # no certificate would be rejected, so none is requested
    context.verify_mode = _VERIFY_MODES[need]
    if need != "none":
        _load_trusted(context, trusted, "tls.server.trustCertPath")


def _load_key(context: ssl.SSLContext, side: str, certificate: str, key: str | None, secret: Secret | None) -> None:
    """Load the certificate chain and its private key. Without `key`, the key is in the certificate's file."""
    for name, path in ((f"{side}.certPath", certificate), (f"{side}.keyPath", key)):
        _check_readable(name, path)
    password = secret.reveal() if secret is not None else ""
    try:
        with open(key or certificate, "rb") as file:
            decrypted = _decrypt_rc4_key(file.read(), password)
        with _file_in_memory(decrypted) as in_memory:
            # Without a callback, OpenSSL would ask for the password at the terminal.
            context.load_cert_chain(certificate, in_memory if decrypted else key or None, lambda: password)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"certificate and key ({certificate}, {key or 'in the same file'}) can't be loaded: {error}; "
                          f"both must be PEM and form a pair, and an encrypted key needs {side}.keyPassword",
                          key=f"{side}.keyPath") from error


def _decrypt_rc4_key(pem: bytes, password: str) -> str:
    """Return an RC4-encrypted key as unencrypted PEM; '' for all other keys, which OpenSSL can read.

    RocketMQ's guide creates such keys (`openssl pkcs8 -topk8 -v1 PBE-SHA1-RC4-128`). OpenSSL 3 reads them only if its
    legacy provider is enabled, so the library `cryptography` decrypts them. Raises ValueError.
    """
    marks = b"-----BEGIN ENCRYPTED PRIVATE KEY-----", b"-----END ENCRYPTED PRIVATE KEY-----"
    begin, end = pem.find(marks[0]), pem.find(marks[1])
    if not 0 <= begin < end:
        return ""
    head = base64.b64decode(pem[begin + len(marks[0]):end])[:32]
    bits = next((bits for oid, bits in _RC4_SCHEMES.items() if oid in head), None)
    if bits is None:
        return ""
    instead = "re-encrypt the key with openssl pkcs8 -topk8 -v2 aes-256-cbc"
    if bits != 128:
        raise ValueError(f"the key is encrypted with PBE-SHA1-RC4-{bits}, which is not supported; {instead}")
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
    except ImportError:
        raise ValueError("the key is encrypted with PBE-SHA1-RC4-128, which needs the library cryptography: "
                         f"{how_to_install('tls')}, or {instead}") from None
    try:
        key = serialization.load_pem_private_key(pem[begin:end + len(marks[1])] + b"\n", password.encode())
    except (TypeError, UnsupportedAlgorithm) as error:  # no password; a damaged key
        raise ValueError(str(error)) from error
    plain: bytes = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                     serialization.NoEncryption())
    return plain.decode()


def _load_trusted(context: ssl.SSLContext, path: str | None, name: str) -> None:
    """Load the trusted certificates: a PEM file, or else those of the system."""
    if not path:
        context.load_default_certs()
        return
    _check_readable(name, path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise ConfigError(f"contains no PEM certificates: {error}", path, name) from error


@contextlib.contextmanager
def _file_in_memory(text: str) -> Iterator[str]:
    """Yield the path of a file in memory: `ssl` loads keys only from files, and these must not reach a disk."""
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


# In bytes: the header, the content, and the most that encryption adds (RFC 5246, 6.2.3).
MAX_RECORD = 5 + (1 << 14) + 2048
ENCRYPT_AT_ONCE = 256 << 10  # plain bytes

_HANDSHAKE_READ = 16 << 10


class TlsSocket:
    """A connected socket and its TLS state. `on_full()` is called if the socket can't take all bytes of a handshake.

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
        # Encrypted bytes that the socket has not taken yet.
        self._unsent: Buffer = b""
        # The number of plain bytes that were encrypted at the end of _unsent, but not yet reported as sent.
        self._encrypted = 0
        self._established = False
        # The peer has announced that it sends no more.
        self._ended = False

    @property
    def is_established(self) -> bool:
        """True once the handshake is done."""
        return self._established

    def handshake(self, timeout_s: float) -> None:
        """Do the handshake on the thread that connects, blocking. It leaves a time-out set on the socket.

        Raises OSError: ssl.SSLError, TimeoutError, or an error of the socket.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            with self._lock:
                try:
                    self._shake_hands()
                finally:  # the next handshake bytes, or an alert
                    self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
                    self._socket.sendall(self._outgoing.read())
                # No plain bytes can be left in the BIO, because a server does not send first.
                if self._established:
                    return
            data = self._socket.recv(_HANDSHAKE_READ)
            if not data:
                raise ConnectionResetError(errno.ECONNRESET, "closed during the TLS handshake")
            self._incoming.write(data)

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._socket.fileno()

    def getsockname(self) -> tuple[str, int]:
        """Return the socket's own address."""
        address: tuple[str, int] = self._socket.getsockname()
        return address

    def setsockopt(self, level: int, option: int, value: bytes) -> None:
        """Set an option of the socket."""
        self._socket.setsockopt(level, option, value)

    def recv_into(self, buffer: memoryview) -> int:
        """Read plain bytes into `buffer` (more than MAX_RECORD bytes); return their number, 0 at the end of the stream.

        BlockingIOError if none are complete yet.
        """
        # Together with an incomplete record that was kept, this never decrypts to more than fits into `buffer`.
        size = self._socket.recv_into(buffer[:-MAX_RECORD])
        return self.decrypt_in(buffer, size) if size else 0

    def decrypt_in(self, buffer: memoryview, size: int) -> int:
        """Decrypt the first `size` bytes of `buffer` in place. Otherwise like `recv_into`."""
        with self._lock:
            self._incoming.write(buffer[:size])
            try:
                self._shake_hands()
                size = self._decrypt(buffer) if self._established else 0
            except ssl.SSLError:
                with contextlib.suppress(OSError):  # send the alert to the peer
                    self._push()
                raise
            is_full = not self._push()
        if is_full and self._on_full is not None:
            self._on_full()
        if size or self._ended:
            return size
        raise BlockingIOError(errno.EAGAIN, "no whole record yet")

    def push(self) -> bool:
        """Send the encrypted bytes. Return False if the socket is full."""
        with self._lock:
            return self._push()

    def send(self, data: Buffer) -> int:
        """Encrypt and send. Return the number of plain bytes sent. BlockingIOError while the socket is full."""
        return self.sendmsg((data,))

    def sendmsg(self, buffers: Sequence[Buffer]) -> int:
        """Like `send`. After a BlockingIOError the next call must begin with the same bytes."""
        with self._lock:
            if not self._established:  # a server sends nothing before the first request
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
        """Send the closing alert if the socket can take it at once, and shut the socket down."""
        with self._lock, contextlib.suppress(OSError):
            if self._established and not self._unsent:
                # `unwrap` writes the alert, then raises because the peer's alert has not arrived.
                with contextlib.suppress(ssl.SSLError):
                    self._ssl.unwrap()
                self._push()
        self._socket.shutdown(how)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _shake_hands(self) -> None:
        """Continue the handshake as far as the received bytes allow. Under _lock."""
        if not self._established:
            with contextlib.suppress(ssl.SSLWantReadError):
                self._ssl.do_handshake()
                self._established = True

    def _decrypt(self, buffer: memoryview) -> int:
        """Decrypt everything that is complete into `buffer`, and return its length. Under _lock."""
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
            if not (self._incoming.pending or self._ssl.pending()):  # cheaper than another read that fails
                break
        return taken

    def _push(self) -> bool:
        """Send until nothing is left (return True) or the socket is full (False). Under _lock."""
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
    """Return up to ENCRYPT_AT_ONCE first bytes of `buffers`. Small ones share a record; large ones are not copied."""
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
