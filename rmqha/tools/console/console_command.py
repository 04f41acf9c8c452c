"""The command `rmqha console`."""
import secrets

import click

from rmqha.tools.console.app import MIN_TOKEN, Access, is_loopback
from rmqha.tools.terminal import extra_needed
from rmqha.tools.view.texts import account, needed_namesrv, view_options


@click.command("console")
@view_options(default_interval_s=2.0)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; elsewhere than on a "
              "loopback address the token is needed for reading, too.")
@click.option("--port", default=8088, show_default=True, type=click.IntRange(0, 65535), help="0: any that is free.")
@click.option("--token", envvar="RMQHA_CONSOLE_TOKEN", help="The token; by default a new one is made and printed. "
              "Better in $RMQHA_CONSOLE_TOKEN: a command line is seen by all users of a host.")
@click.option("--allow-host", "hosts", multiple=True, metavar="NAME",
              help="A name by which the console may be asked, beside addresses; several times for several.")
@click.option("--allow-writes", is_flag=True, help="Let who has the token change topics, offsets and permissions.")
def console_command(namesrv: str | None, cluster: str | None, broker: str | None, interval_s: float, timeout_s: float,
                    host: str, port: int, token: str | None, hosts: tuple[str, ...], allow_writes: bool) -> None:
    """Serve a web page that shows a cluster: replication, topics, groups, messages, stores.

    It only shows, unless --allow-writes is given. Works with rmqha's and Java's brokers.
    """
    if token is not None and len(token) < MIN_TOKEN:
        raise click.UsageError(f"--token: at least {MIN_TOKEN} characters, for instance of `openssl rand -hex 16`")
    access = Access(token or secrets.token_urlsafe(24), not is_loopback(host), allow_writes,
                    frozenset(name.lower() for name in hosts))
    namesrv = needed_namesrv(namesrv)
    with extra_needed("console", "console"):
        from rmqha.tools.console.app import Wanted
        from rmqha.tools.console.server import serve
    serve(Wanted(namesrv, cluster, broker, interval_s, timeout_s, account()), access, host, port)
