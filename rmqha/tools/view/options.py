"""Options that `top` and `console` share."""
from collections.abc import Callable
from typing import Any, TypeVar

import click

from rmqha.common import mix_all
from rmqha.remoting.interfaces import RPCHook
from rmqha.tools.dialect.unit_types import duration_type
from rmqha.tools.ha.broker_admin import ReplicationToolError

F = TypeVar("F", bound=Callable[..., Any])


def view_options(default_interval_s: float) -> Callable[[F], F]:
    """--namesrv, --cluster, --broker, --interval, --timeout."""
    def add(command: F) -> F:
        for option in (
                click.option("--timeout", "timeout_s", default=2.0, show_default=True, type=duration_type(0.1, 600),
                             help="Seconds to wait for each answer."),
                click.option("-i", "--interval", "interval_s", default=default_interval_s, show_default=True,
                             type=duration_type(1, 3600), help="Seconds between two looks, 1 at least."),
                click.option("-b", "--broker", help="Only the brokers of this name, or of this host:port's name."),
                click.option("-c", "--cluster", help="Only the brokers of this cluster."),
                click.option("-n", "--namesrv", envvar=mix_all.NAMESRV_ADDR_ENV,
                             help="Name servers, host:port, separated by semicolons; by default $NAMESRV_ADDR.")):
            command = option(command)
        return command
    return add


def needed_namesrv(namesrv: str | None) -> str:
    """The name servers; an error for people without."""
    if not namesrv:
        raise ReplicationToolError("no name server: give it with -n host:port, or in NAMESRV_ADDR")
    return namesrv


def account() -> RPCHook | None:
    """What signs requests, by $ROCKETMQ_HOME/conf/tools.yml as for mqadmin; None without such a file."""
    from rmqha.tools.command.mq_admin_startup import get_acl_rpc_hook  # imports all of mqadmin

    return get_acl_rpc_hook()
