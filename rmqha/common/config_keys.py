"""Config keys: their declaration in config classes, the values that they accept, and the parser that enforces this.

A config class is a dataclass whose attributes are the config keys, in Java's order. `important()` marks the keys that
`-m` prints; `renamed()` declares a key that differs from the attribute's name because Java's setter does.

The annotation of an attribute is the type that a `.properties` value is parsed to (int, Long, float, bool, an enum,
str). With `Annotated` it also has the allowed range, unit or form. The words of an `Allowed` appear in the error for
an invalid value, and in docs/config-keys.md. Whether a key may change at run time is not declared here: FIXED_KEYS in
configuration.py lists the keys that may not.
"""
import ipaddress
import re
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

from rmqha.common.lazy_dataclasses import field, fields
from rmqha.common.texts import Secret
from rmqha.common.topics import check_topic

if TYPE_CHECKING:
    from dataclasses import Field


def important(default: Any = None, *, factory: Any = None) -> Any:
    """Declare a config key that Java marks with ImportantField; `-m` prints it.

    Java: org.apache.rocketmq.common.annotation.ImportantField (4.9.8)
    """
    if factory is not None:
        return field(default_factory=factory, metadata={"important": True})
    return field(default=default, metadata={"important": True})


def renamed(default: Any, key: str) -> Any:
    """Declare a config key whose name in a file is `key`, not the attribute's name."""
    return field(default=default, metadata={"key": key})


def config_keys(config_class: type) -> "dict[str, Field[Any]]":
    """Return key in a file -> dataclass field, in declaration order."""
    return {item.metadata.get("key", item.name): item for item in fields(config_class)}


def key_types(config_class: type) -> dict[str, Any]:
    """Return attribute -> resolved annotation, including its `Allowed` rules."""
    return get_type_hints(config_class, include_extras=True)


INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

_INTEGER = r"[+-]?\d+"
_FLOAT = r"[+-]?(\d++(\.\d*+)?|\.\d++)([eE][+-]?\d++)?[fFdD]?|[+-]?(NaN|Infinity)"
# Texts that 4.9 takes for false, and that can only be meant so. Any other text than these and `true` is an error.
_FALSE = frozenset({"false", "no", "off", "0", "n", "f"})
_CONTROL = r"[\x00-\x1f\x7f]"
_HOST_NAME = r"[\w.-]+"
_HOURS = r"0*(?:\d|1\d|2[0-3])(?:;0*(?:\d|1\d|2[0-3]))*;*"
_FAST_PORT_DISTANCE = 2
_DELAY_LEVELS = r"\+?\d{1,15}[smhd](?: \+?\d{1,15}[smhd])* *"


class Allowed:
    """A rule for values of a type: `words` complete the sentence "expected ...", `check` accepts valid values.

    `hint` returns what to do about an invalid value; an empty text where that is clear.
    """

    __slots__ = ("check", "hint", "words")

    def __init__(self, words: str, check: Callable[[Any], bool],
                 hint: Callable[[str], str] = lambda text: "") -> None:
        self.words = words
        self.check = check
        self.hint = hint


def whole_number(low: int, high: int, unit: str = "") -> Allowed:
    """Return the rule for a whole number from `low` to `high`, both included; `unit` as in "of milliseconds"."""
    of = f" {unit}" if unit else ""
    return Allowed(f"a whole number{of} from {low} to {high}", lambda value: low <= value <= high)


def _is_filled(text: str) -> bool:
    return bool(text.strip()) and not re.search(_CONTROL, text)


def _is_host(text: str) -> bool:
    if ":" not in text:
        return bool(re.fullmatch(_HOST_NAME, text))
    try:
        return ipaddress.ip_address(text.strip("[]")).version == 6
    except ValueError:
        # Most often because a port follows.
        return False


def is_host_and_port(text: str) -> bool:
    """Return whether `text` is host:port: a name or address (IPv6 with or without brackets), a port from 1 to 65535."""
    host, colon, port = text.rpartition(":")
    return bool(colon) and _is_host(host) and port.isascii() and port.isdigit() and 1 <= int(port[:9]) <= 0xFFFF


def _is_shared_address(text: str) -> bool:
    host, _colon, port = text.rpartition(":")
    return is_host_and_port(text) and int(port) > _FAST_PORT_DISTANCE and (":" not in host or host.startswith("["))


def _shared_address_hint(text: str) -> str:
    host, _colon, port = text.rpartition(":")
    if ":" in host and not host.startswith("["):
        return f"write the IPv6 address in brackets: [{host}]:{port}"
    return "give one address" if "," in text or ";" in text else address_hint(text)


def are_addresses(text: str) -> bool:
    """Return whether `text` is host:port, or several separated by ";". Blanks around each are ignored."""
    return all(is_host_and_port(part.strip()) for part in text.strip().rstrip(";").split(";"))


def address_hint(text: str) -> str:
    """Return what to change in an invalid list of host:port; an empty text where that is clear."""
    if "," in text:
        return "separate addresses with ; instead of ,"
    if "/" in text:
        return "leave out the scheme (http://) and what follows the port"
    if " " in text.strip():
        return "separate addresses with ;"
    return ""


def _is_command_line(text: str) -> bool:
    # Imported late: few brokers have such a key.
    from shlex import split

    try:
        return not re.search(_CONTROL, text) and (not text.strip() or bool(split(text)))
    except ValueError:
        return False


def _are_paths(text: str) -> bool:
    return all(_is_filled(part) for part in text.split(","))


Long = Annotated[int, "long"]
"""A Java long: 64 bits. A plain `int` annotation is a Java int: 32 bits."""

AnyInt = Annotated[int, whole_number(-INT_MAX - 1, INT_MAX)]
AnyLong = Annotated[Long, whole_number(-LONG_MAX - 1, LONG_MAX)]
Natural = Annotated[int, whole_number(0, INT_MAX)]
Positive = Annotated[int, whole_number(1, INT_MAX)]
Bytes = Annotated[int, whole_number(1, INT_MAX, "of bytes")]
LongBytes = Annotated[Long, whole_number(1, LONG_MAX, "of bytes")]
ByteCount = Annotated[int, whole_number(0, INT_MAX, "of bytes")]
Pages = Annotated[int, whole_number(0, INT_MAX, "of pages")]
Millis = Annotated[int, whole_number(0, INT_MAX, "of milliseconds")]
LongMillis = Annotated[Long, whole_number(0, LONG_MAX, "of milliseconds")]
Period = Annotated[int, whole_number(1, INT_MAX, "of milliseconds")]
"""An interval or a timeout."""
LongPeriod = Annotated[Long, whole_number(1, LONG_MAX, "of milliseconds")]
Seconds = Annotated[int, whole_number(0, INT_MAX, "of seconds")]
Percent = Annotated[int, whole_number(0, 100, "of percent")]
Port = Annotated[int, whole_number(0, 0xFFFF)]

AnyText = Annotated[str, Allowed("any text", lambda text: True)]
PlainText = Annotated[str, Allowed("a text without control characters", lambda text: not re.search(_CONTROL, text))]
SecretText = Annotated[Secret, Allowed("a text without control characters",
                                       lambda secret: not re.search(_CONTROL, secret.reveal()))]
Name = Annotated[str, Allowed("a name: at least one character that is not white space, and no control characters",
                              _is_filled)]
Path = Annotated[str, Allowed("a path", _is_filled)]
Paths = Annotated[str, Allowed('a path, or several separated by ","', _are_paths)]
Host = Annotated[str, Allowed("a host name or an address, without a port", _is_host)]
Topic = Annotated[str, Allowed("a topic: 1 to 127 letters, digits, and any of %|_-",
                               lambda text: check_topic(text) is None)]
NamesrvAddresses = Annotated[str, Allowed('Name Server addresses as follows, "127.0.0.1:9876;192.168.0.1:9876"',
                                          are_addresses, address_hint)]
ControllerAddresses = Annotated[str, Allowed('host:port, several separated by ";", or nothing',
                                             lambda text: not text.strip(" ;") or are_addresses(text), address_hint)]
AutoSwitch = Annotated[str, Allowed("auto, true or false",
                                    lambda text: text.strip().lower() in {"auto", "true"} | _FALSE)]
MasterAddress = Annotated[str, Allowed("host:port, or nothing", lambda text: not text or is_host_and_port(text),
                                       lambda text: address_hint(text) if "/" in text else "")]
SharedAddress = Annotated[str, Allowed("host:port, with a port from 3 to 65535 and IPv6 in brackets, or nothing",
                                       lambda text: not text or _is_shared_address(text), _shared_address_hint)]
"""An address for clients: they may also connect to the fast port, which is 2 below."""
CommandLine = Annotated[str, Allowed("a command line with matching quotes, or nothing", _is_command_line)]
Hours = Annotated[str, Allowed('an hour of the day from 0 to 23, or several separated by ";"',
                               lambda text: re.fullmatch(_HOURS, text) is not None)]
DelayLevels = Annotated[str, Allowed("whole numbers, each followed by s, m, h or d, separated by single spaces",
                                     lambda text: re.fullmatch(_DELAY_LEVELS, text) is not None)]


def parse_property(text: str, kind: Any) -> Any:
    """Parse `text` to a value of the annotation `kind`. The ValueError says what was expected and what was found.

    White space around numbers, booleans and enum names is ignored.
    """
    value = _parsed(text, kind)
    for rule in rules(kind):
        if not rule.check(value):
            came = "" if isinstance(value, Secret) else f", not {text[:80]!r}"
            hint = "" if isinstance(value, Secret) else rule.hint(text)
            raise ValueError(f"expected {rule.words}{came}" + (f": {hint}" if hint else ""))
    return value


def rules(kind: Any) -> list[Allowed]:
    """Return the rules of the annotation `kind`, in addition to its type."""
    found = [item for item in get_args(kind) if isinstance(item, Allowed)]
    if get_origin(kind) is not Annotated:  # `Annotated[...] | None`
        found = [rule for item in get_args(kind) for rule in rules(item)]
    return found


def allowed_words(kind: Any) -> str:
    """Return a description of the valid values of the annotation `kind`."""
    base = base_type(kind)
    if base is bool:
        return "true or false"
    if issubclass(base, Enum):
        return "one of " + ", ".join(member.name for member in base)
    found = rules(kind)
    return found[0].words if found else {int: "a whole number", float: "a number"}.get(base, "any text")


def base_type(kind: Any) -> type:
    """Return the type of an annotation: int, float, bool, str, Secret or an enum. TypeError for anything else."""
    if get_origin(kind) is Annotated:
        return base_type(get_args(kind)[0])
    if isinstance(kind, type):
        return kind
    inner = [item for item in get_args(kind) if item is not type(None)]
    if len(inner) != 1:
        raise TypeError(f"no config key can have the type {kind!r}")
    return base_type(inner[0])


def _parsed(text: str, kind: Any) -> Any:
    # Differs: white space around a value of a config file is ignored, so `5 ` is 5; Java's parsers refuse it, and the
    # default stays
    base = base_type(kind)
    if base is bool:
        return _parse_boolean(text)
    if base is int:
        return _parse_integer(text, kind)
    if base is float:
        return _parse_float(text)
    if issubclass(base, Enum):
        return _parse_enum(text, base)
    if base is str:
        return text
    if base is Secret:
        return Secret(text)
    raise TypeError(f"no config key can have the type {kind!r}")


def _parse_boolean(text: str) -> bool:
    stripped = text.strip().lower()
    if stripped == "true" or stripped in _FALSE:
        return stripped == "true"
    # Differs: an unclear boolean is an error; Java takes all but `true` for false, so `aclEnable=yes` turns access
    # control off
    raise ValueError(f"expected true or false, not {text[:80]!r}")


def _parse_integer(text: str, kind: Any) -> int:
    stripped, bits = text.strip(), 64 if "long" in get_args(kind) else 32
    if not re.fullmatch(_INTEGER, stripped) or len(stripped) > 64:
        raise ValueError(f"expected {allowed_words(kind)}, not {text[:80]!r}")
    value = int(stripped)
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise ValueError(f"{stripped} does not fit in {bits} bits: expected {allowed_words(kind)}")
    return value


def _parse_float(text: str) -> float:
    stripped = text.strip()
    if not re.fullmatch(_FLOAT, stripped):
        raise ValueError(f"expected a number, not {text[:80]!r}")
    return float(stripped.rstrip("fFdD"))


def _parse_enum(text: str, kind: type[Enum]) -> Enum:
    try:
        return kind[text.strip()]
    except KeyError:
        raise ValueError(f"expected {allowed_words(kind)}, not {text[:80]!r}") from None
