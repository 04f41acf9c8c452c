"""README.md and the pages about examples, mqadmin, testing and clusters, run as they are."""
import re
import shutil

import pytest

from tests.pages.walk import Differs, Scenario, Walk, named, start, stop
from tests.support.tiers import in_all

pytestmark = [in_all, pytest.mark.timeout(1800)]

CONTAINERS = "needs Docker"
SYSTEMD = "needs systemd as process 1, and installs for the whole host"


def run_as_test(walk, block):
    """Run a Python block, a test file or a program, in a project of the reader's own."""
    number = len(walk.pasted)
    project = walk.machine.home / "project"
    project.mkdir(exist_ok=True)
    is_test = re.search(r"^(async )?def test_", block.text, re.MULTILINE) is not None
    file = project / (f"test_block_{number}.py" if is_test else f"block_{number}.py")
    file.write_text(block.text, "utf-8")
    # A reader who writes tests has pytest, and for coroutines a plugin that runs them.
    needed = ["pytest", *(["anyio"] if "anyio" in block.text else [])]
    if is_test and walk.machine.run(f".venv/bin/python -c 'import {', '.join(needed)}'").status:
        done = walk.machine.run(f".venv/bin/pip install --quiet {' '.join(needed)}", online=True)
        assert done.status == 0, done.output
    program = "-m pytest -q" if is_test else ""
    done = walk.machine.run(f"(cd ~/project && {walk.machine.clone}/.venv/bin/python {program} {file.name})")
    assert done.status == 0, f"{block.place}: {done.output}"
    assert "Traceback" not in done.output and "warning" not in done.output.lower(), f"{block.place}: {done.output}"
    walk.pasted.append(done.output)
    walk.printed = done.output


def test_readme(machine):
    def greeted(walk, done):
        assert [line.split()[-1] for line in done.output.splitlines()] == ["body", "hello"], done.output

    walk = Walk("README.md", machine, Scenario(
        exempt={"bin/test": "it runs a part of the tests among which this one is"},
        after={"bin/rmqha consume -n 127.0.0.1:9876 -t Greetings": greeted},
        blocks={"from rmqha import Message, Producer": run_as_test}))
    for block in walk.page.blocks:
        walk.do(block)
        if block.language == "python" and "commit_sync" in block.text:
            assert walk.shows("SendResult [sendStatus=SEND_OK, "), walk.printed
            assert re.search(r"^greeting-1 hello$", walk.printed, re.M), walk.printed
            machine.leave_the_prompt()
    walk.check_scenario()
    assert "1 passed" in walk.printed
    assert len(machine.processes()) == 3, "a persistent cluster"
    assert machine.run("bin/rmqha down --purge --yes").status == 0
    walk.check_that_nothing_runs()


def test_examples(machine):
    walk = Walk("docs/examples.md", machine).run()
    programs = [done.output for name, done in walk.ran if name.startswith(".venv/bin/python ")]
    assert [len(output.splitlines()) for output in programs] == [3, 3, 1] and programs[2] == "hot: Cairo Delhi\n"
    assert machine.run("bin/rmqha down --purge --yes").status == 0
    walk.check_that_nothing_runs()


def test_mqadmin(machine):
    start(Walk("docs/mqadmin.md", machine))
    sent = machine.run("for queue in 0 1 2 3; do "
                       "seq 3 | bin/rmqha produce -n 127.0.0.1:9876 -t orders --queue $queue || exit; done")
    assert sent.status == 0, sent.output
    walk = Walk("docs/mqadmin.md", machine, Scenario(
        differs=[Differs(r'"lastUpdated": \d{13}\b', '"lastUpdated": <time>')])).run()
    stop(walk)
    walk.check_that_nothing_runs()


def test_testing(machine):
    other = "is built and run by tools that are not part of rmqha; the command that it runs is run above"
    walk = Walk("docs/testing.md", machine)
    first_lines = [block.text.split("\n", 1)[0] for block in walk.page.blocks if block.language == "python"]
    walk.scenario = Scenario(
        exempt={"mvn test": "runs the tests of a Java project of the reader's",
                "pip install pytest PATH-OR-URL": "is done for the checkout's .venv",
                "cd docs/examples/testing && python -m pytest": "is run below, in a copy",
                **{block.text.split("\n", 1)[0]: other for block in walk.page.blocks
                   if block.language in ("java", "go")}},
        blocks=dict.fromkeys(first_lines, run_as_test),
        before={'eval "$(rmqha up --wait --print-env --name tests)"': lambda walk: machine.run(". .venv/bin/activate")})
    walk.run()
    assert [re.findall(r"\d+ passed", printed) for printed in walk.pasted] == [
        ["1 passed"], ["1 passed"], ["2 passed"], ["1 passed"], ["1 passed"], ["1 passed"], [], ["4 passed"],
        ["1 passed"]]
    assert re.fullmatch(r"127\.0\.0\.1:\d+ 127\.0\.0\.1:\d+\n", walk.pasted[6])
    shutil.copytree(machine.copy / "docs" / "examples" / "testing", machine.home / "shop")
    sample = machine.run("(cd ~/shop && python -m pytest -q)")
    assert "30 passed" in sample.output, sample.output
    walk.check_that_nothing_runs()


def test_clusters(machine):
    def is_there_again(walk, done):
        assert address(walk) in done.output
        if sum(name == "bin/rmqha up --wait" for name, _done in walk.ran) == 1:
            assert walk.machine.run("echo kept | bin/rmqha produce -n $NAMESRV_ADDR -t Kept").status == 0

    def address(walk):
        up, = [done.output for name, done in walk.ran if name == "bin/rmqha up --wait"][:1]
        return re.search(r"NAMESRV_ADDR=(\S+)", up)[1]

    walk = Walk("docs/clusters.md", machine)
    systemd, = [block for block in walk.page.blocks if "useradd" in block.text]
    containers, = [block for block in walk.page.blocks if "docker compose" in block.text]
    walk.scenario = Scenario(
        exempt={**dict.fromkeys(map(named, systemd.commands()), SYSTEMD),
                **dict.fromkeys(map(named, containers.commands()), CONTAINERS),
                "storePathRootDir=/var/lib/rmqha/broker-a/store": SYSTEMD, "[Service]": SYSTEMD,
                "mvn test": "runs the tests of a Java project of the reader's"},
        online=["bin/ensure-venv acl"], replace={"127.0.0.1:24557": address}, after={"bin/rmqha ps": is_there_again})
    walk.run()
    walk.check_that_nothing_runs()
