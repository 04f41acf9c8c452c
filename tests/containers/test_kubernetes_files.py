"""conf/kubernetes: valid objects that refer only to what exists, and config files with which the servers start."""
import json
import re
import shutil
import subprocess

import pytest
import yaml

from rmqha.broker.broker_startup import DEFAULT_LISTEN_PORT
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.configuration import load_config_file, take_words
from rmqha.common.controller_config import ControllerConfig, ControllerStoreKind, check_controller, peers_of
from rmqha.common.namesrv_config import NamesrvConfig
from rmqha.remoting.remoting_config import RemotingClientConfig, ServerConfig
from rmqha.store import message_store_config
from rmqha.store.message_store_config import MessageStoreConfig
from rmqha.tools.config.config_command import check
from tests.containers.manifests import BASE, ONE_NODE, PROGRAMS, Object, Pod, of_kind, pods, rendered
from tests.support.sources import ROOT

# The oldest release that has the label for a pod's number, and the newest that kubernetes-validate knows by default.
VERSIONS = ("1.28", None)
FILES = {"namesrv": "namesrv", "controller": "controller", "broker-a": "broker"}
DATA = "/var/lib/rmqha"


def all_pods(objects: list[Object]) -> list[Pod]:
    return [pod for one in of_kind(objects, "StatefulSet").values() for pod in pods(one)]


def servers() -> list[Pod]:
    """Return the pods with programs of rmqha: all except etcd's."""
    return [pod for pod in all_pods(rendered()) if not pod.command]


def config_of(pod: Pod, *configs: object) -> None:
    """Fill the config objects as the pod's server does: from its file, then from the words after it."""
    program, option, file, *words = pod.args
    assert program in PROGRAMS and option == "-c" and pod.mounts["/etc/rmqha"][0] == "config"
    wrong: list[str] = []
    load_config_file(str(BASE / "conf" / file.removeprefix("/etc/rmqha/")), configs, warn=wrong.append)
    take_words(words, configs, wrong.append)
    assert wrong == []


def kubectl_kustomize(folder: str) -> list[Object]:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("no kubectl (Debian: kubernetes-client)")
    done = subprocess.run([kubectl, "kustomize", folder], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def test_folder_has_only_files_that_kustomize_uses():
    plan = yaml.safe_load((BASE / "kustomization.yaml").read_text("ascii"))
    named = {"kustomization.yaml", *plan["resources"], *(file for one in plan["configMapGenerator"]
                                                         for file in one["files"])}
    assert {str(file.relative_to(BASE)) for file in BASE.rglob("*") if file.is_file()} == named


def test_kubectl_renders_the_same():
    theirs = json.dumps(kubectl_kustomize(str(BASE)))
    hashes = {name: name.rpartition("-")[0] for name in of_kind(json.loads(theirs), "ConfigMap")}
    for name, plain in hashes.items():
        theirs = theirs.replace(f'"{name}"', f'"{plain}"')

    def key(one: Object) -> tuple[str, str]:
        return one["kind"], one["metadata"]["name"]

    assert sorted(json.loads(theirs), key=key) == sorted(rendered(), key=key)


def test_one_node_overlay_lets_pods_share_a_node():
    base, overlay = (of_kind(kubectl_kustomize(str(folder)), "StatefulSet") for folder in (BASE, ONE_NODE))
    assert base.keys() == overlay.keys()
    for name, one in overlay.items():
        spec = one["spec"]["template"]["spec"]
        assert "affinity" in base[name]["spec"]["template"]["spec"] and "affinity" not in spec
        for container in [*spec["containers"], *spec.get("initContainers", ())]:
            assert container.get("imagePullPolicy") == (None if name == "rmqha-etcd" else "IfNotPresent")
            assert container["resources"]["requests"] == {"cpu": "50m", "memory": "128Mi"}


@pytest.mark.parametrize("version", VERSIONS)
def test_objects_meet_the_schemas(version):
    validate = pytest.importorskip("kubernetes_validate", reason="needs the extra kubernetes")
    version = version or validate.latest_version()
    for one in rendered():
        validate.validate(one, version, strict=True)
    broken = of_kind(rendered(), "PodDisruptionBudget")["rmqha-etcd"]
    broken["spec"]["maxUnavailabl"] = broken["spec"].pop("maxUnavailable")
    with pytest.raises(validate.ValidationError):
        validate.validate(broken, version, strict=True)


def test_names_are_unique_and_selectors_meet_one_set_each():
    objects = rendered()
    names = [(one["kind"], one["metadata"]["name"]) for one in objects]
    assert len(names) == len(set(names)) == 17
    sets = of_kind(objects, "StatefulSet")
    for name, one in sets.items():
        labels = one["spec"]["template"]["metadata"]["labels"]
        wanted = one["spec"]["selector"]["matchLabels"]
        [service] = [each for each in of_kind(objects, "Service").values()
                     if each["spec"]["selector"].items() <= labels.items()]
        assert service["metadata"]["name"] == one["spec"]["serviceName"] == name
        assert service["spec"]["clusterIP"] == "None" and service["spec"]["selector"] == wanted
        budget = of_kind(objects, "PodDisruptionBudget")[name]
        assert budget["spec"] == {"maxUnavailable": 1, "selector": {"matchLabels": wanted}}
        for other, another in sets.items():
            if other != name:
                assert not wanted.items() <= another["spec"]["template"]["metadata"]["labels"].items()
        [rule] = one["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"][
            "requiredDuringSchedulingIgnoredDuringExecution"]
        assert rule == {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": wanted}}
        assert one["spec"]["podManagementPolicy"] == "Parallel"


def test_ports_of_services_probes_and_annotations_exist():
    objects = rendered()
    for name, one in of_kind(objects, "StatefulSet").items():
        pod = next(pods(one))
        service = of_kind(objects, "Service")[name]["spec"]
        assert service["publishNotReadyAddresses"]
        assert {port["name"]: port["port"] for port in service["ports"]} == pod.ports
        assert all(port["targetPort"] == port["name"] for port in service["ports"])
        assert {port for port, _path in pod.probes.values()} <= set(pod.ports)
        annotations = one["spec"]["template"]["metadata"].get("annotations", {})
        assert annotations.get("prometheus.io/port", "") == str(pod.ports.get("metrics", ""))
    [policy] = of_kind(objects, "NetworkPolicy").values()
    internal, public = policy["spec"]["ingress"]
    assert policy["spec"]["podSelector"] == internal["from"][0]["podSelector"]
    assert all(policy["spec"]["podSelector"]["matchLabels"].items() <= pod.labels.items() for pod in all_pods(objects))
    opened = {port for each in public["ports"] for port in range(each["port"], each.get("endPort", each["port"]) + 1)}
    every = {(pod.service, name): port for pod in all_pods(objects) for name, port in pod.ports.items()}
    assert {port for (_service, name), port in every.items()
            if name in ("namesrv", "fast", "clients", "metrics")} == opened
    assert {name for (_service, name), port in every.items() if port not in opened} == {
        "replication", "controller", "client", "peer"}


def test_pods_have_no_rights_and_write_only_to_volumes():
    objects = rendered()
    assert of_kind(objects, "Namespace")["rmqha"]["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == \
        "restricted"
    user = re.search(r"useradd --uid (\d+)", (ROOT / "conf/docker/Dockerfile").read_text("ascii"))
    for name, one in of_kind(objects, "StatefulSet").items():
        spec = one["spec"]["template"]["spec"]
        assert spec["automountServiceAccountToken"] is False, name
        context = spec["securityContext"]
        assert context["runAsNonRoot"] and context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert context["runAsUser"] == context["runAsGroup"] == context["fsGroup"] == int(user[1])
        for container in [*spec["containers"], *spec.get("initContainers", ())]:
            assert container["securityContext"] == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                                                    "capabilities": {"drop": ["ALL"]}}
            assert container["resources"]["limits"]["memory"] and container["resources"]["requests"].keys() == {
                "cpu", "memory"}
    for pod in servers():
        assert pod.mounts[DATA][0] == ("empty" if pod.args[0] == "mqcontroller" else "claim")
        assert pod.mounts["/tmp"] == ("empty", "")
        config = of_kind(objects, "ConfigMap")[pod.mounts["/etc/rmqha"][1]]
        assert list(config["data"]) == [pod.args[2].removeprefix("/etc/rmqha/")]


def test_programs_of_the_pods_are_in_the_image():
    entrypoint = (ROOT / "conf/docker/entrypoint.sh").read_text("ascii")
    assert f"{' | '.join(('mqnamesrv', 'mqbroker', 'mqcontroller', 'mqadmin', 'rmqha'))}) exec" in entrypoint
    dockerfile = (ROOT / "conf/docker/Dockerfile").read_text("ascii")
    extras = re.search(r"'\.\[([\w,]+)\]'", dockerfile)[1].split(",")
    # metricsPort and controllerStore=etcd need them.
    assert {"metrics", "etcd"} <= set(extras)
    assert {pod.args[0] for pod in servers()} == {"mqnamesrv", "mqbroker", "mqcontroller"}
    assert {pod.command[0] for pod in all_pods(rendered()) if pod.command} == {"etcd"}


@pytest.mark.parametrize("name", FILES.values())
def test_config_files_are_valid_and_each_line_is_explained(name):
    file = BASE / "conf" / f"{name}.properties"
    assert check(str(file), name) == []
    lines = file.read_text("ascii").splitlines()
    for above, line in zip(lines, lines[1:]):
        if "=" in line and not line.startswith("#"):
            assert above.startswith("# "), line


def test_name_servers_listen_where_brokers_look_for_them():
    found = [pod for pod in servers() if pod.args[0] == "mqnamesrv"]
    for pod in found:
        config, server = NamesrvConfig(), ServerConfig()
        config_of(pod, config, server)
        assert pod.ports == {"namesrv": server.listenPort, "metrics": config.metricsPort}
        assert config.metricsHost == "0.0.0.0"
    assert name_server_addresses() == [f"{pod.name}.{pod.service}:{pod.ports['namesrv']}" for pod in found]


def name_server_addresses() -> list[str]:
    broker = BrokerConfig()
    config_of(next(pod for pod in servers() if pod.args[0] == "mqbroker"), broker, ServerConfig(), MessageStoreConfig())
    return (broker.namesrvAddr or "").split(";")


def test_controllers_have_their_own_ids_and_find_etcd():
    found = [pod for pod in servers() if pod.args[0] == "mqcontroller"]
    members = [pod for pod in all_pods(rendered()) if pod.command]
    wrong: list[str] = []
    for number, pod in enumerate(found):
        config = ControllerConfig()
        config_of(pod, config, ServerConfig(), RemotingClientConfig())
        check_controller(config, lambda key, problem: wrong.append(f"{key}: {problem}"))
        assert wrong == [] and config.controllerStore is ControllerStoreKind.etcd
        assert config.controllerDLegerSelfId == f"n{number}"
        assert peers_of(config)[f"n{number}"] == f"{pod.name}.{pod.service}:{pod.ports['controller']}"
        assert len(peers_of(config)) == len(found) == 3
        assert (pod.ports["metrics"], config.metricsHost) == (config.metricsPort, "0.0.0.0")
        assert config.etcdEndpoints.split(";") == [
            f"{member.name}.{member.service}:{member.ports['client']}" for member in members]
        assert not config.enableElectUncleanMaster


def test_members_of_etcd_know_each_other():
    members = [pod for pod in all_pods(rendered()) if pod.command]
    cluster = ",".join(f"{pod.name}=http://{pod.name}.{pod.service}:{pod.ports['peer']}" for pod in members)
    for pod in members:
        options = dict(word.removeprefix("--").split("=", 1) for word in pod.args)
        assert options["initial-cluster"] == cluster and options["name"] == pod.name
        assert options["advertise-client-urls"] == f"http://{pod.name}.{pod.service}:{pod.ports['client']}"
        assert options["initial-advertise-peer-urls"] == f"http://{pod.name}.{pod.service}:{pod.ports['peer']}"
        assert pod.mounts == {"/var/lib/etcd": ("claim", "data")}
        config = ControllerConfig()
        config_of(next(each for each in servers() if each.args[0] == "mqcontroller"), config, ServerConfig())
        # See docs/controllers-at-etcd.md.
        assert config.etcdLeaseSeconds * 1000 >= 3 * int(options["election-timeout"])


def test_brokers_have_stable_names_and_lose_no_acknowledged_message():
    objects = rendered()
    found = [pod for pod in servers() if pod.args[0] == "mqbroker"]
    controllers = [pod for pod in servers() if pod.args[0] == "mqcontroller"]
    for pod in found:
        broker, server, store = BrokerConfig(), ServerConfig(), MessageStoreConfig()
        config_of(pod, broker, server, RemotingClientConfig(), store)
        assert broker.brokerIP1 == broker.brokerIP2 == f"{pod.name}.{pod.service}.rmqha.svc"
        assert broker.brokerName == "broker-a" and server.listenPort == DEFAULT_LISTEN_PORT
        assert pod.ports == {"fast": server.listenPort - message_store_config.FAST_PORT_DISTANCE,
                             "clients": server.listenPort, "replication": server.listenPort + 1,
                             "metrics": broker.metricsPort}
        assert broker.metricsHost == "0.0.0.0" and broker.enableControllerMode
        assert broker.controllerAddr == ";".join(f"{each.name}.{each.service}:{each.ports['controller']}"
                                                 for each in controllers)
        assert store.allAckInSyncStateSet and store.minInSyncReplicas == 2 < len(found)
        assert store.storePathRootDir.startswith(DATA) and store.storePathCommitLog.startswith(DATA)
        # The hook has a minute, and the broker two.
        assert pod.grace_s >= 180 and "timeout 60 " in pod.pre_stop[-1]
        assert f"-b {broker.brokerName};" in pod.pre_stop[-1] and "s/^controllerAddr=//p" in pod.pre_stop[-1]
    spec = of_kind(objects, "StatefulSet")["rmqha-broker-a"]["spec"]["template"]["spec"]
    [waits], [container] = spec["initContainers"], spec["containers"]
    assert (waits["env"], waits["image"]) == (container["env"], container["image"])
    assert {"name": "BROKER_NAME", "value": "$(POD_NAME).rmqha-broker-a.$(POD_NAMESPACE).svc"} in waits["env"]
    assert 'getent ahosts "$BROKER_NAME"' in waits["command"][-1] and "$POD_IP" in waits["command"][-1]


def test_probes_ask_the_pages_of_the_metrics_port():
    for pod in servers():
        assert pod.probes == {"startupProbe": ("metrics", "/healthz"), "livenessProbe": ("metrics", "/healthz"),
                              "readinessProbe": ("metrics", "/readyz")}
