"""The image of conf/docker, built and run: its contents, servers in containers, their data, their end."""
import re

import pytest

from tests.containers.engine import Podman
from tests.support.tiers import in_all
from tests.support.wait import wait_until

pytestmark = [in_all, pytest.mark.timeout(1800), pytest.mark.xdist_group("containers")]

MIB = 1 << 20
MOST_MIB = 100  # that the image may add to its base; 64 were measured
HARDENED = ("--read-only", "--read-only-tmpfs=false", "--cap-drop=all", "--security-opt=no-new-privileges")
MESSAGES = 500


def test_image_has_the_programs_and_no_compiler(podman: Podman, image: str):
    size, base = (int(podman.inspected(name, "{{.Size}}")) for name in (image, podman.base))
    assert size - base < MOST_MIB * MIB
    shell = "id -u; id -g; command -v gcc pip || echo none; find / -xdev -user 0 -perm -4000 -newer /opt/rmqha; " \
            "ls -A /var/lib/rmqha /etc/rmqha; /opt/rmqha/bin/python -c '" \
            "import rmqha.native.kernels as k; print(k.are_all_compiled())'"
    done = podman.run_tool(image, "-c", shell, options=["--entrypoint", "/bin/sh"])
    assert done.stdout.split() == ["3000", "3000", "none", "/etc/rmqha:", "/var/lib/rmqha:", "True"]
    assert podman.inspected(image, "{{.Config.StopSignal}}") == "SIGTERM"
    assert "healthcheck.sh" in podman.inspected(image, "{{.HealthCheck.Test}}")


@pytest.mark.parametrize("words", [(), HARDENED], ids=["plain", "hardened"])
def test_quickstart_and_templates(podman: Podman, image: str, words: tuple[str, ...]):
    done = podman.run_tool(image, "rmqha", "quickstart", options=words)
    assert "all 1,000, none twice" in done.stdout and "nothing is left running" in done.stdout
    done = podman.run_tool(image, "rmqha", "config", "init", "/var/lib/rmqha/conf", options=words)
    assert re.search(r"\d\d files copied, 0 existing files kept", done.stdout)


def test_other_users_and_programs(podman: Podman, image: str):
    done = podman.run_tool(image, "rmqha", "quickstart", options=["--user", "12345:12345", "--tmpfs", "/tmp"])
    assert "nothing is left running" in done.stdout
    done = podman.run_tool(image, "sh", "-c", "true", check=False)
    assert done.returncode == 2 and "give one of mqnamesrv" in done.stderr


def test_servers_keep_their_messages(podman: Podman, image: str):
    """Two servers and tools in five containers: send, stop the broker with SIGTERM, start it again, consume."""
    with podman.network(podman.name) as network:
        joined = ("--network", network)
        volumes = {name: f"{podman.name}-{name}" for name in ("mqnamesrv", "broker")}
        for volume in volumes.values():
            podman("volume", "create", "--label", podman.name, volume)
        servers = {"mqnamesrv": ["mqnamesrv"],
                   "broker": ["mqbroker", "-n", "mqnamesrv:9876", "preallocateMappedFile=false", "brokerName=broker-a"]}
        for name, words in servers.items():
            podman.start(name, *joined, *HARDENED, "-v", f"{volumes[name]}:/var/lib/rmqha", image, *words)
            podman.wait_until_healthy(name)
        address = ("-n", "mqnamesrv:9876", "-t", "Orders")
        sent = "".join(f"order {number}\n" for number in range(MESSAGES))
        done = podman.run_tool(image, "rmqha", "produce", *address, options=joined, text=sent)
        assert f"{MESSAGES} messages sent" in done.stdout + done.stderr

        def list_store() -> set[str]:
            """Return the names in the store, as another container sees the volume."""
            options = ["-v", f"{volumes['broker']}:/data", "--entrypoint", "/bin/ls"]
            done = podman.run_tool(image, "/data/store", options=options)
            return set(done.stdout.split())

        def consume() -> list[str]:
            done = podman.run_tool(image, "rmqha", "consume", *address, "--count", str(MESSAGES), "-f", r"%s\n",
                                   options=joined, check=False)
            return sorted(done.stdout.splitlines())

        assert "abort" in list_store()
        podman("stop", "-t", "600", "broker")
        assert podman.inspected("broker", "{{.State.ExitCode}}") == "0"
        assert "abort" not in list_store() and "commitlog" in list_store()
        assert not podman.is_healthy("broker")
        podman("start", "broker")
        podman.wait_until_healthy("broker")
        wait_until(lambda: consume() == sorted(sent.splitlines()), what="all messages are there after the restart")
        podman("kill", "broker")
        podman("start", "broker")
        podman.wait_until_healthy("broker")
        wait_until(lambda: consume() == sorted(sent.splitlines()), what="all messages are there after the kill")
        # A server that hangs is not healthy.
        podman("pause", "mqnamesrv")
        try:
            done = podman.run_tool(image, "rmqha", "check", "server", "-n", "mqnamesrv:9876", "--timeout", "1",
                                   options=joined, check=False)
            assert done.returncode == 2
        finally:
            podman("unpause", "mqnamesrv")
        podman.wait_until_healthy("mqnamesrv")
