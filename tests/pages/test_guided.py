"""Hosts are apart from each other, and a scenario that does not fit its page fails."""
import contextlib
import re

import pytest

from tests.pages import page
from tests.pages.guided import OFFSET, Guided
from tests.pages.states import MASTER, SLAVE
from tests.support.wait import wait_until

ONE_BLOCK = "# Look\n\n```bash\necho 1,000 bytes on 2 disks\n```\n\n```text\n{}\n```\n"
EDIT = "# Edit\n\nIn the file `/etc/rocketmq/a.properties` set\n\n```properties\nkey=2\nnew=3\n```\n"


@pytest.fixture
def guided(make_hosts):
    hosts = make_hosts(MASTER, SLAVE)
    with contextlib.ExitStack() as made:
        yield lambda text: made.enter_context(
            Guided(page.Page("a.md", tuple(page.blocks_of("a.md", text))), hosts, "/"))


def test_each_host_has_its_own_address_files_processes_and_home(guided):
    walk = guided("")
    for at in (MASTER, SLAVE):
        assert f"inet {at}/24" in walk.tool(at, "ip -o addr")
        walk.tool(at, f"echo {at} | tee /data/x /etc/rocketmq/x ~/x")
        assert walk.hosts[at].path("/data/x").read_text() == f"{at}\n"
    assert walk.tool(MASTER, "cat /data/x /etc/rocketmq/x ~/x").split() == [MASTER] * 3
    walk.tool(MASTER, "echo both >/backup/x; sleep 1234 >/dev/null 2>&1 &")
    assert walk.tool(SLAVE, "cat /backup/x").strip() == "both"
    wait_until(lambda: ["sleep", "1234"] in [process.cmdline() for process in walk.hosts[MASTER].processes()])
    assert "sleep 1234" in walk.tool(MASTER, "ps ax") and "sleep 1234" not in walk.tool(SLAVE, "ps ax")


def test_a_cable_is_pulled_and_plugged(guided):
    walk = guided("")
    reach = f"timeout 2 bash -c 'exec 3<>/dev/tcp/{SLAVE}/1' 2>&1; true"
    assert "refused" in walk.tool(MASTER, reach)
    with walk.hosts[SLAVE].unplugged():
        assert "refused" not in walk.tool(MASTER, reach)
    walk.until(MASTER, reach, "refused")


@pytest.mark.parametrize("shown, differs, wrong", [
    ("1,000 bytes on 2 disks", [], None), ("4,096 bytes on 2 disks", [], "4,096"),
    ("4,096 bytes on 2 disks", [OFFSET], None), ("1,000 bytes on 3 disks", [OFFSET], "3 disks"),
    ("1,000 bytes", [], "1,000 bytes"), ("...", [], None), ("", [], "on 2 disks")])
def test_output_that_the_page_does_not_show_fails(guided, shown, differs, wrong):
    walk = guided(ONE_BLOCK.format(shown))
    if wrong is None:
        walk.types("Look", MASTER, differs=differs)
        walk.done()
    else:
        with pytest.raises(AssertionError, match=re.escape(wrong)):
            walk.types("Look", MASTER, differs=differs)


@pytest.mark.parametrize("does, wrong", [
    (lambda walk: walk.types("Look", MASTER, codes={"echo": 1}), "exit code 0, not 1"),
    (lambda walk: walk.types("Look", MASTER, codes={"cat": 1}), "no command begins with ['cat']"),
    (lambda walk: walk.types("See", MASTER), "'bash' under 'Look'"),
    (lambda walk: walk.edits("Look", MASTER, "/etc/rocketmq/a.properties"), "'bash' under 'Look'"),
    (lambda walk: walk.done(), "leaves out: ['a.md:4', 'a.md:8']"),
    (lambda walk: [walk.types("Look", MASTER), walk.types("Look", MASTER)], "no further block")])
def test_a_scenario_that_does_not_fit_the_page_fails(guided, does, wrong):
    with pytest.raises(AssertionError, match=re.escape(wrong)):
        does(guided(ONE_BLOCK.format("1,000 bytes on 2 disks")))


def test_lines_are_put_into_the_file_that_the_page_names(guided):
    walk = guided(EDIT)
    file = walk.hosts[SLAVE].path("/etc/rocketmq/a.properties")
    file.write_text("# mine\nkey=1\nother=1\n")
    walk.edits("Edit", SLAVE, "/etc/rocketmq/a.properties")
    assert file.read_text() == "# mine\nkey=2\nother=1\nnew=3\n"
    with pytest.raises(AssertionError, match="does not name /etc/rocketmq/b.properties"):
        guided(EDIT).edits("Edit", SLAVE, "/etc/rocketmq/b.properties")


def test_a_shell_keeps_its_variables_and_a_server_that_ends_is_reported(guided):
    walk = guided("# Look\n\n```bash\nexport NAME=value\necho $NAME\n```\n\n```text\nvalue\n```\n")
    walk.types("Look", MASTER)
    with pytest.raises(AssertionError, match="no such file"):
        walk.starts(MASTER, ["bash", "-c", "echo no such file; exit 3"])
