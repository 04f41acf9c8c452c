"""Requests of a slave to its master's main port: before it follows the master, and while it compares logs.

    HAClient, ScrubService --HA address--> main port of the same broker: its kind, a record, CRCs of blocks
"""
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from rmqha.broker.broker_outer_api import BrokerAnswerException, BrokerOuterAPI
from rmqha.common.protocol import response_code
from rmqha.common.protocol.log_checksums import LogChecksums
from rmqha.remoting.exception import RemotingException
from rmqha.remoting.protocol.fastjson import FastjsonError
from rmqha.store.ha.ha_client import parse_address
from rmqha.store.ha.ha_handshake import COMPARING_VERSION, HandshakeMode, handshake_mode
from rmqha.store.ha.master_connection import CantAsk
from rmqha.store.ha.peers import MasterKind

if TYPE_CHECKING:
    from rmqha.broker.broker_addresses import BrokerAddresses
    from rmqha.broker.slave_synchronize import SlaveSynchronize
    from rmqha.store.ha.ha_service import HAService
    from rmqha.store.message_store_config import MessageStoreConfig

log = logging.getLogger("RocketmqBroker")

# Fields of the response to GET_BROKER_HA_STATUS. RocketMQ 4.9 does not know the request; 5.x does not have the fields.

# The highest version of the handshake that the HA port supports; 0: haHandshakeEnable=false.
HANDSHAKE_FIELD = "haHandshake"
HA_PORT_FIELD = "haListenPort"
HA_ADDRESS_FIELD = "haServerAddr"  # host:port
ADDRESS_FIELD = "brokerAddr"  # the broker's own main port, host:port

# Time for this broker to finish its start after its HA client has connected.
_START_S = 5.0
# The HA port is always the main port plus this.
_HA_PORT_DISTANCE = 1


def handshake_fields(store_config: "MessageStoreConfig", ha_service: "HAService",
                     addresses: "BrokerAddresses") -> dict[str, str]:
    """Return the fields that describe the HA port of this broker."""
    speaks = handshake_mode(store_config) is not HandshakeMode.NEVER and not store_config.enableAutoSwitchHA
    return {HANDSHAKE_FIELD: str(COMPARING_VERSION if speaks else 0),
            HA_PORT_FIELD: str(ha_service.ha_listen_port),
            HA_ADDRESS_FIELD: addresses.ha_server_addr,
            ADDRESS_FIELD: addresses.broker_addr}


class MasterMainPort:
    """Sends requests to the main ports of brokers that are given by their HA addresses. Any thread.

    Requests are possible between `begin` and `end`, while the client for other brokers is open.
    """

    def __init__(self, api: BrokerOuterAPI, addresses: "BrokerAddresses",
                 slave_synchronize: "SlaveSynchronize") -> None:
        self._api = api
        self._addresses = addresses
        self._slave_synchronize = slave_synchronize
        # Returns the HA address of the master that this broker follows. Set before the start.
        self.followed: Callable[[], str | None] = lambda: None
        self._begun = threading.Event()  # set by `begin`, and by `end`
        self._has_ended = False

    def begin(self) -> None:
        """Allow requests to other brokers from now on."""
        self._begun.set()

    def end(self) -> None:
        """Allow no more requests, and release the threads that wait for `begin`."""
        self._has_ended = True
        self._begun.set()

    @property
    def may_ask(self) -> bool:
        """True if other brokers may be asked."""
        return self._begun.is_set() and not self._has_ended

    def wait_until_may_ask(self, timeout_s: float) -> bool:
        """Wait until other brokers may be asked, and return whether they may.

        The store's services start before the client for other brokers, so their first requests can come too early.
        """
        self._begun.wait(timeout_s)
        return self.may_ask

    def ask_main_port(self, ha_address: str) -> MasterKind | None:
        """Return the kind of the broker whose HA port is at `ha_address`; None when it cannot be determined now.

        Two addresses are asked: the main port that belongs to the HA port, and the address that the name server gives
        for the master.
        """
        place = parse_address(ha_address)
        if place is None or not self.wait_until_may_ask(_START_S):
            return None
        host, ha_port = place
        candidates = [_main_address(host, ha_port)]
        known = self._slave_synchronize.master_addr
        if known is not None and known not in (*candidates, self._addresses.broker_addr):
            candidates.append(known)
        found = None
        for address in candidates:
            kind = self._ask(address, ha_address, ha_port)
            if kind is MasterKind.OURS:
                return kind
            found = found or kind
        return found

    def own_address_of(self, master_addr: str) -> str | None:
        """Return the own main port of the followed master, which registers `master_addr`; None if it is not known now.

        A master may register an address that is not its own (masterAddress). Whatever answers there may be another
        broker for a moment, even this one. So it has to prove that it is the master whose log this broker follows.
        """
        if master_addr != self._addresses.master_address:
            return master_addr
        followed = self.followed()
        place = None if followed is None else parse_address(followed)
        for address in () if place is None else (_main_address(*place), master_addr):
            try:
                fields = self._api.get_broker_ha_fields(address)
            except BrokerAnswerException as error:
                if error.response_code == response_code.REQUEST_CODE_NOT_SUPPORTED:
                    return address
                continue
            except RemotingException as error:
                log.info("cannot ask %s whether it is the master with the HA address %s: %s", address, followed, error)
                continue
            if HANDSHAKE_FIELD not in fields or fields.get(HA_ADDRESS_FIELD) == followed \
                    or address != master_addr and place is not None and fields.get(HA_PORT_FIELD) == str(place[1]):
                return fields.get(ADDRESS_FIELD, address)
        return None

    def _ask(self, address: str, ha_address: str, ha_port: int) -> MasterKind | None:
        try:
            fields = self._api.get_broker_ha_fields(address)
        except BrokerAnswerException as error:
            return MasterKind.OTHER if error.response_code == response_code.REQUEST_CODE_NOT_SUPPORTED else None
        except RemotingException as error:
            log.info("cannot determine the kind of the master from its main port %s: %s", address, error)
            return None
        if HANDSHAKE_FIELD not in fields:
            return MasterKind.OTHER
        if fields.get(HA_PORT_FIELD) != str(ha_port):
            log.warning("the broker at %s has the HA port %s, not %d", address, fields.get(HA_PORT_FIELD), ha_port)
            return None
        if address == self._addresses.master_address and fields.get(HA_ADDRESS_FIELD) != ha_address:
            log.info("%s, the address of any master, leads to the broker with the HA address %s, not %s", address,
                     fields.get(HA_ADDRESS_FIELD), ha_address)
            return None
        version = fields[HANDSHAKE_FIELD]
        return MasterKind.OURS if version.isdecimal() and int(version) >= COMPARING_VERSION else MasterKind.OTHER

    def ask_record(self, ha_address: str, offset: int) -> bytes | None:
        """Return the record at `offset` of the broker whose HA port is at `ha_address`, read from its main port.

        b"" when that broker has no record there and has not deleted one; None when it cannot be determined.
        """
        place = parse_address(ha_address)
        if place is None or not self.may_ask:
            return None
        api, address = self._api, _main_address(*place)
        try:
            try:
                return api.view_record(address, offset)
            except BrokerAnswerException as error:
                if error.response_code != response_code.SYSTEM_ERROR:
                    return None
            return b"" if 0 <= api.get_commit_log_min_offset(address) <= offset else None
        except (RemotingException, FastjsonError, ValueError) as error:
            log.info("cannot read the record of the master %s at %d from its main port: %s", ha_address, offset, error)
            return None

    def ask_checksums(self, ha_address: str, offset: int, block_size: int, count: int) -> LogChecksums | CantAsk:
        """Return the CRC32s of blocks of the log of the broker whose HA port is at `ha_address`, read from its main
        port."""
        place = parse_address(ha_address)
        if place is None or not self.may_ask:
            return CantAsk.NO_ANSWER
        try:
            found = self._api.get_commit_log_checksums(_main_address(*place), offset, block_size, count)
        except (RemotingException, BrokerAnswerException, ValueError) as error:
            log.info("cannot read checksums from the main port of the master %s: %s", ha_address, error)
            return CantAsk.NO_ANSWER
        return CantAsk.UNKNOWN_REQUEST if found is None else found


def _main_address(host: str, ha_port: int) -> str:
    return f"[{host}]:{ha_port - _HA_PORT_DISTANCE}" if ":" in host else f"{host}:{ha_port - _HA_PORT_DISTANCE}"
