"""What controllers say of a broker name, as text."""
from rmqha.tools.dialect.output import cell, render_table
from rmqha.tools.ha.views import ControllerView, FailoverView, ReplicaView

_HEADINGS = ("replica", "id", "heard", "in sync", "epoch", "log ends at", "may become master")
_RIGHT = {"id", "epoch", "log ends at"}


def failover_lines(view: FailoverView) -> list[str]:
    """The controllers, the decision that holds, and the replicas."""
    lines = [f"controller {', '.join(map(_controller, view.controllers))}"]
    if not view.known:
        return lines
    master = "no master" if view.master_id is None else f"master {view.master_id} at {cell(view.master)}"
    members = ", ".join(map(str, view.sync_state_set)) or "nobody"
    lines.append(f"{master}, epoch {view.master_epoch}; sync-state set {members}, of epoch "
                 f"{view.sync_state_set_epoch}")
    table = render_table(_HEADINGS, [_cells(each) for each in view.replicas], _RIGHT)
    return lines + table.split("\n")


def _controller(view: ControllerView) -> str:
    if view.error:
        return f"{view.address} UNREACHABLE"
    if view.is_leader:
        return f"{view.address} leads" + (f" ({cell(view.leader_id)})" if view.leader_id else "")
    return f"{view.address} " + ("stands by" if view.leader else "knows of no leader")


def _cells(each: ReplicaView) -> tuple[str, ...]:
    may = "is it" if each.is_master else "yes" if each.may_lead else f"NO: {each.why_not}"
    return (cell(each.address), str(each.broker_id), _yes(each.alive), _yes(each.in_sync),
            "?" if each.epoch is None else str(each.epoch),
            "?" if each.max_offset is None else f"{each.max_offset:,}", may)


def _yes(value: bool) -> str:
    return "yes" if value else "NO"
