"""YAML as SnakeYAML reads and writes it, by PyYAML (the extra `acl`).

A plain scalar is what it is in Java: `12345678` a number, `1e3` too (not in PyYAML's own rules), `yes` a boolean; where
a text is wanted, `text_of` gives what Java makes of it.
"""
import functools
import importlib.util
import math
import os
import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

from rmqha.acl.common.acl_exception import AclException
from rmqha.common.filesystem import how_to_install, replace_and_force
from rmqha.remoting.protocol.fastjson import java_double

MAX_ALIASES_FOR_COLLECTIONS = 50
HOW_TO_INSTALL = f"it needs PyYAML: {how_to_install('acl')}"

_FLOAT = re.compile(
    r"""^(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?
    |[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+
    |\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?
    |[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*
    |[-+]?\.(?:inf|Inf|INF)
    |\.(?:nan|NaN|NAN))$""", re.VERBOSE)
_NOT_FINITE = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}
_STANDARD = "tag:yaml.org,2002:"
_ACCOUNT_TAG = _STANDARD + "org.apache.rocketmq.common.PlainAccessConfig"


def check_available(acl_enable: bool, bad_key: Callable[[str, str], object]) -> None:
    """`bad_key(key, what to install)` when a broker is to have access control without the library."""
    if acl_enable and not is_available():
        bad_key("aclEnable", f"access control is asked for, {HOW_TO_INSTALL}")


def is_available() -> bool:
    """Whether PyYAML is installed."""
    return importlib.util.find_spec("yaml") is not None


def get_yaml_data_object(path: str) -> dict[str, Any] | None:
    """The mapping that a file holds; None when it is missing or empty. AclException when it holds something else.

    Java: org.apache.rocketmq.acl.common.AclUtils#getYamlDataObject (4.9.8)
    """
    try:
        with open(path, "rb") as file:
            data = loads(file.read())
    except FileNotFoundError:
        return None
    except (AclException, OSError) as error:
        raise AclException(f"{path}: {error}") from None
    if data is None:
        return None
    if not isinstance(data, dict):
        raise AclException(f"{path}: keys with values are expected (accounts: ..., globalWhiteRemoteAddresses: ...), "
                           f"it holds a {type(data).__name__}")
    return data


def write_data_object(path: str, data: dict[str, Any]) -> None:
    """Replace a file by `data`, durably and at once; comments in it are lost. AclException when that fails.

    Java: org.apache.rocketmq.acl.common.AclUtils#writeDataObject (4.9.8)
    """
    # Differs: a temporary file that is renamed, with the old one's mode: no moment at which half of the accounts are
    # missing, and a failure leaves the old file
    target = os.path.realpath(path)
    temporary = target + ".tmp"
    try:
        mode = os.stat(target).st_mode & 0o777 if os.path.exists(target) else 0o600
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(dumps(data))
            file.flush()
            os.fsync(descriptor)
        replace_and_force(temporary, target)
    except OSError as error:
        raise AclException(f"{path} cannot be written: {error}") from error


def loads(content: bytes) -> Any:
    """The value of a YAML document, None when it is empty. AclException when it is not YAML."""
    yaml = _yaml()
    try:
        return yaml.load(content, Loader=_loader())
    except yaml.YAMLError as error:
        raise AclException(f"no YAML: {_problem(error)}") from None
    except (ValueError, OverflowError) as error:
        raise AclException(f"no YAML: a number is malformed: {error}") from None
    except RecursionError:
        raise AclException("no YAML: nested too deeply") from None


def _problem(error: Any) -> str:
    """Say what is wrong and where, without the line itself, which may have a secret."""
    mark = getattr(error, "problem_mark", None)
    parts = [getattr(error, "context", None), getattr(error, "problem", None)]
    parts.append(f"line {mark.line + 1}, column {mark.column + 1}" if mark is not None else None)
    return ", ".join(part for part in parts if part) or type(error).__name__


def dumps(data: dict[str, Any]) -> bytes:
    """The YAML of a mapping, keys in their order, one value a line."""
    text: bytes = _yaml().dump(data, Dumper=_dumper(), default_flow_style=False, sort_keys=False, allow_unicode=True,
                               encoding="utf-8")
    return text


def text_of(value: Any) -> str | None:
    """A scalar as the text that Java makes of it; None for null. AclException for lists and mappings."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return java_double(value) if math.isfinite(value) else _NOT_FINITE[str(value)]
    raise AclException(f"a text is expected, not a {type(value).__name__}")


def _yaml() -> ModuleType:
    try:
        import yaml
    except ImportError:
        raise AclException(f"access control cannot read its files: {HOW_TO_INSTALL}") from None
    library: ModuleType = yaml
    return library


@functools.cache
def _loader() -> type:
    yaml = _yaml()

    class Loader(yaml.SafeLoader):  # type: ignore[name-defined,misc]  # an extra, imported when it is needed
        """PyYAML's safe loader with SnakeYAML's numbers and its limit of aliases."""

        aliases = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            """The next node. More aliases of collections than Java takes are refused: they can multiply."""
            if self.check_event(yaml.AliasEvent):
                node = self.anchors.get(self.peek_event().anchor)
                if isinstance(node, yaml.CollectionNode):
                    self.aliases += 1
                    if self.aliases > MAX_ALIASES_FOR_COLLECTIONS:
                        raise yaml.composer.ComposerError(None, None, "Number of aliases for non-scalar nodes exceeds "
                                                          f"the specified max={MAX_ALIASES_FOR_COLLECTIONS}",
                                                          self.peek_event().start_mark)
            else:  # an anchor may be used again, for something else
                self.anchors.pop(self.peek_event().anchor, None)
            return super().compose_node(parent, index)

    # Differs: a date stays the text that was written; Java makes a Date of it, whose text depends on its time zone
    _use_javas_scalars(Loader, "float", "timestamp", "value")
    Loader.add_constructor(_ACCOUNT_TAG, yaml.SafeLoader.construct_yaml_map)
    return Loader


@functools.cache
def _dumper() -> type:
    yaml = _yaml()

    class Dumper(yaml.SafeDumper):  # type: ignore[name-defined,misc]  # an extra, imported when it is needed
        """PyYAML's safe dumper; quotes what SnakeYAML would take for a number."""

    _use_javas_scalars(Dumper, "float")
    return Dumper


def _use_javas_scalars(cls: Any, *without: str) -> None:
    """SnakeYAML's floats in the place of PyYAML's, and without other kinds."""
    removed = [_STANDARD + name for name in without]
    cls.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in removed]
        for first, resolvers in cls.yaml_implicit_resolvers.items()}
    cls.add_implicit_resolver(_STANDARD + "float", _FLOAT, list("-+0123456789."))
