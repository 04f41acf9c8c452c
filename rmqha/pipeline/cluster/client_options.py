"""The options `rocketmq.*`: who a client is, and how it connects. For the source, the stream and the sink.

They are read on the driver, so a file with keys need only be there; certificates are read by each task.
"""
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any

from rmqha.acl.common import AclClientRPCHook, SessionCredentials
from rmqha.client.client_config import ClientConfig
from rmqha.common.configuration import ConfigError
from rmqha.common.texts import Secret
from rmqha.pipeline.options import Options, PipelineError
from rmqha.remoting.tls_system_config import TlsSystemConfig

_TLS = "rocketmq.tls."
_TLS_ENABLE, _TLS_TEST_MODE, _TLS_FILE = _TLS + "enable", _TLS + "test.mode.enable", _TLS + "config.file"
_AUTH_SERVER, _TRUST = _TLS + "client.authServer", _TLS + "client.trustCertPath"
# option -> field of TlsSystemConfig: the system properties of clients
_TLS_TEXTS = {f"rocketmq.{each.metadata['property']}": each.name for each in fields(TlsSystemConfig)
              if each.metadata["property"].startswith("tls.client.") and each.name != "tls_client_auth_server"}
ACCESS_KEY, SECRET_KEY, TOKEN, KEY_FILE = ("rocketmq.accessKey", "rocketmq.secretKey", "rocketmq.securityToken",
                                           "rocketmq.keyFile")
NAMESPACE, VIP, UNIT = "rocketmq.namespace", "rocketmq.vipChannelEnabled", "rocketmq.unitName"
CLIENT_OPTIONS = (ACCESS_KEY, SECRET_KEY, TOKEN, KEY_FILE, NAMESPACE, VIP, UNIT, "rocketmq.namesrvAddr",
                  _TLS_ENABLE, _TLS_TEST_MODE, _TLS_FILE, _AUTH_SERVER, *_TLS_TEXTS)

SECRETS = (SECRET_KEY, TOKEN, *(name for name in _TLS_TEXTS if name.lower().endswith("password")))


@dataclass(frozen=True)
class _GivenTls(TlsSystemConfig):
    """TLS settings that are complete: no file of the machine goes over them."""

    def with_config_file(self) -> TlsSystemConfig:
        """These."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """The tasks need the passwords, and hide them again."""
        values = [getattr(self, each.name) for each in fields(self)]
        return _GivenTls, tuple(value.reveal() if isinstance(value, Secret) else value for value in values)


@dataclass(frozen=True)
class ClientOptions:
    """What the options say of a client. Goes to the tasks; its text has no secret."""

    credentials: SessionCredentials | None = None
    namespace: str | None = None
    vip_channel: bool = False
    unit_name: str | None = None
    use_tls: bool | None = None  # None: as the system property tls.enable says
    tls: TlsSystemConfig | None = field(default=None, repr=False)

    @property
    def hook(self) -> AclClientRPCHook | None:
        """What signs the requests, if there are keys."""
        return None if self.credentials is None else AclClientRPCHook(self.credentials)

    def apply(self, client: ClientConfig) -> None:
        """Set up a producer or a consumer that was made with `hook`, before it starts."""
        client.namespace = self.namespace
        client.vip_channel_enabled = self.vip_channel
        client.unit_name = self.unit_name
        client.tls = self.tls
        if self.use_tls is not None:
            client.use_tls = self.use_tls


def client_options(options: Options) -> ClientOptions:
    """Of the options `rocketmq.*`. PipelineError for wrong or contradicting ones."""
    use_tls, tls = _tls(options)
    return ClientOptions(_credentials(options), options.text(NAMESPACE) or None, options.boolean(VIP, False),
                         options.text(UNIT) or None, use_tls, tls)


def _credentials(options: Options) -> SessionCredentials | None:
    options.one_of(KEY_FILE, ACCESS_KEY)
    options.one_of(KEY_FILE, SECRET_KEY)
    path = options.text(KEY_FILE)
    if path is not None:
        try:
            return SessionCredentials.from_key_file(path)
        except (ValueError, OSError) as error:
            raise PipelineError(f"{options.where}, option {KEY_FILE}: {error}") from None
    access, secret = options.text(ACCESS_KEY), options.text(SECRET_KEY)
    if not access and not secret:
        if TOKEN in options:
            raise PipelineError(f"{options.where}: {TOKEN} needs {ACCESS_KEY} and {SECRET_KEY}")
        return None
    if not access or not secret:
        raise PipelineError(f"{options.where} needs both {ACCESS_KEY} and {SECRET_KEY}, or {KEY_FILE}")
    return SessionCredentials(access, secret, options.text(TOKEN))


def _tls(options: Options) -> tuple[bool | None, TlsSystemConfig | None]:
    """(whether TLS is spoken, with what). Keys and trust count, and switch TLS on, whenever they are given."""
    given = [name for name in (_TLS_TEST_MODE, _TLS_FILE, _AUTH_SERVER, *_TLS_TEXTS) if name in options]
    if not given:
        return (options.boolean(_TLS_ENABLE, False) if _TLS_ENABLE in options else None), None
    if not options.boolean(_TLS_ENABLE, True):
        raise PipelineError(f"{options.where}: {_TLS_ENABLE}=false contradicts {given[0]}")
    return True, _GivenTls(**dict(_tls_fields(options, given)))


def _tls_fields(options: Options, given: list[str]) -> Iterator[tuple[str, Any]]:
    base = TlsSystemConfig()
    if _TLS_FILE in options:
        base = replace(base, tls_config_file=options.text(_TLS_FILE, ""))
    try:
        base = base.with_config_file()
    except ConfigError as error:
        raise PipelineError(f"{options.where}: {error}") from None
    keys = [name for name in given if name not in (_TLS_TEST_MODE, _TLS_FILE)]
    test_mode = options.boolean(_TLS_TEST_MODE, base.tls_test_mode_enable and not keys)
    if test_mode and keys:
        raise PipelineError(f"{options.where}: {_TLS_TEST_MODE}=true trusts everybody, which contradicts {keys[0]}")
    auth_server = options.boolean(_AUTH_SERVER, base.tls_client_auth_server or _TRUST in options)
    if _TRUST in options and not auth_server:
        raise PipelineError(f"{options.where}: {_AUTH_SERVER}=false contradicts {_TRUST}")
    for each in fields(TlsSystemConfig):
        yield each.name, getattr(base, each.name)
    yield "tls_test_mode_enable", test_mode
    yield "tls_client_auth_server", auth_server
    for option, name in _TLS_TEXTS.items():
        if option in options:
            yield name, options.text(option)
