"""The options of a format: names are checked, values parsed, and every error says what to do.

Also checks, before the work begins, that a job's output can be written.
"""
import difflib
import os
import tempfile
from collections.abc import Collection, Iterable, Mapping
from typing import Any, overload

from rmqha.common.texts import JsonTextError, parse_json
from rmqha.common.units import BYTES, MILLIS

_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no")
_DURATIONS = {"": 1, **{unit: MILLIS[unit] for unit in ("ms", "s", "m", "min", "h", "d")}}
_MOST_DIGITS = 15
MOST_INT, MOST_LONG = (1 << 31) - 1, (1 << 63) - 1
_SIZES = {"": 1, "b": BYTES["b"], "k": BYTES["k"], "m": BYTES["M"], "g": BYTES["g"]}  # kb is k, too


class PipelineError(ValueError):
    """A problem in a user's terms: the problem, its place, and what to do about it."""


def queue_id_of(text: str) -> int | None:
    """Return the id of a queue, which is a name in JSON; None unless it is a number from 0 to 2147483647 without
    leading zeros.
    """
    if not (text.isascii() and text.isdecimal()) or len(text) > 10:
        return None
    value = int(text)
    return value if value <= MOST_INT and str(value) == text else None


def is_long(value: object, least: int) -> bool:
    """Return whether a JSON value is a whole number that fits in a long and is at least `least`."""
    return type(value) is int and least <= value <= MOST_LONG


def _is_number(digits: str) -> bool:
    """Return whether the digits are a number that fits in a long, whatever its unit."""
    return digits.isdecimal() and len(digits) <= _MOST_DIGITS


class Options:
    """The options given with `.option(...)`. Names are case-insensitive; an unknown one raises PipelineError."""

    def __init__(self, given: Mapping[str, str], known: Iterable[str], where: str) -> None:
        names = {name.lower(): name for name in known}
        unknown = [name for name in given if name.lower() not in names]
        if unknown:
            raise PipelineError(f"{where} has no option {unknown[0]!r}{_nearest(unknown[0], names)}")
        self.where = where
        self._values = {names[name.lower()]: str(value).strip() for name, value in given.items()}

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def wrong(self, name: str, wanted: str) -> PipelineError:
        """Return the error for a value that is not valid."""
        return PipelineError(f"{self.where}, option {name}: {self._values.get(name, '')[:100]!r} is not {wanted}")

    @overload
    def text(self, name: str, default: str) -> str: ...

    @overload
    def text(self, name: str, default: None = None) -> str | None: ...

    def text(self, name: str, default: str | None = None) -> str | None:
        """Return a text as given."""
        return self._values.get(name, default)

    def first(self, *names: str) -> str | None:
        """Return the value of the first of these names that is given."""
        return next((self._values[name] for name in names if name in self._values), None)

    def one_of(self, *names: str) -> str | None:
        """Return the one of `names` that is given, or None. PipelineError if two are: they contradict each other."""
        given = [name for name in names if name in self._values]
        if len(given) > 1:
            raise PipelineError(f"{self.where}: the options {given[0]} and {given[1]} contradict each other; give one "
                                f"of {', '.join(names)}")
        return given[0] if given else None

    def same(self, *names: str) -> str | None:
        """Return the value of an option with several names. PipelineError if two of them have different values."""
        given = [name for name in names if name in self._values]
        if len({self._values[name] for name in given}) > 1:
            raise PipelineError(f"{self.where}: the options {' and '.join(given)} mean the same and have different "
                                "values")
        return self._values[given[0]] if given else None

    @overload
    def integer(self, name: str, default: int, least: int = 0, most: int = MOST_LONG) -> int: ...

    @overload
    def integer(self, name: str, default: None = None, least: int = 0, most: int = MOST_LONG) -> int | None: ...

    def integer(self, name: str, default: int | None = None, least: int = 0, most: int = MOST_LONG) -> int | None:
        """Return a whole number from `least` to `most`."""
        text = self._values.get(name)
        if text is None:
            return default
        try:
            value = int(text)
        except ValueError:
            raise self.wrong(name, "a whole number") from None
        if value < least:
            raise self.wrong(name, f"a whole number of at least {least}")
        if value > most:
            raise self.wrong(name, f"a whole number of at most {most}")
        return value

    def size(self, name: str, default: int) -> int:
        """Return a number of bytes; k, m and g are accepted as units."""
        text = self._values.get(name, "").lower()
        if not text:
            return default
        digits = text.rstrip("bkmg")
        unit = text[len(digits):].removesuffix("b") or ""
        if not _is_number(digits) or unit not in _SIZES or int(digits) < 1:
            raise self.wrong(name, "a number of bytes such as 134217728 or 128m")
        return int(digits) * _SIZES[unit]

    def duration(self, name: str, default: int) -> int:
        """Return milliseconds; ms, s, m or min, h and d are accepted as units."""
        text = self._values.get(name, "").lower()
        if not text:
            return default
        digits = text.rstrip("abcdefghijklmnopqrstuvwxyz ")
        unit = text[len(digits):].strip()
        if not _is_number(digits) or unit not in _DURATIONS:
            raise self.wrong(name, "a time such as 90s or 15m")
        return int(digits) * _DURATIONS[unit]

    def boolean(self, name: str, default: bool) -> bool:
        """Return true or false."""
        text = self._values.get(name, str(default)).lower()
        if text not in _TRUE + _FALSE:
            raise self.wrong(name, "true or false")
        return text in _TRUE

    def choice(self, name: str, allowed: Collection[str], default: str) -> str:
        """Return one of a few words, which may be given in any case."""
        text = self._values.get(name, default)
        found = {word.lower(): word for word in allowed}.get(text.lower())
        if found is None:
            raise self.wrong(name, f"one of {', '.join(allowed)}{_nearest(text, allowed)}")
        return found

    def words(self, name: str, value: str | None = None) -> list[str]:
        """Return words that are separated by commas."""
        text = self._values.get(name, "") if value is None else value
        return [word.strip() for word in text.split(",") if word.strip()]

    def json(self, name: str, wanted: str) -> dict[str, Any]:
        """Return a JSON object."""
        try:
            value = parse_json(self._values[name], name)
        except JsonTextError as error:
            raise self.wrong(name, f"{wanted}: {error.reason}") from None
        if not isinstance(value, dict):
            raise self.wrong(name, wanted)
        return value


def _nearest(name: str, known: Iterable[str]) -> str:
    by_lower = {each.lower(): each for each in known}
    if isinstance(known, dict):
        by_lower = dict(known)
    near = difflib.get_close_matches(name.lower(), by_lower, 1, 0.6)
    if near:
        return f"; did you mean {by_lower[near[0]]!r}?"
    return f". Valid ones: {', '.join(sorted(by_lower.values()))}"


def check_folder(path: str) -> None:
    """Raise PipelineError if no file can be created in the folder `path`, or the folder itself cannot be created. A
    path in another file system (hdfs://, s3a://) is left to Spark.
    """
    local = local_path(path)
    if local is not None:
        _check(path, os.path.abspath(local))


def check_file(path: str) -> None:
    """Raise PipelineError if the file `path` cannot be created: its folder must exist."""
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path):
        raise PipelineError(f"{path} is a folder, not a file to write")
    if not os.path.isdir(folder):
        raise PipelineError(f"{path} can't be written: the folder {folder} does not exist")
    _check(path, folder)


def local_path(path: str) -> str | None:
    """Return the path in this machine's own file system; None for a path in another one."""
    if path.startswith("file:"):
        return "/" + path.removeprefix("file:").lstrip("/")
    scheme, colon, _ = path.partition(":/")
    return None if colon and scheme.isalnum() and len(scheme) > 1 else path


def _check(path: str, folder: str) -> None:
    """Try to create a file in `folder`, or in its nearest ancestor that exists."""
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    try:
        with tempfile.TemporaryFile(dir=folder):
            return
    except OSError as error:
        raise PipelineError(f"{path} can't be written: {folder}: {error.strerror}") from error
