"""What the fixtures are told: by a factory's arguments, else on the command line, else in the ini file."""
from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

_NAMESRV_ADDR_ENV = "NAMESRV_ADDR"
# option of the ini file: its type there, what is said of it; on the command line --rocketmq-...
_OPTIONS = {
    "topology": ("string", "Brokers of `rocketmq` and `rocketmq_proc`: 1m (the default), 1m-1s, 2m-2s ..."),
    "sync": ("bool", "Masters answer when a slave has the message."),
    "host": ("string", "Where clients find name server and brokers; the default: 127.0.0.1."),
    "port": ("string", "The name server's port of `rocketmq_proc`; with xdist that of worker gw0; the default: any."),
    "store_dir": ("string", "Where the temporary folders of the stores are made; the default: in memory, with room."),
    "config": ("linelist", "KEY=VALUE of a broker.conf; several: a line each, or the option again."),
    "namesrv_addr": ("string", "The name server of `rocketmq_noproc`; else the environment's NAMESRV_ADDR."),
}


class ClusterOptions(NamedTuple):
    """Those of one cluster, as EmbeddedRocketMQ and RocketMQProcess take them."""

    topology: str
    sync: bool
    host: str
    port: int
    store_dir: str | None
    config: dict[str, object]


def add_options(parser: pytest.Parser) -> None:
    """Make them known."""
    group = parser.getgroup("rocketmq")
    for name, (kind, text) in _OPTIONS.items():
        action = {"bool": "store_true", "linelist": "append"}.get(kind, "store")
        group.addoption(f"--rocketmq-{name.replace('_', '-')}", action=action, default=None, dest=f"rocketmq_{name}",
                        help=text)
        parser.addini(f"rocketmq_{name}", text, type=kind, default=None)  # type: ignore[arg-type]  # one of its words


def cluster_options(config: pytest.Config, chosen: Mapping[str, Any]) -> ClusterOptions:
    """`chosen`: a factory's arguments, None where it leaves the choice to others. EmbeddedError for a bad value."""
    from rmqha.testing.server import config_of

    def value(name: str, default: Any) -> Any:
        return next((one for one in (chosen.get(name), config.getoption(f"rocketmq_{name}"),
                                     config.getini(f"rocketmq_{name}")) if one is not None and one != ""), default)

    texts = [*(config.getini("rocketmq_config") or ()), *(config.getoption("rocketmq_config") or ())]
    return ClusterOptions(value("topology", "1m"), value("sync", False), value("host", "127.0.0.1"),
                          _port(value("port", 0)), value("store_dir", None),
                          {**config_of(texts), **(chosen.get("config") or {})})


def _port(value: int | str) -> int:
    """Each worker of xdist has its own."""
    from rmqha.testing.node import EmbeddedError

    try:
        port = int(value)
    except ValueError:
        raise EmbeddedError(f"rocketmq_port={value} is not a port: 0 to 65535") from None
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    return port + int(worker) if port and worker.isdigit() else port


def namesrv_addr(config: pytest.Config, chosen: str | None) -> str:
    """Where somebody else's name server is; EmbeddedError when nobody says it."""
    from rmqha.testing.node import EmbeddedError

    for value in (chosen, config.getoption("rocketmq_namesrv_addr"), config.getini("rocketmq_namesrv_addr"),
                  os.environ.get(_NAMESRV_ADDR_ENV)):
        if value:
            return str(value)
    raise EmbeddedError("rocketmq_noproc: nobody says where the name server is: give --rocketmq-namesrv-addr=HOST:PORT,"
                        f" rocketmq_namesrv_addr in the ini file, or {_NAMESRV_ADDR_ENV} in the environment")
