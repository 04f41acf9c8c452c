"""The files of conf/failover: valid for the programs that read them, and in agreement with each other."""
import configparser
import http.server
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from rmqha.common.broker_config import BrokerConfig
from rmqha.common.configuration import load_config_file, take_words
from rmqha.remoting.remoting_config import RemotingClientConfig, ServerConfig
from rmqha.store import message_store_config
from rmqha.store.message_store_config import MessageStoreConfig
from rmqha.tools.config.config_command import check
from tests.containers.manifests import Object, of_kind, pods
from tests.failover_conf.cluster import CONF, REPLICAS, SHARED
from tests.support.programs import Authority, not_installed
from tests.support.sources import ROOT
from tests.support.wait import wait_until

PROPERTIES = CONF / "broker.properties"
HAPROXY, KEEPALIVED = (CONF / "haproxy.cfg").read_text("ascii"), (CONF / "keepalived.conf").read_text("ascii")
KUBERNETES = CONF / "kubernetes"


def needs(*programs: str) -> pytest.MarkDecorator:
    reason = not_installed(*programs)
    return pytest.mark.skipif(reason is not None, reason=str(reason))


def needs_root(*programs: str) -> pytest.MarkDecorator:
    reason = not_installed(*programs) or ("needs root for network namespaces" if os.geteuid() else None)
    return pytest.mark.skipif(reason is not None, reason=str(reason))


def loaded() -> tuple[BrokerConfig, ServerConfig, MessageStoreConfig]:
    broker, server, store, unknown = BrokerConfig(), ServerConfig(), MessageStoreConfig(), []
    load_config_file(str(PROPERTIES), (broker, server, RemotingClientConfig(), store), warn=unknown.append)
    assert not unknown
    return broker, server, store


def run(*command: object, **options: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=600, check=False,
                          **options)


# The replicas' file.


def test_broker_file_is_valid_and_each_line_is_explained():
    assert check(str(PROPERTIES), "broker") == []
    lines = PROPERTIES.read_text("ascii").splitlines()
    for above, line in zip(lines, lines[1:]):
        if "=" in line and not line.startswith("#"):
            assert above.startswith("# "), line


def test_broker_file_loses_no_acknowledged_message_and_replaces_a_dead_host_quickly():
    broker, _server, store = loaded()
    assert broker.enableControllerMode and broker.controllerLease
    assert store.allAckInSyncStateSet and store.minInSyncReplicas == 2
    # Several heartbeats fit into a lease, of which nine tenths are used.
    assert 4 * broker.brokerHeartbeatInterval < 0.9 * broker.controllerHeartBeatTimeoutMills < 1000
    assert broker.brokerHeartbeatInterval + broker.sendHeartbeatTimeoutMillis < 0.9 * \
        broker.controllerHeartBeatTimeoutMills
    assert broker.onRoleChange == ""


# HAProxy.


@needs("haproxy")
def test_haproxy_accepts_its_file_without_a_warning(tmp_path):
    done = run("haproxy", "-c", "-f", CONF / "haproxy.cfg")
    assert done.returncode == 0 and "WARNING" not in done.stdout + done.stderr, done.stderr
    broken = tmp_path / "haproxy.cfg"
    broken.write_text(HAPROXY.replace("no-check track broker-a/broker-a-1", "no-check track broker-a/broker-x"))
    assert run("haproxy", "-c", "-f", broken).returncode == 1


def test_haproxy_has_the_ports_and_hosts_of_the_replicas():
    broker, server, _store = loaded()
    host, _colon, port = broker.masterAddress.rpartition(":")
    assert (host, int(port)) == (SHARED, server.listenPort)
    fast = server.listenPort - message_store_config.FAST_PORT_DISTANCE
    text = "".join(line for line in HAPROXY.splitlines(keepends=True) if not line.strip().startswith("#"))
    assert [int(found) for found in re.findall(r"bind :(\d+)", text)] == [server.listenPort, fast]
    servers = re.findall(r"server (\S+) (\S+):(\d+)(.*)", text)
    assert [(name, host, int(port)) for name, host, port, _rest in servers] == [
        (f"broker-a-{number}", host, port) for port in (server.listenPort, fast)
        for number, host in enumerate(REPLICAS, 1)]
    assert [rest.split() for *_, rest in servers] == [
        *([] for _ in REPLICAS), *(["no-check", "track", f"broker-a/broker-a-{number}"] for number in (1, 2, 3))]
    assert f"default-server check port {broker.metricsPort} " in text and broker.metricsHost == "0.0.0.0"


def test_haproxy_closes_no_connection_before_the_broker_does():
    _broker, server, _store = loaded()
    for side in ("client", "server", "tunnel"):
        seconds = int(re.search(rf"timeout {side} (\d+)s", HAPROXY)[1])
        assert seconds > server.serverChannelMaxIdleTimeSeconds > 60


# keepalived.


@needs_root("keepalived", "unshare", "ip")
def test_keepalived_accepts_its_file(tmp_path):
    def checked(text: str) -> "subprocess.CompletedProcess[str]":
        file = tmp_path / "keepalived.conf"
        file.write_text(text.replace("/etc/rocketmq/check-master.sh", str(CONF / "check-master.sh")))
        return run("unshare", "-n", "sh", "-c", f"ip link add eth0 type veth peer name eth1 && keepalived -t -f {file}")

    done = checked(KEEPALIVED)
    assert done.returncode == 0 and not done.stderr, done.stderr
    # With unicast, as the comment says.
    unicast = re.sub(r"# (unicast_|    10|\})", r"\1", KEEPALIVED)
    assert unicast.count("    unicast_peer {") == 1 and checked(unicast).returncode == 0
    assert checked(KEEPALIVED.replace("vrrp_version 3", "vrrp_version 2")).returncode != 0


def test_keepalived_has_the_shared_address_and_the_page_of_the_broker():
    broker, _server, _store = loaded()
    assert re.search(r"virtual_ipaddress \{\n\s+(\S+)/", KEEPALIVED)[1] == SHARED
    assert f"check-master.sh http://127.0.0.1:{broker.metricsPort}/master {SHARED}\"" in KEEPALIVED
    # An own weight would let a host without the master have the address.
    assert "\n    weight" not in KEEPALIVED


# The scripts.


@pytest.mark.parametrize("name", ["vip.sh", "check-master.sh"])
def test_scripts_are_plain_sh(name):
    assert os.access(CONF / name, os.X_OK)
    assert run("sh", "-n", CONF / name).returncode == 0
    if shutil.which("shellcheck") is not None:
        done = run("shellcheck", "-s", "sh", CONF / name)
        assert done.returncode == 0, done.stdout


@contextmanager
def role_page() -> Iterator[tuple[str, dict[str, int]]]:
    """Yield the address of a page /master, and its status, which may be changed. `asked` counts the requests; the next
    `failures` of them fail."""
    answer = {"status": 503, "asked": 0, "failures": 0}

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer["asked"] += 1
            fails = answer["failures"] > 0
            answer["failures"] -= fails
            self.send_response(503 if fails else answer["status"] if self.path == "/master" else 404)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/master", answer
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


HERE, ELSEWHERE = "127.0.0.1", "192.0.2.1"


@pytest.fixture(params=["curl", "wget"])
def path(request, tmp_path):
    """PATH with one of the two programs that can ask for a page."""
    reason = not_installed(request.param, "ip")
    if reason:
        pytest.skip(reason)
    for name in (request.param, "ip", "sleep", "sh"):
        (tmp_path / name).symlink_to(shutil.which(name))
    return str(tmp_path)


@pytest.mark.parametrize("address", [HERE, ELSEWHERE])
def test_check_tells_whether_the_broker_is_the_master(path, address):
    with role_page() as (url, answer):
        for status, code in ((200, 0), (503, 1), (404, 1)):
            answer["status"] = status
            assert run(CONF / "check-master.sh", url, address, env={"PATH": path}).returncode == code
    assert run(CONF / "check-master.sh", url, address, env={"PATH": path}).returncode == 1, "no broker runs"


@pytest.mark.parametrize("address, before, after, code", [(ELSEWHERE, 503, 200, 0), (HERE, 200, 503, 1)])
def test_check_ends_when_the_answer_changes(path, address, before, after, code):
    with role_page() as (url, answer):
        answer["status"] = before
        process = subprocess.Popen([str(CONF / "check-master.sh"), url, address], env={"PATH": path})
        wait_until(lambda: answer["asked"] >= 1)
        answer["status"] = after
        assert process.wait(60) == code


@pytest.mark.parametrize(("failures", "code"), [(1, 0), (2, 1)])
def test_one_failure_does_not_move_the_address(path, failures, code):
    with role_page() as (url, answer):
        answer["status"] = 200
        process = subprocess.Popen([str(CONF / "check-master.sh"), url, HERE], env={"PATH": path})
        wait_until(lambda: answer["asked"] >= 1)
        answer["failures"] = failures
        assert process.wait(60) == code and answer["failures"] == 0


# Two hosts a and b, and a client c that has talked to a.
_LAN = """
set -e
ip link add br0 type bridge
ip link set br0 up
for n in 1 2 3; do
    ip netns add {name}$n
    ip link add v$n type veth peer name eth0 netns {name}$n
    ip link set v$n master br0 up
    ip -n {name}$n link set lo up
    ip -n {name}$n address add 10.0.0.$n/24 dev eth0
    ip -n {name}$n address add fd00::$n/64 dev eth0 nodad
    ip -n {name}$n link set eth0 up
done
echo ready
sleep infinity
"""


@pytest.fixture
def lan():
    """A function that runs a command at one of three hosts of a network: 1, 2 or 3."""
    name = f"vip{os.getpid()}-"
    process = subprocess.Popen(["unshare", "-n", "sh", "-c", _LAN.format(name=name)], stdout=subprocess.PIPE,
                               text=True, start_new_session=True)
    try:
        assert process.stdout.readline() == "ready\n"
        yield lambda number, *command, **options: run("nsenter", f"--net=/run/netns/{name}{number}", *command,
                                                      **options)
    finally:
        os.killpg(process.pid, 9)
        process.wait()
        process.stdout.close()
        for number in (1, 2, 3):
            run("ip", "netns", "del", f"{name}{number}")


_CONNECT = """
import socket, sys
with socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET) as sock:
    sock.settimeout(60)
    print(sock.connect_ex((sys.argv[1], 1)))
"""


@needs_root("unshare", "nsenter", "ip", "arping", "python3")
@pytest.mark.parametrize("address", ["10.0.0.100/24", "fd00::100/64"])
def test_vip_script_moves_the_address_and_tells_the_others(lan, address):
    ip = address.partition("/")[0]

    def vip(host: int, role: str) -> None:
        done = lan(host, CONF / "vip.sh", address, "eth0", role, "broker-a", "7")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

    def has(host: int) -> bool:
        return f" {ip}/" in lan(host, "ip", "-o", "address").stdout

    def hardware(host: int) -> str:
        return re.search(r"link/ether (\S+)", lan(host, "ip", "link", "show", "dev", "eth0").stdout)[1]

    for role in ("none", "slave", "master", "master"):
        vip(1, role)
        assert has(1) is (role == "master")
    # The connection is refused: the client knows the first host.
    assert int(lan(3, sys.executable, "-c", _CONNECT, ip).stdout) == 111
    assert f"lladdr {hardware(1)}" in lan(3, "ip", "neighbor", "show", ip).stdout
    # The first host is not told anything: it has both. The client hears of the second one without asking.
    vip(2, "master")
    wait_until(lambda: f"lladdr {hardware(2)}" in lan(3, "ip", "neighbor", "show", ip).stdout)
    assert has(1) and has(2)
    for role in ("none", "slave"):
        vip(1, role)
    assert not has(1) and has(2)


def test_vip_script_refuses_what_it_does_not_know(tmp_path):
    assert run(CONF / "vip.sh", "10.0.0.100/24", "lo").returncode == 2
    done = run(CONF / "vip.sh", "10.0.0.100/24", "lo", "leader")
    assert done.returncode == 2 and "unknown role leader" in done.stderr


@needs_root("unshare", "ip")
def test_vip_script_reports_a_missing_arping(tmp_path):
    for name in ("ip", "sh"):
        (tmp_path / name).symlink_to(shutil.which(name))
    done = run("unshare", "-n", "env", f"PATH={tmp_path}", CONF / "vip.sh", "10.0.0.100/24", "lo", "master")
    assert done.returncode == 1 and "arping is not installed" in done.stderr


@needs("systemd-analyze")
def test_systemd_accepts_the_drop_in(tmp_path):
    unit = (ROOT / "conf/systemd/rmqha-broker@.service").read_text("ascii").replace("/opt/rmqha/bin/", f"{tmp_path}/")
    (tmp_path / "rmqha-broker@broker-a.service").write_text(unit)
    shutil.copy("/bin/true", tmp_path / "mqbroker")
    folder = tmp_path / "rmqha-broker@broker-a.service.d"
    folder.mkdir()
    text = (CONF / "systemd/vip.conf").read_text("ascii")
    (folder / "vip.conf").write_text(text.replace("/etc/rocketmq/", f"{CONF}/"))
    done = run("systemd-analyze", "verify", "--man=no", tmp_path / "rmqha-broker@broker-a.service")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    parser = configparser.RawConfigParser(delimiters=("=",), comment_prefixes=("#",))
    parser.read_string(text)
    command = parser["Service"]["ExecStopPost"]
    example = re.search(r"# onRoleChange=(.*)", PROPERTIES.read_text("ascii"))[1]
    assert command == f"+{example} none"


# Kubernetes.


@pytest.fixture(scope="module")
def objects() -> list[Object]:
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl (Debian: kubernetes-client)")
    done = run("kubectl", "kustomize", KUBERNETES)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


@pytest.mark.parametrize("version", ["1.28", None])
def test_kubernetes_objects_meet_the_schemas(objects, version):
    validate = pytest.importorskip("kubernetes_validate", reason="needs the extra containers")
    for one in objects:
        validate.validate(one, version or validate.latest_version(), strict=True)


def test_only_the_replicas_differ_from_the_base(objects):
    base = list(yaml.safe_load_all(run("kubectl", "kustomize", ROOT / "conf/kubernetes/base").stdout))
    own = {("Service", "rmqha-broker-a-master"), *((kind, "rmqha-broker-a") for kind in (
        "ServiceAccount", "Role", "RoleBinding"))}

    def key(one: Object) -> tuple[str, str]:
        return one["kind"], re.sub("^rmqha-label-pod-.*", "label-pod", one["metadata"]["name"])
    mine, theirs = {key(one): one for one in objects}, {key(one): one for one in base}
    assert mine.keys() - theirs.keys() == own | {("ConfigMap", "label-pod")} and not theirs.keys() - mine.keys()
    assert [name for name in theirs if mine[name] != theirs[name]] == [("StatefulSet", "rmqha-broker-a")]


def test_service_leads_to_the_pod_that_is_labelled_as_the_master(objects):
    pod = next(pods(of_kind(objects, "StatefulSet")["rmqha-broker-a"]))
    service = of_kind(objects, "Service")["rmqha-broker-a-master"]["spec"]
    labels = dict(service["selector"])
    assert labels.pop("rmqha.io/role") == "master" and labels.items() <= pod.labels.items()
    assert {port["targetPort"]: port["port"] for port in service["ports"]} == {
        name: pod.ports[name] for name in ("fast", "clients")}
    broker, server, store = BrokerConfig(), ServerConfig(), MessageStoreConfig()
    wrong: list[str] = []
    take_words(pod.args[3:], (broker, server, RemotingClientConfig(), store), wrong.append)
    assert not wrong
    assert broker.masterAddress == f"rmqha-broker-a-master.{pod.namespace}.svc:{pod.ports['clients']}"
    shown, _server, its_store = loaded()
    for key in ("brokerHeartbeatInterval", "controllerHeartBeatTimeoutMills", "sendHeartbeatTimeoutMillis"):
        assert getattr(broker, key) == getattr(shown, key)
    assert store.haMaxTimeSlaveNotCatchup == its_store.haMaxTimeSlaveNotCatchup
    python, _isolated, script = broker.onRoleChange.split()
    assert "/opt/rmqha" in (ROOT / "conf/docker/Dockerfile").read_text("ascii") and python == "/opt/rmqha/bin/python"
    folder, _slash, name = script.rpartition("/")
    kind, config = pod.mounts[folder]
    assert kind == "config" and of_kind(objects, "ConfigMap")[config]["data"] == {
        name: (KUBERNETES / name).read_text("ascii")}


def test_replicas_may_label_only_themselves(objects):
    replicas = of_kind(objects, "StatefulSet")["rmqha-broker-a"]
    spec = replicas["spec"]["template"]["spec"]
    assert spec["serviceAccountName"] == "rmqha-broker-a" and spec["automountServiceAccountToken"] is True
    [rule] = of_kind(objects, "Role")["rmqha-broker-a"]["rules"]
    assert rule == {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "patch"],
                    "resourceNames": [pod.name for pod in pods(replicas)]}
    binding = of_kind(objects, "RoleBinding")["rmqha-broker-a"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "rmqha-broker-a", "namespace": "rmqha"}]


@contextmanager
def api_server(folder: Path, labels: dict[str, dict[str, str]]) -> Iterator[tuple[int, list[str]]]:
    """Yield the port of an API server that has pods with these labels, and the list of the requests that it gets."""
    authority = Authority(folder)
    identity = authority.sign("api", "IP:127.0.0.1")
    (folder / "token").write_text("the token\n")
    (folder / "ca.crt").write_bytes(authority.certificate.read_bytes())
    asked: list[str] = []

    class Api(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self, change: dict[str, str] | None) -> None:
            pod = self.path.removeprefix("/api/v1/namespaces/rmqha/pods/")
            asked.append(f"{self.command} {pod}")
            assert self.headers["Authorization"] == "Bearer the token"
            status = 403 if pod.endswith("-9") else 200 if pod in labels else 404
            if change and pod in labels:
                labels[pod] |= change
            found = {"metadata": {"labels": labels.get(pod)}} if status == 200 else {"message": "no"}
            body = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self.answer(None)

        def do_PATCH(self) -> None:
            assert self.headers["Content-Type"] == "application/merge-patch+json"
            self.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["metadata"]["labels"])

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Api)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port, asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@needs("openssl")
def test_label_follows_the_master(tmp_path):
    pod = "rmqha-broker-a-{}".format
    labels: dict[str, dict[str, str]] = {pod(0): {"app": "x"}, pod(1): {}}
    with api_server(tmp_path, labels) as (port, asked):
        def label(number: int, role: str, epoch: int) -> "subprocess.CompletedProcess[str]":
            asked.clear()
            return run(sys.executable, "-I", KUBERNETES / "label-pod.py", role, "broker-a", epoch, env={
                "POD_NAME": pod(number), "POD_NAMESPACE": "rmqha", "KUBERNETES_SERVICE_HOST": "127.0.0.1",
                "KUBERNETES_SERVICE_PORT": str(port), "RMQHA_SERVICE_ACCOUNT": str(tmp_path)})

        def roles() -> dict[str, tuple[str, str]]:
            return {name: (its["rmqha.io/role"], its["rmqha.io/epoch"]) for name, its in labels.items()}

        for number, role, epoch in ((0, "master", 1), (1, "slave", 1)):
            assert label(number, role, epoch).returncode == 0
        assert roles() == {pod(0): ("master", "1"), pod(1): ("slave", "1")} and labels[pod(0)]["app"] == "x"
        assert asked == [f"PATCH {pod(1)}"], "a slave asks for no other pod"
        # The old master's node is gone; there is no third pod.
        assert label(1, "master", 2).returncode == 0
        assert roles() == {pod(0): ("none", "2"), pod(1): ("master", "2")}
        assert asked == [f"PATCH {pod(1)}", f"GET {pod(0)}", f"PATCH {pod(0)}", f"GET {pod(2)}"]
        # A command of an earlier master that was delayed.
        assert label(0, "master", 1).returncode == 0
        assert roles()[pod(1)] == ("master", "2")
        done = label(9, "none", 2)
        assert done.returncode == 1 and "PATCH rmqha-broker-a-9: 403" in done.stderr
