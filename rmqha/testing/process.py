"""A RocketMQ outside the test's process.

- `RocketMQProcess`: in a child process, for clients in other languages, and for tests that must not share its GIL.
- `RemoteRocketMQ`: an existing cluster at an address.
"""
from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import rmqha
from rmqha.common.protocol import request_code
from rmqha.common.protocol.cluster_bodies import ClusterInfo
from rmqha.remoting.exception import RemotingException
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_client import RemotingClient
from rmqha.remoting.remoting_config import RemotingClientConfig
from rmqha.testing.node import EmbeddedError, wait_until

_READY = "NAMESRV_ADDR="
_READY_S = 60
_END_S = 60


class RocketMQProcess:
    """A name server and brokers in a child process.

    `namesrv_addr` is for clients, `env` for clients in other processes. The arguments are those of EmbeddedRocketMQ.
    Use `with`, or `start` and `stop`. It also ends when the test's process exits.
    """

    def __init__(self, topology: str = "1m", *, sync: bool = False, host: str = "127.0.0.1", port: int = 0,
                 store_dir: str | os.PathLike[str] | None = None, config: Mapping[str, object] | None = None) -> None:
        self.topology = topology
        self._command = [sys.executable, "-m", "rmqha.testing.server", "--topology", topology, "--host", host,
                         "--port", str(port)]
        self._command += ["--sync"] if sync else []
        self._command += ["--store-dir", os.fspath(store_dir)] if store_dir is not None else []
        for key, value in (config or {}).items():
            self._command += ["--config", f"{key}={str(value).lower() if isinstance(value, bool) else value}"]
        self._process: subprocess.Popen[bytes] | None = None  # while it runs
        self._output = Path(os.devnull)
        self._namesrv_addr = ""

    def __enter__(self) -> RocketMQProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def namesrv_addr(self) -> str:
        """ "host:port" of the name server."""
        self._running()
        return self._namesrv_addr

    @property
    def env(self) -> dict[str, str]:
        """The environment of this process, with NAMESRV_ADDR."""
        return {**os.environ, "NAMESRV_ADDR": self.namesrv_addr}

    @property
    def pid(self) -> int:
        """The process id."""
        return self._running().pid

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
        handle, name = tempfile.mkstemp(prefix="rmqha-test-", suffix=".out")
        self._output = Path(name)
        with open(handle, "wb") as output:
            self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=output,
                                             stderr=subprocess.STDOUT, env=env)
        try:
            wait_until(self._is_ready, _READY_S, "the RocketMQ for the tests is ready")
        except BaseException:
            self.stop()
            raise

    def _is_ready(self) -> bool:
        process = self._running()
        code, text = process.poll(), self._output.read_text("utf-8", "replace")
        if code is not None:
            raise EmbeddedError(f"the RocketMQ for the tests has exited with code {code}: {text.strip()}")
        line = next((line for line in text.splitlines(keepends=True)
                     if line.startswith(_READY) and line.endswith("\n")), "")
        self._namesrv_addr = line.removeprefix(_READY).strip()
        return line != ""

    def stop(self) -> None:
        """Stop the process, which deletes its data. Idempotent."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None  # a pipe
        process.stdin.close()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._output.unlink(missing_ok=True)


_TIMEOUT_MS = 5000


class RemoteRocketMQ:
    """An existing cluster. `namesrv_addr` is for clients, `env` for clients in other processes."""

    def __init__(self, namesrv_addr: str) -> None:
        self.namesrv_addr = namesrv_addr

    @property
    def env(self) -> dict[str, str]:
        """The environment of this process, with NAMESRV_ADDR."""
        return {**os.environ, "NAMESRV_ADDR": self.namesrv_addr}

    def brokers(self) -> dict[str, dict[int, str]]:
        """Return the addresses ("host:port") by broker name and id, from the first name server that answers.

        EmbeddedError if no name server answers.
        """
        problems = []
        client = RemotingClient(RemotingClientConfig())
        client.start()
        try:
            for address in self.namesrv_addr.split(";"):
                try:
                    return _brokers_of(client, address.strip())
                except (RemotingException, ValueError) as error:
                    problems.append(f"{address}: {error}")
        finally:
            client.shutdown()
        raise EmbeddedError("no name server answers: " + "; ".join(problems))


def _brokers_of(client: RemotingClient, address: str) -> dict[str, dict[int, str]]:
    request = RemotingCommand.create_request_command(request_code.GET_BROKER_CLUSTER_INFO, None)
    response = client.invoke_sync(address, request, _TIMEOUT_MS)
    info = remoting_serializable.from_json(ClusterInfo, response.body or b"{}")
    return {name: dict(data.brokerAddrs) for name, data in (info.brokerAddrTable or {}).items()}
