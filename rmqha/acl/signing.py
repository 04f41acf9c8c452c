"""The signature of requests. This is the only module of the package that loads OpenSSL.

Java: org.apache.rocketmq.acl.common.AclSigner (4.9.8)
"""
import binascii
import hmac
from enum import Enum


class SigningAlgorithm(Enum):
    """A MAC algorithm; the value is its digest's name in hashlib.

    Java: org.apache.rocketmq.acl.common.SigningAlgorithm (4.9.8)
    """

    HmacSHA1 = "sha1"
    HmacSHA256 = "sha256"
    HmacMD5 = "md5"


DEFAULT_CHARSET = "utf-8"
DEFAULT_ALGORITHM = SigningAlgorithm.HmacSHA1


def cal_signature(data: bytes | str, key: str, algorithm: SigningAlgorithm = DEFAULT_ALGORITHM,
                  charset: str = DEFAULT_CHARSET) -> str:
    """Return the MAC of `data` under `key` in Base64; texts are encoded in `charset`."""
    content = data.encode(charset, "replace") if isinstance(data, str) else data
    digest = hmac.digest(key.encode(charset, "replace"), content, algorithm.value)
    return binascii.b2a_base64(digest, newline=False).decode("ascii")
