"""mqnamesrv: the command line of a name server."""
import argparse
import dataclasses
import functools
import logging
import sys
import threading
from typing import TYPE_CHECKING

from rmqha.common import logs, mix_all, process, server_util
from rmqha.common import server_util as foreground
from rmqha.common.configuration import (
    ConfigError,
    load_config_file,
    read_config_file,
    refuse,
    take_words,
    words_to_properties,
)
from rmqha.common.controller_config import BadKey, ControllerConfig, check_controller
from rmqha.common.logs import LogStyle
from rmqha.common.namesrv_config import NamesrvConfig
from rmqha.common.program import StopSignal, run_while_read
from rmqha.namesrv.namesrv_controller import NamesrvController
from rmqha.remoting.protocol.remoting_command import SERIALIZE_TYPE_CONFIG_IN_THIS_SERVER
from rmqha.remoting.remoting_config import ServerConfig

if TYPE_CHECKING:
    from rmqha.controller.controller_manager import ControllerManager

log = logging.getLogger("RocketmqNamesrv")
console = logging.getLogger("RocketmqNamesrvConsole")

DEFAULT_LISTEN_PORT = 9876
_DESCRIPTION = """Runs a name server in the foreground until Ctrl-C or SIGTERM. Brokers register their topics with it;
clients ask it which brokers have a topic."""
_EXAMPLES = """examples:
  mqnamesrv                       listen on port 9876
  mqnamesrv -c namesrv.conf       read keys from a file, one per line: listenPort=9877, kvConfigPath=...
  mqnamesrv -p                    print each key with its value"""


def main(argv: list[str] | None = None) -> int:
    """Run a name server until SIGTERM, SIGHUP or SIGINT, and return the exit code.

    2: invalid configuration; 70: the thread of its port failed.

    Java: org.apache.rocketmq.namesrv.NamesrvStartup (4.9.8)
    """
    threading.current_thread().name = "main"  # as in RocketMQ's logs
    server_util.raise_descriptor_limit()
    server_util.limit_digits()
    stop = StopSignal.of_process()
    command_line = parse_command_line(argv)
    return foreground.run("The Name Server", log, stop, lambda: create_namesrv_controller(command_line), start)


def parse_command_line(argv: list[str] | None) -> argparse.Namespace:
    """Parse the options -c, -p, -n, -h and --version. Exits with 1 for an invalid option."""
    parser = server_util.add_namesrv_options(
        server_util.build_commandline_options("mqnamesrv", _DESCRIPTION, _EXAMPLES))
    return server_util.parse_arguments(parser, argv)


def create_namesrv_controller(command_line: argparse.Namespace) -> NamesrvController | None:
    """Return the name server for the configuration that the command line gives; None after -p. Raises ConfigError."""
    namesrv_config, server_config = NamesrvConfig(), ServerConfig(listenPort=DEFAULT_LISTEN_PORT)
    properties = None
    warnings: list[str] = []
    controller_config: ControllerConfig | None = None
    file = command_line.configFile
    configs: list[object] = [namesrv_config, server_config]
    for source in (read_config_file(file) if file is not None else {}, words_to_properties(command_line.words)):
        mix_all.properties2object(source, namesrv_config)
    if namesrv_config.enableControllerInNamesrv:
        controller_config = ControllerConfig()
        configs.append(controller_config)
    if file is not None:
        properties = load_config_file(file, configs, warn=warnings.append)
        namesrv_config.configStorePath = file
        server_util.say(f"load config properties file OK, {file}")
    take_words(command_line.words, configs, warnings.append)
    if command_line.printConfigItem:
        print_config_items(*filter(None, (namesrv_config, server_config, controller_config)))
        return None
    mix_all.properties2object(server_util.command_line2properties(command_line), namesrv_config,
                              server_util.refuse_option)
    if namesrv_config.rocketmqHome is None:
        namesrv_config.rocketmqHome = server_util.default_rocketmq_home()
    style = LogStyle(namesrv_config.logLevel, namesrv_config.logFormat, namesrv_config.logTimeZone)
    logs.setup_namesrv_logging(command_line.logDir, style, controller_config is not None)
    for warning in warnings:
        server_util.say(warning, err=True)
        log.warning(warning)
    for config in (namesrv_config, server_config):
        mix_all.print_object_properties(log, config)
    controller = NamesrvController(namesrv_config, server_config, _controller_manager(
        controller_config, server_config, file, functools.partial(refuse, file, properties)))
    # Keep the unknown keys too, so that a later configuration update writes them back.
    controller.configuration.register_config(properties)
    return controller


def _controller_manager(config: ControllerConfig | None, server_config: ServerConfig, file: str | None,
                        bad_key: BadKey) -> "ControllerManager | None":
    """Return the controller of enableControllerInNamesrv, or None. Its metrics are served on the name server's port."""
    if config is None:
        return None
    # Imported here because most name servers have no controller.
    from rmqha.controller.controller_manager import ControllerManager

    check_controller(config, bad_key)
    config.metricsPort = 0
    if file is not None:
        # Save keys that are set by requests where the next start reads them.
        config.configStorePath = file
    return ControllerManager(config, dataclasses.replace(server_config))


def print_config_items(*configs: object) -> None:
    """Print all items of the configuration objects to the standard output."""
    logs.setup_console_logging()
    for config in configs:
        mix_all.print_object_properties(console, config)


def start(controller: NamesrvController) -> None:
    """Start the name server and report it. Raises ConfigError or OSError; nothing is left running then."""
    try:
        controller.initialize()
        controller.start()
    except (ConfigError, OSError):
        controller.shutdown()
        raise
    tip = f"The Name Server boot success. serializeType={SERIALIZE_TYPE_CONFIG_IN_THIS_SERVER.name}"
    warning = (f"warning: port {controller.local_listen_port} is open on all addresses and a name server has no "
               "authentication: any host that can reach it can register brokers and change routes")
    log.warning(warning)
    server_util.say(warning, err=True)
    log.info(tip)
    server_util.say(tip)
    if controller.controller_manager is not None:
        tip = f"The ControllerManager boot success. serializeType={SERIALIZE_TYPE_CONFIG_IN_THIS_SERVER.name}"
        log.info(tip)
        server_util.say(tip)
    process.ready(f"serves at port {controller.local_listen_port}")


if __name__ == "__main__":
    sys.exit(run_while_read(main))
