"""The command `rmqha doctor`."""
import dataclasses
import os

import click

from rmqha.common.program import examples
from rmqha.store import store_path_config_helper as paths
from rmqha.store.message_store_config import MULTI_PATH_SPLITTER
from rmqha.tools.admin.cluster_admin import DEFAULT_TIMEOUT_MS, Broker, parsed_address
from rmqha.tools.connection import connected, namesrv_option
from rmqha.tools.doctor.cluster_checks import (
    check_cluster,
    check_controllers,
    check_name_servers,
    check_replication,
    check_stopped_store,
)
from rmqha.tools.doctor.host_checks import (
    LoadedConfig,
    Report,
    Severity,
    check_config_file,
    check_host,
    check_kernels,
    is_loopback,
)
from rmqha.tools.replication.controllers import split_addresses
from rmqha.tools.store_files import reading
from rmqha.tools.store_files.reading import CommitLogReader, list_folder
from rmqha.tools.terminal import cell, counted, duration_type, emit, output_option, put


def _check_own_place(loaded: LoadedConfig, brokers: list[Broker], timeout_ms: float, report: Report) -> None:
    """Check the file's broker against the brokers that the name server lists."""
    broker, port = loaded.broker, loaded.server.listenPort
    own = f"{broker.brokerIP1}:{port}"
    for other in brokers:
        if (other.name, other.broker_id) == (broker.brokerName, broker.brokerId) and other.address != own:
            report.error("roles", loaded.place("brokerId"), f"{other.name} {other.broker_id} is already registered, at "
                         f"{other.address}; this broker would be at {own}", "give this broker another brokerId or "
                         "brokerName, or stop the other one first")
        elif other.address == own and (other.name, other.broker_id) != (broker.brokerName, broker.brokerId):
            report.error("addresses", loaded.place("brokerIP1"), f"{own} is registered as {other.name} "
                         f"{other.broker_id}", "give each broker its own brokerIP1 and listenPort")
    root = loaded.store.storePathRootDir
    if brokers and loaded.is_slave and not reading.is_held(paths.get_lock_file(root)):
        folders = loaded.store.get_store_path_commit_log().split(MULTI_PATH_SPLITTER)
        log = CommitLogReader(list_folder([folder.strip() for folder in folders]), loaded.store.mappedFileSizeCommitLog)
        check_stopped_store(root, log.min_offset, log.log_end(), broker.brokerName, brokers, timeout_ms, report)


def _print(report: Report, verbose: bool, output: str) -> None:
    errors, warnings = report.count(Severity.ERROR), report.count(Severity.WARNING)
    if output != "table":
        findings = [{**dataclasses.asdict(each), "severity": each.severity.value} for each in report.findings]
        emit({"errors": errors, "warnings": warnings, "findings": findings}, output)
        return
    order = list(Severity)
    shown = [each for each in report.findings if verbose or each.severity is not Severity.OK]
    for finding in sorted(shown, key=lambda each: order.index(each.severity)):
        put("\n".join(cell(line) for line in finding.text().split("\n")))
    good = report.count(Severity.OK)
    hint = "" if verbose or not good else "; -v shows those"
    put(f"{counted(errors, 'error')}, {counted(warnings, 'warning')}; {counted(good, 'check')} passed{hint}")


@click.command("doctor", epilog=examples(
    "rmqha doctor -c conf/broker.conf",
    "rmqha doctor -n 127.0.0.1:9876"))
@click.option("-c", "--config", "files", multiple=True, type=click.Path(dir_okay=False),
              help="A broker's config file to check for this host; may be repeated.")
@namesrv_option
@click.option("-b", "--broker", "extra", multiple=True, metavar="HOST:PORT",
              help="A broker to check even if the name server does not list it; may be repeated.")
@click.option("--cluster", help="Check only the brokers of this cluster.")
@click.option("--timeout", "timeout_s", default=f"{DEFAULT_TIMEOUT_MS // 1000}s", show_default=True,
              type=duration_type(0.1, 600), help="How long to wait for each answer.")
@click.option("-v", "--verbose", is_flag=True, help="Also show the checks that passed.")
@output_option
def doctor_command(files: tuple[str, ...], namesrv: str | None, extra: tuple[str, ...], cluster: str | None,
                   timeout_s: float, verbose: bool, output: str) -> None:
    """Find faults in config files, this host and a running cluster.

    Prints each fault and what to do about it. Checks ports, addresses, roles and ids, clocks, disks, offset ranges,
    abort files, permissions, config keys, and compiled modules. Changes nothing. Exit code 1 if there are errors.
    """
    if not files and not namesrv and not extra:
        raise click.UsageError("give a config file with -c, a name server with -n, or a broker with -b")
    for address in extra:
        parsed_address(address, "--broker")
    report, timeout_ms = Report(), timeout_s * 1000
    loaded = [each for each in (check_config_file(file, report) for file in files) if each is not None]
    for each in loaded:
        check_host(each, report)
    if files:
        check_kernels(report)
    addresses = [part.strip() for part in (namesrv or "").split(";") if part.strip()]
    for address in addresses:
        parsed_address(address, "--namesrv")
    asked = addresses or list(dict.fromkeys(address for each in loaded for address in each.namesrv_addresses))
    brokers = check_name_servers([address for address in asked if _is_address(address)], timeout_ms, report)
    for each in loaded:
        if each.broker.enableControllerMode and (controllers := split_addresses(each.broker.controllerAddr)):
            check_controllers(each.place("controllerAddr"), controllers, timeout_ms, report)
        _check_own_place(each, brokers, timeout_ms, report)
    if addresses or extra:
        on_one_host = all(is_loopback(address.rpartition(":")[0]) for address in [*addresses, *extra])
        found = check_cluster(brokers, list(extra), cluster, on_one_host, timeout_ms, report)
        with connected(None, timeout_ms / 1000) as admin:
            check_replication(admin, found, bool(brokers), report)
    _print(report, verbose, output)
    if report.count(Severity.ERROR):
        raise SystemExit(1)


def _is_address(text: str) -> bool:
    host, _colon, port = text.rpartition(":")
    return bool(host) and port.isdigit() and os.path.basename(text) == text
