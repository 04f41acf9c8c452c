"""Fault injection: requests that are refused or delayed, full disks, and cut links.

    request --> processor of the broker, wrapped while there is a fault --> refused or served, after a delay

A broker without faults runs the original code. The first fault wraps the processors, and turns off the express lane, by
which sends and pulls bypass them. The end of the last fault restores both.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from rmqha.common.futures import Completable
from rmqha.common.protocol import request_code, response_code
from rmqha.common.threads import ScheduledService
from rmqha.remoting.addresses import exception_simple_desc
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_abstract import ProcessorPair
from rmqha.testing.cluster_parts import EmbeddedError

if TYPE_CHECKING:
    from types import ModuleType

    from rmqha.broker.broker_controller import BrokerController
    from rmqha.remoting.channel import Channel
    from rmqha.remoting.interfaces import Answer, RequestProcessor
    from rmqha.remoting.remoting_server import RemotingServer

SENDS = ("SEND_MESSAGE", "SEND_MESSAGE_V2", "SEND_BATCH_MESSAGE")


class Fault:
    """A fault that lasts until `heal` or the end of `with`. `hits`: the number of affected requests."""

    def __init__(self, what: str, undo: Callable[[Fault], None]) -> None:
        self.what = what
        self.hits = 0  # guarded by the lock of RequestFaults
        self.is_active = True
        self._undo = undo

    def __repr__(self) -> str:
        return f"Fault({self.what}, {'active' if self.is_active else 'healed'}, hits={self.hits})"

    def heal(self) -> None:
        """End the fault. Idempotent."""
        if self.is_active:
            self.is_active = False
            self._undo(self)

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, *_: object) -> None:
        self.heal()


class RequestFault(Fault):
    """A fault that affects requests: a `refusal` (code and remark), a delay of `delay_ms`, or both.

    It affects the first `times` requests with one of the `codes`, or (None) all of them.
    """

    def __init__(self, what: str, undo: Callable[[Fault], None], codes: frozenset[int] | None, delay_ms: float = 0,
                 refusal: tuple[int, str] | None = None, times: int | None = None) -> None:
        super().__init__(what, undo)
        self.codes = codes  # None: all
        self.delay_ms = delay_ms
        self.refusal = refusal
        self.times = times

    def meets(self, code: int) -> bool:
        """Return True if the fault affects the next request with this code."""
        return (self.codes is None or code in self.codes) and (self.times is None or self.hits < self.times)


class RequestFaults:
    """The request faults of all brokers of a cluster, and the timer for delays. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: tuple[RequestFault, ...] = ()  # guarded by _lock
        # Filled while there are faults; used only by the test's thread
        self._wrapped: list[_WrappedServer] = []
        self._timer = ScheduledService("FaultDelayThread1")

    def add(self, fault: RequestFault, controllers: Iterable[BrokerController]) -> None:
        """Apply the fault to requests to these brokers from now on."""
        with self._lock:
            self._faults = (*self._faults, fault)
        if not self._wrapped:
            self._wrapped = [_WrappedServer(server, self) for controller in controllers
                             for server in (controller.remoting_server, controller.fast_remoting_server)]

    def remove(self, fault: Fault) -> None:
        """Stop applying the fault; requests that it has already delayed keep waiting."""
        with self._lock:
            self._faults = tuple(one for one in self._faults if one is not fault)
        if not self._faults:
            for server in self._wrapped:
                server.unwrap()
            self._wrapped = []

    def meet(self, code: int) -> tuple[float, tuple[int, str] | None]:
        """Return the delay (ms) and the refusal (None: it is served) of a request with this code, and count it."""
        delay_ms, refusal = 0.0, None
        with self._lock:
            for fault in self._faults:
                if fault.meets(code) and not (fault.refusal and refusal):
                    fault.hits += 1
                    delay_ms += fault.delay_ms
                    refusal = fault.refusal or refusal
        return delay_ms, refusal

    def later(self, task: Callable[[], object], delay_ms: float) -> None:
        """Run `task` after the delay; tasks run in the order of their times."""
        self._timer.schedule(task, delay_ms)

    def shutdown(self) -> None:
        """Stop the timer; delayed requests are never served."""
        self._timer.shutdown()


class _WrappedServer:
    """A server whose processors are wrapped with faults."""

    def __init__(self, server: RemotingServer, faults: RequestFaults) -> None:
        self._server = server
        self._before = server.processor_table, server.default_request_processor, server.io.express_lane

        def wrap(pair: ProcessorPair) -> ProcessorPair:
            return ProcessorPair(FaultyProcessor(pair.processor, faults), pair.executor)

        server.io.express_lane = None
        server.processor_table = {code: wrap(pair) for code, pair in server.processor_table.items()}
        if server.default_request_processor is not None:
            server.default_request_processor = wrap(server.default_request_processor)

    def unwrap(self) -> None:
        """Restore the original processors and the express lane."""
        server = self._server
        server.processor_table, server.default_request_processor, server.io.express_lane = self._before


class FaultyProcessor:
    """A processor that applies the faults before it passes a request to the original one."""

    def __init__(self, processor: RequestProcessor, faults: RequestFaults) -> None:
        self._processor = processor
        self._faults = faults

    def process_request(self, channel: Channel, request: RemotingCommand) -> Answer:
        """Return the processor's answer or a refusal, now or (as a Completable) later."""
        delay_ms, refusal = self._faults.meet(request.code)
        if not delay_ms:
            return self._answer(channel, request, refusal)
        answer: Completable[RemotingCommand | None] = Completable()
        self._faults.later(partial(self._complete, answer, channel, request, refusal), delay_ms)
        return answer

    def _complete(self, later: Completable[RemotingCommand | None], channel: Channel, request: RemotingCommand,
                  refusal: tuple[int, str] | None) -> None:
        try:
            answer = self._answer(channel, request, refusal)
        except Exception as error:
            # The server would answer the same, but it does not see errors on this thread
            answer = RemotingCommand.create_response_command(response_code.SYSTEM_ERROR, exception_simple_desc(error))
        if isinstance(answer, Completable):
            answer.then(later.complete)
        else:
            later.complete(answer)

    def _answer(self, channel: Channel, request: RemotingCommand, refusal: tuple[int, str] | None) -> Answer:
        if refusal is not None:
            return RemotingCommand.create_response_command(*refusal)
        return self._processor.process_request(channel, request)

    def reject_request(self) -> bool:
        """Return the result of the processor."""
        return self._processor.reject_request()


def codes_of(requests: Iterable[str]) -> frozenset[int]:
    """Return the request codes with these names; EmbeddedError for an unknown one."""
    if isinstance(requests, str):
        requests = (requests,)
    return frozenset(_code(request_code, name, "request") for name in requests)


def response_code_of(name: str) -> int:
    """Return the response code with this name; EmbeddedError for an unknown one, or for SUCCESS."""
    code = _code(response_code, name, "response")
    if code == response_code.SUCCESS:
        raise EmbeddedError("SUCCESS does not refuse requests; use another response code, such as SYSTEM_BUSY")
    return code


def _code(module: ModuleType, name: str, kind: str) -> int:
    known = {key: value for key, value in vars(module).items() if key.isupper() and isinstance(value, int)}
    if name in known:
        return known[name]
    # Imported late: a fixture without faults is set up faster without it
    import difflib

    near = difflib.get_close_matches(str(name).upper(), known, n=1, cutoff=0.5)
    raise EmbeddedError(f"unknown {kind} code {name!r}" + (f", did you mean {near[0]}?" if near else
                                                           "; use RocketMQ's names, such as SYSTEM_BUSY"))
