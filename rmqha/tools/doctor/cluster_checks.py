"""The doctor's checks of a running cluster, through its name servers, brokers and controllers.

For replication it reports the problems that `check ha` reports, with what to do about each.
"""
import re
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from rmqha.common.texts import real, whole
from rmqha.remoting.addresses import Probe, probe
from rmqha.tools.admin.cluster_admin import Broker, ClusterAdmin, chosen, number, own_address
from rmqha.tools.check_base import Status
from rmqha.tools.connection import connected
from rmqha.tools.doctor.host_checks import Report, is_loopback, judge_used
from rmqha.tools.replication.ask import Told
from rmqha.tools.replication.controllers import Controllers, controller_faults, faults_of
from rmqha.tools.replication.judgement import Rules, judge, log_problems, name_of
from rmqha.tools.replication.reader import Group, NameServers, Reader, differing, roles_change
from rmqha.tools.replication.views import COMPARE_TODO, MasterView, SlaveView
from rmqha.tools.terminal import CannotAnswerError, counted

_TODO = {
    "UNREACHABLE": "start it; if it is gone for good, wait until the name server forgets it (2 minutes), and set up "
                   "another slave",
    "NOT_TOLD": "use an account with permission, or a host on its white list",
    "NOT_CONNECTED": "correct its haMasterAddress, or remove the key so that the name server provides it; open the "
                     "path to the master's HA port, listenPort + 1; check haAllowedPeers; see its store.log",
    "OTHER_MASTER": "correct its haMasterAddress, or remove the key so that the name server provides it; a slave that "
                    "has followed another master must be rebuilt from an empty store",
    "NO_SLAVE": "give it brokerRole=SLAVE and its own brokerId above 0, or another brokerName",
    "STANDS_STILL": "check the network link, firewall and disk between them; see both brokers' store.log",
    "SILENT": "check the network link, the firewall and the load of both hosts; see both brokers' store.log",
    "APPEND_FAILED": "check its disk and its store.log",
    "OFFSET_REFUSED": COMPARE_TODO,
    "DIVERGED": "rmqha ha rejoin, if the reason names it; if its queues differ, stop it, run rmqha store rebuild ROOT "
                f"--apply --force, and start it; otherwise {COMPARE_TODO}",
    "AHEAD": COMPARE_TODO,
    "TOO_FAR_BEHIND": "rebuild it from an empty store",
    "IDLE": "send a message, or run rmqha check ha --probe",
    "STRANGER": "nothing, if it is a receiver; a slave needs the name servers of its master in namesrvAddr",
}
_ELSE = "see rmqha ha status, and the brokers' store.log"
_CONTROLLER_TODO = ("see rmqha ha status; start the controllers, correct controllerAddr, or bring back the missing "
                    "replicas")


def check_replication(admin: ClusterAdmin, brokers: Iterable[Broker], listed: bool, report: Report) -> None:
    """Check replication as check ha does, without limits for the lag. An unknown state is a warning.

    `listed`: the brokers come from a name server.
    """
    groups: dict[tuple[str, str], list[Broker]] = defaultdict(list)
    for each in brokers:
        groups[each.cluster, each.name].append(each)
    all_groups = [Group(group, listed) for _key, group in sorted(groups.items())]
    views, controllers = Reader(admin).read(all_groups), Controllers(admin)
    for group, view in zip(all_groups, views, strict=True):
        _check_failover(controllers, group, view, report)
        # a master that does not answer is reported by the checks of ports and roles
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
            report.good("replication", name_of(view), f"its slaves are replicating: {', '.join(states)}")


def _note_settings(group: Group, view: MasterView, report: Report) -> None:
    """Note settings in which replicas with fixed roles differ: it may be intended, but matters in a manual failover."""
    configs = {broker.address: told.config for broker, told in group.looks[-1].items() if told.answered}
    if not roles_change(list(configs.values())):
        for text in differing(configs):
            report.note("config", name_of(view), f"settings differ: {text}", "make them equal before a slave becomes "
                        "the master")


def _check_log(slave: SlaveView, view: MasterView, report: Report) -> None:
    """Report the progress of a slave's background check of its log, if it has found no fault."""
    scrub = slave.scrub
    if scrub is None or not scrub.is_on or scrub.faults(view.address):
        return
    text = f"log of the slave {slave.address}: {scrub.text()}"
    if scrub.is_stopped:
        report.note("replication", name_of(view), text, "check the master's main port and its white list")
    else:
        report.good("replication", name_of(view), text)


def check_controllers(where: str, addresses: list[str], timeout_ms: float, report: Report) -> None:
    """Check the controllers that a config file names: without a leader, its broker waits for a role."""
    with connected(None, timeout_ms / 1000) as admin:
        faults = controller_faults(Controllers(admin).ask(addresses))
    for fault in faults:
        say = report.error if fault.status is Status.CRITICAL else report.warning
        say("controller", where, f"{fault.text}; a broker started with this file waits for a role until a controller "
            "leads" if fault.status is Status.CRITICAL else fault.text, _CONTROLLER_TODO)
    if not faults:
        report.good("controller", where, f"{counted(len(addresses), 'controller')} answer")


def _check_failover(controllers: Controllers, group: Group, view: MasterView, report: Report) -> None:
    """Check the controllers' state of a broker name, if its brokers are configured with controllers."""
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


_FAST_PORT = -2
_CLOCK_WARNING_S, _CLOCK_ERROR_S = 2.0, 60.0
_RUNTIME = re.compile(r"\[ ([\d,.]{1,12}) days, (\d{1,4}) hours, (\d{1,4}) minutes, (\d{1,4}) seconds \]", re.ASCII)
_LAST_PORT = 65_535
_MASTER_ROLES = ("ASYNC_MASTER", "SYNC_MASTER")
_CONTROLLER_CHOOSES = ("start the broker that was the master, or a controller, which elects an in-sync replica "
                       "automatically")
_WHY = {
    Probe.REFUSED: "connection refused: nothing is listening there",
    Probe.SILENT: "no answer: a firewall drops the packets, or the host is down",
    Probe.UNREACHABLE: "no route to the host, or a firewall rejects the connection",
    Probe.UNKNOWN_HOST: "unknown host",
}


@dataclass(frozen=True)
class TimedTold(Told):
    """A broker's answers, and when they arrived: `asked_at` is this host's clock in ms when its table arrived."""

    asked_at: float = 0.0
    took_s: float = 0.0

    @property
    def who(self) -> str:
        """Its name, id and address."""
        return f"{self.broker.name} {self.broker.broker_id} ({self.broker.address})"

    @property
    def is_slave(self) -> bool:
        """True if the broker reports the role SLAVE."""
        return self.config.get("brokerRole") == "SLAVE"


def check_name_servers(addresses: list[str], timeout_ms: float, report: Report) -> list[Broker]:
    """Return all brokers that any of the name servers lists; report those that do not answer, and disagreements."""
    asked = NameServers()
    lists = asked.lists
    for address in addresses:
        try:
            with connected(address, timeout_ms / 1000) as admin:
                lists[address] = set(admin.brokers())
                asked.departed |= set(admin.fetch_departed_brokers())
        except CannotAnswerError as error:
            report.error("nameserver", address, error.message, "start it, open its port, or correct namesrvAddr")
            continue
        report.good("nameserver", address, f"lists {counted(len(lists[address]), 'broker')}")
    everything = set().union(*lists.values()) if lists else set()
    for address, brokers in lists.items():
        for missing in sorted(everything - brokers):
            report.warning("nameserver", address, f"does not list {missing.name} {missing.broker_id} at "
                           f"{missing.address}, but another name server does", "set namesrvAddr of each broker to all "
                           "name servers; a broker that has just started needs up to 30 s")
    for _broker, fault in asked.missing():
        report.error("nameserver", fault.address, fault.text, "start it; if two brokers share a brokerId, change one; "
                     "a broker that is gone for good is forgotten after 7 days, or when the name server restarts")
    if lists and not everything:
        report.error("nameserver", ", ".join(lists), "no broker is registered", "start one with this namesrvAddr")
    return sorted(everything)


def check_cluster(brokers: list[Broker], extra: list[str], cluster: str | None, on_one_host: bool, timeout_ms: float,
                  report: Report) -> list[Broker]:
    """Ask each broker, and compare their answers. `extra`: addresses to ask in addition to the listed brokers.

    `on_one_host`: the name servers have loopback addresses, so the brokers may have, too. Return the listed brokers,
    and those of `extra` that answered, with the names that they report.
    """
    if cluster is not None:
        brokers = chosen(brokers, cluster, None)
    listed = {broker.address for broker in brokers}
    told: list[TimedTold] = []
    with connected(None, timeout_ms / 1000) as admin:
        # slaves before masters, whose logs only grow: so a slave can't seem to be ahead of its master
        for broker in sorted(brokers, key=lambda each: (each.is_master, each)):
            answer = _ask(admin, broker, report)
            if answer is not None:
                told.append(answer)
                _check_identity(answer, report)
        listed.update(own_address(each.config, each.broker.address) for each in told)
        for address in extra:
            if address not in listed:
                answer = _ask(admin, Broker("", "", 0, address), report)
                if answer is not None:
                    told.append(_named(answer))
    for each in told:
        _check_wait(each, report)
        _check_addresses(each, on_one_host, timeout_ms / 1000, report)
        _check_clock(each, report)
        judge_used(each.who, _used(each.table.get("commitLogDiskRatio")),
                   number(each.config, "diskMaxUsedSpaceRatio", each.broker.address, 75), report)
    _check_same_ids(brokers, told, report)
    groups: dict[tuple[str, str], list[TimedTold]] = defaultdict(list)
    for each in told:
        groups[each.broker.cluster, each.broker.name].append(each)
    for (_cluster, name), members in sorted(groups.items()):
        registered = [broker for broker in brokers if broker.name == name]
        _check_group(name, members, registered, report)
    return sorted({*brokers, *(each.broker for each in told)})


def _ask(admin: ClusterAdmin, broker: Broker, report: Report) -> TimedTold | None:
    who = f"{broker.name} {broker.broker_id} ({broker.address})" if broker.name else broker.address
    try:
        config = admin.get_broker_config(broker.address)
        begin = time.monotonic()
        table = admin.runtime_info(broker.address)
        took_s = time.monotonic() - begin
    except CannotAnswerError as error:
        report.error("ports", who, error.message, "start it, open the path to its port, or correct its brokerIP1, the "
                     "address that all clients use")
        return None
    return TimedTold(broker, config, table, asked_at=time.time() * 1000, took_s=took_s)


def _named(told: TimedTold) -> TimedTold:
    """Return a broker that was asked by address only, with the name that it reports."""
    config = told.config
    return replace(told, broker=Broker(
        config.get("brokerClusterName", ""), config.get("brokerName", ""),
        number(config, "brokerId", told.broker.address), told.broker.address))


def _check_identity(told: TimedTold, report: Report) -> None:
    """Check that the broker at an address is the one that registered it, and that its role fits its id."""
    broker, config = told.broker, told.config
    said = (config.get("brokerName", broker.name), number(config, "brokerId", broker.address, broker.broker_id))
    if said != (broker.name, broker.broker_id):
        is_shared = config.get("masterAddress") == broker.address
        report.error("roles", told.who, f"{said[0]} {said[1]} answers at this address",
                     "correct the proxy at this address: it has to lead to the broker whose page /master answers 200"
                     if is_shared else
                     "two brokers register the same address: give each its own brokerIP1 and listenPort")
    role = config.get("brokerRole", "")
    if role == "SLAVE" and broker.broker_id == 0 and not told.waits_for_role:
        report.error("roles", told.who, "brokerRole=SLAVE with brokerId 0: clients send to it as to a master, and it "
                     "refuses the messages", "give it a brokerId above 0, or make it a master")
    elif role in _MASTER_ROLES and broker.broker_id != 0:
        report.error("roles", told.who, f"brokerRole={role} with brokerId {broker.broker_id}: it is listed as a slave, "
                     "but replicates nothing", "give it brokerRole=SLAVE, or brokerId=0 under another brokerName")


def _check_wait(told: TimedTold, report: Report) -> None:
    """Report a broker that waits for a controller or an operator to assign its role."""
    if not told.waits_for_role:
        return
    by_controller = told.config.get("enableControllerMode") == "true"
    report.error("roles", told.who, "it waits for a role: it takes no messages, and follows no master",
                 f"start the controllers, {told.config.get('controllerAddr', '')}, or correct controllerAddr"
                 if by_controller else f"run rmqha ha promote -b {told.broker.address} to make it the master; if roles "
                 "are fixed here, remove enableAutoSwitchHA from its config file and restart it")


def _check_same_ids(brokers: list[Broker], told: list[TimedTold], report: Report) -> None:
    places: dict[tuple[str, int], set[str]] = defaultdict(set)
    own = {each.broker.address: own_address(each.config, each.broker.address) for each in told}
    for broker in [*brokers, *(each.broker for each in told)]:
        places[broker.name, broker.broker_id].add(own.get(broker.address, broker.address))
    for (name, broker_id), addresses in sorted(places.items()):
        if len(addresses) > 1:
            what = "two masters with the same name" if broker_id == 0 else "two brokers with the same brokerId"
            report.error("roles", f"{name} {broker_id}", f"{what}: {' and '.join(sorted(addresses))}; each "
                         "registration replaces the other, and messages alternate between them",
                         "stop one at once, then give it another brokerId or brokerName")


def _check_addresses(told: TimedTold, on_one_host: bool, timeout_s: float, report: Report) -> None:
    host, _colon, port = told.broker.address.rpartition(":")
    if is_loopback(host) and not on_one_host:
        report.warning("addresses", told.who, "it registers a loopback address, which other hosts can't reach",
                       "set brokerIP1; keep it for a cluster on one host")
    checks = []
    if fast_port := whole(port, 0, 1 - _FAST_PORT, _LAST_PORT):
        checks.append((host, fast_port + _FAST_PORT, "its fast port, listenPort - 2",
                       "open it, or configure clients not to use it (vipChannelEnabled=false)", report.warning))
    if not told.is_slave:
        ha_host, _colon, ha_port = told.ha_address.rpartition(":")
        if ha_host and (at := whole(ha_port, 0, 1, _LAST_PORT)):
            checks.append((ha_host, at, "its HA port, by brokerIP2", "open the path from its slaves to it, or "
                           "correct brokerIP2, the address that slaves use", report.error))
    for at_host, at_port, use, todo, say in checks:
        found = probe(at_host, at_port, timeout_s)
        if found is Probe.OPEN:
            report.good("ports", told.who, f"{at_host}:{at_port}, {use}, answers")
        else:
            say("ports", told.who, f"{at_host}:{at_port}, {use}: {_WHY[found]}", todo)


def _used(text: str | None) -> float:
    """Return a disk usage from 0 to 1; -1 when the broker does not report a valid one."""
    value = real(text, 0, 1)
    return -1.0 if value is None else value


def _check_clock(told: TimedTold, report: Report) -> None:
    """Check a broker's clock.

    A broker reports the time of its start and, in whole seconds, how long it has been running; the sum is its clock.
    """
    match = _RUNTIME.fullmatch(told.table.get("runtime", "").strip())
    boot = told.number("bootTimestamp")
    if match is None or not boot:
        report.note("clocks", told.who, "it does not report its time")
        return
    days, hours, minutes, seconds = (int(part.replace(",", "").replace(".", "") or 0) for part in match.groups())
    running_s = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    # the reported time is up to 1 s old by rounding, and up to took_s by the request
    behind_s = told.asked_at / 1000 - (boot / 1000 + running_s)
    off_s = behind_s if behind_s < 0 else max(behind_s - 1 - told.took_s, 0.0)
    text = f"its clock differs from this host's by about {abs(off_s):.1f} s"
    if abs(off_s) <= _CLOCK_WARNING_S:
        report.good("clocks", told.who, text)
        return
    say = report.error if abs(off_s) > _CLOCK_ERROR_S else report.warning
    say("clocks", told.who, f"{text} ({'behind' if off_s > 0 else 'ahead'})", "run a time service (chrony, ntpd) on "
        "all hosts: store times, delayed messages and searches by time depend on these clocks")


def _check_group(name: str, members: list[TimedTold], registered: list[Broker], report: Report) -> None:
    """Check the brokers of one name against each other."""
    masters = [each for each in members if each.broker.is_master]
    slaves = [each for each in members if not each.broker.is_master]
    if not masters:
        if not any(broker.is_master for broker in registered):
            by_controller = any(each.config.get("enableControllerMode") == "true" for each in slaves)
            report.error("roles", name, f"slaves without a master: {', '.join(each.who for each in slaves)}",
                         _CONTROLLER_CHOOSES if by_controller else "start the master; if it is lost, make a slave the "
                         "master: change its brokerRole, set brokerId=0, and restart it")
        return
    master = masters[0]
    _check_sync(master, registered, report)
    for slave in slaves:
        _check_slave(slave, master, report)


def _check_sync(master: TimedTold, registered: list[Broker], report: Report) -> None:
    slaves = sum(not broker.is_master for broker in registered)
    if master.config.get("brokerRole") == "SYNC_MASTER" and not slaves:
        report.warning("roles", master.who, "a SYNC_MASTER without a slave: each send results in SLAVE_NOT_AVAILABLE",
                       "start a slave of the same brokerName, or make it an ASYNC_MASTER")
    needed = number(master.config, "inSyncReplicas", master.broker.address, 1)
    if needed > slaves + 1:
        report.warning("roles", master.who, f"inSyncReplicas={needed}, but there are only {slaves + 1}, the master "
                       "included", "start more slaves, or lower the key")


def _check_slave(slave: TimedTold, master: TimedTold, report: Report) -> None:
    ours, theirs = slave.config.get("mappedFileSizeCommitLog"), master.config.get("mappedFileSizeCommitLog")
    if ours != theirs:
        report.error("config", slave.who, f"mappedFileSizeCommitLog={ours}, but its master has {theirs}: the logs "
                     "can't be equal", "set both to the same size, and rebuild the slave from an empty store")
    _check_offsets(slave.who, slave.number("commitLogMinOffset"), slave.number("commitLogMaxOffset"), master, report)


def _check_offsets(who: str, lowest: int, highest: int, master: TimedTold, report: Report) -> None:
    master_lowest, master_highest = master.number("commitLogMinOffset"), master.number("commitLogMaxOffset")
    if highest > master_highest:
        report.error("offsets", who, f"its log ends at {highest}, its master's at {master_highest}: it is ahead, "
                     "because the master lost the end of its log, or because the logs are different", COMPARE_TODO)
    elif 0 < highest < master_lowest:
        report.error("offsets", who, f"its log ends at {highest}, its master's begins at {master_lowest}: the data "
                     "that it needs is already deleted", "rebuild the slave from an empty store")
    else:
        report.good("offsets", who, f"holds {lowest} to {highest}, its master {master_lowest} to {master_highest}")


def check_stopped_store(where: str, lowest: int, highest: int, name: str, brokers: list[Broker], timeout_ms: float,
                        report: Report) -> None:
    """Check the store of a stopped slave against the registered master of its name."""
    masters = [broker for broker in brokers if broker.name == name and broker.is_master]
    if not masters:
        report.warning("roles", where, f"no master {name} is registered: this slave would not find a master",
                       "start the master, or correct brokerName")
        return
    with connected(None, timeout_ms / 1000) as admin:
        master = _ask(admin, masters[0], report)
    if master is not None:
        _check_offsets(where, lowest, highest, master, report)
