"""Private keys under RC4, as RocketMQ's own guide makes them (`openssl pkcs8 -topk8 -v1 PBE-SHA1-RC4-128`).

    EncryptedPrivateKeyInfo ::= SEQUENCE { SEQUENCE { OID, SEQUENCE { salt OCTET STRING, iterations INTEGER } },
                                           encrypted OCTET STRING }                      (RFC 5958, RFC 7292)

OpenSSL 3 reads them only where its legacy provider is switched on; all other schemes are left to OpenSSL.
"""
import base64
import binascii
import hashlib

_PEM = (b"-----BEGIN ENCRYPTED PRIVATE KEY-----", b"-----END ENCRYPTED PRIVATE KEY-----")
_KEY_SIZES = {  # OID -> bytes: pbeWithSHAAnd128BitRC4, pbeWithSHAAnd40BitRC4
    bytes.fromhex("2a864886f70d010c0101"): 16,
    bytes.fromhex("2a864886f70d010c0102"): 5,
}
_KEY_MATERIAL = 1  # what is derived from the password: a key (RFC 7292, B.3)
_HASH_BLOCK = 64  # bytes, of SHA-1
_MAX_ITERATIONS = 1_000_000
_INTEGER, _OCTET_STRING, _OID, _SEQUENCE = 0x02, 0x04, 0x06, 0x30


def decrypt_rc4_key(pem: bytes, password: str) -> str | None:
    """The key in `pem` as PEM without encryption; None when it is no key under RC4. A wrong password gives nonsense."""
    begin, end = pem.find(_PEM[0]), pem.find(_PEM[1])
    if begin < 0 or end < begin:
        return None
    try:
        info = _contents(base64.b64decode(pem[begin + len(_PEM[0]):end]), _SEQUENCE)
        (algorithm, encrypted) = _elements(info, _SEQUENCE, _OCTET_STRING)
        (oid, parameters) = _elements(algorithm, _OID, _SEQUENCE)
        if oid not in _KEY_SIZES:
            return None
        (salt, iterations) = _elements(parameters, _OCTET_STRING, _INTEGER)
    except (binascii.Error, ValueError, IndexError):
        return None  # OpenSSL says what is wrong
    count = int.from_bytes(iterations, "big")
    if not salt or not 0 < count <= _MAX_ITERATIONS:
        return None
    plain = _rc4(_derive(password, salt, count, _KEY_SIZES[oid]), encrypted)
    return f"-----BEGIN PRIVATE KEY-----\n{base64.encodebytes(plain).decode()}-----END PRIVATE KEY-----\n"


def _derive(password: str, salt: bytes, iterations: int, size: int) -> bytes:
    """The key of `size` <= 20 bytes (RFC 7292, B.2)."""
    text = password.encode("utf-16-be") + b"\0\0"
    key = bytes((_KEY_MATERIAL,)) * _HASH_BLOCK + _filled(salt) + _filled(text)
    for _ in range(iterations):
        key = hashlib.sha1(key, usedforsecurity=False).digest()
    return key[:size]


def _filled(data: bytes) -> bytes:
    """`data` again and again, up to the end of a block."""
    size = -(-len(data) // _HASH_BLOCK) * _HASH_BLOCK
    return (data * (size // len(data) + 1))[:size]


def _rc4(key: bytes, data: bytes) -> bytes:
    state, j = list(range(256)), 0
    for i in range(256):
        j = (j + state[i] + key[i % len(key)]) & 0xFF
        state[i], state[j] = state[j], state[i]
    i, j, result = 0, 0, bytearray()
    for byte in data:
        i = (i + 1) & 0xFF
        j = (j + state[i]) & 0xFF
        state[i], state[j] = state[j], state[i]
        result.append(byte ^ state[(state[i] + state[j]) & 0xFF])
    return bytes(result)


def _elements(der: bytes, *tags: int) -> list[bytes]:
    """The contents of DER elements that follow each other, one of each tag. Raises ValueError, IndexError."""
    found = []
    for tag in tags:
        content, der = _first(der, tag)
        found.append(content)
    return found


def _contents(der: bytes, tag: int) -> bytes:
    return _first(der, tag)[0]


def _first(der: bytes, tag: int) -> tuple[bytes, bytes]:
    """(content of the first element, what follows it)."""
    length, at = der[1], 2
    if length & 0x80:
        at += length & 0x7F
        length = int.from_bytes(der[2:at], "big")
    if der[0] != tag or at + length > len(der):
        raise ValueError("another element")
    return der[at:at + length], der[at + length:]
