"""The bytes that are signed."""
from collections.abc import Mapping

from rmqha.acl.common.session_credentials import SIGNATURE
from rmqha.remoting.protocol.remoting_command import RemotingCommand


def combine_request_content(request: RemotingCommand, fields: Mapping[str, str]) -> bytes:
    """The values of `fields`, but the signature, in the order of their names as in a Java TreeMap, then the body.

    Java: org.apache.rocketmq.acl.common.AclUtils#combineRequestContent (4.9.8)
    """
    names = sorted(fields, key=_utf16)
    text = "".join([fields[name] for name in names if name != SIGNATURE])
    return b"".join((text.encode("utf-8", "replace"), request.body or b""))


def _utf16(name: str) -> bytes:
    return name.encode("utf-16-be", "surrogatepass")
