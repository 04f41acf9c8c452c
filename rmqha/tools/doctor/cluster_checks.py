"""What is wrong with replication: what `check ha` would say of it, and what to do about it.

What is wrong with a running cluster, asked of its name servers and brokers.
"""
import re
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

from rmqha.common.texts import real, whole
from rmqha.remoting.addresses import Probe, probe
from rmqha.tools.admin.cluster_admin import Broker, ClusterAdmin, chosen, number
from rmqha.tools.check_base import Status
from rmqha.tools.doctor.host_checks import Report, is_loopback, judge_used
from rmqha.tools.replication.ask import Told
from rmqha.tools.replication.controllers import Controllers, controller_faults, faults_of
from rmqha.tools.replication.judgement import Rules, judge, log_problems, name_of
from rmqha.tools.replication.reader import Group, NameServers, Reader, differing, roles_change
from rmqha.tools.replication.views import MasterView, SlaveView
from rmqha.tools.terminal import CannotAnswerError, counted

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


def check_replication(admin: ClusterAdmin, brokers: Iterable[Broker], listed: bool, report: Report) -> None:
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
    with ClusterAdmin(timeout_millis=timeout_ms) as admin:
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


_FAST_PORT = -2
_CLOCK_WARNING_S, _CLOCK_ERROR_S = 2.0, 60.0
_RUNTIME = re.compile(r"\[ ([\d,.]{1,12}) days, (\d{1,4}) hours, (\d{1,4}) minutes, (\d{1,4}) seconds \]", re.ASCII)
_LAST_PORT = 65_535
_MASTER_ROLES = ("ASYNC_MASTER", "SYNC_MASTER")
_CONTROLLER_CHOOSES = ("start the one that was the master, or a controller, which makes one that is in sync the master "
                       "by itself")
_WHY = {
    Probe.REFUSED: "nobody listens there",
    Probe.SILENT: "no answer: a firewall drops it, or the host is down",
    Probe.UNREACHABLE: "no way to that host, or a firewall refuses",
    Probe.UNKNOWN_HOST: "no such host",
}


@dataclass(frozen=True)
class TimedTold(Told):
    """What a broker says of itself, and when. `asked_at` is this host's clock, ms, when its table came."""

    asked_at: float = 0.0
    took_s: float = 0.0

    @property
    def who(self) -> str:
        """Its name, id and address."""
        return f"{self.broker.name} {self.broker.broker_id} ({self.broker.address})"

    @property
    def is_slave(self) -> bool:
        """By its own word."""
        return self.config.get("brokerRole") == "SLAVE"


def check_name_servers(addresses: list[str], timeout_ms: float, report: Report) -> list[Broker]:
    """All brokers that any of them lists; those that can't be asked, and where they disagree, are findings."""
    asked = NameServers()
    lists = asked.lists
    for address in addresses:
        try:
            with ClusterAdmin(address, timeout_ms) as admin:
                lists[address] = set(admin.brokers())
                asked.departed |= set(admin.fetch_departed_brokers())
        except CannotAnswerError as error:
            report.error("nameserver", address, error.message, "start it, open its port, or correct namesrvAddr")
            continue
        report.good("nameserver", address, f"knows {counted(len(lists[address]), 'broker')}")
    everything = set().union(*lists.values()) if lists else set()
    for address, brokers in lists.items():
        for missing in sorted(everything - brokers):
            report.warning("nameserver", address, f"does not know {missing.name} {missing.broker_id} at "
                           f"{missing.address}, another name server does", "give each broker all name servers in "
                           "namesrvAddr; a broker that has just started needs up to 30 s")
    for _broker, fault in asked.missing():
        report.error("nameserver", fault.address, fault.text, "start it, or give one of two another brokerId; a broker "
                     "that is gone for good is forgotten after 7 days, or when the name server starts again")
    if lists and not everything:
        report.error("nameserver", ", ".join(lists), "knows no broker", "start one with this namesrvAddr")
    return sorted(everything)


def check_cluster(brokers: list[Broker], extra: list[str], cluster: str | None, on_one_host: bool, timeout_ms: float,
                  report: Report) -> list[Broker]:
    """Ask each broker, and compare what they say. `extra` are addresses to be asked beside those listed.

    `on_one_host`: the name servers' addresses are loopback ones, so the brokers' may be. Gives those listed, and those
    of `extra` that have answered by the names that they give themselves.
    """
    if cluster is not None:
        brokers = chosen(brokers, cluster, None)
    listed = {broker.address for broker in brokers}
    told: list[TimedTold] = []
    with ClusterAdmin(timeout_millis=timeout_ms) as admin:
        # slaves before masters: a master only grows until it is asked
        for broker in sorted(brokers, key=lambda each: (each.is_master, each)):
            answer = _ask(admin, broker, report)
            if answer is not None:
                told.append(answer)
                _check_identity(answer, report)
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
        report.error("ports", who, error.message, "start it, open its port on the way from here, or correct its "
                     "brokerIP1: it is what all clients are told")
        return None
    return TimedTold(broker, config, table, asked_at=time.time() * 1000, took_s=took_s)


def _named(told: TimedTold) -> TimedTold:
    """A broker that was asked by its address alone, with the name that it gives itself."""
    config = told.config
    return replace(told, broker=Broker(
        config.get("brokerClusterName", ""), config.get("brokerName", ""),
        number(config, "brokerId", told.broker.address), told.broker.address))


def _check_identity(told: TimedTold, report: Report) -> None:
    """The broker at an address is the one that registered it."""
    broker, config = told.broker, told.config
    said = (config.get("brokerName", broker.name), number(config, "brokerId", broker.address, broker.broker_id))
    if said != (broker.name, broker.broker_id):
        report.error("roles", told.who, f"at this address {said[0]} {said[1]} answers", "two brokers register the same "
                     "address: give each its own brokerIP1 and listenPort")
    role = config.get("brokerRole", "")
    if role == "SLAVE" and broker.broker_id == 0 and not told.waits_for_role:
        report.error("roles", told.who, "brokerRole=SLAVE with brokerId 0: clients send to it as to a master, and it "
                     "refuses", "give it a brokerId above 0, or make it a master")
    elif role in _MASTER_ROLES and broker.broker_id != 0:
        report.error("roles", told.who, f"brokerRole={role} with brokerId {broker.broker_id}: it is listed as a slave, "
                     "and replicates from nobody", "give it brokerRole=SLAVE, or brokerId=0 under another brokerName")


def _check_wait(told: TimedTold, report: Report) -> None:
    """A broker whose role others give, and nobody has given it one."""
    if not told.waits_for_role:
        return
    by_controller = told.config.get("enableControllerMode") == "true"
    report.error("roles", told.who, "it waits for a role: it takes no messages, and follows no master",
                 f"start the controllers, {told.config.get('controllerAddr', '')}, or correct controllerAddr"
                 if by_controller else f"rmqha ha promote -b {told.broker.address} makes it the master; where roles "
                 "don't change by request, remove enableAutoSwitchHA from its file and restart it")


def _check_same_ids(brokers: list[Broker], told: list[TimedTold], report: Report) -> None:
    places: dict[tuple[str, int], set[str]] = defaultdict(set)
    for broker in [*brokers, *(each.broker for each in told)]:
        places[broker.name, broker.broker_id].add(broker.address)
    for (name, broker_id), addresses in sorted(places.items()):
        if len(addresses) > 1:
            what = "two masters of one name" if broker_id == 0 else "the same brokerId twice"
            report.error("roles", f"{name} {broker_id}", f"{what}: {' and '.join(sorted(addresses))}; each "
                         "registration replaces the other, and messages go now here, now there",
                         "stop one at once, then give it another brokerId or brokerName")


def _check_addresses(told: TimedTold, on_one_host: bool, timeout_s: float, report: Report) -> None:
    host, _colon, port = told.broker.address.rpartition(":")
    if is_loopback(host) and not on_one_host:
        report.warning("addresses", told.who, "it registers a loopback address: nobody on another host reaches it",
                       "set brokerIP1; leave it for a cluster on one host")
    checks = []
    if fast_port := whole(port, 0, 1 - _FAST_PORT, _LAST_PORT):
        checks.append((host, fast_port + _FAST_PORT, "its fast port, listenPort - 2",
                       "open it, or tell clients not to use it (vipChannelEnabled=false)", report.warning))
    if not told.is_slave:
        ha_host, _colon, ha_port = told.ha_address.rpartition(":")
        if ha_host and (at := whole(ha_port, 0, 1, _LAST_PORT)):
            checks.append((ha_host, at, "its HA port, by brokerIP2", "open it on the way from its slaves, or "
                           "correct brokerIP2: it is what they are told", report.error))
    for at_host, at_port, use, todo, say in checks:
        found = probe(at_host, at_port, timeout_s)
        if found is Probe.OPEN:
            report.good("ports", told.who, f"{at_host}:{at_port}, {use}, answers")
        else:
            say("ports", told.who, f"{at_host}:{at_port}, {use}: {_WHY[found]}", todo)


def _used(text: str | None) -> float:
    """0 to 1; -1 for a broker that does not tell, or tells nonsense."""
    value = real(text, 0, 1)
    return -1.0 if value is None else value


def _check_clock(told: TimedTold, report: Report) -> None:
    """A broker tells when it started and, in whole seconds, for how long it has been running: the sum is its clock."""
    match = _RUNTIME.fullmatch(told.table.get("runtime", "").strip())
    boot = told.number("bootTimestamp")
    if match is None or not boot:
        report.note("clocks", told.who, "it does not tell its time")
        return
    days, hours, minutes, seconds = (int(part.replace(",", "").replace(".", "") or 0) for part in match.groups())
    running_s = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    # its clock was between the first and the last when it answered
    behind_s = told.asked_at / 1000 - (boot / 1000 + running_s)
    off_s = behind_s if behind_s < 0 else max(behind_s - 1 - told.took_s, 0.0)
    text = f"its clock differs from this host's by about {abs(off_s):.1f} s"
    if abs(off_s) <= _CLOCK_WARNING_S:
        report.good("clocks", told.who, text)
        return
    say = report.error if abs(off_s) > _CLOCK_ERROR_S else report.warning
    say("clocks", told.who, f"{text} ({'behind' if off_s > 0 else 'ahead'})", "run a time service (chrony, ntpd) on "
        "all hosts: store times, delayed messages and searches by time go by these clocks")


def _check_group(name: str, members: list[TimedTold], registered: list[Broker], report: Report) -> None:
    """The brokers of one name, by what they said."""
    masters = [each for each in members if each.broker.is_master]
    slaves = [each for each in members if not each.broker.is_master]
    if not masters:
        if not any(broker.is_master for broker in registered):
            by_controller = any(each.config.get("enableControllerMode") == "true" for each in slaves)
            report.error("roles", name, f"slaves without a master: {', '.join(each.who for each in slaves)}",
                         _CONTROLLER_CHOOSES if by_controller else "start the master; if it is lost, make one of them "
                         "the master: brokerRole and brokerId=0, then restart it")
        return
    master = masters[0]
    _check_sync(master, registered, report)
    for slave in slaves:
        _check_slave(slave, master, report)


def _check_sync(master: TimedTold, registered: list[Broker], report: Report) -> None:
    slaves = sum(not broker.is_master for broker in registered)
    if master.config.get("brokerRole") == "SYNC_MASTER" and not slaves:
        report.warning("roles", master.who, "a SYNC_MASTER without a slave: each send is answered SLAVE_NOT_AVAILABLE",
                       "start a slave of the same brokerName, or make it an ASYNC_MASTER")
    needed = number(master.config, "inSyncReplicas", master.broker.address, 1)
    if needed > slaves + 1:
        report.warning("roles", master.who, f"inSyncReplicas={needed}, and there are {slaves + 1} with the master "
                       "itself", "start more slaves, or lower the key")


def _check_slave(slave: TimedTold, master: TimedTold, report: Report) -> None:
    ours, theirs = slave.config.get("mappedFileSizeCommitLog"), master.config.get("mappedFileSizeCommitLog")
    if ours != theirs:
        report.error("config", slave.who, f"mappedFileSizeCommitLog={ours}, its master has {theirs}: the logs can't be "
                     "the same", "give both the same, and the slave an empty store")
    _check_offsets(slave.who, slave.number("commitLogMinOffset"), slave.number("commitLogMaxOffset"), master, report)


def _check_offsets(who: str, lowest: int, highest: int, master: TimedTold, report: Report) -> None:
    master_lowest, master_highest = master.number("commitLogMinOffset"), master.number("commitLogMaxOffset")
    if highest > master_highest:
        report.error("offsets", who, f"its log ends at {highest}, that of its master at {master_highest}: it is ahead, "
                     "because the master lost its end, or because it is another log", "stop both; compare them with "
                     "rmqha store diff, keep the one that is right, and set the other up anew")
    elif 0 < highest < master_lowest:
        report.error("offsets", who, f"its log ends at {highest}, that of its master begins at {master_lowest}: what "
                     "it needs is deleted", "set the slave up anew with an empty store")
    else:
        report.good("offsets", who, f"holds {lowest} to {highest}, its master {master_lowest} to {master_highest}")


def check_stopped_store(where: str, lowest: int, highest: int, name: str, brokers: list[Broker], timeout_ms: float,
                        report: Report) -> None:
    """A slave's store whose broker does not run, against the master that is listed for its name."""
    masters = [broker for broker in brokers if broker.name == name and broker.is_master]
    if not masters:
        report.warning("roles", where, f"no master {name} is registered: this slave would follow nobody",
                       "start the master, or correct brokerName")
        return
    with ClusterAdmin(timeout_millis=timeout_ms) as admin:
        master = _ask(admin, masters[0], report)
    if master is not None:
        _check_offsets(where, lowest, highest, master, report)
