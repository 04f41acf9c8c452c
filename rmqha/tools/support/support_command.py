"""The command `rmqha support bundle`."""
import os
import platform
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import IO, Any

import click
from click.core import ParameterSource

from rmqha import __version__
from rmqha.client.contexts import NAMED_CONTEXT, contexts_file
from rmqha.common import filesystem, logs
from rmqha.common.configuration import SECRET_KEYS, ConfigError, read_config_file
from rmqha.common.java import get_property
from rmqha.common.program import NAMESRV_ADDR_ENV, examples
from rmqha.common.units import size_text
from rmqha.remoting.tls_system_config import DEFAULT_CONFIG_FILE, TLS_CONFIG_FILE, TlsSystemConfig
from rmqha.store.message_store_config import MULTI_PATH_SPLITTER, MessageStoreConfig
from rmqha.tools.config.config_command import known_keys
from rmqha.tools.connection import namesrv_option
from rmqha.tools.local_cluster import layout as cluster_folder
from rmqha.tools.local_cluster import processes
from rmqha.tools.local_cluster.cluster_command import folder_options
from rmqha.tools.local_cluster.layout import DIR_ENV, Layout
from rmqha.tools.replication.ask import in_parallel
from rmqha.tools.support import cluster, files, host
from rmqha.tools.support.bundle import Bundle, Found, Missing, TarGz, Zip
from rmqha.tools.support.redaction import Redactor, is_access_key, is_secret_key
from rmqha.tools.terminal import CannotAnswerError, cell, counted, duration_type, put, size_type

_MIB = 1 << 20
_LEAST_SIZE = 64 << 10
_LEAST_SECTION_S = 30.0
_SECTION_TIMEOUTS = 10
STDOUT = "-"


@dataclass
class Wanted:
    """The places and servers to collect from, and limits."""

    namesrv: str | None
    # What makes another command of rmqha use the same cluster and account: words before, and after its name.
    words_before: list[str]
    words_after: list[str]
    config_files: list[str]
    stores: list[str]
    # Folder -> its name in the bundle.
    log_dirs: dict[str, str]
    layout: Layout | None
    log_size: int
    timeout_s: float
    account_files: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Section:
    """A part of the bundle; `collect` may hang on a dead disk or network, so its time is limited."""

    what: str
    collect: Callable[[], Sequence[Found]]
    # Counts when nothing was found at all: the facts of this host alone are not a result.
    was_asked: bool = True


def collected(section: Section, timeout_s: float) -> Sequence[Found]:
    """Return what a section found, or why it failed."""
    limit_s = max(_SECTION_TIMEOUTS * timeout_s, _LEAST_SECTION_S) + _LEAST_SECTION_S

    def run(_what: str) -> Sequence[Found]:
        try:
            return section.collect()
        except click.ClickException as error:
            return [Missing(section.what, error.message)]
        except OSError as error:
            return [Missing(section.what, error.strerror or str(error))]
        except Exception as error:  # one section must not cost the others
            return [Missing(section.what, f"{type(error).__name__}: {error}")]
    answers = in_parallel(run, [section.what], limit_s * 1000,
                          lambda what: [Missing(what, f"it took longer than {limit_s:g} s")])
    return answers[section.what]


# ---- what there is


def account_files(homes: Sequence[Path]) -> list[str]:
    """Return the files of accounts and of TLS settings that servers and tools with these homes read."""
    found = [str(path) for home in homes for path in (home / "conf" / "plain_acl.yml", home / "conf" / "tools.yml",
                                                      *sorted((home / "conf" / "acl").glob("*.y*ml")))]
    found.append(get_property(TLS_CONFIG_FILE, DEFAULT_CONFIG_FILE))
    return [path for path in dict.fromkeys(found) if os.path.lexists(path)]


def stores_of(file: str) -> tuple[str, list[str]] | None:
    """Return the store of a broker's config file: its root and its commit log folders; None for other files."""
    try:
        properties = read_config_file(file)
    except ConfigError:  # the item for the file says so
        return None
    if "storePathRootDir" not in properties and "brokerName" not in properties:
        return None
    config = MessageStoreConfig()
    root = properties.get("storePathRootDir", config.storePathRootDir).strip()
    given = properties.get("storePathCommitLog", "").strip() or os.path.join(root, "commitlog")
    return root, [path.strip() for path in given.split(MULTI_PATH_SPLITTER)]


def namesrv_of(config_files: Sequence[str]) -> str | None:
    """Return the name servers of the first config file that names some."""
    for file in config_files:
        try:
            given = read_config_file(file).get("namesrvAddr", "").strip()
        except ConfigError:
            continue
        if given:
            return given
    return None


def new_redactor(wanted: Wanted) -> Redactor:
    """Return a redactor that knows the secrets of all files and of the environment."""
    redactor = Redactor()
    for name, value in [*os.environ.items(), *((key, get_property(key, "")) for key in SECRET_KEYS)]:
        if is_access_key(name):
            redactor.add_access_key(value)
        elif is_secret_key(name):
            redactor.add_secret(value)
    files.harvest([*wanted.account_files, *wanted.config_files, contexts_file()], redactor)
    return redactor


def _known() -> frozenset[str]:
    return frozenset(known_keys() | {item.metadata["property"] for item in fields(TlsSystemConfig)})


# ---- the sections


def sections(wanted: Wanted, redactor: Redactor) -> Iterator[Section]:
    """Yield the sections, the most useful first: the size of the bundle is limited."""
    timeout_s = wanted.timeout_s
    yield Section("versions", host.versions, was_asked=False)
    yield from _config_sections(wanted, redactor)
    stores = _stores(wanted)
    places = [*stores, *wanted.log_dirs, *wanted.config_files, os.getcwd()]
    yield Section("facts of this host", partial(host.host_facts, timeout_s, places), was_asked=False)
    yield Section("rmqha's commands", partial(cluster.run_commands, _commands(wanted), timeout_s), was_asked=False)
    if wanted.namesrv:
        yield from _cluster_sections(wanted)
    for number, (root, commit_logs) in enumerate(stores.items()):
        yield Section(f"store {root}", partial(files.store_items, root, commit_logs, f"stores/{number}"))
    yield from _process_sections(wanted)
    yield from _log_sections(wanted)


def _config_sections(wanted: Wanted, redactor: Redactor) -> Iterator[Section]:
    known = _known()
    for path in dict.fromkeys([*wanted.config_files, *wanted.account_files]):
        name = f"config/{os.path.basename(path)}"
        yield Section(path, partial(files.config_item, path, name, known, redactor), path in wanted.config_files)


def _stores(wanted: Wanted) -> dict[str, list[str]]:
    found = {root: [os.path.join(root, "commitlog")] for root in wanted.stores}
    for file in wanted.config_files:
        store = stores_of(file)
        if store is not None:
            found.setdefault(*store)
    return found


def _commands(wanted: Wanted) -> dict[str, list[str]]:
    """Return the commands of rmqha whose output helps, by the name of the item."""
    timeout = ["--timeout", f"{wanted.timeout_s:g}s"]
    configs = [word for file in wanted.config_files if stores_of(file) is not None for word in ("-c", file)]
    before, after = wanted.words_before, [*wanted.words_after, *timeout, "-o", "json"]
    found: dict[str, list[str]] = {}
    if configs or wanted.namesrv:
        found["doctor"] = [*before, "doctor", *configs, "-v", *after]
    if wanted.namesrv:
        found["ha-status"] = [*before, "ha", "status", *after]
        found["top"] = [*before, "top", "--once", "-i", "1", *after]
    if wanted.layout is not None:
        found["ps"] = ["ps", "--dir", str(wanted.layout.namesrv.folder), "-o", "json"]
    return found


def _cluster_sections(wanted: Wanted) -> Iterator[Section]:
    answers: dict[Any, Any] = {}

    def ask() -> list[Found]:
        brokers, missing = cluster.brokers_of(str(wanted.namesrv), wanted.timeout_s)
        answers.update(cluster.ask_brokers(brokers, wanted.timeout_s) if brokers else {})
        return [*cluster.broker_items(answers), *missing]
    yield Section("brokers", ask)
    yield Section("controllers", lambda: cluster.controller_items(answers, wanted.timeout_s))
    yield Section("metrics", lambda: cluster.metrics_items(
        {**_local_metrics(wanted), **cluster.pages_of(answers)}, wanted.timeout_s))


def _local_metrics(wanted: Wanted) -> dict[str, str]:
    nodes = wanted.layout.nodes if wanted.layout is not None else ()
    return {node.name: f"{cluster_folder.HOST}:{node.metrics_port}" for node in nodes
            if node.metrics_port and not node.is_broker}


def _process_sections(wanted: Wanted) -> Iterator[Section]:
    nodes = wanted.layout.nodes if wanted.layout is not None else ()
    pids = {process.pid for node in nodes if (process := processes.find(node)) is not None}
    for process in host.server_processes(pids):
        yield Section(f"process {process.pid}", partial(host.process_items, process, wanted.timeout_s),
                      process.pid in pids)


def _log_sections(wanted: Wanted) -> Iterator[Section]:
    for folder, label in wanted.log_dirs.items():
        listed: list[files.LogFile] = []
        yield Section(f"log folder {folder}", partial(_list_logs, folder, label, listed))
        for log in listed:
            yield Section(log.path, partial(files.end_of_log, log, wanted.log_size))
    for node in wanted.layout.nodes if wanted.layout is not None else ():
        output = files.LogFile(str(node.output_file), f"logs/{node.name}.out")
        yield Section(output.path, partial(files.end_of_log, output, wanted.log_size))


def _list_logs(folder: str, label: str, listed: list[files.LogFile]) -> list[Found]:
    """Add the logs of a folder to `listed`, and return what is missing."""
    found, missing = files.log_files(folder, label)
    listed += found
    return [*missing, *([] if found else [Missing(folder, "it has no log files")])]


# ---- the file


def default_file() -> str:
    """Return the name of a new bundle in the working directory."""
    host_name = "".join(char if char.isalnum() or char in "-." else "_" for char in platform.node())[:40]
    return f"rmqha-support-{host_name or 'host'}-{time.strftime('%Y%m%d-%H%M%S')}.tar.gz"


@contextmanager
def opened(path: str, replace: bool) -> Iterator[IO[bytes]]:
    """Open the bundle's file, readable by its owner only; `-` is the standard output."""
    if path == STDOUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with ExitStack() as stack:
        before = os.umask(0o077)
        try:
            stream = stack.enter_context(filesystem.writing(path, replace))
        except FileExistsError:
            raise CannotAnswerError(f"{path} already exists; use --force to overwrite it") from None
        finally:
            os.umask(before)
        # A file that is replaced gives its mode to the new one, but a bundle is private.
        if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            os.fchmod(stream.fileno(), 0o600)
        yield stream


def write_bundle(wanted: Wanted, stream: IO[bytes], is_zip: bool, max_size: int, command: str) -> tuple[Bundle, bool]:
    """Collect everything and write the bundle; return it, and whether anything that was asked for was found."""
    redactor = new_redactor(wanted)
    now = time.time()
    about = {"format": 1, "rmqha": __version__, "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
             "command": redactor.line(command), "maxSize": max_size, "logSize": wanted.log_size}
    folder = f"rmqha-support-{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now))}"
    bundle = Bundle(Zip(stream) if is_zip else TarGz(stream), redactor, max_size, about, folder, now)
    found_any = False
    for section in sections(wanted, redactor):
        if sys.stderr.isatty():
            click.echo(f"  {cell(redactor.line(section.what))} ...", err=True)
        for found in collected(section, wanted.timeout_s):
            found_any |= section.was_asked and not isinstance(found, Missing)
            bundle.add(found)
    bundle.close()
    return bundle, found_any


def _layout(folder: str | None, name: str | None, others: bool) -> Layout | None:
    """Return the local cluster: the given one, or the default one if it exists and nothing else was asked for."""
    if folder is not None or name is not None or os.environ.get(DIR_ENV):
        if folder is not None and name is not None:
            raise click.UsageError("--dir and --name exclude each other: a name is short for a folder")
        return cluster_folder.load(cluster_folder.chosen(folder, name))
    return None if others else cluster_folder.read(cluster_folder.chosen(None, None))


def _cluster_words(ctx: click.Context, used: str | None, option: str | None) -> tuple[list[str], list[str]]:
    """Return the words that make another command use the same cluster: before its name, and after it.

    `used`: the name servers in use, `option`: the value of -n, which may come from a context.
    """
    named = ctx.meta.get(NAMED_CONTEXT)
    if named and used == option:
        return ["--context", str(named)], []
    is_given = used != option or used == os.environ.get(NAMESRV_ADDR_ENV) or (
        ctx.get_parameter_source("namesrv") is ParameterSource.COMMANDLINE)
    # Otherwise the other command finds the current context, as this one has.
    return [], ["-n", used] if used and is_given else []


@click.command("bundle", short_help="Collect findings, settings, logs and tables in one file.", epilog=examples(
    "rmqha support bundle -n 127.0.0.1:9876",
    "rmqha support bundle -c broker.conf --log-dir logs -o broker-a.tar.gz",
    "rmqha support bundle --dir ~/.local/share/rmqha/default --max-size 5MiB"))
@namesrv_option
@click.option("-c", "--config", "config_files", multiple=True, type=click.Path(), metavar="FILE",
              help="A server's config file, or a file of accounts; may be repeated. A broker's file adds its store.")
@folder_options
@click.option("--store", "stores", multiple=True, type=click.Path(), metavar="ROOT",
              help="A store to list: names and sizes of its files; may be repeated.")
@click.option("--log-dir", "log_dirs", multiple=True, type=click.Path(), metavar="DIR",
              help="A folder of logs; may be repeated. The default is $ROCKETMQ_LOG_DIR, else ~/logs/rocketmqlogs.")
@click.option("-o", "--output", "output", metavar="FILE", type=click.Path(),
              help="The file: .tar.gz, .tgz or .zip; - for a tar.gz on the standard output. By default a new file in "
                   "the working directory.")
@click.option("--max-size", default="32MiB", show_default=True, type=size_type(_LEAST_SIZE, 1 << 40),
              help="The largest size of the file. What does not fit is cut or left out, and named in the bundle.")
@click.option("--log-size", default="2MiB", show_default=True, type=size_type(0, 256 * _MIB),
              help="How much of the end of each log to take.")
@click.option("--timeout", "timeout_s", default="3s", show_default=True, type=duration_type(0.1, 600),
              help="How long to wait for each answer.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@click.pass_context
def bundle_command(ctx: click.Context, namesrv: str | None, config_files: tuple[str, ...], folder: str | None,
                   name: str | None, stores: tuple[str, ...], log_dirs: tuple[str, ...], output: str | None,
                   max_size: int, log_size: int, timeout_s: float, force: bool) -> None:
    """Collect what a maintainer needs to understand a problem in one file, without secrets.

    It has the findings of `rmqha doctor`, versions, config files without their secrets, and the ends of logs. It has
    the state of replication and controllers, tables and settings of brokers, metrics, listings of stores, and facts of
    this host. If py-spy is installed, it has the stacks of the servers on this host. It has no messages. Read it before
    you send it.

    Exit code 0 when the file was written; a server that does not answer, or a file that can't be read, is listed on
    standard error and in the bundle. Exit code 2 when nothing of what was asked for could be had.
    """
    path = output or default_file()
    is_zip = path.lower().endswith(".zip")
    if path != STDOUT and not is_zip and not path.lower().endswith((".tar.gz", ".tgz")):
        raise click.UsageError(f"-o {path}: the name must end with .tar.gz, .tgz or .zip")
    if path == STDOUT and sys.stdout.isatty():
        raise click.UsageError("-o -: the standard output is a terminal; redirect it to a file or a pipe")
    layout = _layout(folder, name, bool(namesrv or config_files or stores or log_dirs))
    nodes = layout.nodes if layout is not None else ()
    all_configs = [*config_files, *(str(node.config_file) for node in nodes)]
    homes = [filesystem.rocketmq_home(), *([Path(layout.namesrv.folder)] if layout is not None else [])]
    used = namesrv or (layout.namesrv.address if layout is not None else namesrv_of(config_files))
    default_logs = [] if layout is not None or log_dirs else [logs.default_log_dir()]
    folders = [*log_dirs, *(each for each in default_logs if os.path.isdir(each))]
    labels = {each: os.path.basename(os.path.abspath(each)) for each in folders}
    labels |= {str(node.log_folder): node.name for node in nodes}
    wanted = Wanted(
        used, *_cluster_words(ctx, used, namesrv), all_configs, list(stores), labels, layout, log_size, timeout_s,
        account_files(homes))
    with opened(path, force) as stream:
        bundle, found_any = write_bundle(wanted, stream, is_zip, max_size, " ".join(sys.argv[1:]))
    _report(bundle, path)
    if not found_any:
        raise CannotAnswerError(f"nothing of what was asked for could be had; {path} has the facts of this host alone")


def _report(bundle: Bundle, path: str) -> None:
    """Print the contents, and on standard error what is missing."""
    to_stderr = path == STDOUT
    for item in bundle.items:
        note = "".join(f" ({item[key]})" for key in ("cut", "note") if key in item)
        put(f"{size_text(item['bytes']):>10}  {cell(item['name'])}{cell(note)}", err=to_stderr)
    for missing in bundle.missing:
        put(f"warning: {cell(missing.what)}: {cell(missing.why)}", err=True)
    reader = "unzip -l" if path.endswith(".zip") else "tar tzf"
    where = "the standard output" if to_stderr else f"{path}, {size_text(os.path.getsize(path))}"
    put(f"\nWrote {counted(len(bundle.items), 'item')} to {where}. Read it before you send it: {reader} lists it, and "
        "its README.md says what was removed.", err=to_stderr)


@click.group("support")
def support_group() -> None:
    """Collect what a maintainer needs to understand a problem."""


support_group.add_command(bundle_command)
