"""healthcheck.sh of the image finds the program of process 1 and asks it, for servers that other tests do not show."""
import os
import subprocess
import sys
from pathlib import Path

from tests.support.in_process import running_name_server
from tests.support.nodes import ControllerNode
from tests.support.sources import ROOT

SCRIPT = ROOT / "conf" / "docker" / "healthcheck.sh"


def health(folder: Path, port: str, *words: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run the health check of a container whose first process has this command line."""
    file = folder / "cmdline"
    file.write_text("".join(f"{word}\0" for word in words))
    path = f"{ROOT / 'bin'}{os.pathsep}{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(["sh", str(SCRIPT)], capture_output=True, text=True, timeout=600, check=False,
                          env={**os.environ, "PATH": path, "RMQHA_HEALTH_CMDLINE": str(file),
                               "RMQHA_HEALTH_PORT": port, **environment})


def test_host_with_the_name_of_a_program_is_not_taken_for_it(tmp_path):
    with running_name_server(tmp_path) as address:
        port = address.rpartition(":")[2]
        broker = ("/opt/rmqha/bin/python3", "/opt/rmqha/bin/mqbroker", "-n", "mqnamesrv:9876", "brokerName=*")
        found = health(tmp_path, port, *broker)
        assert found.returncode == 1 and "the broker" in found.stdout
        # With an init process, which Docker and Podman start for --init.
        found = health(tmp_path, port, "/sbin/docker-init", "--", "entrypoint.sh", "mqnamesrv", "-n", "mqbroker:9876")
        assert found.returncode == 0 and "SERVER OK" in found.stdout


def test_controller_is_healthy_while_it_answers(tmp_path):
    command = ("/opt/rmqha/bin/python3", "/opt/rmqha/bin/mqcontroller", "-c", "/etc/rmqha/controller.properties")
    controller = ControllerNode("rmqha", tmp_path)
    controller.start()
    port = controller.address.rpartition(":")[2]
    try:
        # A cluster that lacks brokers, or a name server, does not make the controller unhealthy.
        found = health(tmp_path, port, *command, NAMESRV_ADDR="127.0.0.1:1")
        assert found.returncode == 0 and "CONTROLLER OK" in found.stdout, found.stdout + found.stderr
    finally:
        controller.stop()
    assert health(tmp_path, port, *command).returncode == 1
