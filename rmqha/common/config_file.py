"""Reading a `-c` file into config objects, with errors that say file, key and line."""
import difflib
import logging
import os
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from rmqha.common import java_properties
from rmqha.common.config_field import config_keys
from rmqha.common.java_properties import JavaProperties
from rmqha.common.mix_all import properties2object

log = logging.getLogger("RocketmqCommon")


class ConfigError(Exception):
    """A configuration that a server cannot start with. Its text names the file, the line and the key, as known."""

    def __init__(self, message: str, file: str | None = None, key: str | None = None, line: int | None = None) -> None:
        place = f"{file}:{line}: " if file and line else f"{file}: " if file else ""
        super().__init__(f"{place}{key}: {message}" if key else place + message)
        self.message = message
        self.file = file
        self.key = key
        self.line = line


_WORDS = "command line"  # stands where the name of a file does

Warn = Callable[[str], None]
Bad = Callable[[ConfigError], None]


def load_config_file(file: str, configs: Iterable[Any], other_keys: Iterable[str] = (), warn: Warn = log.warning,
                     bad: Bad | None = None) -> JavaProperties:
    """Read `file` and set its keys on each of the `configs`.

    Returns all properties, the unknown ones included. `warn` gets a text, with the nearest known name, for each key
    that neither a config object nor `other_keys` know. Raises ConfigError for a missing or malformed file and for
    values that do not fit (where Java silently keeps the default); of values `bad` gets them all instead, if given.
    """
    properties = read_config_file(file)
    targets = list(configs)
    _resolve_aliases(file, properties, targets, warn)
    _warn_unknown(file, properties, targets, other_keys, warn)
    for target in targets:
        # Differs: Java drops a bad value and goes on with the default
        properties2object(properties, target, lambda key, value, problem: _refused(file, properties, key, problem, bad))
    return properties


def take_words(words: Iterable[str], configs: Iterable[Any], warn: Warn) -> None:
    """Set the `key=value` words of a command line on each of the `configs`, over what a file says.

    `warn` gets a text for each word that is passed over: one without `=`, and a key that no config object knows.
    Raises ConfigError for a value that does not fit.
    """
    # Differs: `key=value` on the command line counts; Java passes such words over without a word
    targets, properties = list(configs), JavaProperties()
    for word in words:
        key, equals, value = word.partition("=")
        if equals:
            properties[key.strip()] = value.strip()
            properties.lines[key.strip()] = 1
        else:
            warn(f"{_WORDS}: {word[:80]!r} is passed over: neither an option nor key=value")
    _resolve_aliases(_WORDS, properties, targets, warn)
    _warn_unknown(_WORDS, properties, targets, (), lambda text: warn(f"{text}; it is passed over"))
    for target in targets:
        properties2object(properties, target, lambda key, value, problem: refuse(_WORDS, None, key, problem))


def words_to_properties(words: Iterable[str]) -> dict[str, str]:
    """The `key=value` words of a command line, for a look at some keys before `take_words`."""
    return {key.strip(): value.strip() for key, equals, value in (word.partition("=") for word in words) if equals}


def read_config_file(file: str) -> JavaProperties:
    """The properties in `file`. Raises ConfigError when it cannot be read or parsed."""
    try:
        with open(file, "rb") as stream:
            return java_properties.load(stream.read())
    except OSError as failure:
        raise ConfigError(f"cannot read the config file: {os.strerror(failure.errno or 0)}", file) from failure
    except java_properties.PropertiesError as failure:
        raise ConfigError(failure.message, file, line=failure.line) from failure


def nearest_key(key: str, known: Iterable[str]) -> str | None:
    """The known key that looks most like `key`, None when none comes near."""
    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(key.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[near[0]] if near else None


def refuse(file: str | None, properties: JavaProperties | None, key: str, problem: str) -> NoReturn:
    """Raise the ConfigError of a key's value, with the line where `properties`, read from `file`, have it."""
    raise ConfigError(problem, file, key, properties.lines.get(key) if properties is not None else None)


def _refused(file: str, properties: JavaProperties, key: str, problem: str, bad: Bad | None) -> None:
    if bad is None:
        refuse(file, properties, key, problem)
    bad(ConfigError(problem, file, key, properties.lines.get(key)))


def _resolve_aliases(file: str, properties: JavaProperties, targets: list[Any], warn: Warn) -> None:
    for target in targets:
        for old, new in getattr(target, "key_aliases", {}).items():
            if old not in properties:
                continue
            place = _place(file, properties, old)
            if new in properties:
                warn(f"{place}{old} is the old name of {new}, which is set too and wins")
                continue
            warn(f"{place}{old} is the old name of {new}; please rename it")
            _rename(properties, old, new)
        for key, field in config_keys(type(target)).items():
            # Differs: the name under which a server writes such a key into its file is read as the key, which wins
            if field.name != key and field.name in properties:
                if key in properties:
                    del properties[field.name]
                else:
                    _rename(properties, field.name, key)


def _rename(properties: JavaProperties, old: str, new: str) -> None:
    properties[new] = properties.pop(old)
    properties.lines[new] = properties.lines[old]


def _place(file: str, properties: JavaProperties, key: str) -> str:
    return f"{file}: " if file == _WORDS else f"{file}:{properties.lines[key]}: "


def _warn_unknown(file: str, properties: JavaProperties, targets: list[Any], other_keys: Iterable[str],
                  warn: Warn) -> None:
    known = {*other_keys}
    for target in targets:
        known.update(config_keys(type(target)), getattr(target, "key_aliases", {}))
    for key in properties.lines:
        if key in properties and key not in known:
            near = nearest_key(key, known)
            hint = f", did you mean {near}?" if near else ""
            warn(f"{_place(file, properties, key)}unknown key {key}{hint}")
