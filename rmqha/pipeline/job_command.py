"""What the commands of `rmqha pipeline` have in common: options, the session, progress, output, and errors in one line.

Nothing here imports pyspark before a session is made.
"""
import json
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any

import click

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


class PipelineGroup(click.Group):
    """Says in one line what is wrong, with exit code 2: the question could not be answered."""

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
    """An error in one line; None for one that is neither ours nor Spark's."""
    if isinstance(error, PipelineError):
        return " ".join(str(error).split())
    cause: BaseException | None = error
    while isinstance(cause, ConnectionError):  # to a JVM that is gone: what came before tells more
        cause = cause.__context__
    said = told_by_task(error)
    return told_by_spark(cause or error) if said is None else said


def size(_ctx: click.Context, option: click.Parameter, value: str | None) -> int | None:
    """The callback of an option that is a size: bytes."""
    try:
        return None if value is None else units.parse_size(value)
    except units.UnitError as error:
        raise click.BadParameter(str(error)) from error


def queue_file_size(ctx: click.Context, option: click.Parameter, value: str | None) -> int | None:
    """The callback of the size of consume queue files: a unit at least."""
    amount = size(ctx, option, value)
    if amount is not None and amount < CQ_STORE_UNIT_SIZE:
        raise click.BadParameter(f"{value!r} is less than one unit, {CQ_STORE_UNIT_SIZE} bytes")
    return amount


def _memory(ctx: click.Context, option: click.Parameter, value: str) -> str:
    """As a JVM takes it."""
    amount = size(ctx, option, value)
    if amount is None or amount < _LEAST_MEMORY:
        raise click.BadParameter(f"{value!r} is less than 1 MiB")
    return f"{amount >> 10}k"


def moment(_ctx: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """The callback of an option that is a time: ms."""
    try:
        return None if value is None else parse_moment(value)
    except PipelineError as error:
        raise click.BadParameter(str(error)) from error


def client_settings(command: Callable[..., None]) -> Callable[..., None]:
    """--set, the argument `client`: options `rocketmq.*` for commands that ask a cluster."""
    def parse(_ctx: click.Context, _option: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
        pairs = [value.partition("=") for value in values]
        for name, equals, _ in pairs:
            if not equals or not name.startswith("rocketmq."):
                raise click.BadParameter(f"{name!r} is no rocketmq.NAME=VALUE, such as rocketmq.keyFile=/etc/key")
        return {name: value for name, _, value in pairs}

    return click.option("--set", "client", multiple=True, metavar="rocketmq.NAME=VALUE", callback=parse,
                        help="Keys, TLS, namespace: an option of the format rocketmq; once for each.")(command)


MOMENTS = units.TIMES


def _note_verbose(ctx: click.Context, _option: click.Parameter, value: bool) -> None:
    ctx.meta[_VERBOSE] = value


def job_options(command: Callable[..., None]) -> Callable[..., None]:
    """--master, --memory, -o, and -v, which `session` asks for by itself."""
    command = click.option("-v", "--verbose", is_flag=True, expose_value=False, callback=_note_verbose,
                           help="Show what Spark logs, and where an error comes from.")(command)
    command = click.option("-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table",
                           show_default=True, help="How to print.")(command)
    command = click.option("--memory", callback=_memory, default="2g", show_default=True, metavar="SIZE",
                           help=f"Of Spark's driver: {units.SIZES}.")(command)
    return click.option("--master", default="local[*]", show_default=True,
                        help="Spark's master; on a cluster the files must be there on every machine.")(command)


@contextmanager
def session(master: str, memory: str) -> Iterator["SparkSession"]:
    """A session for one job. Without -v nothing of what Spark says reaches the terminal."""
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
    """A bar on standard error when that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return

    def come_to(done: int, total: int) -> None:
        filled = 30 * done // max(total, 1)
        click.echo(f"\r{label}  [{'#' * filled}{'-' * (30 - filled)}]  {done}/{total}", nl=done == total, err=True)
    yield come_to


def put(result: Any, output: str, lines: list[str]) -> None:
    """Print a result: as JSON, or the lines."""
    if output != "table":
        plain = [asdict(each) for each in result] if isinstance(result, list) else asdict(result)
        assert is_dataclass(result) or isinstance(result, list)
        lines = [json.dumps(plain, ensure_ascii=False)] if output == "json" else [
            "---", json.dumps(plain, ensure_ascii=False, indent=2)]  # JSON is YAML too
    for line in lines:
        click.echo(line.encode("utf-8", "replace").decode())
