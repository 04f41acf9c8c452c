"""The options of a format: names checked, values parsed, every complaint says what to do.

Whether a job's output can be written, asked before the work begins.
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
    """What is wrong, where, and what to do about it."""


def queue_id_of(text: str) -> int | None:
    """The id of a queue, which is a name in JSON; None for what is not one, from 0 to 2147483647 without zeros before.
    """
    if not (text.isascii() and text.isdecimal()) or len(text) > 10:
        return None
    value = int(text)
    return value if value <= MOST_INT and str(value) == text else None


def is_long(value: object, least: int) -> bool:
    """Whether a value of JSON is a whole number that a long takes, `least` or more."""
    return type(value) is int and least <= value <= MOST_LONG


def _is_number(digits: str) -> bool:
    """Whether the digits are a number that a long takes, whatever its unit."""
    return digits.isdecimal() and len(digits) <= _MOST_DIGITS


class Options:
    """What a user gave with `.option(...)`. Names are compared without case; PipelineError for one that is unknown."""

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
        """The error for a value that is not valid."""
        return PipelineError(f"{self.where}, option {name}: {self._values.get(name, '')[:100]!r} is not {wanted}")

    @overload
    def text(self, name: str, default: str) -> str: ...

    @overload
    def text(self, name: str, default: None = None) -> str | None: ...

    def text(self, name: str, default: str | None = None) -> str | None:
        """A text as given."""
        return self._values.get(name, default)

    def first(self, *names: str) -> str | None:
        """The value of the first of several names that is given."""
        return next((self._values[name] for name in names if name in self._values), None)

    def one_of(self, *names: str) -> str | None:
        """The name among `names` that is given, None when none is. PipelineError when two are: they contradict."""
        given = [name for name in names if name in self._values]
        if len(given) > 1:
            raise PipelineError(f"{self.where}: the options {given[0]} and {given[1]} contradict each other; give one "
                                f"of {', '.join(names)}")
        return given[0] if given else None

    def same(self, *names: str) -> str | None:
        """The value of an option that has several names. PipelineError when two of them have different values."""
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
        """A whole number from `least` to `most`."""
        text = self._values.get(name)
        if text is None:
            return default
        try:
            value = int(text)
        except ValueError:
            raise self.wrong(name, "a whole number") from None
        if value < least:
            raise self.wrong(name, f"a whole number from {least} on")
        if value > most:
            raise self.wrong(name, f"a whole number up to {most}")
        return value

    def size(self, name: str, default: int) -> int:
        """Bytes, also with k, m or g."""
        text = self._values.get(name, "").lower()
        if not text:
            return default
        digits = text.rstrip("bkmg")
        unit = text[len(digits):].removesuffix("b") or ""
        if not _is_number(digits) or unit not in _SIZES or int(digits) < 1:
            raise self.wrong(name, "a number of bytes such as 134217728 or 128m")
        return int(digits) * _SIZES[unit]

    def duration(self, name: str, default: int) -> int:
        """Milliseconds; also with ms, s, m or min, h, d behind the number."""
        text = self._values.get(name, "").lower()
        if not text:
            return default
        digits = text.rstrip("abcdefghijklmnopqrstuvwxyz ")
        unit = text[len(digits):].strip()
        if not _is_number(digits) or unit not in _DURATIONS:
            raise self.wrong(name, "a time such as 90s or 15m")
        return int(digits) * _DURATIONS[unit]

    def boolean(self, name: str, default: bool) -> bool:
        """true or false."""
        text = self._values.get(name, str(default)).lower()
        if text not in _TRUE + _FALSE:
            raise self.wrong(name, "true or false")
        return text in _TRUE

    def choice(self, name: str, allowed: Collection[str], default: str) -> str:
        """One of a few words, in any case."""
        text = self._values.get(name, default)
        found = {word.lower(): word for word in allowed}.get(text.lower())
        if found is None:
            raise self.wrong(name, f"one of {', '.join(allowed)}{_nearest(text, allowed)}")
        return found

    def words(self, name: str, value: str | None = None) -> list[str]:
        """Words with commas between them."""
        text = self._values.get(name, "") if value is None else value
        return [word.strip() for word in text.split(",") if word.strip()]

    def json(self, name: str, wanted: str) -> dict[str, Any]:
        """A JSON object."""
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
    return f". There are: {', '.join(sorted(by_lower.values()))}"


def check_folder(path: str) -> None:
    """PipelineError when no file can be made in the folder `path`, or the folder itself can't be made. A path of
    another file system (hdfs://, s3a://) is left to Spark.
    """
    local = local_path(path)
    if local is not None:
        _check(path, os.path.abspath(local))


def check_file(path: str) -> None:
    """PipelineError when the file `path` can't be made: its folder must be there."""
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path):
        raise PipelineError(f"{path} is a folder, not a file to write")
    if not os.path.isdir(folder):
        raise PipelineError(f"{path} can't be written: there is no folder {folder}")
    _check(path, folder)


def local_path(path: str) -> str | None:
    """The path in this machine's own file system; None for one of another."""
    if path.startswith("file:"):
        return "/" + path.removeprefix("file:").lstrip("/")
    scheme, colon, _ = path.partition(":/")
    return None if colon and scheme.isalnum() and len(scheme) > 1 else path


def _check(path: str, folder: str) -> None:
    """`folder`: what must take a file; the nearest one above it that is there is tried."""
    while not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    try:
        with tempfile.TemporaryFile(dir=folder):
            return
    except OSError as error:
        raise PipelineError(f"{path} can't be written: {folder}: {error.strerror}") from error
