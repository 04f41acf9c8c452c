"""How a replica gets an id that no other one of its name has, and keeps it.

    nothing --1012: which is free?--> brokerIdentity-temp --1013: take it--> brokerIdentity --1003--> registered

It can be interrupted at each arrow, and begun again.
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
    """How far a replica has come.

    Java: org.apache.rocketmq.broker.controller.ReplicasManager$RegisterState (5.1.4)
    """

    INITIAL = enum.auto()
    CREATE_TEMP_METADATA_FILE_DONE = enum.auto()
    CREATE_METADATA_FILE_DONE = enum.auto()
    REGISTERED = enum.auto()


class BrokerIdRegistration:
    """One replica's way to its id. Used by one thread; `state` and `broker_id` may be read by any.

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
        """See how far an earlier run had come. BrokerMetadataError: a file is damaged, or of another broker."""
        metadata = self._read(self._path, BrokerMetadata)
        if metadata is not None:
            self.broker_id, self.state = metadata.broker_id, RegisterState.CREATE_METADATA_FILE_DONE
            return
        try:
            self._temp = self._read(self._temp_path, TempBrokerMetadata)
        except BrokerMetadataError as error:  # it was written while the machine failed: no id was taken under it
            log.warning("%s, and is thrown away", error)
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
                f"{path} is of broker {metadata.broker_name} of cluster {metadata.cluster_name}, and this one is "
                f"{self._name} of {self._cluster}: the store was copied, or the configuration changed. Take the file "
                "away when this replica is to get an id of its own")
        return metadata

    def register(self, leader: str, address: str, ha_address: str) \
            -> tuple[RegisterBrokerToControllerResponseHeader, SyncStateSet]:
        """Do what is left, and say where this broker is; who is the master. RemotingException, OSError: try again."""
        if self.state is RegisterState.INITIAL:
            self._choose_id(leader, address)
        if self.state is RegisterState.CREATE_TEMP_METADATA_FILE_DONE:
            self._take_id(leader)
        return self.register_to_controller(leader, address, ha_address)

    def register_to_controller(self, leader: str, address: str, ha_address: str) \
            -> tuple[RegisterBrokerToControllerResponseHeader, SyncStateSet]:
        """Say where this broker is; who is the master."""
        header = RegisterBrokerToControllerRequestHeader(self._cluster, self._name, self.broker_id, address, ha_address)
        try:
            answer = self._api.register_broker_to_controller(leader, header)
        except BrokerAnswerException as error:
            if error.response_code != response_code.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED:
                raise
            # Differs: 5.1.4 asks for ever when the controller has forgotten its replicas
            log.warning("the controller does not know replica %s of %s, which takes its id again: %s", self.broker_id,
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
            raise BrokerAnswerException(response_code.SYSTEM_ERROR, f"{broker_id} is no broker id", leader)
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
            if error.response_code == response_code.CONTROLLER_BROKER_ID_INVALID:  # another one was faster
                self._forget_temp()
                self.state = RegisterState.INITIAL
            # Differs: after another answer, or none, it is asked for again; 5.1.4 gives up an id that may be its own
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
