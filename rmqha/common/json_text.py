"""JSON that others have written: files, answers, options. Whatever it holds, one kind of error says what is wrong.

`json.loads` alone raises RecursionError for many brackets, takes NaN, and makes an infinity of 1e999.
tests/common/test_json_text.py lists the few places that read JSON in another way.
"""
import json
import math
from typing import Any, NoReturn

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
