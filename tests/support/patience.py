"""Requests of tests, and servers in a test's process, that wait for a busy machine.

A client gives a broker three to six seconds to answer, and a broker gives a metrics page eight seconds. If other
programs use the cores for that long, a test's request would fail, or its answer be incomplete, for no reason that the
test is about. A timeout of less than a second was set by the test itself; a test marked `own_timeouts` is about longer
ones.

    python -m tests.support.patience PROGRAM|-m MODULE|-c CODE ...    as Python runs it, with requests that wait
"""
import functools
import runpy
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

_MODULE = "rmqha.remoting.remoting_client"
_SET_BY_TESTS_MS = 1000
_PATIENT_MS = 120_000
_UNITS_PER_S = {"S": 1, "MS": 1000, "MILLIS": 1000, "NS": 1_000_000_000}
DEADLINES = (
    ("rmqha.common.metrics", "TIME_LIMIT_S"),
    ("rmqha.remoting.http_port", "MAX_CONNECTION_S"),
    ("rmqha.remoting.io_thread", "TLS_HANDSHAKE_TIMEOUT_NS"),
    ("rmqha.remoting.remoting_client", "LOCK_TIMEOUT_MS"),
    ("rmqha.client.impl.client_routes", "LOCK_TIMEOUT_MILLIS"),
    ("rmqha.broker.client.broker2_client", "ALL_ANSWERS_S"),
    ("rmqha.broker.topic_config_manager", "LOCK_TIMEOUT_S"),
    ("rmqha.store.allocate_mapped_file_service", "WAIT_TIME_OUT_MS"),
    ("rmqha.store.queue_removal", "_DISPATCH_WAIT_MS"),
    ("rmqha.store.reput_message_service", "_SHUTDOWN_WAIT_MS"),
    ("rmqha.store.schedule_message_service", "_PUT_TIMEOUT_MS"),
    ("rmqha.tools.console.app", "_WAIT_S"),
    ("rmqha.tools.console.source", "_FIRST_PICTURE_S"),
    ("rmqha.tools.replication.switch", "_ROLE_S"),
    ("rmqha.tools.messages.export_file", "_ROUTE_WAIT_S"),
)
"""Times after which a part of rmqha gives up or leaves something out: (module, constant that it reads each time)."""
_own_deadlines: dict[tuple[str, str], float] = {}
_is_patient = False


def be_patient(is_on: bool = True) -> None:
    """Make requests and deadlines of this process long from now on, or normal again; only those of loaded modules."""
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


def command(words: Iterable[object]) -> list[str]:
    """Return the command `python words`, whose requests wait; for a client that a test starts. It must find `tests`."""
    return [sys.executable, "-m", __name__, *map(str, words)]


def is_patient() -> bool:
    """Return whether they are long now."""
    return _is_patient


def patient(constant: str) -> int:
    """Return two minutes in the unit that the name of a constant ends with."""
    return _PATIENT_MS * _UNITS_PER_S[constant.rsplit("_", 1)[1]] // 1000


def _waiting(invoke: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(invoke)
    def waits(self: object, addr: object, request: object, timeout_ms: float, *more: object) -> Any:
        if _is_patient and timeout_ms >= _SET_BY_TESTS_MS:
            timeout_ms = max(timeout_ms, _PATIENT_MS)
        return invoke(self, addr, request, timeout_ms, *more)
    waits.waits = True
    return waits


def _run(words: list[str]) -> None:
    """Run `python words`."""
    import_module(_MODULE)
    be_patient()
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        exec(compile(words[1], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv, sys.path[0] = words, str(Path(words[0]).resolve().parent)
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    _run(sys.argv[1:])
