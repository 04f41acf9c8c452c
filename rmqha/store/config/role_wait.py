"""Brokers that start without a role, by their config: they take no messages until somebody gives them one."""
from rmqha.common.broker_config import BrokerConfig
from rmqha.store.config.message_store_config import BrokerRole, MessageStoreConfig

AUTO_SWITCH = "enableAutoSwitchHA"


def has_epochs(store_config: MessageStoreConfig) -> bool:
    """Whether the store knows epochs, as one that was used with enableAutoSwitchHA does."""
    try:
        with open(store_config.get_store_path_epoch_file(), "rb") as file:
            return file.readline(16).strip() not in (b"", b"0")
    except OSError:  # none, or none that this account may read: the broker's own start says more
        return False


def waits_for_promotion(broker_config: BrokerConfig, store_config: MessageStoreConfig) -> str | None:
    """Why a master by its config waits to be told to be one, and what to do; None: it does not."""
    if not store_config.enableAutoSwitchHA or broker_config.enableControllerMode \
            or store_config.brokerRole is BrokerRole.SLAVE:
        return None
    what = (f"true, and the store at {store_config.storePathRootDir} was in use with it: another broker may be the "
            "master by now, so this one starts without a role" if has_epochs(store_config) else
            "true without a controller: at each start but its first the broker waits for a role")
    return (f"{what}, and takes no messages until `rmqha ha promote -b HOST:PORT` makes it the master; where roles do "
            "not change by request, remove the key: then it is a "
            f"{store_config.brokerRole.name}")
