"""Which config keys of a broker may be changed while it runs; the lists are in rmqha.common.config_access."""
from collections.abc import Iterable
from typing import Any

from rmqha.common.config_access import is_fixed
from rmqha.common.config_field import config_keys


def allowed_keys(configs: Iterable[Any]) -> set[str]:
    """The keys of these config objects that UPDATE_BROKER_CONFIG may set."""
    return {key for config in configs for key in config_keys(type(config)) if not is_fixed(key)}
