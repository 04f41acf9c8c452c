"""Requests of tests, and servers in the process of a test, that wait for a busy machine.

A client gives a broker three to six seconds to answer, a broker a page of metrics eight. Where other programs have the
cores for that long, the request of a test would fail, or its answer lack a part, and nothing that the test is about. A
time of less than a second is what a test has set itself; a test marked `own_timeouts` is about longer ones.
"""
import functools
import sys
from collections.abc import Callable
from typing import Any

_MODULE = "rmqha.remoting.remoting_client"
_SET_BY_TESTS_MS = 1000
_PATIENT_MS = 120_000
_UNITS_PER_S = {"S": 1, "MS": 1000, "MILLIS": 1000, "NS": 1_000_000_000}
DEADLINES = (
    ("rmqha.common.metrics.pages", "TIME_LIMIT_S"),
    ("rmqha.remoting.http_port", "MAX_CONNECTION_S"),
    ("rmqha.remoting.io_thread", "TLS_HANDSHAKE_TIMEOUT_NS"),
    ("rmqha.remoting.remoting_client", "LOCK_TIMEOUT_MS"),
    ("rmqha.client.impl.factory.mq_client_instance", "LOCK_TIMEOUT_MILLIS"),
    ("rmqha.broker.client.net.broker2_client", "ALL_ANSWERS_S"),
    ("rmqha.broker.topic.topic_config_manager", "LOCK_TIMEOUT_S"),
    ("rmqha.store.allocate_mapped_file_service", "WAIT_TIME_OUT_MS"),
    ("rmqha.store.deleted_topics", "_DISPATCH_WAIT_MS"),
    ("rmqha.store.reput_message_service", "_SHUTDOWN_WAIT_MS"),
    ("rmqha.store.schedule.schedule_message_service", "_PUT_TIMEOUT_MS"),
    ("rmqha.tools.console.app", "_WAIT_S"),
    ("rmqha.tools.console.source", "_FIRST_PICTURE_S"),
    ("rmqha.tools.ha.switch", "_ROLE_S"),
    ("rmqha.tools.messages.import_", "_ROUTE_WAIT_S"),
)
"""Times after which a part of rmqha gives up or leaves something out: (module, constant that it reads each time)."""
_own_deadlines: dict[tuple[str, str], float] = {}
_is_patient = False


def be_patient(is_on: bool = True) -> None:
    """Whether requests and deadlines of this process are long from now on; of the modules that are loaded."""
    global _is_patient
    _is_patient = is_on
    for name, constant in DEADLINES:
        if name in sys.modules:
            own = _own_deadlines.setdefault((name, constant), getattr(sys.modules[name], constant))
            setattr(sys.modules[name], constant, max(own, patient(constant)) if is_on else own)
    module = sys.modules.get(_MODULE)
    if module is not None and not hasattr(module.RemotingClient.invoke_sync, "waits"):
        for name in ("invoke_sync", "invoke_async"):
            setattr(module.RemotingClient, name, _waiting(getattr(module.RemotingClient, name)))


def is_patient() -> bool:
    """Whether they are long now."""
    return _is_patient


def patient(constant: str) -> int:
    """Two minutes in the unit that the name of a constant ends with."""
    return _PATIENT_MS * _UNITS_PER_S[constant.rsplit("_", 1)[1]] // 1000


def _waiting(invoke: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(invoke)
    def waits(self: object, addr: object, request: object, timeout_ms: float, *more: object) -> Any:
        if _is_patient and timeout_ms >= _SET_BY_TESTS_MS:
            timeout_ms = max(timeout_ms, _PATIENT_MS)
        return invoke(self, addr, request, timeout_ms, *more)
    waits.waits = True
    return waits
