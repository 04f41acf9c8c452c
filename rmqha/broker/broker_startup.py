"""mqbroker: the command line of a broker."""
import argparse
import functools
import logging
import sys
import time

from rmqha.acl import acl_files
from rmqha.broker.broker_controller import BrokerController
from rmqha.common import logs, mix_all, process, server_util
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.config_keys import NamesrvAddresses, parse_property
from rmqha.common.configuration import ConfigError, load_config_file, refuse, take_words
from rmqha.common.logs import LogStyle
from rmqha.common.program import StopSignal, run_while_read
from rmqha.common.texts import is_folder_name
from rmqha.remoting.addresses import PortError
from rmqha.remoting.protocol.remoting_command import SERIALIZE_TYPE_CONFIG_IN_THIS_SERVER
from rmqha.remoting.remoting_config import RemotingClientConfig, ServerConfig
from rmqha.remoting.tls_system_config import TlsMode, TlsSystemConfig, use_tls
from rmqha.store.message_store_config import MessageStoreConfig, check_role, check_sums, check_supported

log = logging.getLogger("RocketmqBroker")
console = logging.getLogger("RocketmqConsole")

DEFAULT_LISTEN_PORT = 10911
EXIT_START_FAILED = 255  # Java: System.exit(-1)
EXIT_INITIALIZE_FAILED = 253  # Java: System.exit(-3)

_DOMAIN = "rmqAddressServerDomain"
_SUBGROUP = "rmqAddressServerSubGroup"

_DESCRIPTION = """Runs a broker in the foreground until Ctrl-C or SIGTERM. A broker accepts messages from producers,
stores them, delivers them to consumers and replicates them to its slaves. Without -c it is a master on port 10911, is
named after the host, and stores its data in ~/store."""
_EXAMPLES = """examples:
  mqbroker -n 127.0.0.1:9876                         register at a name server
  mqbroker -c conf/2m-2s-sync/broker-a.properties    a master with a slave; `rmqha config init` copies such files
  mqbroker -n 127.0.0.1:9876 autoCreateTopicEnable=false    set a key without a file; it overrides the file
  mqbroker -c broker.conf -p                         print each key with its value; -m: the important ones
exit codes: 0 stopped, 1 invalid option, 2 invalid configuration, 70 a port's thread failed, 253 the store or the
tables cannot be loaded, 255 cannot start"""


def main(argv: list[str] | None = None) -> int:
    """Run a broker until SIGTERM, SIGHUP or SIGINT, and return the exit code.

    2: invalid configuration; 70: the thread of a port failed; 253: the tables or the store cannot be loaded; 255: the
    broker cannot start.

    Java: org.apache.rocketmq.broker.BrokerStartup (4.9.8)
    """
    stop = StopSignal.of_process()
    server_util.raise_descriptor_limit()
    server_util.limit_digits()
    command_line = parse_command_line(argv)
    try:
        controller = create_broker_controller(command_line)
    except ConfigError as failure:
        # Differs: an invalid configuration ends with exit code 2; the original exits with -3 or -1, or ignores the
        # invalid value
        server_util.say(str(failure), err=True)
        return server_util.EXIT_BAD_CONFIG
    if controller is None:
        return 0
    code = run(controller, stop)
    if code == 0:
        shutdown(controller)
    return code


def parse_command_line(argv: list[str] | None) -> argparse.Namespace:
    """Parse the options -c, -p, -m, -n, -h and --version. Exits with 1 for an invalid option."""
    parser = server_util.add_broker_options(
        server_util.build_commandline_options("mqbroker", _DESCRIPTION, _EXAMPLES))
    return server_util.parse_arguments(parser, argv)


def create_broker_controller(command_line: argparse.Namespace) -> BrokerController | None:
    """Return the controller for the configuration that the command line gives; None after -p and -m.

    Raises ConfigError.
    """
    client_tls = use_tls(default=TlsSystemConfig().tls_mode is TlsMode.ENFORCING)
    configs = (BrokerConfig(), ServerConfig(listenPort=DEFAULT_LISTEN_PORT), RemotingClientConfig(useTLS=client_tls),
               MessageStoreConfig())
    broker_config, server_config, client_config, store_config = configs
    file, properties = command_line.configFile, None
    warnings: list[str] = []
    if file is not None:
        properties = load_config_file(file, configs, (_DOMAIN, _SUBGROUP), warn=warnings.append)
    take_words(command_line.words, configs, warnings.append)
    mix_all.properties2object(server_util.command_line2properties(command_line), broker_config,
                              server_util.refuse_option)
    _check_environment(broker_config)
    if broker_config.rocketmqHome is None:
        broker_config.rocketmqHome = server_util.default_rocketmq_home()
    bad_key = functools.partial(refuse, file, properties)
    check_supported(broker_config, store_config, bad_key)
    acl_files.check_available(broker_config.aclEnable, bad_key)
    check_role(broker_config, store_config, bad_key)
    check_sums(server_config, store_config, bad_key)
    # The HA port follows from listenPort, as in the original: haListenPort is ignored. Port 0 stays "any port".
    store_config.haListenPort = server_config.listenPort + 1 if server_config.listenPort else 0
    if command_line.printConfigItem or command_line.printImportantConfig:
        print_config_items(configs, only_important=not command_line.printConfigItem)
        return None
    _set_up_logging(broker_config, server_config, command_line.logDir)
    shared = logs.shared_log_file("RocketmqBroker")
    if shared is not None:
        warnings.append(f"warning: another process also writes to {shared}; when either process rotates the file, the "
                        "other loses it. Set isolateLogEnable=true to give this broker its own log folder")
    for warning in warnings:
        server_util.say(warning, err=True)
        log.warning(warning)
    for config in configs:
        mix_all.print_object_properties(log, config)
    controller = BrokerController(broker_config, server_config, client_config, store_config, file)
    controller.remoting_server.load_ssl_context()
    controller.fast_remoting_server.load_ssl_context()
    controller.broker_outer_api.remoting_client.load_ssl_context()
    if properties is not None:
        controller.broker_outer_api.ws_addr = mix_all.get_ws_addr(
            properties.get(_DOMAIN, mix_all.DEFAULT_NAMESRV_ADDR_LOOKUP),
            properties.get(_SUBGROUP, mix_all.DEFAULT_NAMESRV_SUBGROUP))
        # Keep the unknown keys too, so that a later configuration update writes them back.
        controller.configuration.register_config(properties)
    return controller


def print_config_items(configs: tuple[object, ...], only_important: bool) -> None:
    """Print the items of the configuration objects, or only the important ones, to the standard output."""
    logs.setup_console_logging()
    for config in configs:
        mix_all.print_object_properties(console, config, only_important)


def run(controller: BrokerController, stop: StopSignal) -> int:
    """Initialize and start the broker, report that it runs, wait for `stop`, and return the exit code.

    After a failure nothing is left running.
    """
    try:
        if not controller.initialize():
            server_util.say(f"The broker cannot be initialized; {_where_it_says_why()}", err=True)
            controller.shutdown()
            return EXIT_INITIALIZE_FAILED
        controller.start()
    except PortError as failure:
        log.error("The broker cannot start: %s", failure)
        server_util.say(f"The broker cannot start: {failure}", err=True)
        controller.shutdown()
        return EXIT_START_FAILED
    except Exception as failure:
        log.exception("The broker cannot start")
        server_util.say(f"The broker cannot start: {failure}", err=True)
        controller.shutdown()
        return EXIT_START_FAILED
    config = controller.broker_config
    tip = (f"The broker[{config.brokerName}, {controller.broker_addr}] boot success. "
           f"serializeType={SERIALIZE_TYPE_CONFIG_IN_THIS_SERVER.name}")
    if config.namesrvAddr is not None:
        tip += f" and name server is {config.namesrvAddr}"
    waits = controller.waits_for_role()
    role = [f"warning: this broker has no role yet and accepts no messages until it has one: {waits}"] if waits else []
    if controller.registration.lacks_master:
        role.append(f"warning: {controller.registration.lacking_master_text()}")
    for warning in [*role, *unsafe_settings(controller)]:
        log.warning(warning)
        server_util.say(warning, err=True)
    log.info(tip)
    server_util.say(tip)
    controller.on_failed = stop.set
    process.ready(f"{config.brokerName} {config.brokerId} serves at {controller.broker_addr}")
    if controller.failure is None:
        process.wait(stop, controller.lives)
    if controller.failure is not None:
        server_util.say(f"The broker cannot continue and is shutting down: {controller.failure}", err=True)
        shutdown(controller)
        return server_util.EXIT_SERVICE_FAILED
    return 0


def _where_it_says_why() -> str:
    files = logs.log_files("RocketmqBroker", "RocketmqStore")
    return f"see {' and '.join(files)} for the reason" if files else "see the messages above for the reason"


def unsafe_settings(controller: BrokerController) -> list[str]:
    """Return a console warning for each setting that gives access to unauthenticated clients."""
    config = controller.broker_config
    warnings = []
    if not config.aclEnable:
        warnings.append(
            "warning: access control is off (aclEnable=false): any client that can reach port "
            f"{controller.remoting_server.local_listen_port} on any address of this host can send messages, read them "
            "and administer the broker")
    if not controller.role.is_slave:
        warnings.append(
            f"warning: the replication port {controller.message_store.ha_service.ha_listen_port} is open on all "
            "addresses and has no authentication: any host that can reach it can copy all messages")
    return warnings


def shutdown(controller: BrokerController) -> None:
    """Shut the broker down, and log it."""
    log.info("Shutdown hook was invoked, 1")
    process.stopping()
    begin = time.monotonic()
    controller.shutdown()
    log.info("Shutdown hook over, consuming total time(ms): %d", (time.monotonic() - begin) * 1000)


def _check_environment(broker_config: BrokerConfig) -> None:
    """Check the name server addresses from the environment; those from files and options were checked when set."""
    if broker_config.namesrvAddr is not None:
        try:
            parse_property(broker_config.namesrvAddr, NamesrvAddresses)
        except ValueError as failure:
            raise ConfigError(str(failure), key=f"environment variable {mix_all.NAMESRV_ADDR_ENV}") from None


def _set_up_logging(broker_config: BrokerConfig, server_config: ServerConfig, log_dir: str | None) -> None:
    # Differs: the log folder of a broker whose id a controller assigns is named by its port; in 5.1.4 all such brokers
    # share one folder
    own = server_config.listenPort if broker_config.enableControllerMode else broker_config.brokerId
    sub_dir = f"{broker_config.brokerName}_{own}" if broker_config.isolateLogEnable else ""
    if sub_dir and not is_folder_name(sub_dir):
        raise ConfigError(f"{broker_config.brokerName!r} is not a valid folder name, and with isolateLogEnable=true "
                          "the log folder is named after the broker", key="brokerName")
    style = LogStyle(broker_config.logLevel, broker_config.logFormat, broker_config.logTimeZone,
                     (("brokerName", broker_config.brokerName), ("brokerId", broker_config.brokerId)))
    logs.setup_broker_logging(log_dir, sub_dir, style)


if __name__ == "__main__":
    sys.exit(run_while_read(main))
