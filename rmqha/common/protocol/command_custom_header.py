"""The base of all request and response headers, and how their fields are declared.

A header is a dataclass whose field names are the wire's extFields keys. `not_null(...)` marks what the sender has to
give (`metadata["not_null"]`); a receiver goes on without those that are `lax` (`metadata["lax"]`), as the original's
does. `bits` is the width of a Java int (32) or long (64) (`metadata["bits"]`).
"""
from typing import Any

from rmqha.common.lazy_dataclasses import dataclass, field, fields

INTEGER = 32
LONG = 64


class HeaderFieldError(ValueError):
    """A header's field is missing or has a value that its request does not allow."""


def not_null(bits: int | None = None, default: Any = None, lax: bool = False) -> Any:
    """A dataclass field that the sender has to give, and the receiver needs unless it is `lax`: None then.

    `bits`: INTEGER or LONG for numbers.
    """
    return field(default=default, metadata={"not_null": True, "bits": bits, "lax": lax})


def nullable(bits: int | None = None, default: Any = None, lax: bool = True) -> Any:
    """A dataclass field that may be absent, and wrong if it is `lax`: the default then.

    `bits`: INTEGER or LONG for numbers.
    """
    return field(default=default, metadata={"not_null": False, "bits": bits, "lax": lax})


@dataclass
class CommandCustomHeader:
    """A header of named fields, carried in a command's extFields.

    Java: org.apache.rocketmq.remoting.CommandCustomHeader (4.9.8)
    """

    def check_fields(self) -> None:
        """Raise HeaderFieldError when the decoded values make no sense together. Most headers have nothing to check."""


def not_null_names(header_class: type[CommandCustomHeader]) -> tuple[str, ...]:
    """The names of the fields that the receiver of a `header_class` needs."""
    return tuple(f.name for f in fields(header_class) if f.metadata.get("not_null"))


@dataclass
class RpcRequestHeader(CommandCustomHeader):
    """A request that may name the broker it is meant for.

    Java: org.apache.rocketmq.common.rpc.RpcRequestHeader (4.9.8)
    """

    bname: str | None = field(default=None, kw_only=True)
