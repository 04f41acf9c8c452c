"""Which cluster a command works on, and as whom: the option -n, the context, the account and TLS.

    -n HOST:PORT   >   --context or $RMQHA_CONTEXT   >   $NAMESRV_ADDR   >   the current context

With a context the requests are signed with its account, and use its TLS settings. Otherwise they are signed with the
account in conf/tools.yml, like mqadmin's, if that file exists, and the TLS settings are the system properties.

Also the question for a secret, which needs a terminal.
"""
import os
import sys
from functools import partial
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from rmqha.common.program import NAMESRV_ADDR_ENV
from rmqha.tools.terminal import CannotAnswerError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from rmqha.client.client_config import ClientConfig
    from rmqha.client.contexts import Context
    from rmqha.common.texts import Secret
    from rmqha.remoting.interfaces import RPCHook
    from rmqha.remoting.tls_system_config import TlsSystemConfig
    from rmqha.tools.admin.cluster_admin import ClusterAdmin

# Keys of click.Context.meta, which all contexts of one command line share.
_NAMED, _CHOSEN, _ACCOUNT = "rmqha.context.named", "rmqha.context.chosen", "rmqha.account"  # the first: NAMED_CONTEXT


class Account:
    """The hook that signs requests (None: they are unsigned), and the TLS settings (None: the system properties)."""

    __slots__ = ("rpc_hook", "tls")

    def __init__(self, rpc_hook: "RPCHook | None" = None, tls: "TlsSystemConfig | None" = None) -> None:
        self.rpc_hook = rpc_hook
        self.tls = tls


NO_ACCOUNT = Account()


def name_context(ctx: click.Context, _param: click.Parameter, name: str | None) -> None:
    """The callback of the root option --context."""
    if name:
        ctx.meta[_NAMED] = name


def complete_context(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Complete the name of a context."""
    from click.shell_completion import CompletionItem

    from rmqha.client.contexts import ContextError, read_contexts

    try:
        contexts = read_contexts().contexts
    except ContextError:
        return []  # a shell shows no error while it completes
    return [CompletionItem(name, help=contexts[name].namesrv) for name in sorted(contexts)
            if name.startswith(incomplete)]


def chosen_namesrv(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """The callback of -n: return the name servers to use, and remember the context that they come from."""
    if ctx.get_parameter_source(str(param.name)) is ParameterSource.COMMANDLINE:
        if ctx.meta.get(_NAMED):
            raise click.UsageError("give --context or -n, not both")
        return value
    from rmqha.client.contexts import ContextError, chosen_context  # `rmqha --help` works without it

    try:
        context = chosen_context(ctx.meta.get(_NAMED), value)
    except ContextError as error:
        raise CannotAnswerError(str(error)) from None
    if context is None:
        return value
    ctx.meta[_CHOSEN] = context
    return context.namesrv


namesrv_option = click.option(
    "-n", "--namesrv", envvar=NAMESRV_ADDR_ENV, metavar="HOST:PORT", callback=chosen_namesrv,
    help="Name servers, separated by semicolons; by default those of the context, or $NAMESRV_ADDR.")


def needed_namesrv(namesrv: str | None) -> str:
    """Return the name servers; CannotAnswerError without any."""
    if not namesrv:
        raise CannotAnswerError("no name server: give it with -n host:port, in NAMESRV_ADDR, or as a context (`rmqha "
                                "context add`)")
    return namesrv


def account() -> Account:
    """Return the account of this command: its context's, else that of conf/tools.yml. CannotAnswerError."""
    ctx = click.get_current_context(silent=True)
    from rmqha.tools.admin.default_mq_admin_ext import tools_account  # imports the client

    if ctx is None:
        return Account(tools_account())
    if _ACCOUNT not in ctx.meta:
        context: Context | None = ctx.meta.get(_CHOSEN)
        ctx.meta[_ACCOUNT] = Account(tools_account()) if context is None else _account_of(context)
    found: Account = ctx.meta[_ACCOUNT]
    return found


def _account_of(context: "Context") -> Account:
    from rmqha.client.contexts import ContextError

    try:
        return Account(context.rpc_hook(), context.tls_config())
    except ContextError as error:
        raise CannotAnswerError(str(error)) from None


def unused_account_note(ctx: click.Context | None) -> str:
    """Return what to add to a refusal of an unsigned request: that a current context with an account is not used."""
    if ctx is None or ctx.meta.get(_CHOSEN) is not None:
        return ""
    from rmqha.client.contexts import ContextError, read_contexts

    try:
        contexts = read_contexts()
    except ContextError:
        return ""
    if contexts.current is None or not contexts.get(contexts.current).access_key:
        return ""
    return ("; a current context is not used while -n or NAMESRV_ADDR is given: use --context "
            f"{contexts.current} instead")


def can_ask() -> bool:
    """Return whether a terminal is there on which a secret can be typed."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return sys.stdin.isatty()
    return True


def asked_secret(text: str, instead: str, confirm: bool = False) -> "Secret":
    """Ask for a secret. CannotAnswerError without a terminal; `instead`: the options that give it."""
    from rmqha.common.texts import Secret

    if not can_ask():
        raise CannotAnswerError(f"no terminal to ask for the secret key on: give {instead}")
    return Secret(click.prompt(text, hide_input=True, confirmation_prompt=confirm, err=True))


def set_tls(client: "ClientConfig") -> None:
    """Make a producer or a consumer that is not started yet use the TLS settings of this command."""
    tls = account().tls
    if tls is not None:
        client.use_tls, client.tls = True, tls


def connected(namesrv: str | None, timeout_s: float) -> "ClusterAdmin":
    """Return an admin client with the account of this command, not started yet; a context manager."""
    from rmqha.tools.admin.cluster_admin import ClusterAdmin

    who = account()
    admin = ClusterAdmin(namesrv, timeout_s * 1000, who.rpc_hook, who.tls)
    admin.unsigned_note = partial(unused_account_note, click.get_current_context(silent=True))
    return admin
