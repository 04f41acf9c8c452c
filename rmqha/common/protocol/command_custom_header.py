"""The base of all request and response headers, and the declaration of their fields.

A header is a dataclass whose field names are the keys of extFields on the wire. `not_null(...)` marks a field that the
sender must set (`metadata["not_null"]`); a receiver accepts a header without the `lax` ones (`metadata["lax"]`), like
the original's. `bits` is the width of a Java int (32) or long (64) (`metadata["bits"]`).
"""
from typing import Any

from rmqha.common.lazy_dataclasses import dataclass, field, fields

INTEGER = 32
LONG = 64


class HeaderFieldError(ValueError):
    """A field of a header is missing, or has a value that its request does not allow."""


def not_null(bits: int | None = None, default: Any = None, lax: bool = False) -> Any:
    """Declare a field that the sender must set. The receiver requires it too, unless it is `lax`: then it may be None.

    `bits`: INTEGER or LONG for numbers.
    """
    return field(default=default, metadata={"not_null": True, "bits": bits, "lax": lax})


def nullable(bits: int | None = None, default: Any = None, lax: bool = True) -> Any:
    """Declare a field that may be absent, and, if it is `lax`, invalid. It then has the default.

    `bits`: INTEGER or LONG for numbers.
    """
    return field(default=default, metadata={"not_null": False, "bits": bits, "lax": lax})


@dataclass
class CommandCustomHeader:
    """The base of headers, whose fields are carried in a command's extFields.

    Java: org.apache.rocketmq.remoting.CommandCustomHeader (4.9.8)
    """

    def check_fields(self) -> None:
        """Raise HeaderFieldError when the decoded values contradict each other. Most headers have nothing to check."""


def not_null_names(header_class: type[CommandCustomHeader]) -> tuple[str, ...]:
    """Return the names of the fields that the sender of a `header_class` must set."""
    return tuple(f.name for f in fields(header_class) if f.metadata.get("not_null"))


@dataclass
class RpcRequestHeader(CommandCustomHeader):
    """The base of requests that may name the broker they are meant for.

    Java: org.apache.rocketmq.common.rpc.RpcRequestHeader (4.9.8)
    """

    bname: str | None = field(default=None, kw_only=True)
