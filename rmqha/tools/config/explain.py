"""`rmqha config explain`: what a key means, what it may be, and who reads it."""
import functools
import re
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path

import click

import rmqha
from rmqha.common import mix_all
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.config_keys import allowed_words, base_type, config_keys, key_types
from rmqha.common.configuration import nearest_key
from rmqha.common.controller_config import ControllerConfig
from rmqha.common.namesrv_config import NamesrvConfig
from rmqha.remoting.remoting_config import ClientConfig, ServerConfig
from rmqha.store.message_store_config import MessageStoreConfig
from rmqha.tools.config.config_meanings import MEANINGS, NOT_IN_5, NOWHERE_ELSE, OLD_NAMES, RENAMED_IN_5
from rmqha.tools.dialect.exit_codes import CannotAnswerError
from rmqha.tools.dialect.options import output_option
from rmqha.tools.dialect.output import emit, put, put_facts

# Whose file has the keys of a class.
OWNERS: dict[type, str] = {
    BrokerConfig: "broker", MessageStoreConfig: "broker, its store", ServerConfig: "broker and name server, what they "
    "listen with", ClientConfig: "broker, what it calls others with", NamesrvConfig: "name server",
    ControllerConfig: "controller, and a name server that has one within itself"}
_UNIT = re.compile(r"whole number of (\w+) from")
_RANGE = re.compile(r"from (-?\d+) to (\d+)$")
_COMMENT = re.compile(r"^\s*#.*", re.MULTILINE)
_READ = re.compile(r"(?:config\w*|self|_c|store|server|broker)(?:\(\))?(?=\.(\w+))|\(\w+, \"(\w+)\", ")
_READ_BY_ITSELF = re.compile(r"self\.(\w+)")
_MODULES_SHOWN = 6
_PAGE = "pages of 4 KiB"


@dataclass(frozen=True)
class Explanation:
    """All that is known of a key. `readers`: modules below rmqha that look at it; empty: it has no effect."""

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
    """The key in each class that has it, by its own or an old name; empty when none has."""
    current = {old: name for name, old in OLD_NAMES.items()}.get(key, key)
    return [_explained(config_class, current) for config_class in OWNERS if current in config_keys(config_class)]


def known_keys() -> set[str]:
    """All keys, the old names too."""
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
    """Modules of the servers that look at an attribute of a config object."""
    return sorted(_readers_of_all().get(attribute, ()))


@functools.cache
def _readers_of_all() -> dict[str, set[str]]:
    """For each attribute that a server looks at in what may be a config object: where. All sources are read once."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    package = Path(rmqha.__file__).parent
    defined = {package.parent / (config_class.__module__.replace(".", "/") + ".py") for config_class in OWNERS}
    for file in package.rglob("*.py"):
        path = file.relative_to(package)
        if file in defined:
            pattern = _READ_BY_ITSELF  # by a class that reads its own key, for a method that others call
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
        "  read by": (", ".join(told) + more) if told else "nothing: it has no effect here",
        "  RocketMQ 4.9": found.in_4_9 or "does not have it",
        "  RocketMQ 5": found.in_5 or "does not have it"})


@click.command("explain")
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@output_option
def explain_command(keys: tuple[str, ...], output: str) -> None:
    """Tell what a config key means: values, unit, default, who reads it, and its name in RocketMQ 4.9 and 5.

    Defaults that depend on the machine are this machine's. 4.9 is 4.9.8, 5 is 5.3.3.
    """
    found = []
    for key in keys:
        told = explain(key)
        if not told:
            near = nearest_key(key, known_keys())
            raise CannotAnswerError(f"no config key {key!r}" + (f"; did you mean {near}?" if near else ""))
        found += told
    if output != "table":
        emit([asdict(each) for each in found], output)
        return
    for number, each in enumerate(found):
        if number:
            put("")
        _print(each)
