"""Contexts: named clusters with the name servers, the account and the TLS settings to reach them, in a user's file.

    {"current": "prod", "contexts": {"prod": {"namesrv": "10.0.0.9:9876", "accessKey": "ops",
                                              "secretKeyCommand": "pass show rocketmq/prod", "tls": true}}}

- `Context`: one entry; makes the arguments of clients. `Contexts`: all entries, and the name of the current one.
- `read_contexts`, `write_contexts`, `load_context`: the file, $RMQHA_CONTEXTS_FILE, else `contexts.json` in the folder
  `rmqha` of the user's config folder. It has mode 600: it may contain secret keys.
- `Producer.from_context("group")`, and the same of each other client, use them.
"""
import fcntl
import os
import re
import shlex
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from rmqha.common import filesystem, mix_all
from rmqha.common.configuration import nearest_key
from rmqha.common.lazy_dataclasses import dataclass, field, fields, replace
from rmqha.common.texts import JsonTextError, Secret, parse_json
from rmqha.remoting.tls_system_config import TlsSystemConfig

if TYPE_CHECKING:
    from rmqha.remoting.interfaces import RPCHook

T = TypeVar("T")

CONTEXT_ENV = "RMQHA_CONTEXT"
# Key of click.Context.meta: the value of the option --context of `rmqha`.
NAMED_CONTEXT = "rmqha.context.named"
CONTEXTS_FILE_ENV = "RMQHA_CONTEXTS_FILE"
MAX_FILE_BYTES = 1 << 20
COMMAND_LIMIT_S = 30.0
_MAX_SECRET_BYTES = 64 << 10
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_READ_BY_OTHERS = stat.S_IRGRP | stat.S_IROTH | stat.S_IWGRP | stat.S_IWOTH


class ContextError(Exception):
    """A context can't be read, found or used; the text says where, what is wrong, and what to do."""


@dataclass(frozen=True)
class ContextTls(TlsSystemConfig):
    """The TLS settings of a context. They are complete: no file of the machine overrides them."""

    def with_config_file(self) -> TlsSystemConfig:
        """Return these settings."""
        return self


def _key(json_name: str) -> Any:
    return field(default=None, metadata={"json": json_name})


@dataclass(frozen=True)
class Context:
    """The way to reach a cluster. `namesrv`: "host:port", several separated by semicolons.

    At most one of `secret_key`, `secret_key_env` (an environment variable) and `secret_key_command` (a command line
    whose output it is; run without a shell) is set, together with `access_key`. `tls_ca`, `tls_cert` and `tls_key` are
    PEM files; without `tls_ca` the server's certificate is not checked. `namespace` is for producers and consumers.
    """

    namesrv: str = field(default="", metadata={"json": "namesrv"})
    access_key: str | None = _key("accessKey")
    secret_key: Secret | None = _key("secretKey")
    secret_key_env: str | None = _key("secretKeyEnv")
    secret_key_command: str | None = _key("secretKeyCommand")
    security_token: Secret | None = _key("securityToken")
    namespace: str | None = _key("namespace")
    tls: bool = field(default=False, metadata={"json": "tls"})
    tls_ca: str | None = _key("tlsCa")
    tls_cert: str | None = _key("tlsCert")
    tls_key: str | None = _key("tlsKey")

    def check(self, name: str) -> None:
        """Raise ContextError when the settings contradict each other; `name` is the context's."""
        problem = self._problem()
        if problem:
            raise ContextError(f"context {name}: {problem}")

    def _problem(self) -> str | None:
        if not self.namesrv:
            return "namesrv is missing: set it to host:port, several separated by semicolons"
        sources = [each for each in (self.secret_key, self.secret_key_env, self.secret_key_command) if each]
        if len(sources) > 1:
            return "only one of secretKey, secretKeyEnv and secretKeyCommand may be set"
        if sources and not self.access_key:
            return "a secret key needs accessKey"
        if self.access_key and not sources:
            return "accessKey needs secretKey, secretKeyEnv or secretKeyCommand"
        if self.security_token and not self.access_key:
            return "securityToken needs accessKey and a secret key"
        if not self.tls and (self.tls_ca or self.tls_cert or self.tls_key):
            return "tlsCa, tlsCert and tlsKey need tls: true"
        if self.tls_key and not self.tls_cert:
            return "tlsKey needs tlsCert"
        return None

    def fetched_secret_key(self) -> str:
        """Return the secret key, from the environment or the command if that is its source. ContextError."""
        if self.secret_key is not None:
            return self.secret_key.reveal()
        if self.secret_key_env is not None:
            text = os.environ.get(self.secret_key_env, "")
            if not text:
                raise ContextError(f"the environment variable {self.secret_key_env}, which holds the secret key of "
                                   f"{self.access_key}, is not set")
            return text
        assert self.secret_key_command is not None  # see check
        return _output_of(self.secret_key_command)

    def rpc_hook(self) -> "RPCHook | None":
        """Return the hook that signs requests with the account; None without one. ContextError."""
        if not self.access_key:
            return None
        from rmqha.acl.common import AclClientRPCHook, SessionCredentials  # most clients sign nothing

        token = self.security_token.reveal() if self.security_token else None
        return AclClientRPCHook(SessionCredentials(self.access_key, self.fetched_secret_key(), token))

    def tls_config(self) -> TlsSystemConfig | None:
        """Return the TLS settings; None without TLS."""
        if not self.tls:
            return None
        return ContextTls(
            tls_enable=True, tls_test_mode_enable=False, tls_client_key_path=self.tls_key,
            tls_client_cert_path=self.tls_cert, tls_client_auth_server=self.tls_ca is not None,
            tls_client_trust_cert_path=self.tls_ca)

    def client_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments for a producer or a consumer. ContextError."""
        arguments: dict[str, Any] = {"namesrv_addr": self.namesrv, "rpc_hook": self.rpc_hook(),
                                     "namespace": self.namespace}
        tls = self.tls_config()
        # Without TLS in the context, the system properties decide.
        return arguments if tls is None else {**arguments, "use_tls": True, "tls": tls}

    def to_json(self) -> dict[str, Any]:
        """Return the entry of the file, with its secrets in plain text."""
        values = ((each.metadata["json"], getattr(self, each.name)) for each in fields(self))
        return {name: value.reveal() if isinstance(value, Secret) else value for name, value in values if value}

    @classmethod
    def from_json(cls, name: str, entry: Any, file: str) -> "Context":
        """Return the context of an entry. ContextError for unknown keys and wrong types."""
        if not isinstance(entry, dict):
            raise ContextError(f"{file}: context {name}: not an object")
        known = {each.metadata["json"]: each.name for each in fields(cls)}
        values: dict[str, Any] = {}
        for key, value in entry.items():
            if key not in known:
                near = nearest_key(key, known)
                raise ContextError(f"{file}: context {name}: unknown key {key[:100]!r}"
                                   + (f"; did you mean {near}?" if near else ""))
            kind: type = bool if key == "tls" else str
            if not isinstance(value, kind):
                wanted = "true or false" if kind is bool else "a text"
                raise ContextError(f"{file}: context {name}: {key} must be {wanted}")
            values[known[key]] = value
            if isinstance(value, str) and known[key] in ("secret_key", "security_token"):
                values[known[key]] = Secret(value)
        context = cls(**values)
        try:
            context.check(name)
        except ContextError as error:
            raise ContextError(f"{file}: {error}") from None
        return context


@dataclass(frozen=True)
class Contexts:
    """All contexts of a file, by name, and the current one's name, if there is one."""

    contexts: Mapping[str, Context] = field(default_factory=dict)
    current: str | None = None

    def get(self, name: str) -> Context:
        """Return a context. ContextError for an unknown name."""
        found = self.contexts.get(name)
        if found is not None:
            return found
        near = nearest_key(name, set(self.contexts))
        hint = (f"; did you mean {near}?" if near
                else f"; there are {', '.join(sorted(self.contexts)[:20])}" if self.contexts
                else "; add it with `rmqha context add`")
        raise ContextError(f"no context {name!r}{hint}")

    def with_context(self, name: str, context: Context) -> "Contexts":
        """Return these with one added or replaced; the first one becomes the current one. ContextError."""
        if not _NAME.fullmatch(name):
            raise ContextError(f"{name[:100]!r} can't be the name of a context: use at most 64 letters, digits, dots, "
                               "hyphens and underscores, and begin with a letter or a digit")
        context.check(name)
        return Contexts({**self.contexts, name: context}, self.current or name)

    def without(self, name: str) -> "Contexts":
        """Return these without one. ContextError for an unknown name."""
        self.get(name)
        left = {each: context for each, context in self.contexts.items() if each != name}
        return Contexts(left, None if self.current == name else self.current)

    def using(self, name: str | None) -> "Contexts":
        """Return these with another current one; None: without one. ContextError for an unknown name."""
        if name is not None:
            self.get(name)
        return replace(self, current=name)


def contexts_file() -> str:
    """Return the path of the contexts' file."""
    return os.environ.get(CONTEXTS_FILE_ENV) or str(filesystem.user_home() / "contexts.json")


def read_contexts(path: str | None = None) -> Contexts:
    """Return the contexts of a file, by default `contexts_file()`; none without that file.

    ContextError when it is not readable, malformed, or others may read the secrets in it.
    """
    file = path or contexts_file()
    try:
        fd = filesystem.open_regular(file)
    except FileNotFoundError:
        return Contexts()
    except OSError as error:
        raise ContextError(f"{file}: {error.strerror or error}") from None
    with open(fd, "rb") as stream:
        mode = os.fstat(stream.fileno()).st_mode
        data = stream.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise ContextError(f"{file}: more than {MAX_FILE_BYTES} bytes: is it a file of contexts?")
    contexts = _parsed(data, file)
    if mode & _READ_BY_OTHERS and any(each.secret_key or each.security_token for each in contexts.contexts.values()):
        raise ContextError(f"{file} contains secrets and has mode {stat.S_IMODE(mode):o}: other users may read or "
                           f"change it. Run `chmod 600 {shlex.quote(file)}`")
    return contexts


def _parsed(data: bytes, file: str) -> Contexts:
    try:
        value = parse_json(data, file)
    except JsonTextError as error:
        raise ContextError(str(error)) from None
    entries = value.get("contexts", {}) if isinstance(value, dict) else None
    current = value.get("current") if isinstance(value, dict) else None
    if not isinstance(entries, dict) or not isinstance(current, (str, type(None))):
        raise ContextError(f'{file}: must be {{"current": NAME, "contexts": {{NAME: {{...}}}}}}')
    contexts = {name: Context.from_json(name, entry, file) for name, entry in entries.items()}
    if current is not None and current not in contexts:
        raise ContextError(f"{file}: the current context {current[:100]!r} does not exist: choose one with `rmqha "
                           "context use`")
    return Contexts(contexts, current)


def write_contexts(contexts: Contexts, path: str | None = None) -> None:
    """Replace the file, with mode 600. ContextError when that fails."""
    file = path or contexts_file()
    import json  # `rmqha --help` works without it

    value = {"current": contexts.current,
             "contexts": {name: each.to_json() for name, each in sorted(contexts.contexts.items())}}
    try:
        mix_all.string2file_not_safe(json.dumps(value, indent=1) + "\n", file + ".tmp", mode=0o600)
        filesystem.replace_and_force(file + ".tmp", file)
    except OSError as error:
        raise ContextError(f"{file}: {error.strerror or error}") from None


@contextmanager
def changing_contexts(path: str | None = None) -> Iterator[None]:
    """Keep other processes that change the file waiting. ContextError when its folder can't be created."""
    folder = os.path.dirname(os.path.abspath(path or contexts_file()))
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise ContextError(f"{folder}: {error.strerror or error}") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def chosen_name(name: str | None = None) -> str | None:
    """Return `name`, else $RMQHA_CONTEXT, else None."""
    return name or os.environ.get(CONTEXT_ENV) or None


def chosen_context(name: str | None = None, address: str | None = None) -> Context | None:
    """Return the context of `chosen_name`; without a name the current one, if there is one and no `address`.

    ContextError.
    """
    name = chosen_name(name)
    if name is None and address:
        return None
    contexts = read_contexts()
    name = name or contexts.current
    return None if name is None else contexts.get(name)


def load_context(name: str | None = None) -> Context:
    """Return the context with this name, else that of $RMQHA_CONTEXT, else the current one. ContextError."""
    context = chosen_context(name)
    if context is None:
        raise ContextError("no context is current: choose one with `rmqha context use NAME` or in RMQHA_CONTEXT, or "
                           "add one with `rmqha context add NAME -n HOST:PORT`")
    return context


def client_from_context(create: Callable[..., T], group: str, name: str | None, settings: Mapping[str, Any]) -> T:
    """Return what `create`, the class of a client, makes of a context's arguments and `settings`. ContextError."""
    return create(group, **{**load_context(name).client_arguments(), **settings})


def _output_of(command: str) -> str:
    """Return the output of a command without its last line break. ContextError when it fails, with its last line."""
    import subprocess  # most contexts have no command

    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ContextError(f"secretKeyCommand {command!r}: {error}") from None
    if not words:
        raise ContextError("secretKeyCommand is empty")
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_LIMIT_S)
    except OSError as error:
        raise ContextError(f"secretKeyCommand {command!r}: {words[0]}: {error.strerror or error}") from None
    except subprocess.TimeoutExpired:
        raise ContextError(f"secretKeyCommand {command!r} did not end within {COMMAND_LIMIT_S:g} s") from None
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ContextError(f"secretKeyCommand {command!r} failed with exit code {done.returncode}"
                           + (f": {said[-1][:300]}" if said else ""))
    try:
        text = done.stdout[:_MAX_SECRET_BYTES + 1].decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise ContextError(f"secretKeyCommand {command!r} printed bytes that are not UTF-8") from None
    if not text or len(text) > _MAX_SECRET_BYTES or "\n" in text:
        raise ContextError(f"secretKeyCommand {command!r} must print the secret key, in one line")
    return text
