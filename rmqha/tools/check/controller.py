"""`check controller`: whether controllers answer, one of them leads, and each master could be replaced."""
from dataclasses import asdict

import click

from rmqha.tools.check.check_base import CheckCommand, Status
from rmqha.tools.dialect.options import namesrv_option, output_option
from rmqha.tools.dialect.output import emit, put
from rmqha.tools.dialect.unit_types import duration_type
from rmqha.tools.ha.broker_admin import DEFAULT_TIMEOUT_MS, BrokerAdmin
from rmqha.tools.ha.controllers import Controllers, controller_faults, faults_of, leader_of, split_addresses
from rmqha.tools.ha.judgement import Problem, worst
from rmqha.tools.ha.views import FailoverView
from rmqha.tools.store.output import counted


@click.command("controller", cls=CheckCommand)
@click.option("-a", "--controller", required=True, metavar="HOST:PORT", help="Controllers, separated by semicolons.")
@namesrv_option
@click.option("-b", "--broker", "names", multiple=True, metavar="NAME",
              help="A broker name that has to be able to fail over; more than once for several. With -n: all that it "
                   "lists.")
@click.option("--timeout", "timeout_s", default=DEFAULT_TIMEOUT_MS / 1000, show_default=True,
              type=duration_type(0.1, 600), help="Seconds to wait for each answer.")
@output_option
def controller_check_command(controller: str, namesrv: str | None, names: tuple[str, ...], timeout_s: float,
                             output: str) -> None:
    """Check controllers of automatic failover: they answer, and one of them leads.

    And that each broker name has a master, enough replicas in sync, and one that could take over.
    """
    addresses = split_addresses(controller)
    with BrokerAdmin(namesrv, timeout_s * 1000) as admin:
        masters = dict.fromkeys(names, "")  # address by broker name, "" when none is registered
        for each in admin.brokers() if namesrv else ():
            if not names or each.name in names:
                masters[each.name] = each.address if each.is_master else masters.get(each.name, "")
        controllers = Controllers(admin)
        views = {name: controllers.look_at(name, addresses) for name in sorted(masters)}
        asked = controllers.ask(addresses)
    problems = [Problem(fault.status, fault.text) for fault in controller_faults(asked)]
    general = {problem.text for problem in problems}
    problems += [Problem(fault.status, f"{name}: {fault.text}") for name, view in views.items()
                 for fault in faults_of(view, name, masters[name], ()) if fault.text not in general]
    status, leader = worst(problems), leader_of(asked)
    text = "; ".join(each.text for each in sorted(problems, key=lambda each: each.status is not Status.CRITICAL)) or (
        f"{leader} leads, {counted(len(asked), 'controller')}, {counted(len(views), 'broker name')}")
    if output != "table":
        told = [{"status": problem.status.name, "text": problem.text} for problem in problems]
        emit({"check": "controller", "status": status.name, "code": int(status), "text": text, "problems": told,
              "leader": leader, "controllers": [asdict(each) for each in asked],
              "brokers": {name: asdict(view) for name, view in views.items()}}, output)
    else:
        put(f"CONTROLLER {status.name} - {text} | {_perfdata(views)}".removesuffix(" | "))
    raise SystemExit(int(status))


def _perfdata(views: dict[str, FailoverView]) -> str:
    return " ".join(f"'{name} in sync'={len(view.sync_state_set)};;;0" for name, view in views.items())
