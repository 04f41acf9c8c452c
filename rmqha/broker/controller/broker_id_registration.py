"""Assignment of a permanent id, unique among the replicas of a broker name.

    nothing --1012: free id?--> brokerIdentity-temp --1013: reserve it--> brokerIdentity --1003--> registered

The process can be interrupted at each arrow and resumed.
"""
from __future__ import annotations

import enum
import logging
import os
from typing import TYPE_CHECKING, TypeVar

from rmqha.broker.broker_outer_api import BrokerAnswerException
from rmqha.common import mix_all, util_all
from rmqha.common.protocol import response_code
from rmqha.common.protocol.controller_headers import (
    ApplyBrokerIdRequestHeader,
    RegisterBrokerToControllerRequestHeader,
    RegisterBrokerToControllerResponseHeader,
)
from rmqha.store.ha.autoswitch.epoch_file_cache import BrokerMetadata, BrokerMetadataError, TempBrokerMetadata

if TYPE_CHECKING:
    from rmqha.broker.broker_outer_api import ControllerApi
    from rmqha.common.protocol.cluster_bodies import SyncStateSet

log = logging.getLogger("RocketmqBroker")

_TEMP_SUFFIX = "-temp"

Metadata = TypeVar("Metadata", BrokerMetadata, TempBrokerMetadata)


class RegisterState(enum.Enum):
    """The progress of a replica's registration.

    Java: org.apache.rocketmq.broker.controller.ReplicasManager$RegisterState (5.1.4)
    """

    INITIAL = enum.auto()
    CREATE_TEMP_METADATA_FILE_DONE = enum.auto()
    CREATE_METADATA_FILE_DONE = enum.auto()
    REGISTERED = enum.auto()


class BrokerIdRegistration:
    """The registration of one replica. Used by one thread; any thread may read `state` and `broker_id`.

    Java: org.apache.rocketmq.broker.controller.ReplicasManager (5.1.4)
    """

    def __init__(self, api: ControllerApi, cluster: str, name: str, identity_path: str) -> None:
        self._api = api
        self._cluster, self._name = cluster, name
        self._path, self._temp_path = identity_path, identity_path + _TEMP_SUFFIX
        self.state = RegisterState.INITIAL
        self.broker_id: int | None = None  # known from CREATE_METADATA_FILE_DONE on
        self._temp: TempBrokerMetadata | None = None

    def read_files(self) -> None:
        """Read the progress of an earlier run. Raises BrokerMetadataError if a file is damaged or of another broker."""
        metadata = self._read(self._path, BrokerMetadata)
        if metadata is not None:
            self.broker_id, self.state = metadata.broker_id, RegisterState.CREATE_METADATA_FILE_DONE
            return
        try:
            self._temp = self._read(self._temp_path, TempBrokerMetadata)
        except BrokerMetadataError as error:
            # The machine failed while the file was being written, so no id was reserved with it yet.
            log.warning("%s; discarding it", error)
            self._forget_temp()
        if self._temp is not None:
            self.state = RegisterState.CREATE_TEMP_METADATA_FILE_DONE

    def _read(self, path: str, kind: type[Metadata]) -> Metadata | None:
        text = mix_all.file2string(path)
        if text is None:
            return None
        try:
            metadata = kind.decode_from_str(text)
        except BrokerMetadataError as error:
            raise BrokerMetadataError(f"{path}: {error}") from error
        if (metadata.cluster_name, metadata.broker_name) != (self._cluster, self._name):
            raise BrokerMetadataError(
                f"{path} belongs to broker {metadata.broker_name} of cluster {metadata.cluster_name}, but this broker "
                f"is {self._name} of {self._cluster}: the store was copied, or the configuration was changed. Remove "
                "the file if this replica should get its own id")
        return metadata

    def register(self, leader: str, address: str, ha_address: str) \
            -> tuple[RegisterBrokerToControllerResponseHeader, SyncStateSet]:
        """Do the remaining steps and register this broker's addresses. Returns the master and the sync-state set.

        After RemotingException or OSError, call it again.
        """
        if self.state is RegisterState.INITIAL:
            self._choose_id(leader, address)
        if self.state is RegisterState.CREATE_TEMP_METADATA_FILE_DONE:
            self._take_id(leader)
        return self.register_to_controller(leader, address, ha_address)

    def register_to_controller(self, leader: str, address: str, ha_address: str) \
            -> tuple[RegisterBrokerToControllerResponseHeader, SyncStateSet]:
        """Register this broker's addresses. Returns the master and the sync-state set."""
        header = RegisterBrokerToControllerRequestHeader(self._cluster, self._name, self.broker_id, address, ha_address)
        try:
            answer = self._api.register_broker_to_controller(leader, header)
        except BrokerAnswerException as error:
            if error.response_code != response_code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED:
                raise
            # Differs: when the controller has lost its replicas, the broker reserves its id again; 5.1.4 retries for
            # ever
            log.warning("the controller does not know replica %s of %s; reserving its id again: %s", self.broker_id,
                        self._name, error)
            self._apply(leader, self.broker_id, self._check_code(address))
            answer = self._api.register_broker_to_controller(leader, header)
        self.state = RegisterState.REGISTERED
        return answer

    @staticmethod
    def _check_code(address: str) -> str:
        return f"{address};{util_all.current_time_millis()}"

    def _choose_id(self, leader: str, address: str) -> None:
        broker_id = self._api.get_next_broker_id(leader, self._cluster, self._name)
        if broker_id is None or broker_id <= 0:
            raise BrokerAnswerException(response_code.SYSTEM_ERROR, f"{broker_id} is not a valid broker id", leader)
        temp = TempBrokerMetadata(self._cluster, self._name, broker_id, self._check_code(address))
        mix_all.string2file(temp.encode_to_str(), self._temp_path)
        self._temp, self.state = temp, RegisterState.CREATE_TEMP_METADATA_FILE_DONE
        log.info("Register state change to %s, temp metadata: %s", self.state.name, temp)

    def _take_id(self, leader: str) -> None:
        temp = self._temp
        assert temp is not None  # as the state says
        try:
            self._apply(leader, temp.broker_id, temp.register_check_code)
        except BrokerAnswerException as error:
            # Another replica has reserved the id.
            if error.response_code == response_code.CONTROLLER_BROKER_ID_INVALID:
                self._forget_temp()
                self.state = RegisterState.INITIAL
            # Differs: when the controller answers a request for a broker id with another error, or not at all, the
            # broker requests the same id again; 5.1.4 gives up an id that it may have got
            raise
        metadata = BrokerMetadata(self._cluster, self._name, temp.broker_id)
        mix_all.string2file(metadata.encode_to_str(), self._path)
        self._forget_temp()
        self.broker_id, self.state = temp.broker_id, RegisterState.CREATE_METADATA_FILE_DONE
        log.info("Register state change to %s, metadata: %s", self.state.name, metadata)

    def _apply(self, leader: str, broker_id: int | None, check_code: str) -> None:
        self._api.apply_broker_id(leader, ApplyBrokerIdRequestHeader(self._cluster, self._name, broker_id, check_code))

    def _forget_temp(self) -> None:
        self._temp = None
        if os.path.exists(self._temp_path):
            os.remove(self._temp_path)
