"""What of a request is signed, and how.

Java: org.apache.rocketmq.acl.common.AclSigner (4.9.8)
"""
import base64
import hmac
from collections.abc import Mapping
from enum import Enum

from rmqha.acl.common.session_credentials import SIGNATURE
from rmqha.remoting.protocol.remoting_command import RemotingCommand


class SigningAlgorithm(Enum):
    """A MAC; the value is its digest's name in hashlib.

    Java: org.apache.rocketmq.acl.common.SigningAlgorithm (4.9.8)
    """

    HmacSHA1 = "sha1"
    HmacSHA256 = "sha256"
    HmacMD5 = "md5"


DEFAULT_CHARSET = "utf-8"
DEFAULT_ALGORITHM = SigningAlgorithm.HmacSHA1


def cal_signature(data: bytes | str, key: str, algorithm: SigningAlgorithm = DEFAULT_ALGORITHM,
                  charset: str = DEFAULT_CHARSET) -> str:
    """The MAC of `data` under `key` in Base64; texts count as their bytes in `charset`."""
    content = data.encode(charset, "replace") if isinstance(data, str) else data
    return base64.b64encode(hmac.digest(key.encode(charset, "replace"), content, algorithm.value)).decode("ascii")


def combine_request_content(request: RemotingCommand, fields: Mapping[str, str]) -> bytes:
    """The values of `fields`, but the signature, in the order of their names as in a Java TreeMap, then the body.

    Java: org.apache.rocketmq.acl.common.AclUtils#combineRequestContent (4.9.8)
    """
    names = sorted(fields, key=_utf16)
    text = "".join([fields[name] for name in names if name != SIGNATURE])
    return b"".join((text.encode("utf-8", "replace"), request.body or b""))


def _utf16(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")
