"""The signature of a request.

Java: org.apache.rocketmq.acl.common.AclSigner (4.9.8)
"""
import base64
import hmac

from rmqha.acl.common.signing_algorithm import SigningAlgorithm

DEFAULT_CHARSET = "utf-8"
DEFAULT_ALGORITHM = SigningAlgorithm.HmacSHA1


def cal_signature(data: bytes | str, key: str, algorithm: SigningAlgorithm = DEFAULT_ALGORITHM,
                  charset: str = DEFAULT_CHARSET) -> str:
    """The MAC of `data` under `key` in Base64; texts count as their bytes in `charset`."""
    content = data.encode(charset, "replace") if isinstance(data, str) else data
    return base64.b64encode(hmac.digest(key.encode(charset, "replace"), content, algorithm.value)).decode("ascii")
