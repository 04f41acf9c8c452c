"""What keys of a broker's config must not be together: for its start, and for tools that look at a file."""
from collections.abc import Callable

from rmqha.common import mix_all
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.config_keys import INT_MAX
from rmqha.remoting.remoting_config import ServerConfig
from rmqha.store.config.message_store_config import BrokerRole, MessageStoreConfig
from rmqha.store.index.index_layout import file_size

MAX_PORT = 0xFFFF
FAST_PORT_DISTANCE = 2

BadKey = Callable[[str, str], object]
"""Called with a key and what is wrong with its value; may raise."""


def check_supported(broker_config: BrokerConfig, store_config: MessageStoreConfig, bad_key: BadKey) -> None:
    """What the original has and this has not."""
    # Differs: a broker that is told to use DLedger or a store plug-in does not start; to go on without them would be
    # worse
    unsupported = ((store_config, "enableDLegerCommitLog", "DLedger is"),
                   (broker_config, "messageStorePlugIn", "store plug-ins are"))
    for config, key, what in unsupported:
        if getattr(config, key):
            bad_key(key, f"{what} not supported")
    key = "enableControllerMode" if broker_config.enableControllerMode else "enableAutoSwitchHA"
    if (store_config.enableAutoSwitchHA or broker_config.enableControllerMode) \
            and store_config.transientStorePoolEnable:
        # Differs: 5.1.4 starts with both
        bad_key("transientStorePoolEnable", f"with {key} there are no write buffers: a change of roles "
                "cuts the log off, which they would write again; take one of the two out")


def check_role(broker_config: BrokerConfig, store_config: MessageStoreConfig, bad_key: BadKey) -> None:
    """A master's id is 0, whatever the file says; a slave's must be above. Where a controller decides, both are its."""
    if broker_config.enableControllerMode:
        if not broker_config.controllerAddr.strip(" ;"):
            # Differs: 5.1.4 starts, and asks nobody for ever
            bad_key("controllerAddr", "enableControllerMode needs the controllers, host:port joined by ;")
        return
    if store_config.brokerRole is not BrokerRole.SLAVE:
        broker_config.brokerId = mix_all.MASTER_ID
    elif broker_config.brokerId <= 0:
        bad_key("brokerId", f"Slave's brokerId must be > 0, not {broker_config.brokerId}")


def check_sums(server_config: ServerConfig, store_config: MessageStoreConfig, bad_key: BadKey) -> None:
    """Check values that must fit together; the original fails later, or not at all."""
    port = server_config.listenPort
    if port and not FAST_PORT_DISTANCE < port < MAX_PORT:
        bad_key("listenPort", f"expected 0, or a port from {FAST_PORT_DISTANCE + 1} to {MAX_PORT - 1}, not {port}: the "
                f"fast port is {FAST_PORT_DISTANCE} below it, the replication port 1 above")
    size = file_size(store_config.maxHashSlotNum, store_config.maxIndexNum)
    if size > INT_MAX:
        bad_key("maxIndexNum", f"{store_config.maxIndexNum} keys with maxHashSlotNum={store_config.maxHashSlotNum} "
                f"make an index file of {size} bytes: at most {INT_MAX} are possible")
    low, high = server_config.writeBufferLowWaterMark, server_config.writeBufferHighWaterMark
    if 0 < high < low:
        bad_key("writeBufferLowWaterMark", f"{low} is above writeBufferHighWaterMark={high}")
