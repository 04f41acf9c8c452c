"""How a config class tells its Java side: which keys are important, and which have another name in a file.

A config class is a dataclass whose attributes are the config keys, in Java's order. The annotation gives the type
that a `.properties` value is parsed to, and what is allowed of it (rmqha.common.config_value); `important()` marks
what `-m` prints; `renamed()` gives a key that differs from the attribute's name because Java's setter does.
"""
from dataclasses import Field, field, fields
from typing import Any, get_type_hints


def important(default: Any = None, *, factory: Any = None) -> Any:
    """A config key that Java marks with ImportantField: printed by `-m`.

    Java: org.apache.rocketmq.common.annotation.ImportantField (4.9.8)
    """
    if factory is not None:
        return field(default_factory=factory, metadata={"important": True})
    return field(default=default, metadata={"important": True})


def renamed(default: Any, key: str) -> Any:
    """A config key whose name in a file is `key`, not the attribute's name."""
    return field(default=default, metadata={"key": key})


def config_keys(config_class: type) -> dict[str, Field[Any]]:
    """Key in a file -> dataclass field, in declaration order."""
    return {item.metadata.get("key", item.name): item for item in fields(config_class)}


def key_types(config_class: type) -> dict[str, Any]:
    """Attribute -> resolved annotation, with what is allowed of it."""
    return get_type_hints(config_class, include_extras=True)
