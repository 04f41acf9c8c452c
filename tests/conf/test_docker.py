"""Image and compose files: each file, program and extra that they name is there, and the scripts work."""
import os
import re
import subprocess
import sys

import pytest

from rmqha.broker.broker_startup import DEFAULT_LISTEN_PORT
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.configuration import load_config_file
from rmqha.namesrv import namesrv_startup
from rmqha.remoting.remoting_config import RemotingClientConfig, ServerConfig
from rmqha.store import message_store_config
from rmqha.store.message_store_config import BrokerRole, MessageStoreConfig
from tests.support import ports
from tests.support.in_process import running_name_server
from tests.support.sources import ROOT

DOCKER = ROOT / "conf" / "docker"
COMPOSE = {"compose-1m-1s.yml": 1, "compose-2m-2s.yml": 2}
HOME = "/var/lib/rmqha"


def dockerfile():
    """The instructions: (word, rest), continuation lines joined."""
    text = (DOCKER / "Dockerfile").read_text("ascii").replace("\\\n", "")
    return [tuple(line.split(" ", 1)) for line in text.splitlines() if line and not line.startswith("#")]


def values(word):
    return [rest for name, rest in dockerfile() if name == word]


def test_image_copies_what_is_there_and_lets_it_through():
    ignored = (DOCKER / "Dockerfile.dockerignore").read_text("ascii").splitlines()
    let_through = [line[1:] for line in ignored if line.startswith("!")]
    copies = [rest for rest in values("COPY") if "--from" not in rest]
    sources = [word for rest in copies for word in rest.split()[:-1] if not word.startswith("--")]
    assert {"setup.cfg", "rmqha", "conf/docker/entrypoint.sh"} <= set(sources)
    for source in sources:
        assert (ROOT / source).exists() and any(source.startswith(name) for name in let_through), source


def test_wheel_of_the_image_has_all_templates(tmp_path):
    """Otherwise `rmqha config init` and `rmqha quickstart` fail in a container."""
    ignored = (DOCKER / "Dockerfile.dockerignore").read_text("ascii").splitlines()
    let_through = [line[1:] for line in ignored if line.startswith("!")]
    words = dockerfile()
    stage = words[:[name for name, _rest in words].index("FROM", 2)]
    for source in (word for name, rest in stage if name == "COPY" for word in rest.split()[:-1]):
        for file in sorted((ROOT / source).rglob("*")) if (ROOT / source).is_dir() else [ROOT / source]:
            place = file.relative_to(ROOT)
            if file.is_file() and any(place.is_relative_to(name) for name in let_through):
                (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / place).write_bytes(b"")
    code = "import build_backend; print(*sorted(build_backend._templates()))"

    def templates(folder):
        done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=600,
                              check=True, env={**os.environ, "PYTHONPATH": str(ROOT / "rmqha" / "native")})
        return done.stdout.split()

    assert "rmqha/conf/2m-2s-sync/broker-a.properties" in templates(ROOT)
    assert templates(tmp_path) == templates(ROOT)
    assert (tmp_path / "LICENSE").exists() and (tmp_path / "NOTICE").exists()


def test_image_installs_extras_that_there_are_and_leaves_no_root_behind():
    [extras] = re.findall(r"'\.\[([\w,]+)\]'", " ".join(values("RUN")))
    declared = re.findall(r"^(\w+) =$", (ROOT / "setup.cfg").read_text("utf-8").partition("extras_require]")[2],
                          re.MULTILINE)
    assert set(extras.split(",")) <= set(declared)
    words = [name for name, _rest in dockerfile()]
    assert words.count("FROM") == 2 and values("USER") == ["rocketmq"]
    assert words.index("USER") > max(place for place, word in enumerate(words) if word in ("RUN", "COPY"))
    assert values("VOLUME") == [HOME] and f"HOME={HOME}" in values("ENV")[0]
    port = DEFAULT_LISTEN_PORT
    assert values("EXPOSE") == [f"{namesrv_startup.DEFAULT_LISTEN_PORT} "
                                f"{port - message_store_config.FAST_PORT_DISTANCE} {port} {port + 1}"]
    assert values("ENTRYPOINT") == ['["entrypoint.sh"]'] and 'CMD ["healthcheck.sh"]' in values("HEALTHCHECK")[0]


def load(file):
    broker, server, store = BrokerConfig(), ServerConfig(), MessageStoreConfig()
    unknown = []
    load_config_file(str(file), (broker, server, RemotingClientConfig(), store), warn=unknown.append)
    assert unknown == []
    return broker, server, store


@pytest.mark.parametrize("name", COMPOSE)
def test_compose_file_starts_each_server_once_with_files_that_are_there(name):
    yaml = pytest.importorskip("yaml", reason="needs PyYAML, the extra acl")
    data = yaml.safe_load((DOCKER / name).read_text("ascii"))
    services, brokers = data["services"], {}
    assert len(services) == 1 + 2 * COMPOSE[name] and set(data["volumes"]) == set(services)
    for service, settings in services.items():
        assert (DOCKER / settings["build"]["context"]).resolve() == ROOT
        assert (ROOT / settings["build"]["dockerfile"]).exists() and settings["image"] == "rmqha"
        assert f"{service}:{HOME}" in settings["volumes"]
        for waited in settings.get("depends_on", {}):
            assert waited in services
        program, *arguments = settings["command"]
        if service == "namesrv":
            assert (program, arguments) == ("mqnamesrv", []) and settings["ports"] == ["9876:9876"]
            continue
        assert program == "mqbroker" and arguments[0] == "-c"
        [mount] = [each for each in settings["volumes"] if each.endswith(f":{arguments[1]}:ro")]
        broker, server, store = load(DOCKER / mount.partition(":")[0])
        host, _colon, port = broker.namesrvAddr.partition(":")
        assert host in services and int(port) == namesrv_startup.DEFAULT_LISTEN_PORT
        # the port that the health check asks, and the volume that goes on
        assert server.listenPort == DEFAULT_LISTEN_PORT and store.storePathRootDir.startswith(HOME)
        assert store.storePathCommitLog.startswith(HOME)
        brokers[service] = broker.brokerName, broker.brokerId, store.brokerRole
        if store.brokerRole is BrokerRole.SLAVE:  # it learns of its master from the name server
            assert settings["depends_on"] == {broker.brokerName: {"condition": "service_healthy"}}
    names = [f"broker-{letter}" for letter in "ab"[:COMPOSE[name]]]
    assert sorted(brokers.values(), key=lambda row: row[:2]) == [
        row for each in names for row in ((each, 0, BrokerRole.SYNC_MASTER), (each, 1, BrokerRole.SLAVE))]


def test_each_line_of_the_config_files_is_explained():
    files = sorted((DOCKER / "conf").iterdir())
    assert [file.name for file in files] == [f"broker-{name}.properties" for name in ("a-s", "a", "b-s", "b")]
    for file in files:
        lines = file.read_text("ascii").splitlines()
        for above, line in zip(lines, lines[1:]):
            if "=" in line and not line.startswith("#"):
                assert above.startswith("# "), line


def run(script, *arguments, **environment):
    path = f"{ROOT / 'bin'}{os.pathsep}{os.path.dirname(sys.executable)}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(["sh", str(DOCKER / script), *arguments], capture_output=True, text=True, timeout=600,
                          env={**os.environ, "PATH": path, **environment})


@pytest.mark.parametrize(("arguments", "text"), [
    (("mqnamesrv", "-h"), "usage: mqnamesrv"), (("mqbroker", "-h"), "usage: mqbroker"), (("mqadmin",), "clusterList"),
    (("rmqha", "check", "--help"), "server")])
def test_entrypoint_becomes_each_program(arguments, text):
    result = run("entrypoint.sh", *arguments)
    assert result.returncode == 0 and text in result.stdout


def test_entrypoint_refuses_anything_else():
    for arguments in ([], ["sh", "-c", "true"]):
        result = run("entrypoint.sh", *arguments)
        assert result.returncode == 2 and "give one of mqnamesrv, mqbroker" in result.stderr


def test_health_is_whether_the_server_of_process_1_answers(tmp_path):
    command_line = tmp_path / "cmdline"

    def health(command, port):
        command_line.write_bytes(b"\0".join(command) + b"\0")
        return run("healthcheck.sh", RMQHA_HEALTH_CMDLINE=str(command_line), RMQHA_HEALTH_PORT=str(port)).returncode

    server = [b"/opt/rmqha/bin/python", b"/opt/rmqha/bin/mqnamesrv"]
    with running_name_server(tmp_path) as address:
        port = int(address.rpartition(":")[2])
        assert health(server, port) == 0
        assert health([b"python", b"/opt/rmqha/bin/mqbroker", b"-c", b"x"], ports.free_port()) == 1
    assert health(server, port) == 1
    assert health([b"python", b"/opt/rmqha/bin/rmqha", b"ps"], port) == 0
