"""A name server and a broker with two queues per topic, and the command line to use them."""
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from click.testing import CliRunner, Result

from rmqha.tools.rmqha_command import rmqha
from tests.broker.support import BrokerHarness
from tests.store.support import wait_dispatched
from tests.support.in_process import running_name_server
from tests.tools.conftest import broker_at


@dataclass
class Line:
    """Runs `rmqha` with the name server's address in the environment."""

    namesrv: str
    broker: BrokerHarness

    def run(self, *arguments: object, stdin: str | bytes | None = None) -> Result:
        """Return the result of a command, once the messages that it has sent are dispatched."""
        result = CliRunner().invoke(rmqha, [str(argument) for argument in arguments], input=stdin,
                                    env={"NAMESRV_ADDR": self.namesrv})
        assert "Traceback" not in result.output
        wait_dispatched(self.broker.store)
        return result

    def ok(self, *arguments: object, stdin: str | bytes | None = None) -> Result:
        """Return the result of a command that must not fail."""
        result = self.run(*arguments, stdin=stdin)
        assert result.exit_code == 0, result.output
        return result


@pytest.fixture(scope="module")
def line(tmp_path_factory):
    """A running cluster of one broker."""
    folder = tmp_path_factory.mktemp("line")
    with ExitStack() as stack:
        namesrv = stack.enter_context(running_name_server(folder))
        broker = stack.enter_context(broker_at(folder / "broker", namesrv, enablePropertyFilter=True,
                                               defaultTopicQueueNums=2))
        yield Line(namesrv, broker)
