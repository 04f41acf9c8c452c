"""A self-signed certificate and its key, made at the start: for TLS in test mode, where nobody checks them.

    Certificate ::= SEQUENCE { tbsCertificate, signatureAlgorithm, signature BIT STRING }   (RFC 5280, DER)
    ECPrivateKey ::= SEQUENCE { 1, privateKey OCTET STRING, [0] curve, [1] publicKey }      (RFC 5915)

The standard library has no generator of keys, and test mode is on unless it is switched off: so here is the little
that one signature on P-256 takes. It signs one thing in its life, and no secret but its own depends on it.
"""
import base64
import hashlib
import secrets
from datetime import UTC, datetime, timedelta

_P = 2**256 - 2**224 + 2**192 + 2**96 - 1  # P-256 (FIPS 186-4, D.1.2.3): y^2 = x^3 - 3 x + b over this field
_N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # order of _G
_G = (0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
      0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5)

_INTEGER, _BIT_STRING, _OCTET_STRING, _OID, _UTF8 = 0x02, 0x03, 0x04, 0x06, 0x0C
_UTC_TIME, _GENERALIZED_TIME, _SEQUENCE, _SET = 0x17, 0x18, 0x30, 0x31
_CONTEXT_0, _CONTEXT_1 = 0xA0, 0xA1  # [0], [1] EXPLICIT

_VALID = timedelta(days=365)  # to either side of now
_Point = tuple[int, int] | None  # None: the point at infinity


def self_signed_certificate(name: str = "localhost") -> tuple[str, str]:
    """(certificate, private key) for a host name, each as PEM; both new.

    Java: io.netty.handler.ssl.util.SelfSignedCertificate
    """
    private = secrets.randbelow(_N - 1) + 1
    x, y = _multiply(private, _G)  # type: ignore[misc]  # never the point at infinity
    public = b"\x04" + x.to_bytes(32, "big") + y.to_bytes(32, "big")
    signed = _to_be_signed(name, public)
    certificate = _der(_SEQUENCE, signed, _ecdsa_with_sha256(), _bits(_sign(private, signed)))
    key = _der(_SEQUENCE, _integer(1), _der(_OCTET_STRING, private.to_bytes(32, "big")), _der(_CONTEXT_0, _curve()),
               _der(_CONTEXT_1, _bits(public)))
    return _pem("CERTIFICATE", certificate), _pem("EC PRIVATE KEY", key)


def _to_be_signed(name: str, public: bytes) -> bytes:
    """Version 3, serial number, algorithm, issuer, validity, subject (the issuer), public key."""
    common_name = _der(_SET, _der(_SEQUENCE, _oid(2, 5, 4, 3), _der(_UTF8, name.encode())))
    issuer = _der(_SEQUENCE, common_name)
    now = datetime.now(UTC)
    validity = _der(_SEQUENCE, _time(now - _VALID), _time(now + _VALID))
    key_info = _der(_SEQUENCE, _der(_SEQUENCE, _oid(1, 2, 840, 10045, 2, 1), _curve()), _bits(public))
    return _der(_SEQUENCE, _der(_CONTEXT_0, _integer(2)), _integer(secrets.randbits(63) | 1), _ecdsa_with_sha256(),
                issuer, validity, issuer, key_info)


def _sign(private: int, data: bytes) -> bytes:
    """ECDSA with SHA-256 (FIPS 186-4, 6.4): SEQUENCE { r, s }."""
    digest = int.from_bytes(hashlib.sha256(data).digest(), "big")
    while True:
        nonce = secrets.randbelow(_N - 1) + 1
        r = _multiply(nonce, _G)[0] % _N  # type: ignore[index]  # never the point at infinity
        s = pow(nonce, -1, _N) * (digest + r * private) % _N
        if r and s:
            return _der(_SEQUENCE, _integer(r), _integer(s))


def _multiply(factor: int, point: _Point) -> _Point:
    result: _Point = None
    while factor:
        if factor & 1:
            result = _add(result, point)
        point = _add(point, point)
        factor >>= 1
    return result


def _add(one: _Point, other: _Point) -> _Point:
    if one is None or other is None:
        return one or other
    if one[0] == other[0]:
        if (one[1] + other[1]) % _P == 0:
            return None
        slope = (3 * one[0] * one[0] - 3) * pow(2 * one[1], -1, _P)
    else:
        slope = (other[1] - one[1]) * pow(other[0] - one[0], -1, _P)
    x = (slope * slope - one[0] - other[0]) % _P
    return x, (slope * (one[0] - x) - one[1]) % _P


def _der(tag: int, *contents: bytes) -> bytes:
    content = b"".join(contents)
    if len(content) < 0x80:
        return bytes((tag, len(content))) + content
    size = len(content).to_bytes((len(content).bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(size))) + size + content


def _integer(value: int) -> bytes:
    return _der(_INTEGER, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _bits(data: bytes) -> bytes:
    return _der(_BIT_STRING, b"\0", data)  # no unused bits


def _oid(first: int, second: int, *rest: int) -> bytes:
    encoded = bytearray((first * 40 + second,))
    for arc in rest:
        groups = [arc & 0x7F]
        while arc := arc >> 7:
            groups.append(0x80 | arc & 0x7F)
        encoded += bytes(reversed(groups))
    return _der(_OID, bytes(encoded))


def _time(moment: datetime) -> bytes:
    if moment.year < 2050:
        return _der(_UTC_TIME, moment.strftime("%y%m%d%H%M%SZ").encode())
    return _der(_GENERALIZED_TIME, moment.strftime("%Y%m%d%H%M%SZ").encode())


def _ecdsa_with_sha256() -> bytes:
    return _der(_SEQUENCE, _oid(1, 2, 840, 10045, 4, 3, 2))


def _curve() -> bytes:
    return _oid(1, 2, 840, 10045, 3, 1, 7)  # prime256v1


def _pem(label: str, der: bytes) -> str:
    text = base64.b64encode(der).decode()
    lines = [text[at:at + 64] for at in range(0, len(text), 64)]
    return "\n".join([f"-----BEGIN {label}-----", *lines, f"-----END {label}-----", ""])
