"""Settings of the fixtures: a factory's arguments, else the command line, else the ini file."""
from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest

EMBEDDED, PROCESS, JAVA = BACKENDS = ("embedded", "process", "java")
_NAMESRV_ADDR_ENV = "NAMESRV_ADDR"
_HOME_ENV = "RMQHA_ROCKETMQ_HOME"
# Name in the ini file (--rocketmq-... on the command line), its type there, and its help
_OPTIONS = {
    "backend": ("string", "Where servers run: embedded (default: in the test process), process (a separate one), or "
                "java (the real Apache RocketMQ; see --rocketmq-home)."),
    "home": ("string", f"Folder of an unpacked Apache RocketMQ release, for the backend java; default: {_HOME_ENV} in "
             "the environment."),
    "scope": ("string", "Scope of `rocketmq` and `rocketmq_ha`, which are reset once in it: function (default), class, "
              "module, package or session."),
    "topology": ("string", "Brokers of `rocketmq` and `rocketmq_proc`: 1m (default), 1m-1s, 2m-2s ..."),
    "sync": ("bool", "Masters answer a send only when a slave has the message."),
    "host": ("string", "Address of the name server and brokers for clients; default: 127.0.0.1."),
    "port": ("string", "Name server port of `rocketmq_proc`; with xdist, that of worker gw0; default: any free port."),
    "store_dir": ("string", "Parent of the stores' temporary folders; default: in memory, if there is enough space."),
    "config": ("linelist", "A KEY=VALUE of broker.conf; for several, use one line each or repeat the option."),
    "namesrv_addr": ("string", "Name server of `rocketmq_noproc`; default: the environment variable NAMESRV_ADDR."),
}


class ClusterOptions(NamedTuple):
    """The options of one cluster, as EmbeddedRocketMQ and RocketMQProcess take them. `home`: only for Java."""

    backend: str
    home: str | None
    topology: str
    sync: bool
    host: str
    port: int
    store_dir: str | None
    config: dict[str, object]


def add_options(parser: pytest.Parser) -> None:
    """Register the options."""
    group = parser.getgroup("rocketmq")
    for name, (kind, text) in _OPTIONS.items():
        action = {"bool": "store_true", "linelist": "append"}.get(kind, "store")
        group.addoption(f"--rocketmq-{name.replace('_', '-')}", action=action, default=None, dest=f"rocketmq_{name}",
                        help=text)
        parser.addini(f"rocketmq_{name}", text, type=kind, default=None)  # type: ignore[arg-type]  # one of its words


def option(config: pytest.Config, name: str, chosen: Any, default: Any) -> Any:
    """Return the value of an option: `chosen`, a factory's argument; for None the command line's, else the ini file's,
    else the default."""
    return next((one for one in (chosen, config.getoption(f"rocketmq_{name}"), config.getini(f"rocketmq_{name}"))
                 if one is not None and one != ""), default)


def cluster_options(config: pytest.Config, chosen: Mapping[str, Any]) -> ClusterOptions:
    """Return the options of a cluster. EmbeddedError for an invalid value.

    `chosen`: a factory's arguments; None uses the command line or the ini file.
    """
    from rmqha.testing.cluster_parts import EmbeddedError, config_of

    def value(name: str, default: Any) -> Any:
        return option(config, name, chosen.get(name), default)

    backend = value("backend", EMBEDDED)
    if backend not in BACKENDS:
        raise EmbeddedError(f"rocketmq_backend={backend} is not one of {', '.join(BACKENDS)}")
    texts = [*(config.getini("rocketmq_config") or ()), *(config.getoption("rocketmq_config") or ())]
    return ClusterOptions(backend, _home(value("home", None)) if backend == JAVA else None, value("topology", "1m"),
                          value("sync", False), value("host", "127.0.0.1"), _port(value("port", 0)),
                          value("store_dir", None), {**config_of(texts), **(chosen.get("config") or {})})


def _home(chosen: str | None) -> str:
    from rmqha.testing.cluster_parts import EmbeddedError

    home = chosen or os.environ.get(_HOME_ENV)
    if not home:
        raise EmbeddedError("the backend java needs an unpacked Apache RocketMQ release: use --rocketmq-home=FOLDER, "
                            f"rocketmq_home in the ini file, or {_HOME_ENV} in the environment")
    return os.path.expanduser(home)


def _port(value: int | str) -> int:
    """Return the port of this process: each worker of xdist has its own."""
    from rmqha.testing.cluster_parts import EmbeddedError

    try:
        port = int(value)
    except ValueError:
        raise EmbeddedError(f"rocketmq_port={value} is not a port number from 0 to 65535") from None
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    return port + int(worker) if port and worker.isdigit() else port


def namesrv_addr(config: pytest.Config, chosen: str | None) -> str:
    """Return the address of an existing name server; EmbeddedError if it is not set."""
    from rmqha.testing.cluster_parts import EmbeddedError

    value = option(config, "namesrv_addr", chosen, os.environ.get(_NAMESRV_ADDR_ENV))
    if not value:
        raise EmbeddedError("rocketmq_noproc: the name server address is not set; use "
                            "--rocketmq-namesrv-addr=HOST:PORT, rocketmq_namesrv_addr in the ini file, or "
                            f"{_NAMESRV_ADDR_ENV} in the environment")
    return str(value)
