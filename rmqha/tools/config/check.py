"""`rmqha config check`: a config file, read as its server reads it; all that is wrong, with lines."""
from collections.abc import Callable
from dataclasses import asdict, dataclass

import click

from rmqha.acl import acl_files
from rmqha.common import controller_config, metrics
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.config_keys import config_keys
from rmqha.common.configuration import Bad, ConfigError, Warn, load_config_file, read_config_file
from rmqha.common.controller_config import ControllerConfig
from rmqha.common.java import JavaProperties
from rmqha.common.namesrv_config import NamesrvConfig
from rmqha.remoting.remoting_config import ClientConfig, ServerConfig
from rmqha.store.message_store_config import (
    AUTO_SWITCH,
    MessageStoreConfig,
    check_role,
    check_sums,
    check_supported,
    waits_for_promotion,
)
from rmqha.tools.dialect.exit_codes import FAILED
from rmqha.tools.dialect.options import output_option
from rmqha.tools.dialect.output import cell, emit, put
from rmqha.tools.store.output import counted

_OTHER_KEYS = ("rmqAddressServerDomain", "rmqAddressServerSubGroup")
_BROKER_PORT = 10911
_WITH_CONTROLLER = "enableControllerInNamesrv"
_COLOURS = {"error": "red", "warning": "yellow"}


@dataclass(frozen=True)
class Finding:
    """Something wrong: an `error` keeps the server from starting, with a `warning` it starts. `line` None: no line."""

    file: str
    line: int | None
    severity: str
    text: str


def check(file: str, kind: str) -> list[Finding]:
    """What is wrong with a file for a `broker`, a `namesrv` or a `controller`; by line."""
    found: list[Finding] = []

    def error(failure: ConfigError) -> None:
        text = f"{failure.key}: {failure.message}" if failure.key else failure.message
        found.append(Finding(file, failure.line, "error", text))

    def warn(text: str) -> None:
        place = text.removeprefix(f"{file}:").partition(": ")
        found.append(Finding(file, int(place[0]), "warning", place[2]))
    try:
        if kind == "namesrv":
            _check_name_server(file, warn, error)
        elif kind == "controller":
            controller = ControllerConfig()
            properties = load_config_file(file, (controller, ServerConfig(), ClientConfig()), warn=warn, bad=error)
            bad_key = _bad_key(file, properties, error)
            controller_config.check_controller(controller, bad_key)
            metrics.check_available(controller.metricsPort, bad_key)
        else:
            _check_broker(file, warn, error)
    except ConfigError as failure:  # the file can't be read at all
        error(failure)
    return sorted(found, key=lambda each: each.line or 0)


def _check_name_server(file: str, warn: Warn, error: Bad) -> None:
    """One that has a controller within itself has the keys of both."""
    config, controller = NamesrvConfig(), ControllerConfig()
    has_controller = read_config_file(file).get(_WITH_CONTROLLER) == "true"
    configs = (config, ServerConfig(), *((controller,) if has_controller else ()))
    properties = load_config_file(file, configs, warn=warn, bad=error)
    bad_key = _bad_key(file, properties, error)
    if has_controller:
        controller_config.check_controller(controller, bad_key)
    metrics.check_available(config.metricsPort, bad_key)


def _check_broker(file: str, warn: Warn, error: Bad) -> None:
    broker, server, store = BrokerConfig(), ServerConfig(listenPort=_BROKER_PORT), MessageStoreConfig()
    properties = load_config_file(file, (broker, server, ClientConfig(), store), _OTHER_KEYS, warn=warn, bad=error)
    bad_key = _bad_key(file, properties, error)
    check_supported(broker, store, bad_key)
    acl_files.check_available(broker.aclEnable, bad_key)
    metrics.check_available(broker.metricsPort, bad_key)
    check_role(broker, store, bad_key)
    check_sums(server, store, bad_key)
    waits = waits_for_promotion(broker, store)
    if waits is not None:
        line = properties.lines.get(AUTO_SWITCH, 1)
        warn(f"{file}:{line}: {AUTO_SWITCH}: {waits}")


def _bad_key(file: str, properties: JavaProperties, error: Bad) -> Callable[[str, str], None]:
    """Tells `error` what is wrong with a key, and in which line."""
    return lambda key, problem: error(ConfigError(problem, file, key, properties.lines.get(key)))


def kind_of(properties: JavaProperties) -> str:
    """Whose file it is, by its keys: a name server's or controller's has one of its own and none of a broker's."""
    brokers = {*config_keys(BrokerConfig), *config_keys(MessageStoreConfig)}
    name_servers, controllers = set(config_keys(NamesrvConfig)), set(config_keys(ControllerConfig))
    if properties.get(_WITH_CONTROLLER) == "true":
        return "namesrv"
    for kind, own in (("namesrv", name_servers - controllers), ("controller", controllers - name_servers),
                      ("namesrv", name_servers)):
        if properties.keys() & (own - brokers) and not properties.keys() & (brokers - own - name_servers - controllers):
            return kind
    return "broker"


def _kind(file: str) -> str:
    try:
        return kind_of(read_config_file(file))
    except ConfigError:  # told by the check
        return "broker"


@click.command("check")
@click.argument("files", nargs=-1, required=True, type=click.Path(dir_okay=False), metavar="FILE...")
@click.option("--for", "kind", type=click.Choice(["auto", "broker", "namesrv", "controller"]), default="auto",
              show_default=True, help="Whose file it is; auto: told by its keys.")
@click.option("--strict", is_flag=True, help="Exit code 1 for warnings too.")
@output_option
def check_command(files: tuple[str, ...], kind: str, strict: bool, output: str) -> None:
    """Read config files as their servers read them, and tell all that is wrong, with file and line.

    Exit code 1 when a server would not start with one. `rmqha doctor -c FILE` looks at the host too.
    """
    found = [finding for file in files for finding in check(file, _kind(file) if kind == "auto" else kind)]
    errors = sum(finding.severity == "error" for finding in found)
    if output != "table":
        emit({"errors": errors, "warnings": len(found) - errors, "findings": list(map(asdict, found))}, output)
    else:
        for finding in found:
            place = finding.file if finding.line is None else f"{finding.file}:{finding.line}"
            severity = click.style(finding.severity, fg=_COLOURS[finding.severity])
            put(f"{place}: {severity}: {cell(finding.text)}")
        put(f"{counted(errors, 'error')}, {counted(len(found) - errors, 'warning')} in {counted(len(files), 'file')}")
    if errors or (strict and found):
        raise SystemExit(FAILED)
