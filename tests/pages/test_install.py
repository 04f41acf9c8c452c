"""docs/install.md, run as it is; in a file of its own, since it builds rmqha twice."""
import pytest

from tests.pages.walk import Scenario, Walk, start, stop
from tests.support.tiers import in_all

pytestmark = [in_all, pytest.mark.timeout(1800)]


def test_install(machine):
    def start_own(walk):
        start(walk, ("mqnamesrv &", "mqbroker -n 127.0.0.1:9876 brokerIP1=127.0.0.1 &"))

    machine.run("cd ~ && python3 -m venv own && . own/bin/activate")
    pip = ["pip install /path/to/rmqha", "pip wheel --no-deps /path/to/rmqha",
           'pip install "$(echo ./rmqha-*.whl)[acl]"']
    levels = ("mqadmin updateBrokerConfig -b 127.0.0.1:10911 -k logLevel -v DEBUG",
              "mqadmin updateNamesrvConfig -n 127.0.0.1:9876 -k logLevel -v DEBUG")
    walk = Walk("docs/install.md", machine, Scenario(
        online=pip, replace={"/path/to/rmqha": str(machine.clone)}, before={levels[0]: start_own})).run()
    assert "DEBUG" in (machine.home / "logs" / "rocketmqlogs" / "namesrv.log").read_text("utf-8")
    stop(walk)
    assert machine.run("rmqha config path").output == f"{machine.home}/.config/rmqha/conf\n"
    walk.check_that_nothing_runs()
