"""How requests are signed."""
from enum import Enum


class SigningAlgorithm(Enum):
    """A MAC; the value is its digest's name in hashlib.

    Java: org.apache.rocketmq.acl.common.SigningAlgorithm (4.9.8)
    """

    HmacSHA1 = "sha1"
    HmacSHA256 = "sha256"
    HmacMD5 = "md5"
