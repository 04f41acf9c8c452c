"""Shared parts of the commands of `rmqha pipeline`: options, the session, progress, output, and one-line errors.

Nothing here imports pyspark before a session is created.
"""
import json
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from rmqha.client.contexts import NAMED_CONTEXT, Context, ContextError, chosen_context
from rmqha.common import units
from rmqha.common.filesystem import how_to_install
from rmqha.pipeline import spark_start
from rmqha.pipeline.format_options import PipelineError
from rmqha.pipeline.worker import parse_moment, told_by_spark, told_by_task
from rmqha.store.consume_queue_layout import CQ_STORE_UNIT_SIZE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LEAST_MEMORY = 1 << 20
_VERBOSE = "rmqha.pipeline.verbose"
_CONTEXT = "rmqha.pipeline.context"

F = TypeVar("F", bound=Callable[..., Any])


class PipelineGroup(click.Group):
    """A group that reports an error in one line, with exit code 2: the question could not be answered."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except ImportError as error:
            if (error.name or "").partition(".")[0] == "rmqha":
                raise
            raise _CannotAnswerError(f"`{ctx.command_path} {ctx.invoked_subcommand}` needs the extra `spark` "
                                     f"({error}): {how_to_install('spark')}") from error
        except Exception as error:
            said = told(error)
            if said is None:
                raise
            if ctx.meta.get(_VERBOSE):
                traceback.print_exc()
            raise _CannotAnswerError(said) from error


class _CannotAnswerError(click.ClickException):
    exit_code = 2


def told(error: Exception) -> str | None:
    """Return an error in one line; None if it is neither ours nor Spark's."""
    if isinstance(error, PipelineError):
        return " ".join(str(error).split())
    cause: BaseException | None = error
    # To a JVM that has ended: the earlier error says more.
    while isinstance(cause, ConnectionError):
        cause = cause.__context__
    said = told_by_task(error)
    return told_by_spark(cause or error) if said is None else said


def size(_ctx: click.Context, option: click.Parameter, value: str | None) -> int | None:
    """Click callback for an option that is a size: return bytes."""
    try:
        return None if value is None else units.parse_size(value)
    except units.UnitError as error:
        raise click.BadParameter(str(error)) from error


def queue_file_size(ctx: click.Context, option: click.Parameter, value: str | None) -> int | None:
    """Click callback for the size of consume queue files: at least one unit."""
    amount = size(ctx, option, value)
    if amount is not None and amount < CQ_STORE_UNIT_SIZE:
        raise click.BadParameter(f"{value!r} is less than one unit, {CQ_STORE_UNIT_SIZE} bytes")
    return amount


def _memory(ctx: click.Context, option: click.Parameter, value: str) -> str:
    """Return a size in the syntax of a JVM option."""
    amount = size(ctx, option, value)
    if amount is None or amount < _LEAST_MEMORY:
        raise click.BadParameter(f"{value!r} is less than 1 MiB")
    return f"{amount >> 10}k"


def moment(_ctx: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """Click callback for an option that is a time: return ms."""
    try:
        return None if value is None else parse_moment(value)
    except PipelineError as error:
        raise click.BadParameter(str(error)) from error


def name_server_option(help_text: str, required: bool = False) -> Callable[[F], F]:
    """Return the option --name-server; by default it is that of the context, or $NAMESRV_ADDR."""
    def choose(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
        if ctx.get_parameter_source(str(param.name)) is not ParameterSource.COMMANDLINE:
            try:
                context = chosen_context(ctx.meta.get(NAMED_CONTEXT), value)
            except ContextError as error:
                raise _CannotAnswerError(str(error)) from None
            if context is not None:
                value, ctx.meta[_CONTEXT] = context.namesrv, context
        if required and not value:
            raise click.MissingParameter(ctx=ctx, param=param)
        return value

    return click.option("-n", "--namesrv", "--name-server", "name_server", envvar="NAMESRV_ADDR", callback=choose,
                        help=f"{help_text} By default that of the context, or $NAMESRV_ADDR.")


def with_context(client: dict[str, str]) -> dict[str, str]:
    """Return the options of the context that --name-server came from, and those of --set, which win.

    Called when a command connects: a context's secret key may come from a command that asks its user.
    """
    context: Context | None = click.get_current_context().meta.get(_CONTEXT)
    try:
        return client if context is None else {**options_of(context), **client}
    except ContextError as error:
        raise _CannotAnswerError(str(error)) from None


def options_of(context: Context) -> dict[str, str]:
    """Return the options `rocketmq.*` of a context: its account, namespace and TLS settings. ContextError."""
    key = context.fetched_secret_key() if context.access_key else None
    token = context.security_token.reveal() if context.security_token else None
    values = {"accessKey": context.access_key, "secretKey": key, "securityToken": token,
              "namespace": context.namespace}
    if context.tls:
        values |= {"tls.enable": "true", "tls.test.mode.enable": "false", "tls.client.keyPath": context.tls_key,
                   "tls.client.certPath": context.tls_cert, "tls.client.trustCertPath": context.tls_ca,
                   "tls.client.authServer": "true" if context.tls_ca else "false"}
    return {f"rocketmq.{name}": value for name, value in values.items() if value is not None}


def client_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Add --set, passed as `client`: options `rocketmq.*` for commands that connect to a cluster."""
    def parse(_ctx: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
        pairs = [value.partition("=") for value in values]
        for name, equals, _ in pairs:
            if not equals or not name.startswith("rocketmq."):
                raise click.BadParameter(f"{name!r} is not a valid rocketmq.NAME=VALUE, e.g. rocketmq.keyFile=/etc/key")
        return {name: value for name, _, value in pairs}

    return click.option("--set", "client", multiple=True, metavar="rocketmq.NAME=VALUE", callback=parse,
                        help="A key, TLS or namespace setting: an option of the format rocketmq; repeatable.")(command)


MOMENTS = units.TIMES


def _note_verbose(ctx: click.Context, _option: click.Parameter, value: bool) -> None:
    ctx.meta[_VERBOSE] = value


def job_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add --master, --memory, -o, and -v; `session` reads the last one itself."""
    command = click.option("-v", "--verbose", is_flag=True, expose_value=False, callback=_note_verbose,
                           help="Show Spark's log, and the traceback of an error.")(command)
    command = click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table",
                           show_default=True, help="Output format.")(command)
    command = click.option("--memory", callback=_memory, default="2g", show_default=True, metavar="SIZE",
                           help=f"Memory of Spark's driver: {units.SIZES}.")(command)
    return click.option("--master", default="local[*]", show_default=True,
                        help="Spark's master. On a cluster every machine must see the files.")(command)


@contextmanager
def session(master: str, memory: str) -> Iterator["SparkSession"]:
    """Provide a session for one job. Without -v, none of Spark's output reaches the terminal."""
    from rmqha.pipeline.session import spark_session
    context = click.get_current_context(silent=True)
    verbose = context is not None and bool(context.meta.get(_VERBOSE))
    config = {"spark.driver.memory": memory, "spark.ui.enabled": "false"}
    spark = spark_start.start(master, lambda: spark_session(master, "rmqha pipeline", **config), verbose)
    try:
        if not verbose and hasattr(spark, "sparkContext"):
            spark.sparkContext.setLogLevel("OFF")
        spark_start.note_missing_executors(spark, master, lambda note: click.echo(note, err=True))
        yield spark
    finally:
        spark.stop()


@contextmanager
def progress(label: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on standard error if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return

    def come_to(done: int, total: int) -> None:
        filled = 30 * done // max(total, 1)
        click.echo(f"\r{label}  [{'#' * filled}{'-' * (30 - filled)}]  {done}/{total}", nl=done == total, err=True)
    yield come_to


def put(result: Any, output: str, lines: list[str]) -> None:
    """Print a result as JSON or YAML, or the given lines."""
    if output != "table":
        plain = [asdict(each) for each in result] if isinstance(result, list) else asdict(result)
        assert is_dataclass(result) or isinstance(result, list)
        lines = [json.dumps(plain, ensure_ascii=False)] if output == "json" else [
            # JSON is also valid YAML.
            "---", json.dumps(plain, ensure_ascii=False, indent=2)]
    for line in lines:
        click.echo(line.encode("utf-8", "replace").decode())
