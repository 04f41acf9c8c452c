"""The command `rmqha console`."""
import secrets

import click

from rmqha.common.program import examples
from rmqha.tools.connection import account, needed_namesrv
from rmqha.tools.console.access import MIN_TOKEN, Access, is_loopback
from rmqha.tools.terminal import extra_needed
from rmqha.tools.view.texts import view_options


@click.command("console", epilog=examples(
    "rmqha console -n 127.0.0.1:9876",
    "rmqha console -n 127.0.0.1:9876 --allow-writes --port 8080"))
@view_options(default_interval_s=2.0)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on. Unless it is a loopback "
              "address, the token is required for reading, too.")
@click.option("--port", default=8088, show_default=True, type=click.IntRange(0, 65535),
              help="Port to listen on; 0: any free port.")
@click.option("--token", envvar="RMQHA_CONSOLE_TOKEN", help="The token; by default a new one is generated and printed. "
              "Prefer $RMQHA_CONSOLE_TOKEN: all users of a host can see its command lines.")
@click.option("--allow-host", "hosts", multiple=True, metavar="NAME",
              help="A host name, in addition to addresses, under which the console may be used; may be repeated.")
@click.option("--allow-writes", is_flag=True, help="Allow changes of topics, offsets and permissions with the token.")
def console_command(namesrv: str | None, cluster: str | None, broker: str | None, interval_s: float, timeout_s: float,
                    host: str, port: int, token: str | None, hosts: tuple[str, ...], allow_writes: bool) -> None:
    """Serve a web page that shows a cluster.

    The page shows replication, topics, groups, messages and stores. It is read-only unless --allow-writes is given.
    Works with rmqha's and Java's brokers. Prints the page's address, and the token if one is needed; runs until Ctrl-C.
    """
    if token is not None and len(token) < MIN_TOKEN:
        raise click.UsageError(f"--token must have at least {MIN_TOKEN} characters; create one with "
                               "`openssl rand -hex 16`, for example")
    access = Access(token or secrets.token_urlsafe(24), not is_loopback(host), allow_writes,
                    frozenset(name.lower() for name in hosts))
    namesrv = needed_namesrv(namesrv)
    with extra_needed("console", "console"):
        from rmqha.tools.console.app import Wanted
        from rmqha.tools.console.server import serve
    serve(Wanted(namesrv, cluster, broker, interval_s, timeout_s, account()), access, host, port)
