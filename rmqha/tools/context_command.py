"""`rmqha context`: name clusters, with their addresses and accounts, and choose the current one."""
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from rmqha.client.contexts import (
    CONTEXT_ENV,
    NAMED_CONTEXT,
    Context,
    ContextError,
    Contexts,
    changing_contexts,
    chosen_name,
    contexts_file,
    read_contexts,
    write_contexts,
)
from rmqha.common.program import NAMESRV_ADDR_ENV, examples
from rmqha.common.texts import HIDDEN, Secret
from rmqha.tools.admin.cluster_admin import parsed_address
from rmqha.tools.connection import asked_secret, complete_context
from rmqha.tools.terminal import AliasGroup, CannotAnswerError, cell, emit, output_option, put, put_facts, render_table


@click.group("context", cls=AliasGroup)
def context_group() -> None:
    """Name clusters with their addresses and accounts, and choose one.

    A context has the name servers of a cluster and, if needed, the account and the TLS settings. The first of these
    that is given decides where commands, `top` and `console` connect to:

    \b
    1. -n on the command line: no context, so neither its account nor its TLS
       settings are used; -n together with --context is an error
    2. --context NAME
    3. $RMQHA_CONTEXT, the name of a context
    4. $NAMESRV_ADDR, also without a context's account
    5. the current context

    The Python client's `from_context` uses a context, too; mqadmin does not. Exit code 2 for a context that does not
    exist.
    """


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except ContextError as error:
        raise CannotAnswerError(str(error)) from None


@context_group.command("add", short_help="Add or replace a context.", epilog=examples(
    "rmqha context add test -n 127.0.0.1:9876",
    "rmqha context add prod -n 'a:1;b:1' --access-key ops-admin --tls-ca ca.pem",
    "rmqha context add prod -n a:1 --access-key ops-admin --secret-key-env KEY"))
@click.argument("name")
@click.option("-n", "--namesrv", required=True, metavar="HOST:PORT", help="Name servers, separated by semicolons.")
@click.option("--access-key", metavar="KEY", help="The account, of more than 6 characters; asks for its secret key, "
              "unless an option gives it.")
@click.option("--secret-key-env", metavar="VARIABLE", help="The environment variable that holds the secret key.")
@click.option("--secret-key-command", metavar="COMMAND", help="A command that prints the secret key; run without a "
              "shell, when a command of rmqha needs the key.")
@click.option("--namespace", help="The namespace of producers and consumers in Python.")
@click.option("--tls", is_flag=True, help="Connect with TLS.")
@click.option("--tls-ca", metavar="FILE", type=click.Path(dir_okay=False, exists=True),
              help="PEM file of the trusted authorities; without it the server's certificate is not checked.")
@click.option("--tls-cert", metavar="FILE", type=click.Path(dir_okay=False, exists=True),
              help="PEM file of the client's certificate.")
@click.option("--tls-key", metavar="FILE", type=click.Path(dir_okay=False, exists=True),
              help="PEM file of the client's key, not encrypted.")
@click.option("--use", is_flag=True, help="Make it the current context.")
def add_command(name: str, namesrv: str, access_key: str | None, secret_key_env: str | None,
                secret_key_command: str | None, namespace: str | None, tls: bool, tls_ca: str | None,
                tls_cert: str | None, tls_key: str | None, use: bool) -> None:
    """Add a context, or replace the one of this name with all its settings.

    It becomes the current one with --use, or if no other is current. Otherwise the current one stays.

    Without --secret-key-env and --secret-key-command, the secret key is asked for and stored in the contexts' file,
    which has mode 600. It needs more than 6 characters. The cluster is not contacted.
    """
    for address in filter(None, (part.strip() for part in namesrv.split(";"))):
        parsed_address(address, "--namesrv")
    secret = None
    if access_key:
        secret = _checked_secret(access_key, secret_key_env, secret_key_command)
    context = Context(namesrv, access_key, secret, secret_key_env, secret_key_command, None, namespace,
                      tls or bool(tls_ca or tls_cert or tls_key), *map(_absolute, (tls_ca, tls_cert, tls_key)))
    with _told(), changing_contexts():
        contexts = read_contexts().with_context(name, context)
        write_contexts(contexts.using(name) if use else contexts)
    put(f"context {name}: {namesrv}" + (", current" if use or contexts.current == name else ""))


def _checked_secret(access_key: str, secret_key_env: str | None, secret_key_command: str | None) -> Secret | None:
    """Return the secret key to store, None if it is elsewhere. CannotAnswerError if brokers refuse key or secret."""
    from rmqha.tools.manage.accounts import check_key_and_secret  # the other commands work without it

    check_key_and_secret(access_key, None)
    if secret_key_env or secret_key_command:
        return None
    secret = asked_secret(f"Secret key of {access_key}", "--secret-key-env or --secret-key-command")
    check_key_and_secret(access_key, secret)
    return secret


def _absolute(path: str | None) -> str | None:
    return None if path is None else os.path.abspath(path)


@context_group.command("use", short_help="Choose the current context.", epilog=examples(
    "rmqha context use prod", "rmqha context use --none"))
@click.argument("name", required=False, shell_complete=complete_context)
@click.option("--none", "no_context", is_flag=True, help="Have no current context.")
def use_command(name: str | None, no_context: bool) -> None:
    """Choose the current context, for all shells of this user. Exit code 2 for an unknown one."""
    if (name is None) == (not no_context):
        raise click.UsageError("give a context or --none")
    with _told(), changing_contexts():
        contexts = read_contexts().using(name)
        write_contexts(contexts)
    put("no current context" if name is None else f"current context: {name}")
    beaten = os.environ.get(CONTEXT_ENV)
    if beaten and beaten != name:
        put(f"note: in this shell {CONTEXT_ENV}={beaten} beats it", err=True)
    _put_beaten(contexts)


@context_group.command("list", short_help="List the contexts.", epilog=examples("rmqha context list"))
@output_option
def list_command(output: str) -> None:
    """List the contexts; `*` marks the current one, or that of --context or $RMQHA_CONTEXT. Secrets are not shown."""
    with _told():
        contexts = read_contexts()
        marked = _marked(contexts)
    is_used = not _put_beaten(contexts)
    rows = [{"name": name, "current": name == marked, "in_use": name == marked and is_used,
             **_shown(contexts.contexts[name])} for name in sorted(contexts.contexts)]
    if output != "table":
        emit(rows, output)
        return
    put(render_table(["", "name", "name servers", "account", "secret key", "tls"], [
        ["*" if row["current"] else "", row["name"], cell(row["namesrv"]), cell(row.get("accessKey", "")),
         cell(_source(contexts.contexts[row["name"]])), "yes" if row.get("tls") else ""] for row in rows], set()))


@context_group.command("show", short_help="Show a context.", epilog=examples("rmqha context show prod"))
@click.argument("name", required=False, shell_complete=complete_context)
@output_option
def show_command(name: str | None, output: str) -> None:
    """Show a context, by default the current one, or that of --context or $RMQHA_CONTEXT. Secrets are not shown.

    Exit code 2 for an unknown one.
    """
    with _told():
        contexts = read_contexts()
        chosen = name or _marked(contexts)
        if chosen is None:
            raise CannotAnswerError("no context is current: choose one with `rmqha context use NAME`")
        value = {"name": chosen, **_shown(contexts.get(chosen))}
    if name is None:
        _put_beaten(contexts)
    if output != "table":
        emit(value, output)
        return
    put_facts({key: cell(str(said)) for key, said in value.items()})


@context_group.command("remove", short_help="Remove a context.", epilog=examples("rmqha context remove test"))
@click.argument("name", shell_complete=complete_context)
def remove_command(name: str) -> None:
    """Remove a context. Exit code 2 for an unknown one."""
    with _told(), changing_contexts():
        contexts = read_contexts()
        left = contexts.without(name)
        write_contexts(left)
    put(f"removed context {name}" + ("; no context is current now" if contexts.current == name else ""))


@context_group.command("path", short_help="Print the path of the contexts' file.", epilog=examples(
    "rmqha context path"))
def path_command() -> None:
    """Print the path of the contexts' file."""
    put(contexts_file())


def _named() -> str | None:
    return chosen_name(click.get_current_context().meta.get(NAMED_CONTEXT))


def _marked(contexts: Contexts) -> str | None:
    """Return the name of --context or $RMQHA_CONTEXT, else that of the current context."""
    named = _named()
    if named is not None:
        contexts.get(named)
    return named or contexts.current


def _put_beaten(contexts: Contexts) -> bool:
    """Return whether NAMESRV_ADDR is used instead of the current context, with a note to standard error."""
    if contexts.current is None or _named() is not None or not os.environ.get(NAMESRV_ADDR_ENV):
        return False
    put(f"note: {NAMESRV_ADDR_ENV} is set, so the current context is not used", err=True)
    return True


def _shown(context: Context) -> dict[str, Any]:
    """Return the entry of a context with its secrets hidden."""
    hidden = {"secretKey", "securityToken"}
    return {key: HIDDEN if key in hidden else value for key, value in context.to_json().items()}


def _source(context: Context) -> str:
    if context.secret_key_env:
        return f"${context.secret_key_env}"
    if context.secret_key_command:
        return f"from `{context.secret_key_command}`"
    return "in the file" if context.secret_key else ""
