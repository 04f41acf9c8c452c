"""The TLS settings: system properties, and the file that overrides them."""
import logging
import os
from collections.abc import Callable, Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any

from rmqha.common.configuration import ConfigError, nearest_key, read_config_file
from rmqha.common.java import JavaProperties, get_property, parse_boolean
from rmqha.common.lazy_dataclasses import dataclass, field, fields, replace
from rmqha.common.texts import Secret

if TYPE_CHECKING:
    from dataclasses import Field

log = logging.getLogger("RocketmqRemoting")

TLS_SERVER_MODE = "tls.server.mode"
TLS_ENABLE = "tls.enable"
TLS_CONFIG_FILE = "tls.config.file"
DEFAULT_CONFIG_FILE = "/etc/rocketmq/tls.properties"
CLIENT_AUTH = ("none", "optional", "require")


class TlsMode(Enum):
    """A server's mode. disabled: closes TLS connections; permissive: serves both; enforcing: closes plain connections.

    Java: org.apache.rocketmq.remoting.common.TlsMode (4.9.8)
    """

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"

    @classmethod
    def parse(cls, mode: str) -> "TlsMode":
        """Return the mode with this name. Raises ValueError for an unknown name."""
        # Differs: an unknown TLS mode is an error; Java uses PERMISSIVE for an unknown word, so `ENFORCING` in capital
        # letters enforces nothing
        return cls(mode)


def _client_auth(text: str) -> str:
    """Return the word in lower case; "none" for an empty text."""
    word = text.strip().lower() or "none"
    # Differs: an unknown word for tls.server.need.client.auth is an error; Java uses `none` for it, and then accepts
    # any client
    if word not in CLIENT_AUTH:
        raise ValueError
    return word


_WORDS = {TlsMode.parse: ", ".join(mode.value for mode in TlsMode), _client_auth: ", ".join(CLIENT_AUTH)}


def _parsed(name: str, parse: Callable[[str], Any], text: str, file: str | None = None, line: int | None = None) -> Any:
    try:
        return parse(text)
    except ValueError:
        raise ConfigError(f"{text!r} is not one of {_WORDS[parse]}", file, name, line) from None


def _property(name: str, default: str | None, parse: Callable[[str], Any] = str, in_file: bool = True,
              secret: bool = False) -> Any:
    def value() -> Any:
        text = get_property(name, default)
        return None if text is None else _parsed(name, parse, text)

    return field(default_factory=value, repr=not secret,
                 metadata={"property": name, "parse": parse, "in_file": in_file, "secret": secret})


@dataclass(frozen=True)
class TlsSystemConfig:
    """The settings of TLS: modes, keys, and trusted certificates. Each field's default is its system property.

    Paths are of PEM files; None or "" means no file. Raises ConfigError for an invalid word.

    Java: org.apache.rocketmq.remoting.netty.TlsSystemConfig (4.9.8)
    """

    tls_enable: bool = _property(TLS_ENABLE, "false", parse_boolean, in_file=False)  # for clients
    tls_test_mode_enable: bool = _property("tls.test.mode.enable", "true", parse_boolean)

    tls_server_need_client_auth: str = _property("tls.server.need.client.auth", "none", _client_auth)
    tls_server_key_path: str | None = _property("tls.server.keyPath", None)
    tls_server_key_password: Secret | None = _property("tls.server.keyPassword", None, secret=True)
    tls_server_cert_path: str | None = _property("tls.server.certPath", None)
    tls_server_auth_client: bool = _property("tls.server.authClient", "false", parse_boolean)
    tls_server_trust_cert_path: str | None = _property("tls.server.trustCertPath", None)

    tls_client_key_path: str | None = _property("tls.client.keyPath", None)
    tls_client_key_password: Secret | None = _property("tls.client.keyPassword", None, secret=True)
    tls_client_cert_path: str | None = _property("tls.client.certPath", None)
    tls_client_auth_server: bool = _property("tls.client.authServer", "false", parse_boolean)
    tls_client_trust_cert_path: str | None = _property("tls.client.trustCertPath", None)

    tls_mode: TlsMode = _property(TLS_SERVER_MODE, TlsMode.PERMISSIVE.value, TlsMode.parse, in_file=False)
    tls_config_file: str = _property(TLS_CONFIG_FILE, DEFAULT_CONFIG_FILE, in_file=False)

    def __post_init__(self) -> None:
        for item in fields(self):
            if item.metadata["secret"]:  # wrap one that is passed as a text
                object.__setattr__(self, item.name, Secret.of(getattr(self, item.name)))

    def with_config_file(self) -> "TlsSystemConfig":
        """Return these settings, overridden by those in `tls_config_file` if that file exists.

        Raises ConfigError if the file can't be read, if it was configured but does not exist, and for an invalid value.
        """
        file = self.tls_config_file
        if not os.path.isfile(file):
            # Differs: a TLS config file that is configured but missing is an error; Java continues without it, in test
            # mode, where any peer is trusted
            if file != DEFAULT_CONFIG_FILE:
                raise ConfigError("the file does not exist", file, TLS_CONFIG_FILE)
            log.info("Tls config file doesn't exist, skip it")
            return self
        properties = read_config_file(file)
        known = _properties_in_file()
        _warn_unknown(file, properties, known)
        return replace(self, **{item.name: _parsed(key, item.metadata["parse"], properties[key], file,
                                                   properties.lines[key])
                                for key, item in known.items() if key in properties})

    def log_final(self) -> None:
        """Log all settings that the file may have, with the passwords hidden."""
        log.info("Log the final used tls related configuration")
        for key, item in _properties_in_file().items():
            value = getattr(self, item.name)
            text = "null" if value is None else str(value).lower() if isinstance(value, bool) else value
            # Differs: the log does not show the passwords of TLS settings; Java logs them
            log.info("%s = %s", key, "******" if value and item.metadata["secret"] else text)


def _warn_unknown(file: str, properties: JavaProperties, known: Iterable[str]) -> None:
    for key, line in properties.lines.items():
        if key in (TLS_SERVER_MODE, TLS_ENABLE):
            log.warning("%s:%d: %s is a system property; it is not read from this file", file, line, key)
        elif key not in known:
            near = nearest_key(key, known)
            log.warning("%s:%d: unknown key %s%s", file, line, key, f", did you mean {near}?" if near else "")


def _properties_in_file() -> "dict[str, Field[Any]]":
    """Return the field of each property that the file may have."""
    return {item.metadata["property"]: item for item in fields(TlsSystemConfig) if item.metadata["in_file"]}


def use_tls(default: bool = False) -> bool:
    """Return the value of `tls.enable`, or `default` if it is not set."""
    return parse_boolean(get_property(TLS_ENABLE, str(default)))
