"""Options that several replication commands share, and times and rates as texts."""
import click

from rmqha.common import mix_all
from rmqha.tools.ha.broker_admin import DEFAULT_TIMEOUT_MS, Broker, BrokerAdmin, ReplicationToolError, chosen
from rmqha.tools.ha.replication import MasterView, read_broker, read_group
from rmqha.tools.store.output import size_text


def cluster_options(command):
    """--namesrv, --broker, --cluster, --timeout."""
    for option in (
            click.option("--timeout", "timeout_s", default=DEFAULT_TIMEOUT_MS / 1000, show_default=True,
                         type=click.FloatRange(0.1, 600), help="Seconds to wait for each answer."),
            click.option("-c", "--cluster", help="Only the brokers of this cluster."),
            click.option("-b", "--broker", help="Only this broker: its name, or its host:port."),
            click.option("-n", "--namesrv", envvar=mix_all.NAMESRV_ADDR_ENV,
                         help="Name servers, host:port, separated by semicolons; by default $NAMESRV_ADDR.")):
        command = option(command)
    return command


def read_replication(admin: BrokerAdmin, cluster: str | None, broker: str | None) -> list[MasterView]:
    """How replication stands at each broker chosen; an address without a name server is asked alone."""
    if not admin.namesrv:
        if broker is None or ":" not in broker:
            raise ReplicationToolError("give a name server with -n host:port, or a broker's address with -b host:port")
        if cluster is not None:
            raise ReplicationToolError("a cluster's brokers are known to its name server: give it with -n host:port")
        return [read_broker(admin, Broker("", "", 0, broker))]
    groups: dict[str, list[Broker]] = {}
    for each in chosen(admin.brokers(), cluster, broker):
        groups.setdefault(each.name, []).append(each)
    return [read_group(admin, group) for group in groups.values()]


def seconds_text(seconds: float | None) -> str:
    """Seconds as people read them; "?" for unknown."""
    if seconds is None:
        return "?"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def rate_text(rate: float | None) -> str:
    """Bytes a second; "?" for unknown."""
    return "?" if rate is None else f"{size_text(round(rate))}/s"
