"""`check server`: whether one name server or broker answers; for containers and load balancers."""
import time

import click

from rmqha.common.protocol import response_code
from rmqha.tools.check.check_base import CheckCommand, Status
from rmqha.tools.dialect.options import output_option
from rmqha.tools.dialect.output import emit, put
from rmqha.tools.dialect.unit_types import duration_type
from rmqha.tools.ha.broker_admin import DEFAULT_TIMEOUT_MS, BrokerAdmin, NoAnswerError, RefusedError, parsed_address


@click.command("server", cls=CheckCommand)
@click.option("-n", "--namesrv", metavar="HOST:PORT", help="A name server.")
@click.option("-b", "--broker", metavar="HOST:PORT", help="A broker.")
@click.option("--timeout", "timeout_s", default=DEFAULT_TIMEOUT_MS / 1000, show_default=True,
              type=duration_type(0.1, 600), help="Seconds to wait for the answer.")
@output_option
def server_check_command(namesrv: str | None, broker: str | None, timeout_s: float, output: str) -> None:
    """Check one server: it answers a request at its port.

    A broker with access control that refuses the question does answer.
    """
    if (namesrv is None) == (broker is None):
        raise click.UsageError("give one server: a name server with -n, or a broker with -b")
    kind, option, address = ("name server", "--namesrv", namesrv) if broker is None else ("broker", "--broker", broker)
    parsed_address(address or "", option)
    begin = time.monotonic()
    status, text = Status.OK, f"{kind} {address} answers"
    try:
        with BrokerAdmin(namesrv, timeout_s * 1000) as admin:
            if broker is None:
                admin.cluster_info()
            else:
                admin.runtime_info(broker)
    except (NoAnswerError, RefusedError) as error:
        if isinstance(error, RefusedError) and error.code == response_code.NO_PERMISSION:
            text += ", and refuses the question"
        else:
            status, text = Status.CRITICAL, error.message
    seconds = time.monotonic() - begin
    if output != "table":
        emit({"check": "server", "status": status.name, "code": int(status), "text": text, "seconds": seconds}, output)
    else:
        put(f"SERVER {status.name} - {text} | 'time'={seconds:.3f}s;;;0")
    raise SystemExit(int(status))
