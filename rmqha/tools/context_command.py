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
from rmqha.common.program import examples
from rmqha.common.texts import HIDDEN, Secret
from rmqha.tools.admin.cluster_admin import parsed_address
from rmqha.tools.connection import complete_context
from rmqha.tools.terminal import CannotAnswerError, cell, emit, output_option, put, put_facts, render_table


@click.group("context")
def context_group() -> None:
    """Name clusters with their addresses and accounts, and choose one.

    A context has the name servers of a cluster and, if needed, the account and the TLS settings. Commands, `top`,
    `console` and the Python client use the current context. `--context NAME` before the command, or $RMQHA_CONTEXT,
    chooses another one; -n beats both. $NAMESRV_ADDR beats the current context only.
    """


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except ContextError as error:
        raise CannotAnswerError(str(error)) from None


@context_group.command("add", short_help="Add or replace a context.", epilog=examples(
    "rmqha context add test -n 127.0.0.1:9876",
    "rmqha context add prod -n 'a:9876;b:9876' --access-key ops --tls-ca ca.pem",
    "rmqha context add prod -n a:9876 --access-key ops --secret-key-env MQ_KEY"))
@click.argument("name")
@click.option("-n", "--namesrv", required=True, metavar="HOST:PORT", help="Name servers, separated by semicolons.")
@click.option("--access-key", metavar="KEY", help="The account; asks for its secret key, unless an option gives it.")
@click.option("--secret-key-env", metavar="VARIABLE", help="The environment variable that holds the secret key.")
@click.option("--secret-key-command", metavar="COMMAND", help="A command that prints the secret key.")
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
    """Add or replace a context; the first one becomes the current one.

    Without --secret-key-env and --secret-key-command, the secret key is asked for and stored in the contexts' file,
    which has mode 600. The cluster is not contacted.
    """
    for address in filter(None, (part.strip() for part in namesrv.split(";"))):
        parsed_address(address, "--namesrv")
    secret = None
    if access_key and not (secret_key_env or secret_key_command):
        secret = Secret(click.prompt(f"Secret key of {access_key}", hide_input=True, err=True))
    context = Context(namesrv, access_key, secret, secret_key_env, secret_key_command, None, namespace,
                      tls or bool(tls_ca or tls_cert or tls_key), *map(_absolute, (tls_ca, tls_cert, tls_key)))
    with _told(), changing_contexts():
        contexts = read_contexts().with_context(name, context)
        write_contexts(contexts.using(name) if use else contexts)
    put(f"context {name}: {namesrv}" + (", current" if use or contexts.current == name else ""))


def _absolute(path: str | None) -> str | None:
    return None if path is None else os.path.abspath(path)


@context_group.command("use", short_help="Choose the current context.", epilog=examples(
    "rmqha context use prod", "rmqha context use --none"))
@click.argument("name", required=False, shell_complete=complete_context)
@click.option("--none", "no_context", is_flag=True, help="Have no current context.")
def use_command(name: str | None, no_context: bool) -> None:
    """Choose the current context, for all shells of this user."""
    if (name is None) == (not no_context):
        raise click.UsageError("give a context or --none")
    with _told(), changing_contexts():
        write_contexts(read_contexts().using(name))
    put("no current context" if name is None else f"current context: {name}")
    beaten = os.environ.get(CONTEXT_ENV)
    if beaten and beaten != name:
        put(f"note: in this shell {CONTEXT_ENV}={beaten} beats it", err=True)


@context_group.command("list", short_help="List the contexts.", epilog=examples("rmqha context list"))
@output_option
def list_command(output: str) -> None:
    """List the contexts; `*` marks the one in use. Secrets are not shown."""
    with _told():
        contexts = read_contexts()
        in_use = _in_use(contexts)
    rows = [{"name": name, "in_use": name == in_use, **_shown(contexts.contexts[name])}
            for name in sorted(contexts.contexts)]
    if output != "table":
        emit(rows, output)
        return
    put(render_table(["", "name", "name servers", "account", "secret key", "tls"], [
        ["*" if row["in_use"] else "", row["name"], cell(row["namesrv"]), cell(row.get("accessKey", "")),
         cell(_source(contexts.contexts[row["name"]])), "yes" if row.get("tls") else ""] for row in rows], set()))


@context_group.command("show", short_help="Show a context.", epilog=examples("rmqha context show prod"))
@click.argument("name", required=False, shell_complete=complete_context)
@output_option
def show_command(name: str | None, output: str) -> None:
    """Show a context, by default the one in use. Secrets are not shown."""
    with _told():
        contexts = read_contexts()
        name = name or _in_use(contexts)
        if name is None:
            raise CannotAnswerError("no context is current: choose one with `rmqha context use NAME`")
        value = {"name": name, **_shown(contexts.get(name))}
    if output != "table":
        emit(value, output)
        return
    put_facts({key: cell(str(said)) for key, said in value.items()})


@context_group.command("remove", short_help="Remove a context.", epilog=examples("rmqha context remove test"))
@click.argument("name", shell_complete=complete_context)
def remove_command(name: str) -> None:
    """Remove a context."""
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


def _in_use(contexts: Contexts) -> str | None:
    """Return the name of the context that commands use: of --context, $RMQHA_CONTEXT, or the current one."""
    named = chosen_name(click.get_current_context().meta.get(NAMED_CONTEXT))
    if named is not None:
        contexts.get(named)
    return named or contexts.current


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
