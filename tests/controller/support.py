"""A controller in this process, and fake brokers that only send a broker's requests."""
import json
import threading
from pathlib import Path

from rmqha.common.controller_config import ControllerConfig
from rmqha.common.protocol import request_code
from rmqha.controller.controller_manager import ControllerManager
from rmqha.remoting.protocol.remoting_command import RemotingCommand
from rmqha.remoting.remoting_config import ServerConfig
from rmqha.remoting.remoting_server import RemotingServer
from tests.support.ports import free_port
from tests.support.raw_remoting import Answer, RawClient

CLUSTER, NAME = "c", "b"
# How long a new leader waits for other leaders' leases.
LEASE_MS = 150
TIMEOUT_MS = 10_000


def controller(folder: Path, port: int | None = None, **keys: object) -> ControllerManager:
    """Return a started controller."""
    manager = ControllerManager(ControllerConfig(**{
        "controllerDLegerGroup": "group1", "controllerDLegerPeers": f"n0-127.0.0.1:{port or free_port()}",
        "controllerDLegerSelfId": "n0", "controllerStorePath": str(folder / "store"),
        "configStorePath": str(folder / "controller.properties"), "maxLeaseMillis": LEASE_MS, **keys}), ServerConfig())
    manager.initialize()
    manager.start()
    return manager


class FakeBroker:
    """A replica as a controller sees it: one connection to the controller, and a port that records requests."""

    def __init__(self, manager: ControllerManager, id_: int, takes_leases: bool = True) -> None:
        self.id, self._manager = id_, manager
        self._ha = {"haServerAddr": f"127.0.0.1:{10_000 + id_}"} if takes_leases else {}
        self.notified: list[RemotingCommand] = []
        self.handovers: list[RemotingCommand] = []
        # The broker changes its role only after this is set.
        self.may_change = threading.Event()
        self.may_change.set()
        # The response code of a handover.
        self.hand_over_code = 0
        self._came = threading.Condition()
        self._server = RemotingServer(ServerConfig(listenPort=0))
        for code in (request_code.NOTIFY_BROKER_ROLE_CHANGED, request_code.HANDOVER_MASTER):
            self._server.register_processor(code, self)
        self._server.start()
        self.address = f"127.0.0.1:{self._server.local_listen_port}"
        self.client = RawClient(manager.address, 10)

    def reject_request(self) -> bool:
        return False

    def process_request(self, _channel: object, request: RemotingCommand) -> RemotingCommand:
        with self._came:
            is_notice = request.code == request_code.NOTIFY_BROKER_ROLE_CHANGED
            (self.notified if is_notice else self.handovers).append(request)
            self._came.notify_all()
        if is_notice:
            self.may_change.wait()
        return RemotingCommand.create_response_command(0 if is_notice else self.hand_over_code, None)

    def wait_notified(self, epoch: int, timeout_s: float = 60) -> dict[str, str]:
        """Wait for the notification of an epoch, and return its fields."""
        def fields() -> dict[str, str] | None:
            return next((each.ext_fields for each in self.notified
                         if each.ext_fields["masterEpoch"] == str(epoch)), None)

        with self._came:
            assert self._came.wait_for(fields, timeout_s), f"broker {self.id} was not notified of epoch {epoch}"
            return fields()

    def ask(self, code: int, body: object = None, **fields: object) -> Answer:
        """Send a request to the controller, and return its answer."""
        data = b"" if body is None else json.dumps(body).encode()
        return self.client.request(code, data, clusterName=CLUSTER, brokerName=NAME, **fields)

    def register(self) -> Answer:
        """Reserve the id, send a heartbeat, and register."""
        self.ask(request_code.CONTROLLER_APPLY_BROKER_ID, appliedBrokerId=self.id,
                 registerCheckCode=f"{self.address};{self.id}")
        self.beat()
        return self.ask(request_code.CONTROLLER_REGISTER_BROKER, brokerId=self.id, brokerAddress=self.address)

    def beat(self, timeout_ms: int = TIMEOUT_MS, **fields: object) -> Answer:
        """Send a heartbeat."""
        return self.ask(request_code.BROKER_HEARTBEAT, brokerId=self.id, brokerAddr=self.address,
                        heartbeatTimeoutMills=timeout_ms, **{**self._ha, **fields})

    def elect(self, designate: bool = False, broker_id: int | None = None) -> Answer:
        """Request an election."""
        return self.ask(request_code.CONTROLLER_ELECT_MASTER, brokerId=broker_id or self.id,
                        designateElect=str(designate).lower())

    def alter(self, ids: list[int], set_epoch: int, epoch: int = 1) -> Answer:
        """Request another sync-state set, as the master."""
        return self.ask(request_code.CONTROLLER_ALTER_SYNC_STATE_SET, {
            "syncStateSet": ids, "syncStateSetEpoch": set_epoch}, masterBrokerId=self.id, masterEpoch=epoch)

    def info(self) -> Answer:
        """Send CONTROLLER_GET_REPLICA_INFO."""
        return self.ask(request_code.CONTROLLER_GET_REPLICA_INFO)

    def connect_anew(self) -> None:
        """Open another connection, and close the old one."""
        self.client.socket.close()
        self.client = RawClient(self._manager.address, 10)

    def die(self) -> None:
        """Close all connections."""
        self.may_change.set()
        self.client.socket.close()
        self._server.shutdown()
