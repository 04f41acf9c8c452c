"""A pytest plugin, `-p tests.support.other_day`, that sets the clock a hundred days ahead from here on."""
import time

LATER_S = 100 * 86400
_now, _now_ns = time.time, time.time_ns


def _later() -> float:
    return _now() + LATER_S


def _later_ns() -> int:
    return _now_ns() + LATER_S * 10 ** 9


time.time, time.time_ns = _later, _later_ns
