"""Keeping memory from being swapped out: mlock and munlock of the C library.

Java: org.apache.rocketmq.store.util.LibC (4.9.8)
"""
import ctypes
import logging
import os
from typing import Any

log = logging.getLogger("RocketmqStore")

_LIB_C = ctypes.CDLL(None, use_errno=True)
for _call in (_LIB_C.mlock, _LIB_C.munlock):
    _call.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    _call.restype = ctypes.c_int


def mlock(memory: Any, what: str) -> bool:
    """Lock the pages of a writable buffer in memory. False, with the reason in the log, when the system says no."""
    return _call_on(_LIB_C.mlock, memory, what)


def munlock(memory: Any, what: str) -> bool:
    """Give the pages of a writable buffer free. False, with the reason in the log, when the system says no."""
    return _call_on(_LIB_C.munlock, memory, what)


def _call_on(call: Any, memory: Any, what: str) -> bool:
    size = len(memory)
    first = ctypes.c_char.from_buffer(memory)  # keeps the buffer where it is during the call
    ret = call(ctypes.addressof(first), size)
    if ret == 0:
        log.info("%s %s %s ret = %s", call.__name__, what, size, ret)
        return True
    # The original tells no reason. Nearly always it is the limit of locked memory (ulimit -l).
    log.warning("%s %s %s ret = %s: %s; see the limit of locked memory (ulimit -l)", call.__name__, what, size, ret,
                os.strerror(ctypes.get_errno()))
    return False
