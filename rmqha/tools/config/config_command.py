"""The group `rmqha config`: check config files, explain keys and install the default `conf/` folder.

- `check`: read a config file as its server reads it, and report all errors and warnings with their lines.
- `explain`: print the meaning and allowed values of a key, and the modules that read it.
- `path`, `init`: print the path of the servers' `conf/`, and copy the default files there.
"""
import functools
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import click

import rmqha
from rmqha.acl import acl_files
from rmqha.common import controller_config, filesystem, mix_all
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.config_keys import allowed_words, base_type, config_keys, key_types
from rmqha.common.configuration import Bad, ConfigError, Warn, load_config_file, nearest_key, read_config_file
from rmqha.common.controller_config import ControllerConfig
from rmqha.common.java import JavaProperties
from rmqha.common.namesrv_config import NamesrvConfig
from rmqha.common.program import examples
from rmqha.remoting.remoting_config import RemotingClientConfig, ServerConfig
from rmqha.store.message_store_config import (
    AUTO_SWITCH,
    MessageStoreConfig,
    check_role,
    check_sums,
    check_supported,
    waits_for_promotion,
)
from rmqha.tools.config.config_meanings import MEANINGS, NOT_IN_5, NOWHERE_ELSE, OLD_NAMES, RENAMED_IN_5
from rmqha.tools.terminal import FAILED, CannotAnswerError, cell, counted, emit, output_option, put, put_facts

_OTHER_KEYS = ("rmqAddressServerDomain", "rmqAddressServerSubGroup")
_BROKER_PORT = 10911
_WITH_CONTROLLER = "enableControllerInNamesrv"
_COLOURS = {"error": "red", "warning": "yellow"}


@dataclass(frozen=True)
class Finding:
    """A problem in a file. An `error` prevents the server from starting, a `warning` does not. `line` may be unknown.
    """

    file: str
    line: int | None
    severity: str
    text: str


def check(file: str, kind: str) -> list[Finding]:
    """Check a file for a `broker`, a `namesrv` or a `controller`; return the findings by line."""
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
            configs = controller, ServerConfig(), RemotingClientConfig()
            properties = load_config_file(file, configs, warn=warn, bad=error)
            bad_key = _bad_key(file, properties, error)
            controller_config.check_controller(controller, bad_key)
        else:
            _check_broker(file, warn, error)
    except ConfigError as failure:
        # the file can't be read at all
        error(failure)
    return sorted(found, key=lambda each: each.line or 0)


def _check_name_server(file: str, warn: Warn, error: Bad) -> None:
    """Check a name server's file. With a controller inside the name server, the file has the keys of both."""
    config, controller = NamesrvConfig(), ControllerConfig()
    has_controller = read_config_file(file).get(_WITH_CONTROLLER) == "true"
    configs = (config, ServerConfig(), *((controller,) if has_controller else ()))
    properties = load_config_file(file, configs, warn=warn, bad=error)
    bad_key = _bad_key(file, properties, error)
    if has_controller:
        controller_config.check_controller(controller, bad_key)


def _check_broker(file: str, warn: Warn, error: Bad) -> None:
    broker, server, store = BrokerConfig(), ServerConfig(listenPort=_BROKER_PORT), MessageStoreConfig()
    configs = broker, server, RemotingClientConfig(), store
    properties = load_config_file(file, configs, _OTHER_KEYS, warn=warn, bad=error)
    bad_key = _bad_key(file, properties, error)
    check_supported(broker, store, bad_key)
    acl_files.check_available(broker.aclEnable, bad_key)
    check_role(broker, store, bad_key)
    check_sums(server, store, bad_key)
    waits = waits_for_promotion(broker, store)
    if waits is not None:
        line = properties.lines.get(AUTO_SWITCH, 1)
        warn(f"{file}:{line}: {AUTO_SWITCH}: {waits}")


def _bad_key(file: str, properties: JavaProperties, error: Bad) -> Callable[[str, str], None]:
    """Return a function that reports a key's problem, with its line, to `error`."""
    return lambda key, problem: error(ConfigError(problem, file, key, properties.lines.get(key)))


def kind_of(properties: JavaProperties) -> str:
    """Return the server a file is for, by its keys: a name server's or a controller's file has at least one key of its
    own and none of a broker's.
    """
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
    except ConfigError:  # reported by the check
        return "broker"


@click.command("check", short_help="Find errors in config files.", epilog=examples(
    "rmqha config check conf/broker.conf"))
@click.argument("files", nargs=-1, required=True, type=click.Path(dir_okay=False), metavar="FILE...")
@click.option("--for", "kind", type=click.Choice(["auto", "broker", "namesrv", "controller"]), default="auto",
              show_default=True, help="The server the files are for; auto: detect it from the keys.")
@click.option("--strict", is_flag=True, help="Exit with code 1 for warnings, too.")
@output_option
def check_command(files: tuple[str, ...], kind: str, strict: bool, output: str) -> None:
    """Read config files as their servers read them, and report all errors and warnings with file and line.

    Exit code 1 if a server would not start with one of the files. `rmqha doctor -c FILE` checks the host, too.
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


# Config class -> the servers whose files have its keys.
OWNERS: dict[type, str] = {
    BrokerConfig: "broker", MessageStoreConfig: "broker (its store)", ServerConfig: "broker and name server (their "
    "ports)", RemotingClientConfig: "broker (its outgoing connections)", NamesrvConfig: "name server",
    ControllerConfig: "controller, and a name server with a built-in controller"}
_UNIT = re.compile(r"whole number of (\w+) from")
_RANGE = re.compile(r"from (-?\d+) to (\d+)$")
_COMMENT = re.compile(r"^\s*#.*", re.MULTILINE)
_READ = re.compile(r"(?:config\w*|self|_c|store|server|broker)(?:\(\))?(?=\.(\w+))|\(\w+, \"(\w+)\", ")
_READ_BY_ITSELF = re.compile(r"self\.(\w+)")
_MODULES_SHOWN = 6
_PAGE = "pages of 4 KiB"


@dataclass(frozen=True)
class Explanation:
    """Everything known about a key. `readers`: modules below rmqha that read it; empty: the key has no effect."""

    key: str
    config_class: str
    file_of: str
    meaning: str
    type: str
    may_be: str
    least: int | None
    greatest: int | None
    unit: str | None
    default: str | None
    readers: list[str]
    in_4_9: str | None
    in_5: str | None


def explain(key: str) -> list[Explanation]:
    """Explain a key, given by its current or an old name, for each class that has it; empty when no class does."""
    current = {old: name for name, old in OLD_NAMES.items()}.get(key, key)
    return [_explained(config_class, current) for config_class in OWNERS if current in config_keys(config_class)]


def known_keys() -> set[str]:
    """Return all keys, including the old names."""
    return {key for config_class in OWNERS for key in config_keys(config_class)} | set(OLD_NAMES.values())


def _explained(config_class: type, key: str) -> Explanation:
    field = config_keys(config_class)[key]
    kind = key_types(config_class)[field.name]
    words = allowed_words(kind)
    bounds, unit = _RANGE.search(words), _UNIT.search(words)
    default = getattr(config_class(), field.name)
    is_extension = bool(field.metadata.get("extension")) or config_class is ControllerConfig
    old = OLD_NAMES.get(key)
    in_4_9 = None if is_extension else f"{key} (before 4.5: {old})" if old else key
    in_5 = None if key in NOT_IN_5 or key in NOWHERE_ELSE else RENAMED_IN_5.get(key, key)
    return Explanation(
        key, config_class.__name__, OWNERS[config_class], MEANINGS[key], base_type(kind).__name__, words,
        int(bounds[1]) if bounds else None, int(bounds[2]) if bounds else None,
        _PAGE if unit and unit[1] == "pages" else unit[1] if unit else None,
        None if default is None else mix_all.property_text(default), readers(field.name), in_4_9, in_5)


def readers(attribute: str) -> list[str]:
    """Return the servers' modules that read an attribute of a config object."""
    return sorted(_readers_of_all().get(attribute, ()))


@functools.cache
def _readers_of_all() -> dict[str, set[str]]:
    """Return, for each attribute read from what may be a config object, the modules that read it.

    All sources of the servers are searched once.
    """
    found: defaultdict[str, set[str]] = defaultdict(set)
    package = Path(rmqha.__file__).parent
    defined = {package.parent / (config_class.__module__.replace(".", "/") + ".py") for config_class in OWNERS}
    for file in package.rglob("*.py"):
        path = file.relative_to(package)
        if file in defined:
            # a config class may read its own key in a method that others call
            pattern = _READ_BY_ITSELF
        elif path.parts[0] not in ("tools", "pipeline", "client"):
            pattern = _READ
        else:
            continue
        for used in pattern.finditer(_COMMENT.sub("", file.read_text("utf-8"))):
            found[used[used.lastindex or 0]].add(str(path))
    return found


def _print(found: Explanation) -> None:
    told = found.readers[:_MODULES_SHOWN]
    more = f" and {len(found.readers) - len(told)} more" if len(found.readers) > len(told) else ""
    put_facts({
        found.key: found.meaning,
        "  may be": found.may_be,
        "  unit": found.unit or "-",
        "  default": "not set" if found.default is None else f"{found.default or 'empty'}",
        "  in the file of": f"{found.file_of} ({found.config_class})",
        "  read by": (", ".join(told) + more) if told else "no module: it has no effect here",
        "  RocketMQ 4.9": found.in_4_9 or "does not have it",
        "  RocketMQ 5": found.in_5 or "does not have it"})


@click.command("explain", short_help="Explain config keys: values, unit, default, other names.", epilog=examples(
    "rmqha config explain flushDiskType haSendHeartbeatInterval"))
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@output_option
def explain_command(keys: tuple[str, ...], output: str) -> None:
    """Explain config keys: values, unit, default, the modules that read them, and their names in RocketMQ 4.9 and 5.

    Defaults that depend on the machine are shown for this machine. 4.9 means 4.9.8, and 5 means 5.3.3. Exit code 2
    for an unknown key.
    """
    found = []
    for key in keys:
        told = explain(key)
        if not told:
            near = nearest_key(key, known_keys())
            raise CannotAnswerError(f"unknown config key {key!r}" + (f"; did you mean {near}?" if near else ""))
        found += told
    if output != "table":
        emit([asdict(each) for each in found], output)
        return
    for number, each in enumerate(found):
        if number:
            put("")
        _print(each)


_SECRET = {"plain_acl.yml", "tools.yml"}
_FOR_THE_OWNER = 0o600


@click.command("path", short_help="Print the folder that servers read configuration from.", epilog=examples(
    "rmqha config path"))
def path_command() -> None:
    """Print the path of the conf/ folder that servers and mqadmin read, even if it does not exist.

    It is $ROCKETMQ_HOME/conf, else the checkout's, else ~/.config/rmqha/conf ($XDG_CONFIG_HOME/rmqha/conf).
    """
    click.echo(filesystem.rocketmq_home() / "conf")


@click.command("init", short_help="Copy the shipped configuration files to a folder.", epilog=examples(
    "rmqha config init",
    "rmqha config init ./conf"))
@click.argument("folder", required=False, type=click.Path(file_okay=False, path_type=Path))
def init_command(folder: Path | None) -> None:
    """Copy the default configuration files to FOLDER; by default to the folder that `rmqha config path` prints.

    Existing files are kept. Files with accounts are readable only by their owner.
    """
    target = folder if folder is not None else filesystem.rocketmq_home() / "conf"
    source = filesystem.templates()
    if not source.is_dir():
        raise CannotAnswerError(f"{source} is missing: the installation of rmqha is incomplete; reinstall the wheel")
    if target.resolve() == source.resolve():
        raise CannotAnswerError(f"{target} is the checkout's own conf folder; name another FOLDER")
    copied = kept = 0
    for file in _files(source):
        is_new = _copy(source / file, target / file)
        copied, kept = copied + is_new, kept + (not is_new)
    click.echo(f"{target}: {copied} files copied, {kept} existing files kept\n\n"
               f"To start a name server, and a broker in another terminal:\n"
               f"  mqnamesrv\n  mqbroker -c {target / 'broker.conf'}")


def _files(folder: Path) -> Iterator[Path]:
    """Yield all files below a folder, as paths relative to it."""
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            yield file.relative_to(folder)


def _copy(source: Path, target: Path) -> bool:
    """Copy a file unless the target exists; return whether it was copied."""
    target.parent.mkdir(parents=True, exist_ok=True)
    mode = _FOR_THE_OWNER if source.name in _SECRET else 0o666
    try:
        number = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    except FileExistsError:
        return False
    with open(number, "wb") as file:
        file.write(source.read_bytes())
    return True


@click.group("config")
def config_group() -> None:
    """Explain config keys, check config files, copy the shipped ones."""


for _command in (explain_command, check_command, init_command, path_command):
    config_group.add_command(_command)
