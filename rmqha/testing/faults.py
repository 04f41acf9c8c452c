"""Faults on purpose: answers that are refused or late, disks that are full, links that are cut.

    request --> processor of the broker, wrapped while there is a fault --> refused, or served, when its time has come

A broker without faults has nothing of this in its way: the processors are wrapped with the first fault and unwrapped
with the last, and so is the express lane left.
"""
from __future__ import annotations

import difflib
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
from rmqha.testing.node import EmbeddedError

if TYPE_CHECKING:
    from types import ModuleType

    from rmqha.broker.broker_controller import BrokerController
    from rmqha.remoting.channel import Channel
    from rmqha.remoting.interfaces import Answer, RequestProcessor
    from rmqha.remoting.remoting_server import RemotingServer

SENDS = ("SEND_MESSAGE", "SEND_MESSAGE_V2", "SEND_BATCH_MESSAGE")


class Fault:
    """What is wrong now, until `heal`, or the end of `with`. `hits`: requests that it has met."""

    def __init__(self, what: str, undo: Callable[[Fault], None]) -> None:
        self.what = what
        self.hits = 0  # guarded by the lock of RequestFaults
        self.is_active = True
        self._undo = undo

    def __repr__(self) -> str:
        return f"Fault({self.what}, {'active' if self.is_active else 'healed'}, hits={self.hits})"

    def heal(self) -> None:
        """All is as it was before. Idempotent."""
        if self.is_active:
            self.is_active = False
            self._undo(self)

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, *_: object) -> None:
        self.heal()


class RequestFault(Fault):
    """One that requests meet: `refusal` (code and remark) or None, after `delay_ms`; the first `times`, or all."""

    def __init__(self, what: str, undo: Callable[[Fault], None], codes: frozenset[int] | None, delay_ms: float = 0,
                 refusal: tuple[int, str] | None = None, times: int | None = None) -> None:
        super().__init__(what, undo)
        self.codes = codes  # None: all
        self.delay_ms = delay_ms
        self.refusal = refusal
        self.times = times

    def meets(self, code: int) -> bool:
        """Whether the next request with this code is one of those."""
        return (self.codes is None or code in self.codes) and (self.times is None or self.hits < self.times)


class RequestFaults:
    """The faults of requests of all brokers of a cluster, and who delays. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: tuple[RequestFault, ...] = ()  # guarded by _lock
        self._wrapped: list[_WrappedServer] = []  # while there are faults; the test's thread
        self._timer = ScheduledService("FaultDelayThread1")

    def add(self, fault: RequestFault, controllers: Iterable[BrokerController]) -> None:
        """From now on requests to these brokers meet the fault."""
        with self._lock:
            self._faults = (*self._faults, fault)
        if not self._wrapped:
            self._wrapped = [_WrappedServer(server, self) for controller in controllers
                             for server in (controller.remoting_server, controller.fast_remoting_server)]

    def remove(self, fault: Fault) -> None:
        """Requests no longer meet it; those that wait because of it go on waiting."""
        with self._lock:
            self._faults = tuple(one for one in self._faults if one is not fault)
        if not self._faults:
            for server in self._wrapped:
                server.unwrap()
            self._wrapped = []

    def meet(self, code: int) -> tuple[float, tuple[int, str] | None]:
        """What happens to a request with this code: after how many ms, and how it is refused (None: not at all)."""
        delay_ms, refusal = 0.0, None
        with self._lock:
            for fault in self._faults:
                if fault.meets(code) and not (fault.refusal and refusal):
                    fault.hits += 1
                    delay_ms += fault.delay_ms
                    refusal = fault.refusal or refusal
        return delay_ms, refusal

    def later(self, task: Callable[[], object], delay_ms: float) -> None:
        """Run `task` after the delay, in the order of their times."""
        self._timer.schedule(task, delay_ms)

    def shutdown(self) -> None:
        """What waits is never served."""
        self._timer.shutdown()


class _WrappedServer:
    """A server whose requests meet faults first."""

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
        """As it was before."""
        server = self._server
        server.processor_table, server.default_request_processor, server.io.express_lane = self._before


class FaultyProcessor:
    """A processor before which requests meet faults."""

    def __init__(self, processor: RequestProcessor, faults: RequestFaults) -> None:
        self._processor = processor
        self._faults = faults

    def process_request(self, channel: Channel, request: RemotingCommand) -> Answer:
        """The processor's answer, or a refusal; now or later."""
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
        except Exception as error:  # the server answers so too, but its thread is elsewhere
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
        """As the processor says."""
        return self._processor.reject_request()


def codes_of(requests: Iterable[str]) -> frozenset[int]:
    """The request codes with these names; EmbeddedError for one that is unknown."""
    if isinstance(requests, str):
        requests = (requests,)
    return frozenset(_code(request_code, name, "request") for name in requests)


def response_code_of(name: str) -> int:
    """The response code with this name; EmbeddedError for one that is unknown, or no refusal."""
    code = _code(response_code, name, "response")
    if code == response_code.SUCCESS:
        raise EmbeddedError("SUCCESS refuses nothing; name another response code, as SYSTEM_BUSY")
    return code


def _code(module: ModuleType, name: str, kind: str) -> int:
    known = {key: value for key, value in vars(module).items() if key.isupper() and isinstance(value, int)}
    if name in known:
        return known[name]
    near = difflib.get_close_matches(str(name).upper(), known, n=1, cutoff=0.5)
    raise EmbeddedError(f"no {kind} code has the name {name!r}" + (f", did you mean {near[0]}?" if near else
                                                                     "; names are RocketMQ's, as SYSTEM_BUSY"))
