"""The command line of a controller, mqcontroller."""
import argparse
import functools
import logging
import sys
import threading

from rmqha.common import logs, mix_all, process, server_util
from rmqha.common import server_util as foreground
from rmqha.common.configuration import ConfigError, load_config_file, refuse, take_words
from rmqha.common.controller_config import ControllerConfig, check_controller
from rmqha.common.logs import LogStyle
from rmqha.common.program import StopSignal, run_while_read
from rmqha.controller.controller_manager import ControllerManager
from rmqha.remoting.protocol.remoting_command import SERIALIZE_TYPE_CONFIG_IN_THIS_SERVER
from rmqha.remoting.remoting_config import RemotingClientConfig, ServerConfig
from rmqha.remoting.tls_system_config import use_tls

log = logging.getLogger("RocketmqController")

_DESCRIPTION = """Runs a controller in the foreground, until Ctrl-C or SIGTERM: it decides which of a broker name's
replicas is the master, and makes another one the master when that one dies."""
_EXAMPLES = """examples:
    mqcontroller -c controller.conf    with controllerDLegerGroup=, controllerDLegerPeers=n0-host:port,
                                       controllerDLegerSelfId=n0, one key per line; it listens at the port of n0
    mqcontroller -p                    print each key with its value"""


def main(argv: list[str] | None = None) -> int:
    """Run a controller until SIGTERM, SIGHUP or SIGINT, and return the exit code.

    2: it cannot start with its config; 70: the thread of its port failed for good.

    Java: org.apache.rocketmq.controller.ControllerStartup (5.1.4)
    """
    # The name in RocketMQ's logs.
    threading.current_thread().name = "main"
    server_util.raise_descriptor_limit()
    server_util.limit_digits()
    stop = StopSignal.of_process()
    command_line = parse_command_line(argv)
    return foreground.run("The Controller", log, stop, lambda: create_controller_manager(command_line), start)


def parse_command_line(argv: list[str] | None) -> argparse.Namespace:
    """Parse -c, -p, -n (ignored, as in 5.1.4), -h, --version. Exits with 1 for a wrong option."""
    parser = server_util.build_commandline_options("mqcontroller", _DESCRIPTION, _EXAMPLES)
    parser.add_argument("-c", "--configFile", metavar="<arg>", help="Controller config properties file")
    parser.add_argument("-p", "--printConfigItem", action="store_true", help="Print all config items")
    return server_util.parse_arguments(parser, argv)


def create_controller_manager(command_line: argparse.Namespace) -> ControllerManager | None:
    """Return the manager for the command line's config; None after -p. Raises ConfigError."""
    controller_config, server_config = ControllerConfig(), ServerConfig()
    client_config = RemotingClientConfig(useTLS=use_tls())
    properties = None
    warnings: list[str] = []
    file = command_line.configFile
    if file is not None:
        properties = load_config_file(file, (controller_config, server_config, client_config), warn=warnings.append)
        controller_config.configStorePath = file
        server_util.say(f"load config properties file OK, {file}")
    take_words(command_line.words, (controller_config, server_config, client_config), warnings.append)
    if command_line.printConfigItem:
        logs.setup_console_logging()
        for config in (controller_config, server_config, client_config):
            mix_all.print_object_properties(logging.getLogger("RocketmqConsole"), config)
        return None
    mix_all.properties2object(server_util.command_line2properties(command_line), controller_config,
                              server_util.refuse_option)
    if controller_config.rocketmqHome is None:
        controller_config.rocketmqHome = server_util.default_rocketmq_home()
    check_controller(controller_config, functools.partial(refuse, file, properties))
    style = LogStyle(controller_config.logLevel, controller_config.logFormat, controller_config.logTimeZone)
    logs.setup_controller_logging(command_line.logDir, style)
    for warning in warnings:
        server_util.say(warning, err=True)
        log.warning(warning)
    for config in (controller_config, server_config):
        mix_all.print_object_properties(log, config)
    manager = ControllerManager(controller_config, server_config, client_config)
    # Registered, so that an update of the config writes them again.
    manager.configuration.register_config(properties)
    return manager


def start(manager: ControllerManager) -> None:
    """Start, and report it. Raises ConfigError or OSError, with nothing left running."""
    try:
        manager.initialize()
        manager.start()
    except (ConfigError, OSError):
        manager.shutdown()
        raise
    tip = f"The Controller Server boot success. serializeType={SERIALIZE_TYPE_CONFIG_IN_THIS_SERVER.name}"
    warning = (f"warning: port {manager.local_listen_port} is open on all addresses, and a controller does not "
               "authenticate clients: any client that reaches it may make another replica the master")
    log.warning(warning)
    server_util.say(warning, err=True)
    log.info(tip)
    server_util.say(tip)
    process.ready(f"serves at port {manager.local_listen_port}")


if __name__ == "__main__":
    sys.exit(run_while_read(main))
