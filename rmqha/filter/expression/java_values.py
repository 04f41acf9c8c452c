"""The values that expressions work with, and how Java converts and compares them.

None, bool, str and float are themselves; Java's Integer and Long differ in what a text is converted to beside them.
"""
import re
from typing import Any

from rmqha.filter.expression.mq_filter_exception import ClassCastError, FilterError, NumberFormatError

MAX_DOUBLE = 1.7976931348623157e308
MIN_DOUBLE = 4.9e-324

_WHOLE = re.compile(r"[+-]?\d{1,400}\Z").match
# Digits are taken once (possessive): properties of messages are read as numbers, and may be long
_DOUBLE = re.compile(r"([+-]?(?:NaN|Infinity|(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][+-]?[0-9]++)?))[fFdD]?\Z").match
_HEX_DOUBLE = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]++(?:\.[0-9a-fA-F]*+)?|\.[0-9a-fA-F]++)[pP][+-]?[0-9]++)[fFdD]?\Z"
                         ).match
_BLANKS = "".join(map(chr, range(33)))


class Integer(int):
    """A signed 32-bit integer.

    Java: java.lang.Integer
    """


class Long(int):
    """A signed 64-bit integer.

    Java: java.lang.Long
    """


Value = None | bool | str | float | Integer | Long


def _whole_value_of(text: str, bits: int) -> int:
    limit = 1 << bits - 1
    if _WHOLE(text) is None or not -limit <= (value := int(text)) < limit:
        raise NumberFormatError(f'For input string: "{text}"')
    return value


def integer_value_of(text: str) -> Integer:
    """Java's Integer.valueOf; NumberFormatError."""
    return Integer(_whole_value_of(text, 32))


def long_value_of(text: str) -> Long:
    """Java's Long.valueOf; NumberFormatError."""
    return Long(_whole_value_of(text, 64))


def double_value_of(text: str) -> float:
    """Java's Double.valueOf; NumberFormatError."""
    stripped = text.strip(_BLANKS)
    match = _DOUBLE(stripped)
    if match is not None:
        return float(match[1])
    match = _HEX_DOUBLE(stripped)
    if match is not None:
        try:
            return float.fromhex(match[1])
        except OverflowError:
            return float("-inf" if stripped[0] == "-" else "inf")
    raise NumberFormatError(f'For input string: "{stripped}"' if stripped else "empty String")


def compare(left: Value, right: Value) -> int:
    """Java's order of two values, a text beside another type converted to it: below 0, 0, above 0.

    -1 for types that can't be compared. FilterError for a text that can't be converted.
    """
    if type(left) is type(right):
        return _compare_same(left, right)
    try:
        if isinstance(left, bool):
            if isinstance(right, str):
                raise ClassCastError("class java.lang.Boolean cannot be cast to class java.lang.String (java.lang."
                                     "Boolean and java.lang.String are in module java.base of loader 'bootstrap')")
            return -1
        if isinstance(left, str):
            return _compare_same(_convert(left, right), right)
        if isinstance(right, str):
            return _compare_same(left, _convert(right, left))
    except NumberFormatError as failure:
        raise FilterError(failure.describe()) from failure
    if isinstance(right, bool):
        return -1
    if isinstance(left, float) or isinstance(right, float):
        return _compare_same(float(left), float(right))  # type: ignore[arg-type]  # nobody compares NULL
    return _compare_same(int(left), int(right))  # type: ignore[arg-type]  # nobody compares NULL


def _convert(text: str, like: Value) -> Value:
    if isinstance(like, bool):
        return text.lower() == "true"
    if isinstance(like, float):
        return double_value_of(text)
    return integer_value_of(text) if isinstance(like, Integer) else long_value_of(text)


def _compare_same(left: Any, right: Any) -> int:  # both of one Java class
    if isinstance(left, str):
        left, right = left.encode("utf-16-be", "surrogatepass"), right.encode("utf-16-be", "surrogatepass")
    elif isinstance(left, float):
        left, right = _order_of_double(left), _order_of_double(right)
    return (left > right) - (left < right)  # type: ignore[no-any-return]  # what flags differ by


def _order_of_double(value: float) -> tuple[bool, float, bool]:
    """Sorts as Double.compareTo: -0.0 below 0.0, NaN above everything."""
    if value != value:
        return True, 0.0, True
    return False, value, value != 0 or str(value) == "0.0"


def same(left: Value, right: Value) -> bool:
    """Java's equals: the type counts."""
    return type(left) is type(right) and _compare_same(left, right) == 0


def value_text(value: Value) -> str:
    """Java's String.valueOf."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return double_text(value) if isinstance(value, float) else str(value)


def double_text(value: float) -> str:
    """Java's Double.toString."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = repr(value)
        return text if "e" not in text else f"{value:.17f}".rstrip("0")
    if abs(value) == 5e-324:
        return "4.9E-324" if value > 0 else "-4.9E-324"
    sign, digits = ("-" if value < 0 else ""), repr(abs(value))
    mantissa, _, exponent = digits.partition("e")
    whole, _, fraction = mantissa.partition(".")
    fraction = "" if fraction == "0" else fraction
    power = int(exponent or 0) + len(whole) - 1
    significant = (whole + fraction).lstrip("0")
    if whole.strip("0") == "":
        power = int(exponent or 0) - (len(fraction) - len(fraction.lstrip("0")) + 1)
    significant = significant.rstrip("0") or "0"
    return f"{sign}{significant[0]}.{significant[1:] or '0'}E{power}"
