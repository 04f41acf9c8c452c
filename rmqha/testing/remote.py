"""Somebody else's RocketMQ, at an address."""
from __future__ import annotations

import os

from rmqha.common.protocol import request_code
from rmqha.common.protocol.cluster_bodies import ClusterInfo
from rmqha.remoting.exception import RemotingException
from rmqha.remoting.protocol import remoting_serializable
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_client import RemotingClient
from rmqha.remoting.remoting_config import ClientConfig
from rmqha.testing.errors import EmbeddedError

_TIMEOUT_MS = 5000


class RemoteRocketMQ:
    """A cluster that runs already: `namesrv_addr` is for clients, `env` for the processes of other clients."""

    def __init__(self, namesrv_addr: str) -> None:
        self.namesrv_addr = namesrv_addr

    @property
    def env(self) -> dict[str, str]:
        """The environment of this process, with NAMESRV_ADDR."""
        return {**os.environ, "NAMESRV_ADDR": self.namesrv_addr}

    def brokers(self) -> dict[str, dict[int, str]]:
        """Broker name -> id -> "host:port", as the first name server that answers has it. EmbeddedError: none does."""
        problems = []
        client = RemotingClient(ClientConfig())
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
