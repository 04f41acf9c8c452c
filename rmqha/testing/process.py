"""A RocketMQ outside the test's process.

- `RocketMQProcess`: in a child process: rmqha's servers, or those of an Apache RocketMQ release. It is for clients in
  other languages, for tests that must not share its GIL, and for a comparison with RocketMQ.
- `RemoteRocketMQ`: an existing cluster at an address.

    test --lines of JSON (see `control`)--> python -m rmqha.testing.server --> rmqha's servers, or the JVMs of a release
    test --requests (see `cluster_admin`)--> the servers
"""
from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import rmqha
from rmqha.common.texts import parse_json
from rmqha.testing import control
from rmqha.testing.cluster_parts import EmbeddedError, NotSupportedError, wait_until

if TYPE_CHECKING:
    from rmqha.common.message.message import MessageExt
    from rmqha.testing.cluster_admin import ClusterAdmin

_READY = "NAMESRV_ADDR="
_READY_S = 180
_CALL_S = 300
_END_S = 60
_TAIL = 4_000  # characters of the output in an error


def environment(namesrv_addr: str) -> dict[str, str]:
    """Return the environment of this process, with NAMESRV_ADDR."""
    return {**os.environ, "NAMESRV_ADDR": namesrv_addr}


def refuse_unsupported(why: str) -> NoReturn:
    """Raise a NotSupportedError. (The fixtures skip the test instead.)"""
    raise NotSupportedError(why)


class _State(NamedTuple):
    """One broker, as the cluster's process reports it. If it is down, it has no `address` and no `pid`."""

    node: str
    broker_name: str
    broker_id: int
    address: str | None
    pid: int | None


class RemoteBroker:
    """One broker of a RocketMQProcess: `node`, `broker_name`, `broker_id`, `is_master`, `is_running`, `address` and
    `pid`."""

    def __init__(self, mq: RocketMQProcess, state: _State) -> None:
        self.node, self.broker_name, self.broker_id = state[:3]
        self.is_master = self.broker_id == 0
        self._mq = mq

    def __repr__(self) -> str:
        return f"RemoteBroker({self.node!r})"

    @property
    def is_running(self) -> bool:
        """True if the broker was started, and not stopped or killed since."""
        return self._state().address is not None

    @property
    def address(self) -> str:
        """The address ("host:port") of the running broker for clients."""
        address = self._state().address
        if address is None:
            raise EmbeddedError(f"{self.node} is down; restart({self.node!r}) starts it again")
        return address

    @property
    def pid(self) -> int:
        """The id of the process in which the broker runs: a JVM, or the process of all rmqha servers."""
        return self._state().pid or self._mq.pid

    @property
    def controller(self) -> NoReturn:
        """Not available: the broker's object is in another process."""
        self._mq.unsupported(f"{self.node} runs in another process, so it has no `controller` here; that needs the "
                             "backend embedded")

    def _state(self) -> _State:
        return next(state for state in self._mq.states() if state.node == self.node)


class RemoteFault:
    """A fault at a RocketMQProcess, which lasts until `heal` or the end of `with`."""

    def __init__(self, what: str, call: Callable[[str], Any]) -> None:
        self.what = what
        self.is_active = True
        self._call = call

    def __repr__(self) -> str:
        return f"RemoteFault({self.what}, {'active' if self.is_active else 'healed'})"

    @property
    def hits(self) -> int:
        """The number of affected requests."""
        return int(self._call(control.HITS))

    def heal(self) -> None:
        """End the fault. Idempotent."""
        if self.is_active:
            self.is_active = False
            self._call(control.HEAL_FAULT)

    def __enter__(self) -> RemoteFault:
        return self

    def __exit__(self, *_: object) -> None:
        self.heal()


class RocketMQProcess:
    """A name server and brokers in a child process, with the methods of EmbeddedRocketMQ.

    `namesrv_addr` is for clients, `env` for clients in other processes. The arguments are those of EmbeddedRocketMQ.
    `rocketmq_home`: the folder of an Apache RocketMQ release, which then runs instead of rmqha. Use `with`, or `start`
    and `stop`. It also ends when the test's process exits. Only one thread, the test's, may use it.

    `unsupported` is called with a reason when the backend can't do what was requested.
    """

    def __init__(self, topology: str = "1m", *, sync: bool = False, host: str = "127.0.0.1", port: int = 0,
                 store_dir: str | os.PathLike[str] | None = None, config: Mapping[str, object] | None = None,
                 rocketmq_home: str | os.PathLike[str] | None = None,
                 unsupported: Callable[[str], NoReturn] = refuse_unsupported) -> None:
        self.topology = topology
        self.unsupported = unsupported
        if rocketmq_home is not None:
            self._check_release(rocketmq_home, config or {})
        self._command = [sys.executable, "-m", "rmqha.testing.server", "--topology", topology, "--host", host,
                         "--port", str(port)]
        self._command += ["--sync"] if sync else []
        self._command += ["--store-dir", os.fspath(store_dir)] if store_dir is not None else []
        self._command += ["--rocketmq-home", os.fspath(rocketmq_home)] if rocketmq_home is not None else []
        for key, value in (config or {}).items():
            self._command += ["--config", f"{key}={str(value).lower() if isinstance(value, bool) else value}"]
        # These are set while it runs
        self._process: subprocess.Popen[bytes] | None = None
        self._output = -1  # the file descriptor of its output
        self._admin: ClusterAdmin | None = None
        self._namesrv_addr = ""
        self._text, self._unread = "", ""  # the output's complete lines so far, and the begin of the next one
        self._line_at = 0  # the offset of that line in the output
        self._numbers = count(1)
        self._answers: dict[int, dict[str, Any]] = {}
        self._faults: list[RemoteFault] = []

    def __repr__(self) -> str:
        return f"RocketMQProcess({self.topology!r}, {self._namesrv_addr if self._process else 'down'})"

    def _check_release(self, home: str | os.PathLike[str], config: Mapping[str, object]) -> None:
        from rmqha.testing.broker_keys import check_java_config
        from rmqha.testing.java_servers import java_program, release_at

        java_program()
        try:
            check_java_config(config, release_at(home).version)
        except NotSupportedError as error:
            self.unsupported(str(error))

    # Life.

    def __enter__(self) -> RocketMQProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def is_running(self) -> bool:
        """True if the process was started, and has not ended since."""
        return self._process is not None and self._process.poll() is None

    @property
    def namesrv_addr(self) -> str:
        """ "host:port" of the name server."""
        self._running()
        return self._namesrv_addr

    @property
    def env(self) -> dict[str, str]:
        """The environment of this process, with NAMESRV_ADDR."""
        return environment(self.namesrv_addr)

    @property
    def pid(self) -> int:
        """The process id. The servers end with this process."""
        return self._running().pid

    @property
    def admin(self) -> ClusterAdmin:
        """The requests to the cluster."""
        if self._admin is None:
            from rmqha.testing.cluster_admin import ClusterAdmin

            self._admin = ClusterAdmin(self.namesrv_addr)
        return self._admin

    def _close_admin(self) -> None:
        """Close the connections to brokers that are about to stop, before a request meets a broken one."""
        if self._admin is not None:
            self._admin.close()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise EmbeddedError("the RocketMQ is not started; use `with RocketMQProcess() as mq`, or start()")
        return self._process

    def start(self) -> None:
        """Start the process and wait until it is ready; EmbeddedError with its output if it exits instead."""
        if self._process is not None:
            raise EmbeddedError("the RocketMQ is already running")
        # The child must import the same rmqha as this process, and nothing from the folder in which the tests are run
        path = os.pathsep.join([str(Path(rmqha.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        env = {**os.environ, "PYTHONPATH": path.rstrip(os.pathsep), "PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"}
        self._output = os.memfd_create("output of the RocketMQ for the tests")
        self._text, self._line_at = "", 0
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=self._output,
                                         stderr=subprocess.STDOUT, env=env, bufsize=0)
        try:
            wait_until(self._is_ready, _READY_S, "the RocketMQ for the tests is ready")
        except BaseException:
            self.stop()
            raise

    def _is_ready(self) -> bool:
        code = self._running().poll()  # before its last lines are read
        for line in self._new_lines():
            if line.startswith(_READY):
                self._namesrv_addr = line.removeprefix(_READY).strip()
                return True
        if code is not None:
            raise EmbeddedError(f"the RocketMQ for the tests has exited with code {code}: {self._tail()}")
        return False

    def _new_lines(self) -> list[str]:
        """Return the complete lines of the output that were not returned before."""
        # Without moving the position of the file, which is also the child's
        data = os.pread(self._output, os.fstat(self._output).st_size - self._line_at, self._line_at)
        complete = data[:data.rfind(b"\n") + 1]
        self._line_at += len(complete)
        self._unread = data[len(complete):].decode("utf-8", "replace")
        self._text += (text := complete.decode("utf-8", "replace"))
        return text.splitlines()

    def _tail(self) -> str:
        """Return the end of the output, for an error."""
        return (self._text + self._unread).strip()[-_TAIL:]

    def stop(self) -> None:
        """Stop the process, which deletes its data. Idempotent."""
        process, self._process = self._process, None
        self._close_admin()
        self._admin = None  # the next start has another address
        if process is None:
            return
        assert process.stdin is not None  # a pipe
        process.stdin.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        os.close(self._output)
        self._answers.clear()
        self._forget_faults()

    # Calls to the process.

    def _call(self, name: str, *arguments: Any, **named: Any) -> Any:
        process, number = self._running(), next(self._numbers)
        line = json.dumps({control.ID: number, control.CALL: name, control.ARGUMENTS: arguments, control.NAMED: named})
        assert process.stdin is not None  # a pipe
        try:
            process.stdin.write(line.encode() + b"\n")
        except OSError as error:
            raise EmbeddedError(f"{name}: the RocketMQ for the tests has exited: {error.strerror}") from error
        wait_until(partial(self._has_answer, number, name), _CALL_S, f"the RocketMQ for the tests has done: {name}")
        answer = self._answers.pop(number)
        if control.ERROR not in answer:
            return answer[control.RESULT]
        if answer[control.IS_UNSUPPORTED]:
            self.unsupported(answer[control.ERROR])
        raise EmbeddedError(answer[control.ERROR])

    def _has_answer(self, number: int, name: str) -> bool:
        code = self._running().poll()
        for line in self._new_lines():
            if line.startswith("{"):
                answer = parse_json(line, "an answer")
                self._answers[answer[control.ID]] = answer
        if code is not None and number not in self._answers:
            raise EmbeddedError(f"{name}: the RocketMQ for the tests has exited with code {code}: {self._tail()}")
        return number in self._answers

    # The cluster: the methods of EmbeddedRocketMQ.

    def states(self) -> list[_State]:
        """Return the state of each broker."""
        return [_State(*one) for one in self._call(control.NODES)]

    @property
    def brokers(self) -> list[RemoteBroker]:
        """All brokers, masters first, including those that are down."""
        return [RemoteBroker(self, state) for state in self.states()]

    def broker(self, node: str) -> RemoteBroker:
        """Return the broker with this name: "broker-a" (a master), "broker-a-s" (its slave) ..."""
        brokers = {broker.node: broker for broker in self.brokers}
        if node not in brokers:
            raise EmbeddedError(f"unknown broker {node!r}; {self.topology} has {', '.join(brokers)}")
        return brokers[node]

    def create_topic(self, name: str, queues: int = 4) -> None:
        """Create a topic with `queues` queues on each running master. On return, the name server knows it."""
        self._call("create_topic", str(name), queues)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its messages."""
        self.admin.delete_topic(name)

    def delete_group(self, name: str) -> None:
        """Delete a consumer group with its offsets, its retry topic and its dead letters."""
        self.admin.delete_group(name)

    def messages(self, topic: str, node: str | None = None) -> list[MessageExt]:
        """Return all messages of a topic, by broker, queue and offset; [] if the topic does not exist (yet).

        They are read from the masters, or from the slave of a master that is down; with `node`, only from that broker.
        """
        if node is not None:
            broker = self.broker(node)
            return self.admin.messages(topic, broker.broker_name, broker.address)
        states = self.states()
        found: list[MessageExt] = []
        for master in (state for state in states if state.broker_id == 0):
            address = next((state.address for state in states
                            if state.broker_name == master.broker_name and state.address is not None), None)
            if address is None:
                raise EmbeddedError(f"{master.node} is down; restart({master.node!r}) starts it again")
            found += self.admin.messages(topic, master.broker_name, address)
        return found

    def reset(self) -> None:
        """Return to the state after the start, with the same addresses: new brokers with empty stores."""
        self._forget_faults()
        self._close_admin()
        self._call("reset")

    def kill(self, node: str) -> None:
        """Kill a broker like SIGKILL. The name server has noticed it when this returns."""
        self._close_admin()
        self._call("kill", node)

    def kill_master(self, name: str | None = None) -> str:
        """Kill a master like SIGKILL, by default the first that is running, and return its name."""
        self._close_admin()
        return str(self._call("kill_master", name))

    def restart(self, node: str | None = None) -> None:
        """Stop and start all brokers, or one; start those that are down. Data and addresses stay; faults are healed."""
        self._forget_faults()
        self._close_admin()
        self._call("restart", node)

    def wait_for_slaves(self, timeout_s: float = 60) -> None:
        """Wait until each slave has all data of its master: the log, topics, groups and consumers' offsets."""
        self._call("wait_for_slaves", timeout_s)

    def hurry_transaction_checks(self, on: bool) -> None:
        """Have the masters check open transactions of any age now, until `on` is False."""
        self._call("hurry_transaction_checks", on)

    # Faults.

    def refuse(self, code: str, times: int | None = None, requests: Iterable[str] | None = None,
               remark: str = "refused by the test") -> RemoteFault:
        """Answer the next `times` (None: all) requests with a response code; see EmbeddedRocketMQ."""
        kinds = {} if requests is None else {"requests": _listed(requests)}
        return self._fault("refuse", code, times, remark=remark, **kinds)

    def slow_down(self, ms: float, requests: Iterable[str] | None = None) -> RemoteFault:
        """Delay each request to a broker by `ms`; see EmbeddedRocketMQ."""
        return self._fault("slow_down", ms, None if requests is None else _listed(requests))

    def fill_disk(self, node: str | None = None) -> RemoteFault:
        """Refuse sends as if the disk were full, at one broker or at all."""
        return self._fault("fill_disk", node)

    def partition(self, name: str | None = None) -> RemoteFault:
        """Cut the link between one master, or each, and its slaves."""
        return self._fault("partition", name)

    def _fault(self, name: str, *arguments: Any, **named: Any) -> RemoteFault:
        number = self._call(name, *arguments, **named)

        def call(what: str) -> Any:
            if what == control.HEAL_FAULT:
                self._faults.remove(fault)
            return self._call(what, number)

        fault = RemoteFault(f"{name}{arguments}", call)
        self._faults.append(fault)
        return fault

    @property
    def faults(self) -> list[RemoteFault]:
        """The active faults."""
        return list(self._faults)

    def heal(self) -> None:
        """End all faults."""
        for fault in self.faults:
            fault.heal()

    def _forget_faults(self) -> None:
        for fault in self._faults:
            fault.is_active = False
        self._faults.clear()


def _listed(requests: Iterable[str]) -> list[str]:
    return [requests] if isinstance(requests, str) else list(requests)


class RemoteRocketMQ:
    """An existing cluster. `namesrv_addr` is for clients, `env` for clients in other processes."""

    def __init__(self, namesrv_addr: str) -> None:
        self.namesrv_addr = namesrv_addr
        self._admin: ClusterAdmin | None = None

    @property
    def env(self) -> dict[str, str]:
        """The environment of this process, with NAMESRV_ADDR."""
        return environment(self.namesrv_addr)

    @property
    def admin(self) -> ClusterAdmin:
        """The requests to the cluster."""
        if self._admin is None:
            from rmqha.testing.cluster_admin import ClusterAdmin

            self._admin = ClusterAdmin(self.namesrv_addr)
        return self._admin

    def close(self) -> None:
        """Close the connections of the calls below. Idempotent."""
        if self._admin is not None:
            self._admin.close()

    def brokers(self) -> dict[str, dict[int, str]]:
        """Return the addresses ("host:port") by broker name and id, from the first name server that answers.

        EmbeddedError if no name server answers.
        """
        return self.admin.brokers()

    def create_topic(self, name: str, queues: int = 4) -> None:
        """Create a topic with `queues` queues on each master. On return, the name server knows it."""
        self.admin.create_topic(name, queues)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its messages."""
        self.admin.delete_topic(name)

    def delete_group(self, name: str) -> None:
        """Delete a consumer group with its offsets, its retry topic and its dead letters."""
        self.admin.delete_group(name)

    def messages(self, topic: str) -> list[MessageExt]:
        """Return all messages of a topic, by broker, queue and offset, from each master or, if it is down, a slave."""
        return [message for name, by_id in self.brokers().items()
                for message in self.admin.messages(topic, name, by_id[min(by_id)])]
