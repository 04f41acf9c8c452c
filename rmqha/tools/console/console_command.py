"""The command `rmqha console`."""
import secrets

import click
from click.core import ParameterSource

from rmqha.common.program import examples
from rmqha.tools.connection import account, needed_namesrv
from rmqha.tools.terminal import CannotAnswerError, extra_needed
from rmqha.tools.view.texts import view_options

_ROLES = ("see", "publish", "administer")


@click.command("console", epilog=examples(
    "rmqha console -n 127.0.0.1:9876",
    "rmqha console -n 127.0.0.1:9876 --role administer --port 8080",
    "rmqha console --accounts conf/plain_acl.yml --host 0.0.0.0"))
@view_options(default_interval_s=2.0)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on. Unless it is a loopback "
              "address, reading needs a sign-in, too.")
@click.option("--port", default=8088, show_default=True, type=click.IntRange(0, 65535),
              help="Port to listen on; 0: any free port.")
@click.option("--token", envvar="RMQHA_CONSOLE_TOKEN", help="The token; by default a new one is generated and printed. "
              "Prefer $RMQHA_CONSOLE_TOKEN: all users of a host can see its command lines.")
@click.option("--role", type=click.Choice(_ROLES), default="see", show_default=True,
              help="The role of the token: to see; also to publish messages; also to change the cluster.")
@click.option("--accounts", metavar="FILE", type=click.Path(dir_okay=False),
              help="A plain_acl.yml with whose accounts people sign in. An admin account may administer; the others "
                   "may read and publish what their permissions allow.")
@click.option("--allow-host", "hosts", multiple=True, metavar="NAME",
              help="A host name, in addition to addresses, under which the console may be used; may be repeated.")
@click.option("--allow-writes", is_flag=True, help="The same as --role administer; another --role contradicts it.")
def console_command(namesrv: str | None, cluster: str | None, broker: str | None, interval_s: float, timeout_s: float,
                    host: str, port: int, token: str | None, role: str, accounts: str | None, hosts: tuple[str, ...],
                    allow_writes: bool) -> None:
    """Serve a web page that shows a cluster.

    The page shows replication, topics, groups, messages, dead letters, settings, accounts and stores. It is read-only
    unless --role or --accounts allows more. Works with rmqha's and Java's brokers. Prints the page's address, and the
    token if one is needed; runs until Ctrl-C. Changes and sign-ins are logged to standard error, and to tools.log in
    $ROCKETMQ_LOG_DIR or ~/logs/rocketmqlogs.
    """
    from rmqha.acl.common import AclException
    from rmqha.tools.console.access import MIN_TOKEN, Access, Role, SignIn, is_loopback

    if token is not None and len(token) < MIN_TOKEN:
        raise click.UsageError(f"--token must have at least {MIN_TOKEN} characters; create one with "
                               "`openssl rand -hex 16`, for example")
    is_given = click.get_current_context().get_parameter_source("role") is ParameterSource.COMMANDLINE
    if allow_writes and is_given and Role.of(role) is not Role.ADMINISTER:
        raise click.UsageError(f"--role {role} and --allow-writes contradict each other: --allow-writes is the same as "
                               "--role administer")
    sign_in = None
    if accounts is not None:
        try:
            sign_in = SignIn(accounts)
        except AclException as error:
            raise CannotAnswerError(str(error)) from None
    access = Access(token or secrets.token_urlsafe(24), not is_loopback(host),
                    Role.ADMINISTER if allow_writes else Role.of(role), frozenset(name.lower() for name in hosts),
                    sign_in)
    namesrv = needed_namesrv(namesrv)
    with extra_needed("console", "console"):
        from rmqha.tools.console.server import serve
        from rmqha.tools.console.source import Wanted
    serve(Wanted(namesrv, cluster, broker, interval_s, timeout_s, account()), access, host, port)
