"""The real RocketMQ 5.1.4: how its broker and its controller are started; brokers register with name servers of 4.9."""
from pathlib import Path

from tests.support import real_rocketmq

VERSION = "5.1.4"
_LOGBACK = "<configuration><root level=\"OFF\"/></configuration>\n"
_BROKER = "org.apache.rocketmq.broker.BrokerStartup"
_CONTROLLER = "org.apache.rocketmq.controller.ControllerStartup"


def namesrv_command(config_file: Path, folder: Path) -> tuple[list[str], dict[str, str]]:
    """The name server of 4.9."""
    return real_rocketmq.namesrv_command(config_file, folder)


def broker_command(config_file: Path, folder: Path) -> tuple[list[str], dict[str, str]]:
    """Command and environment of a broker."""
    with config_file.open("a", encoding="utf-8") as file:
        file.write("timerWheelEnable=false\n")  # its files are large, and not replicated
    return _command(_BROKER, config_file, folder)


def controller_command(config_file: Path, folder: Path) -> tuple[list[str], dict[str, str]]:
    """Command and environment of a controller."""
    return _command(_CONTROLLER, config_file, folder)


def _command(name: str, config_file: Path, folder: Path) -> tuple[list[str], dict[str, str]]:
    logback = folder / "logback.xml"
    logback.write_text(_LOGBACK, encoding="ascii")
    flags = [f"-Drmq.logback.configurationFile={logback}", f"-Duser.home={folder}",
             f"-Drocketmq.client.logRoot={folder}/clientlogs", "-Drocketmq.client.logLevel=WARN"]
    command = [*real_rocketmq.java_command(), *real_rocketmq.tls_options(), *flags,
               "-cp", f"{real_rocketmq.jars_of(VERSION)}/*", name]
    return [*command, "-c", str(config_file)], {"ROCKETMQ_HOME": str(folder)}
