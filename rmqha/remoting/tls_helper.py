"""From the settings of TLS to contexts of the standard library's `ssl`.

What it cannot do is in docs/tls.md. A host name is never compared with a certificate, as in the original.
"""
import base64
import contextlib
import logging
import os
import ssl
from collections.abc import Iterator

from rmqha.common.configuration import ConfigError
from rmqha.common.filesystem import how_to_install
from rmqha.common.texts import Secret
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
    as_another = "or encrypt the key as others: openssl pkcs8 -topk8 -v2 aes-256-cbc"
    if bits != 128:
        raise ValueError(f"the key is encrypted with PBE-SHA1-RC4-{bits}, which can't be read; {as_another[3:]}")
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
    except ImportError:
        raise ValueError("the key is encrypted with PBE-SHA1-RC4-128, which the library cryptography reads: "
                         f"{how_to_install('tls')}, {as_another}") from None
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
