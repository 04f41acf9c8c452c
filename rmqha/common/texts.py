"""Checks of untrusted text: JSON, numbers, names and paths, each bounded in size; and secrets that do not print.

Text from a peer, a file or an option is hostile until it is checked. A peer may be unauthenticated, and may choose any
length, nesting, digit or character; a file may be damaged. Every place that handles such text needs the same checks,
and one place that omits a check is enough for an attack. The checks are therefore functions here, one for each kind of
text, and the code calls these instead of `json.loads`, `int` or `os.path.join`:

- `parse_json`: JSON from files, answers and options. It raises one kind of error. `json.loads` alone raises
  RecursionError for many brackets, accepts NaN, turns 1e999 into infinity, and accepts thousands of digits.
  tests/common/test_texts.py lists the few places that read JSON in another way, and fails for a new one.
- `whole`, `real`: a number from a peer, as text or in JSON. A number out of range counts as absent, so that the caller
  does not compute with it.
- MAX_NAME_LENGTH: the limit of names that an unauthenticated peer sends to a name server or a controller, which keep
  them in memory.
- `folder_name`, `path_below`: names from a file or a peer that become paths: topics (folders of queues), runs and files
  of an archive, servers of a cluster. Without the check a topic named `../../x` leads out of its folder.
- `text_hash`: a hash of untrusted fields. A peer cannot choose values that collide.
- `Secret`: a text, such as a password from a config file, that must not appear in a log, a repr or an answer.
- LATER: the default of a field that is always set before it is read.

Errors quote at most a short part of the text: the text itself may be megabytes long.
"""
import functools
import math
import os
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

# Enough for 64 bits, signed or unsigned.
MOST_DIGITS = 20


class JsonTextError(ValueError):
    """Text that is not JSON, or JSON that no RocketMQ program writes. `reason` is the error without the text's name."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what} is not valid JSON: {reason}")
        self.what, self.reason = what, reason

    def __reduce__(self) -> tuple[type["JsonTextError"], tuple[str, str]]:
        return type(self), (self.what, self.reason)


def parse_json(text: str | bytes | bytearray, what: str) -> Any:
    """Parse a JSON text; bytes are decoded as UTF-8. Raises JsonTextError for anything else.

    `what` names the text in the error: its file, its option or its sender. NaN, infinities, numbers beyond a double's
    range and integers of more than MOST_DIGITS digits are errors too.
    """
    # Imported late: `rmqha --help` does without it.
    import json

    try:
        return json.loads(text if isinstance(text, str) else text.decode(), parse_constant=_no_constant,
                          parse_float=_float, parse_int=_integer)
    except UnicodeDecodeError as error:
        raise JsonTextError(what, f"not UTF-8 at byte {error.start}") from None
    except RecursionError:
        raise JsonTextError(what, "brackets are nested too deeply") from None
    except ValueError as error:
        raise JsonTextError(what, str(error)) from None


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a value of JSON")


def _integer(text: str) -> int:
    digits = len(text) - text.startswith("-")
    if digits > MOST_DIGITS:
        raise ValueError(f"a number of {digits} digits")
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text:.40} is beyond the range of numbers")
    return value


LONG = (-(1 << 63), (1 << 63) - 1)  # the range of Java's long
_LONGEST = 64  # characters


def whole(text: str | int | None, default: int, least: int = LONG[0], most: int = LONG[1]) -> int:
    """Return `text` as an integer from `least` to `most`; `default` for anything else."""
    if text is None or isinstance(text, str) and len(text) > _LONGEST:
        return default
    try:
        value = int(text)
    except ValueError:
        return default
    return value if least <= value <= most else default


def real(text: str | float | None, least: float = -1e18, most: float = 1e18) -> float | None:
    """Return `text` as a finite number from `least` to `most`; None for anything else, NaN included."""
    if text is None or isinstance(text, str) and len(text) > _LONGEST:
        return None
    try:
        value = float(text)
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) and least <= value <= most else None


def first_real(text: str | None) -> float:
    """Return the first of several numbers separated by blanks, as brokers report rates; 0 for an empty text."""
    return real((text or "").split(maxsplit=1)[0] if (text or "").strip() else None) or 0.0


def text_hash(*fields: object) -> int:
    """Return a hash of the text of all fields. Pass sets as sorted lists.

    Python hashes a number, or a tuple of numbers, to the same value in every process. A peer that knows this can send
    any number of values with one hash, and putting them into a set takes quadratic time. The hash of a text is seeded
    per process, so that a peer cannot predict it.
    """
    return hash(repr(fields))


# Of brokers, clusters, topics and addresses.
MAX_NAME_LENGTH = 255


def too_long(*names: str | None) -> str | None:
    """Return an error text about the first name that is too long; None when all are short enough."""
    for name in names:
        if name is not None and len(name) > MAX_NAME_LENGTH:
            return f"{name[:40]}... has {len(name)} characters; at most {MAX_NAME_LENGTH} are allowed"
    return None


# Of a name, the limit of file systems.
MAX_BYTES = 255


def is_folder_name(name: object) -> bool:
    """Return whether `name` is a text that names one entry of a folder: not a path, not `.`, and not `..`."""
    if not isinstance(name, str) or not name or name in (".", "..") or "/" in name or "\0" in name:
        return False
    try:
        return len(name) <= MAX_BYTES and len(os.fsencode(name)) <= MAX_BYTES
    except UnicodeEncodeError:
        return False


def folder_name(name: object, what: str) -> str:
    """Return `name` if it names one entry of a folder. ValueError, in which `what` says what it names, otherwise."""
    if not is_folder_name(name):
        raise ValueError(f"{what} {name!r:.200} can't be the name of a file or folder: it must be a text of 1 to "
                         f"{MAX_BYTES} bytes, without / and NUL, and neither . nor ..")
    return str(name)


def path_below(path: object, what: str) -> str:
    """Return `path` if it leads down from a folder: folder names separated by /. ValueError otherwise."""
    if not isinstance(path, str) or not all(map(is_folder_name, path.split("/"))):
        raise ValueError(f"{what} {path!r:.200} does not lead to a place below its folder: it must be names separated "
                         "by /, none of which is empty, . or ..")
    return path


HIDDEN = "***"


class Secret:
    """A text that prints as `***` in logs, in `repr`, formatted or as JSON; `reveal` returns the text.

    It is not a str: code that joins, writes or encodes one by mistake raises an error instead of revealing the text.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    @classmethod
    def of(cls, value: "str | Secret | None") -> "Secret | None":
        """Return `value` as a secret; None stays None."""
        return cls(value) if isinstance(value, str) else value

    def reveal(self) -> str:
        """Return the text, to log in with it or to write it back to the file that it came from."""
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        # Imported late: it loads OpenSSL, and most programs compare no secrets.
        import hmac

        return hmac.compare_digest(self._text.encode("utf-8", "surrogatepass"),
                                   other._text.encode("utf-8", "surrogatepass"))

    def __hash__(self) -> int:
        # Settings that hold a secret are elements of sets. Any other hash would reveal whether two secrets are equal.
        return 0

    def __repr__(self) -> str:
        return HIDDEN

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret cannot be pickled: the pickle would contain it in plain text")

    def __copy__(self) -> "Secret":
        return self

    def __deepcopy__(self, _memo: object) -> "Secret":
        return self


F = TypeVar("F", bound=Callable[..., Any])


def cached(function: F) -> F:
    """functools.cache for functions that take classes: the type checker does not consider `type[T]` hashable."""
    return functools.cache(function)  # type: ignore[return-value]  # it is called like `function`


# The default of a field that is set after the constructor, or that the sender must give and the receiver checks.
LATER: Any = None
