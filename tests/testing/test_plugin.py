"""The pytest plugin: fixtures, options, factories and the sample project, run by the real pytest."""
import re
import shutil
import textwrap
from pathlib import Path

import psutil
import pytest

from rmqha.testing import EmbeddedRocketMQ
from tests.support import real_rocketmq
from tests.support.sources import ROOT
from tests.support.tiers import in_all, in_long
from tests.support.wait import wait_until
from tests.testing.support import outcome, run_pytest

SAMPLE = ROOT / "docs" / "examples" / "testing"
@pytest.fixture
def sample(tmp_path):
    """A copy of the sample project."""
    return Path(shutil.copytree(SAMPLE, tmp_path / "sample", ignore=shutil.ignore_patterns("__pycache__", ".*")))


@in_all
def test_sample_project_has_30_tests(sample):
    done = run_pytest(sample, "-q")
    assert outcome(done) == "30 passed", done.stdout


@in_long
def test_sample_project_runs_with_servers_in_another_process(sample):
    done = run_pytest(sample, "-q", "--rocketmq-backend=process")
    assert outcome(done) == "30 passed", done.stdout


@in_long
@pytest.mark.java
@pytest.mark.parametrize("version", [real_rocketmq.VERSION, real_rocketmq.VERSION_5])
def test_sample_project_runs_with_the_real_rocketmq_except_for_faults(sample, release, version):
    done = run_pytest(sample, "-q", "--rocketmq-backend=java", f"--rocketmq-home={release(version)}")
    assert outcome(done) == "24 passed, 6 skipped", done.stdout


@in_all
def test_sample_project_runs_in_two_workers_that_share_nothing(sample):
    done = run_pytest(sample, "-q", "-n", "2")
    assert outcome(done) == "30 passed", done.stdout


def test_plugin_imports_no_server_code_before_a_fixture_is_used(project):
    folder = project("""
        import sys

        def test_nothing_is_here():
            heavy = [name for name in sys.modules if name.startswith("rmqha.") and name.split(".")[1] != "testing"]
            assert heavy == [] and "rmqha.testing.embedded" not in sys.modules
            assert "psutil" not in sys.modules and "click" not in sys.modules
        """)
    done = run_pytest(folder, "-q")
    assert outcome(done) == "1 passed", done.stdout


@in_all
def test_options_come_from_the_factory_then_the_command_line_then_the_ini_file(project):
    folder = project("""
        from rmqha.testing import factories

        mine = factories.rocketmq("2m", config={"maxMessageSize": 300})

        def sizes(mq):
            return [one.controller.message_store_config.maxMessageSize for one in mq.brokers]

        def test_command_line_goes_before_the_ini_file(rocketmq):
            assert [one.node for one in rocketmq.brokers] == ["broker-a", "broker-a-s"]
            assert rocketmq.broker("broker-a").controller.message_store_config.brokerRole.name == "SYNC_MASTER"
            assert sizes(rocketmq) == [200, 200]
            assert rocketmq.broker("broker-a").controller.broker_config.traceTopicEnable

        def test_factory_goes_before_all(mine):
            assert [one.node for one in mine.brokers] == ["broker-a", "broker-b"]
            assert sizes(mine) == [300, 300]
        """, ini="""
        rocketmq_topology = 2m-2s
        rocketmq_sync = true
        rocketmq_config =
            maxMessageSize = 100
            traceTopicEnable = true
        """)
    done = run_pytest(folder, "-q", "--rocketmq-topology=1m-1s", "--rocketmq-config", "maxMessageSize=200")
    assert outcome(done) == "2 passed", done.stdout


def test_each_test_gets_a_clean_cluster_at_the_same_address(project):
    folder = project("""
        import pytest
        addresses = set()

        @pytest.mark.parametrize("number", range(3))
        def test_it(rocketmq, number):
            assert rocketmq.faults == [] and rocketmq.messages("left") == []
            addresses.add(rocketmq.namesrv_addr)
            rocketmq.create_topic("left", queues=1)
            rocketmq.slow_down(10)
            rocketmq.kill_master()

        def test_the_address_is_one():
            assert len(addresses) == 1
        """)
    done = run_pytest(folder, "-q")
    assert outcome(done) == "4 passed", done.stdout


@in_all
def test_server_process_ends_with_the_tests_even_when_they_are_killed(project, tmp_path):
    pid_file = tmp_path / "pids"
    folder = project(f"""
        import os, signal

        def test_it(rocketmq_proc):
            with open({str(pid_file)!r}, "w") as file:
                file.write(str(rocketmq_proc.pid))
            if os.environ.get("KILLED"):
                os.kill(os.getpid(), signal.SIGKILL)
        """)
    for killed in ("", "yes"):
        done = run_pytest(folder, "-q", KILLED=killed)
        assert done.returncode == (-9 if killed else 0), done.stdout
        wait_until(lambda: not psutil.pid_exists(int(pid_file.read_text())), 60_000, "its end")


@in_all
def test_server_process_uses_the_port_given_by_the_options(project):
    from tests.support.ports import free_port
    port = free_port()
    folder = project(f"""
        def test_it(rocketmq_proc):
            assert rocketmq_proc.namesrv_addr == "127.0.0.1:{port}"
            assert rocketmq_proc.env["NAMESRV_ADDR"] == rocketmq_proc.namesrv_addr
        """, ini=f"rocketmq_port = {port}")
    done = run_pytest(folder, "-q")
    assert outcome(done) == "1 passed", done.stdout


def test_address_of_an_external_server_is_taken_from_each_source(project):
    code = """
        def test_it(rocketmq_noproc):
            assert set(rocketmq_noproc.brokers()) == {"broker-a", "broker-b"}
        """
    with EmbeddedRocketMQ("2m") as mq:
        ini = f"rocketmq_namesrv_addr = 127.0.0.1:1;{mq.namesrv_addr}"
        for done in (run_pytest(project(code, "rocketmq_namesrv_addr = 127.0.0.1:1"), "-q",
                                "--rocketmq-namesrv-addr", mq.namesrv_addr),
                     run_pytest(project(code, ini), "-q", NAMESRV_ADDR="127.0.0.1:1"),
                     run_pytest(project(code), "-q", NAMESRV_ADDR=mq.namesrv_addr)):
            assert outcome(done) == "1 passed", done.stdout


@in_all
def test_errors_are_one_line_with_the_reason_and_no_traceback(project):
    folder = project("""
        import pytest
        from rmqha.testing import factories

        topology = factories.rocketmq("3s")
        key = factories.rocketmq(config={"maxMessageSizes": 1})
        folder = factories.rocketmq(store_dir="/nowhere/at/all")
        process = factories.rocketmq_proc("3s")
        port = factories.rocketmq_proc(port="9876a")
        silent = factories.rocketmq_noproc("127.0.0.1:1")

        @pytest.mark.parametrize("name", ["topology", "key", "folder", "process", "port", "silent", "rocketmq_noproc"])
        def test_it(request, name):
            request.getfixturevalue(name)
        """)
    done = run_pytest(folder, "-q")
    assert outcome(done) == "7 failed", done.stdout
    for why in ("invalid topology '3s'", "unknown key maxMessageSizes, did you mean maxMessageSize?",
                "can't create a folder for the stores in /nowhere/at/all",
                "the RocketMQ for the tests has exited with code 2: invalid topology '3s'",
                "rocketmq_port=9876a is not a port", "no name server answers: 127.0.0.1:1",
                "the name server address is not set"):
        assert why in done.stdout
    assert "Traceback" not in done.stdout and not re.search(r"^\S*rmqha/\S*\.py:\d+: ", done.stdout, re.MULTILINE)


def test_invalid_config_option_is_refused(project):
    done = run_pytest(project("def test_it(rocketmq): pass"), "-q", "--rocketmq-config=maxMessageSize")
    assert outcome(done) == "1 error" and "config 'maxMessageSize' is not KEY=VALUE" in done.stdout


def test_examples_of_the_page_run(tmp_path):
    page = (ROOT / "docs" / "testing.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for number, block in enumerate(blocks):
        tested = block if "def test" in block else "def test_it():\n" + textwrap.indent(block, "    ")
        (tmp_path / f"test_{number}.py").write_text(tested, "utf-8")
    done = run_pytest(tmp_path, "-q")
    assert len(blocks) == 9 and outcome(done) == "13 passed", done.stdout


@in_all
def test_help_lists_fixtures_and_options(project):
    folder = project("")
    fixtures = run_pytest(folder, "--fixtures").stdout
    for name in ("rocketmq", "rocketmq_ha", "rocketmq_proc", "rocketmq_noproc", "rocketmq_topic", "rocketmq_aio",
                 "rocketmq_transactions"):
        assert re.search(rf"^{name}\b.*\n    ", fixtures, re.MULTILINE), fixtures
    options = run_pytest(folder, "--help").stdout
    for name in ("backend", "home", "scope", "topology", "sync", "host", "port", "store-dir", "config",
                 "namesrv-addr"):
        assert f"--rocketmq-{name}" in options and f"rocketmq_{name.replace('-', '_')} " in options
