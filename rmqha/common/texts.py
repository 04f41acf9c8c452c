"""Checks of untrusted text: JSON, numbers, names and paths, each bounded in size; and secrets that do not print.

- `parse_json` is for JSON of files, answers and options, and raises one kind of error. `json.loads` alone raises
  RecursionError for many brackets, accepts NaN, and makes an infinity of 1e999. tests/common/test_texts.py lists the
  few places that read JSON in another way.
- `whole`, `real`: numbers of a peer, as text or in JSON. One that is out of range counts as absent.
- MAX_NAME_LENGTH limits the names that an unauthenticated peer sends to a name server or a controller.
- `folder_name`, `path_below`: the one check of names from a file or a peer before they become paths: topics (folders
  of queues), runs and files of an archive, servers of a cluster. Such a name must not lead out of its folder.
- `Secret`: for example a password of a config file.
- LATER: the default of a field that is always set before it is read.
"""
import functools
import math
import os
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

MOST_DIGITS = 20  # 64 bits, signed or not


class JsonTextError(ValueError):
    """Text that is not JSON, or JSON that no program of RocketMQ writes. `reason` is the error without its place."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what} is not valid JSON: {reason}")
        self.what, self.reason = what, reason

    def __reduce__(self) -> tuple[type["JsonTextError"], tuple[str, str]]:
        return type(self), (self.what, self.reason)


def parse_json(text: str | bytes | bytearray, what: str) -> Any:
    """The value of a JSON text; bytes are UTF-8. `what` names it in the JsonTextError for anything else: its file, its
    option, who has sent it.

    NaN, infinities, numbers beyond a double's range and integers of more than MOST_DIGITS digits are errors, too.
    """
    import json  # here: `rmqha --help` does without

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


LONG = (-(1 << 63), (1 << 63) - 1)  # what Java's long takes
_LONGEST = 64  # characters


def whole(text: str | int | None, default: int, least: int = LONG[0], most: int = LONG[1]) -> int:
    """An integer from `least` to `most`; `default` for anything else."""
    if text is None or isinstance(text, str) and len(text) > _LONGEST:
        return default
    try:
        value = int(text)
    except ValueError:
        return default
    return value if least <= value <= most else default


def real(text: str | float | None, least: float = -1e18, most: float = 1e18) -> float | None:
    """A finite number from `least` to `most`; None for anything else: NaN, too, compares with nothing."""
    if text is None or isinstance(text, str) and len(text) > _LONGEST:
        return None
    try:
        value = float(text)
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) and least <= value <= most else None


def first_real(text: str | None) -> float:
    """The first of several that are separated by blanks, as brokers report rates; 0 for none."""
    return real((text or "").split(maxsplit=1)[0] if (text or "").strip() else None) or 0.0


def text_hash(*fields: object) -> int:
    """A hash of all fields' texts; sets are given as sorted lists.

    The hash of a number, and of a tuple of numbers, is the same in each process: whoever knows it can choose any
    number of values with one hash, and a set of them takes quadratic time. That of a text nobody can foresee.
    """
    return hash(repr(fields))


MAX_NAME_LENGTH = 255  # of brokers, clusters, topics and addresses


def too_long(*names: str | None) -> str | None:
    """What is wrong with the first one that is too long; None when none is."""
    for name in names:
        if name is not None and len(name) > MAX_NAME_LENGTH:
            return f"{name[:40]}... has {len(name)} characters, {MAX_NAME_LENGTH} are allowed"
    return None


MAX_BYTES = 255  # of a name; file systems take no more


def is_folder_name(name: object) -> bool:
    """Whether `name` is a text that names one entry of a folder: no path, not the folder itself, nor the one above."""
    if not isinstance(name, str) or not name or name in (".", "..") or "/" in name or "\0" in name:
        return False
    try:
        return len(name) <= MAX_BYTES and len(os.fsencode(name)) <= MAX_BYTES
    except UnicodeEncodeError:
        return False


def folder_name(name: object, what: str) -> str:
    """`name` when it names one entry of a folder. ValueError, which names `what` it is of, otherwise."""
    if not is_folder_name(name):
        raise ValueError(f"{what} {name!r:.200} can't be the name of a file or folder: it must be a text of 1 to "
                         f"{MAX_BYTES} bytes, without / and NUL, and neither . nor ..")
    return str(name)


def path_below(path: object, what: str) -> str:
    """`path` when it leads down from a folder: names with / between them. ValueError otherwise."""
    if not isinstance(path, str) or not all(map(is_folder_name, path.split("/"))):
        raise ValueError(f"{what} {path!r:.200} does not lead to a place below its folder: it must be names with / "
                         "between them, none of which is empty, . or ..")
    return path


HIDDEN = "***"


class Secret:
    """Holds a text and prints as `***`, in logs, in `repr`, formatted or as JSON; `reveal` returns the text.

    Not a str: whoever joins, writes or encodes one by mistake gets an error, not the text.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    @classmethod
    def of(cls, value: "str | Secret | None") -> "Secret | None":
        """`value` as a secret; None stays None."""
        return cls(value) if isinstance(value, str) else value

    def reveal(self) -> str:
        """The text: for whoever logs in with it, or writes it back to the file that it came from."""
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        import hmac  # it loads OpenSSL, and most programs compare no secrets

        return hmac.compare_digest(self._text.encode("utf-8", "surrogatepass"),
                                   other._text.encode("utf-8", "surrogatepass"))

    def __hash__(self) -> int:
        return 0  # settings that hold one are keys of sets; another hash would say whether two are the same

    def __repr__(self) -> str:
        return HIDDEN

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not pickled: it would be readable in what is written")

    def __copy__(self) -> "Secret":
        return self

    def __deepcopy__(self, _memo: object) -> "Secret":
        return self


F = TypeVar("F", bound=Callable[..., Any])


def cached(function: F) -> F:
    """functools.cache for functions of classes: the checker holds `type[T]` for nothing that can be hashed."""
    return functools.cache(function)  # type: ignore[return-value]  # called as `function` is


LATER: Any = None  # set behind the constructor; or given by its sender, and looked for when it comes in
