"""What is wrong with replication: what `check ha` would say of it, and what to do about it."""
from collections import defaultdict
from collections.abc import Iterable

from rmqha.tools.check.check_base import Status
from rmqha.tools.doctor.findings import Report
from rmqha.tools.ha.broker_admin import Broker, BrokerAdmin
from rmqha.tools.ha.controllers import Controllers, controller_faults, faults_of
from rmqha.tools.ha.judgement import Rules, judge, log_problems, name_of
from rmqha.tools.ha.replica_settings import differing, roles_change
from rmqha.tools.ha.replication import Group, Reader
from rmqha.tools.ha.views import MasterView, SlaveView
from rmqha.tools.store.output import counted

_SET_UP_ANEW = ("stop both; compare them with rmqha store diff, keep the one that is right, and set the other up anew "
                "with an empty store")
_TODO = {
    "UNREACHABLE": "start it; when it is gone for good, wait until the name server forgets it (2 minutes), and bring "
                   "another slave",
    "NOT_TOLD": "ask with an account that may, or from a host of its white list",
    "NOT_CONNECTED": "correct its haMasterAddress, or remove it so that the name server tells it; open the master's HA "
                     "port, listenPort + 1, on the way; look at haAllowedPeers; its store.log says more",
    "OTHER_MASTER": "correct its haMasterAddress, or remove it so that the name server tells it; a store that has "
                    "followed another master has to be set up anew",
    "NO_SLAVE": "give it brokerRole=SLAVE and its own brokerId above 0, or another brokerName",
    "STANDS_STILL": "look for what is between: link, firewall, disk; both brokers' store.log say more",
    "SILENT": "look for what is between: link, firewall, a host that is overloaded; both brokers' store.log say more",
    "APPEND_FAILED": "look at its disk and its store.log",
    "OFFSET_REFUSED": _SET_UP_ANEW,
    "DIVERGED": _SET_UP_ANEW,
    "AHEAD": _SET_UP_ANEW,
    "TOO_FAR_BEHIND": "set it up anew with an empty store",
    "IDLE": "send something, or ask rmqha check ha --probe",
    "STRANGER": "a receiver is all right; a slave needs the name servers of its master in namesrvAddr",
}
_ELSE = "see rmqha ha status, and the brokers' store.log"
_CONTROLLER_TODO = ("see rmqha ha status; start the controllers, correct controllerAddr, or bring the replicas that "
                    "are gone")


def check_replication(admin: BrokerAdmin, brokers: Iterable[Broker], listed: bool, report: Report) -> None:
    """Look at replication as check ha does, without limits for the lag; what can't be known is a warning.

    `listed`: a name server has told which brokers there are.
    """
    groups: dict[tuple[str, str], list[Broker]] = defaultdict(list)
    for each in brokers:
        groups[each.cluster, each.name].append(each)
    all_groups = [Group(group, listed) for _key, group in sorted(groups.items())]
    views, controllers = Reader(admin).read(all_groups), Controllers(admin)
    for group, view in zip(all_groups, views, strict=True):
        _check_failover(controllers, group, view, report)
        # that the master gives no answer is said where ports and roles are looked at
        problems = log_problems(view, view.slaves) if view.error else judge(view, Rules())
        for problem in problems:
            say = report.error if problem.status is Status.CRITICAL else report.warning
            say("replication", name_of(view), problem.text.removeprefix(f"{name_of(view)}: "),
                problem.todo or _TODO.get(problem.state, _ELSE))
        _note_settings(group, view, report)
        for slave in view.slaves:
            _check_log(slave, view, report)
        if not problems and view.slaves and not view.error:
            states = sorted({slave.state for slave in view.slaves})
            report.good("replication", name_of(view), f"its slaves follow: {', '.join(states)}")


def _note_settings(group: Group, view: MasterView, report: Report) -> None:
    """Of replicas whose roles stay it may be on purpose that settings differ; they count in a failover by hand."""
    configs = {broker.address: told.config for broker, told in group.looks[-1].items() if told.answered}
    if not roles_change(list(configs.values())):
        for text in differing(configs):
            report.note("config", name_of(view), f"settings differ: {text}", "make them alike before a slave becomes "
                        "the master")


def _check_log(slave: SlaveView, view: MasterView, report: Report) -> None:
    """How a slave's log is checked that has found nothing wrong with it."""
    scrub = slave.scrub
    if scrub is None or not scrub.is_on or scrub.faults(view.address):
        return
    text = f"log of the slave {slave.address}: {scrub.text()}"
    if scrub.is_stopped:
        report.note("replication", name_of(view), text, "see the master's main port, and its white list")
    else:
        report.good("replication", name_of(view), text)


def check_controllers(where: str, addresses: list[str], timeout_ms: float, report: Report) -> None:
    """Ask the controllers that a config file names: without one that leads, its broker waits for a role."""
    with BrokerAdmin(timeout_ms=timeout_ms) as admin:
        faults = controller_faults(Controllers(admin).ask(addresses))
    for fault in faults:
        say = report.error if fault.status is Status.CRITICAL else report.warning
        say("controller", where, f"{fault.text}; a broker that starts with this file waits for a role until one leads"
            if fault.status is Status.CRITICAL else fault.text, _CONTROLLER_TODO)
    if not faults:
        report.good("controller", where, f"{counted(len(addresses), 'controller')} answer")


def _check_failover(controllers: Controllers, group: Group, view: MasterView, report: Report) -> None:
    """What the controllers know of a broker name whose brokers name some."""
    told = group.looks[-1].values()
    failover = controllers.look(view.name, told)
    if failover is None:
        return
    faults = faults_of(failover, view.name, view.address, told) if group.listed else (
        controller_faults(failover.controllers))
    for fault in faults:
        say = report.error if fault.status is Status.CRITICAL else report.warning
        say("controller", name_of(view), fault.text, _CONTROLLER_TODO)
    if not faults:
        report.good("controller", name_of(view), f"{failover.leader} leads, epoch {failover.master_epoch}, "
                    f"{counted(len(failover.sync_state_set), 'replica')} in sync")
