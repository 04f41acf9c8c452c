"""Requests of tests that wait for a busy machine.

A client gives a broker three to six seconds to answer. Where other programs have the cores for that long, the request
of a test would fail, and nothing that the test is about. A time of less than a second is what a test has set itself; a
test marked `own_timeouts` is about longer ones.
"""
import functools
import sys
from collections.abc import Callable
from typing import Any

_MODULE = "rmqha.remoting.remoting_client"
_SET_BY_TESTS_MS = 1000
_PATIENT_MS = 120_000
_is_patient = False


def be_patient(is_on: bool = True) -> None:
    """Whether requests of this process wait long from now on; it has an effect once the client is loaded."""
    global _is_patient
    _is_patient = is_on
    module = sys.modules.get(_MODULE)
    if module is not None and not hasattr(module.RemotingClient.invoke_sync, "waits"):
        for name in ("invoke_sync", "invoke_async"):
            setattr(module.RemotingClient, name, _waiting(getattr(module.RemotingClient, name)))


def is_patient() -> bool:
    """Whether they do."""
    return _is_patient


def _waiting(invoke: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(invoke)
    def waits(self: object, addr: object, request: object, timeout_ms: float, *more: object) -> Any:
        if _is_patient and timeout_ms >= _SET_BY_TESTS_MS:
            timeout_ms = max(timeout_ms, _PATIENT_MS)
        return invoke(self, addr, request, timeout_ms, *more)
    waits.waits = True
    return waits
