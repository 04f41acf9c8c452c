"""The conf folder: broker files, systemd units, images and compose files, dashboards and alerts."""
import configparser
import json
import os
import re
import shutil
import subprocess
import sys

import pytest
import yaml

from rmqha.broker.broker_startup import DEFAULT_LISTEN_PORT
from rmqha.broker.metrics.broker_metrics import BROKER_METRICS
from rmqha.common import logs, mix_all, process, server_util
from rmqha.common.broker_config import BrokerConfig
from rmqha.common.configuration import load_config_file, read_config_file
from rmqha.common.controller_config import ControllerConfig, ControllerStoreKind, peers_of
from rmqha.common.metrics import HISTOGRAM, OF_EACH_ANSWER, process_metrics
from rmqha.controller.controller_metrics import CONTROLLER_METRICS
from rmqha.namesrv import namesrv_startup
from rmqha.namesrv.namesrv_controller import NAMESRV_METRICS
from rmqha.remoting.remoting_config import RemotingClientConfig, ServerConfig
from rmqha.store import message_store_config
from rmqha.store.message_store_config import BrokerRole, MessageStoreConfig
from rmqha.tools.config.config_command import check, kind_of
from tests.support import ports
from tests.support.in_process import running_name_server
from tests.support.sources import ROOT

# Every file of the conf folder has known keys only, explained line by line, and no two brokers conflict.

CONF = ROOT / "conf"
FOLDERS = ("2m-2s-async", "2m-2s-sync", "2m-noslave", "controller")
ALL_FILES = sorted(str(path.relative_to(CONF)) for path in CONF.rglob("*")
               # see the tests of images below, tests/containers, and tests/failover_conf
               if path.suffix in (".conf", ".properties")
               and not {"docker", "kubernetes", "failover"} & set(path.parts))
CONTROLLERS = {"controller/controller.conf", "controller/controller-etcd.conf"}
FILES = [file for file in ALL_FILES if file not in CONTROLLERS]
ROCKETMQ_NAMES = {
    "broker.conf",
    *(f"{folder}/broker-{name}.properties" for folder in FOLDERS[:2] for name in ("a", "a-s", "b", "b-s")),
    *(f"2m-noslave/broker-{name}.properties" for name in ("a", "b", "trace")),
    *(f"controller/broker-n{number}.conf" for number in range(3)),
}


def load(file):
    """Return the four config objects that a broker makes of a file."""
    unknown = []
    configs = BrokerConfig(), ServerConfig(), RemotingClientConfig(), MessageStoreConfig()
    load_config_file(str(CONF / file), configs, warn=unknown.append)
    assert unknown == []
    return configs


def folder(name):
    """Return the broker, server and store config of each file in a folder."""
    return {file: load(file) for file in FILES if file.startswith(name + "/")}


def test_file_names_are_rocketmqs():
    assert set(ALL_FILES) == ROCKETMQ_NAMES | CONTROLLERS


@pytest.mark.parametrize("file", FILES)
def test_file_has_only_known_keys_with_valid_values(file):
    broker, server, _client, store = load(file)
    assert broker.brokerName.startswith("broker-") and broker.namesrvAddr == "127.0.0.1:9876"
    assert server.listenPort > 1024
    assert store.fileReservedTime == 48 and store.deleteWhen == "04"
    assert store.mappedFileSizeCommitLog == MessageStoreConfig().mappedFileSizeCommitLog, "defaults are RocketMQ's"


@pytest.mark.parametrize("file", ALL_FILES)
def test_each_line_is_explained_by_a_comment(file):
    lines = (CONF / file).read_text("ascii").splitlines()
    for above, line in zip(lines, lines[1:]):
        if "=" in line and not line.startswith("#"):
            assert above.startswith("# "), line


@pytest.mark.parametrize("name", FOLDERS)
def test_ports_of_a_folder_do_not_clash(name):
    taken = [port + step for _broker, server, _client, _store in folder(name).values()
             for port in (server.listenPort,) for step in (-2, 0, 1)]
    assert len(taken) == len(set(taken))


def test_store_folders_do_not_clash():
    stores = [load(file)[3] for file in FILES]
    roots = [store.storePathRootDir for store in stores]
    assert len(roots) == len(set(roots))
    for store in stores:
        assert store.storePathCommitLog == store.storePathRootDir + "/commitlog"


@pytest.mark.parametrize("name", FOLDERS)
def test_logs_of_a_folder_do_not_clash(name):
    brokers = [broker for broker, _server, _client, _store in folder(name).values()]
    assert all(broker.isolateLogEnable for broker in brokers)
    # Controllers' logs are named after their ports.
    if name != "controller":
        assert len({(broker.brokerName, broker.brokerId) for broker in brokers}) == len(brokers)


@pytest.mark.parametrize("name, role", [
    ("2m-2s-async", BrokerRole.ASYNC_MASTER), ("2m-2s-sync", BrokerRole.SYNC_MASTER)])
def test_each_master_has_one_slave(name, role):
    brokers = [(broker.brokerName, broker.brokerId, store.brokerRole)
               for broker, _server, _client, store in folder(name).values()]
    assert sorted(brokers, key=lambda row: row[:2]) == [
        ("broker-a", 0, role), ("broker-a", 1, BrokerRole.SLAVE),
        ("broker-b", 0, role), ("broker-b", 1, BrokerRole.SLAVE)]


def test_folder_without_slaves_has_only_masters():
    assert {store.brokerRole for *_others, store in folder("2m-noslave").values()} == {BrokerRole.ASYNC_MASTER}
    assert load("2m-noslave/broker-trace.properties")[0].traceTopicEnable


def test_controllers_start_with_their_files_and_replicas_use_the_local_one():
    for file in sorted(CONTROLLERS):
        assert check(str(CONF / file), "controller") == []
        assert kind_of(read_config_file(str(CONF / file))) == "controller"
    local, shared = ControllerConfig(), ControllerConfig()
    load_config_file(str(CONF / "controller" / "controller.conf"), (local,))
    load_config_file(str(CONF / "controller" / "controller-etcd.conf"), (shared,))
    assert (local.controllerStore, shared.controllerStore) == (ControllerStoreKind.local, ControllerStoreKind.etcd)
    for broker, _server, _client, store in folder("controller").values():
        assert broker.enableControllerMode and broker.controllerAddr == peers_of(local)["n0"]
        assert store.allAckInSyncStateSet and store.minInSyncReplicas == 2
    assert peers_of(local)["n0"] == peers_of(shared)["n0"]


# The units of conf/systemd start programs that exist, and systemd accepts them.

UNITS = ROOT / "conf" / "systemd"
NAMES = ("rmqha-namesrv.service", "rmqha-controller.service", "rmqha-broker@.service")
HARDENING = ("NoNewPrivileges", "ProtectHome", "PrivateTmp", "PrivateDevices", "ProtectKernelTunables",
             "ProtectKernelModules", "ProtectControlGroups", "RestrictNamespaces", "RestrictSUIDSGID",
             "LockPersonality", "MemoryDenyWriteExecute")


def unit(name):
    """Return section -> key -> value; a key that occurs twice in a section is an error."""
    parser = configparser.RawConfigParser(delimiters=("=",), comment_prefixes=("#",), interpolation=None)
    parser.optionxform = str
    parser.read_string((UNITS / name).read_text("ascii"))
    return parser


def test_unit_files_are_complete():
    assert sorted(path.name for path in UNITS.iterdir()) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_unit_starts_an_installed_program_with_a_config_file(name):
    service = unit(name)["Service"]
    program, option, file = service["ExecStart"].split()
    entries = (ROOT / "setup.cfg").read_text("utf-8")
    assert re.search(rf"^    {program.rpartition('/')[2]} = rmqha\.", entries, re.MULTILINE)
    assert option == "-c" and file == "/etc/rmqha/" + (
        "%i.properties" if "@" in name else name.removeprefix("rmqha-").replace(".service", ".properties"))
    kept = dict(item.split("=") for item in service["Environment"].split())
    assert kept[mix_all.ROCKETMQ_HOME_ENV] == "/etc/rmqha"
    assert kept[logs.LOG_DIR_ENV] == "/var/log/" + service["LogsDirectory"]
    assert kept["HOME"] == service["WorkingDirectory"] and service["WorkingDirectory"].startswith("/var/lib/rmqha")


@pytest.mark.parametrize("name", NAMES)
def test_unit_waits_for_the_servers_notification(name):
    service = unit(name)["Service"]
    assert service["Type"] == "notify" and process.SOCKET_ENV == "NOTIFY_SOCKET"
    # The server's check of its threads needs time: a quarter of this.
    assert int(service["WatchdogSec"]) >= 60
    assert service["Restart"] == "on-failure"
    assert service["RestartPreventExitStatus"] == str(server_util.EXIT_BAD_CONFIG)
    assert int(service["TimeoutStopSec"]) >= 30


@pytest.mark.parametrize("name", NAMES)
def test_unit_drops_all_rights_except_the_necessary_ones(name):
    service = unit(name)["Service"]
    assert service["User"] == service["Group"] == "rmqha" and service["ProtectSystem"] == "strict"
    assert {service[key] for key in HARDENING} == {"yes"} and service["CapabilityBoundingSet"] == ""
    assert int(service["LimitNOFILE"]) >= 100_000
    assert set(service["RestrictAddressFamilies"].split()) == {"AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK"}
    assert ("LimitMEMLOCK" in service) == ("broker" in name)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze (package systemd) is not here")
def test_systemd_accepts_the_units(tmp_path):
    for name in NAMES:
        text = (UNITS / name).read_text("ascii").replace("/opt/rmqha/bin/", f"{tmp_path}/")
        (tmp_path / name.replace("@", "@broker-a")).write_text(text)
    for program in ("mqnamesrv", "mqcontroller", "mqbroker"):
        shutil.copy("/bin/true", tmp_path / program)
    files = [str(tmp_path / name.replace("@", "@broker-a")) for name in NAMES]
    result = subprocess.run(["systemd-analyze", "verify", "--man=no", *files], capture_output=True, text=True,
                            timeout=600)
    assert result.returncode == 0 and result.stderr == "", result.stderr
    broken = tmp_path / "rmqha-namesrv.service"
    broken.write_text(broken.read_text().replace("WatchdogSec=60", "WatchdogSec=soon"))
    result = subprocess.run(["systemd-analyze", "verify", "--man=no", str(broken)], capture_output=True, text=True,
                            timeout=600)
    # The check does find errors.
    assert "Failed to parse sec value" in result.stderr


# Image and compose files name only files, programs and extras that exist, and the scripts work.

DOCKER = ROOT / "conf" / "docker"
COMPOSE = {"compose-1m-1s.yml": 1, "compose-2m-2s.yml": 2}
HOME = "/var/lib/rmqha"


def dockerfile():
    """Return the instructions as (word, rest), with continuation lines joined."""
    text = (DOCKER / "Dockerfile").read_text("ascii").replace("\\\n", "")
    return [tuple(line.split(" ", 1)) for line in text.splitlines() if line and not line.startswith("#")]


def values(word):
    return [rest for name, rest in dockerfile() if name == word]


def test_image_copies_existing_files_that_dockerignore_lets_through():
    ignored = (DOCKER / "Dockerfile.dockerignore").read_text("ascii").splitlines()
    let_through = [line[1:] for line in ignored if line.startswith("!")]
    copies = [rest for rest in values("COPY") if "--from" not in rest]
    sources = [word for rest in copies for word in rest.split()[:-1] if not word.startswith("--")]
    assert {"setup.cfg", "rmqha", "conf/docker/entrypoint.sh"} <= set(sources)
    for source in sources:
        assert (ROOT / source).exists() and any(source.startswith(name) for name in let_through), source


def test_wheel_of_the_image_has_all_templates(tmp_path):
    """Check the templates: without them `rmqha config init` and `rmqha quickstart` fail in a container."""
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


def test_image_installs_existing_extras_and_does_not_run_as_root():
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


def docker_load(file):
    broker, server, store = BrokerConfig(), ServerConfig(), MessageStoreConfig()
    unknown = []
    load_config_file(str(file), (broker, server, RemotingClientConfig(), store), warn=unknown.append)
    assert unknown == []
    return broker, server, store


@pytest.mark.parametrize("name", COMPOSE)
def test_compose_file_starts_each_server_once_with_existing_files(name):
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
        broker, server, store = docker_load(DOCKER / mount.partition(":")[0])
        host, _colon, port = broker.namesrvAddr.partition(":")
        assert host in services and int(port) == namesrv_startup.DEFAULT_LISTEN_PORT
        # The port that the health check queries, and the volume that keeps the data.
        assert server.listenPort == DEFAULT_LISTEN_PORT and store.storePathRootDir.startswith(HOME)
        assert store.storePathCommitLog.startswith(HOME)
        brokers[service] = broker.brokerName, broker.brokerId, store.brokerRole
        # A slave learns its master's address from the name server.
        if store.brokerRole is BrokerRole.SLAVE:
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
def test_entrypoint_runs_each_program(arguments, text):
    result = run("entrypoint.sh", *arguments)
    assert result.returncode == 0 and text in result.stdout


def test_entrypoint_refuses_anything_else():
    for arguments in ([], ["sh", "-c", "true"]):
        result = run("entrypoint.sh", *arguments)
        assert result.returncode == 2 and "give one of mqnamesrv, mqbroker" in result.stderr


def test_health_check_succeeds_only_while_the_server_of_process_1_answers(tmp_path):
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


# Dashboards and alerts use only metrics and labels that rmqha exports, and the documents only those that exist.

CONF = ROOT / "conf"
DASHBOARDS = sorted((CONF / "grafana").glob("*.json"))
ALERTS = CONF / "prometheus" / "alerts.yml"
SCRAPED = {"job", "instance"}  # added by Prometheus
METRICS = {metric.name: metric for metric in (
    *BROKER_METRICS, *NAMESRV_METRICS, *CONTROLLER_METRICS, *OF_EACH_ANSWER)}
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_WORD = re.compile(r"(?<![\w.$])[a-zA-Z_:][\w:]*")
_BY = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
_SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)\s*(\{[^}]*\})?")
# PromQL's own words, as far as they are used here.
PROMQL = {"sum", "max", "min", "count", "rate", "increase", "topk", "histogram_quantile", "max_over_time", "vector",
          "or", "and", "m", "h", "d", "s"}


def known_names() -> dict[str, set[str]]:
    """Return the names that can be queried, with their labels."""
    names = {"up": set(SCRAPED)}
    for metric in METRICS.values():
        labels = {*metric.labels, *SCRAPED}
        if metric.kind == HISTOGRAM:
            names |= {f"{metric.name}_bucket": labels | {"le"}, f"{metric.name}_count": labels,
                      f"{metric.name}_sum": labels}
        else:
            names[metric.name] = labels
    for line in process_metrics().decode().splitlines():
        if not line.startswith("#"):
            names[re.split("[{ ]", line)[0]] = set(SCRAPED)
    return names


METRIC_NAMES = known_names()


def wrong_in(expression: str) -> list[str]:
    """Return the names, and the labels of names, that no server exports."""
    text = _TEXT.sub('""', expression)
    wrong, labels = [], set()
    for name, selector in _SELECTOR.findall(_BY.sub(" ", text)):
        if name in PROMQL or re.fullmatch(r"__\w+", name):
            continue
        if name in METRIC_NAMES:
            labels |= METRIC_NAMES[name]
            wrong += [f"{name}: no label {label}" for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector)
                      if label not in METRIC_NAMES[name]]
        elif not any(name in group for group in re.findall(r"\{[^}]*\}", text)):
            wrong.append(f"{name} is not known")
    wrong += [f"grouped by {label}" for group in _BY.findall(text) for label in re.split(r"[,\s]+", group)
              if label and label not in labels]
    return wrong


def expressions() -> list[tuple[str, str]]:
    """Return (where, expression) of all panels, variables and alerts."""
    found = []
    for file in DASHBOARDS:
        dashboard = json.loads(file.read_text("utf-8"))
        found += [(f"{file.name}: {panel['title']}", target["expr"]) for panel in dashboard["panels"]
                  for target in panel["targets"]]
        for variable in dashboard["templating"]["list"]:
            if variable["type"] == "query":
                query = variable["query"]["query"]
                metric, label = re.fullmatch(r"label_values\((.*), (\w+)\)", query).groups()
                found.append((f"{file.name}: ${variable['name']}", f"sum by ({label}) ({metric})"))
    for group in yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]:
        found += [(rule["alert"], rule["expr"]) for rule in group["rules"]]
    return found


def test_all_names_and_labels_are_exported():
    found = expressions()
    assert len(found) > 90
    wrong = [f"{where}: {one}" for where, expression in found for one in wrong_in(expression)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("expression, wrong", [
    ("rmqha_put_total", ["rmqha_put_total is not known"]),
    ('sum by (brocker) (rate(rmqha_puts_total{cluster=~"$cluster"}[5m]))', ["grouped by brocker"]),
    ('rmqha_slaves{slave="a"} > 0', ["rmqha_slaves: no label slave"]),
    ("rmqha_ack_latency_seconds", ["rmqha_ack_latency_seconds is not known"]),
    ('sum by (group) (rocketmq_group_count) == 0 and on (group) rocketmq_group_diff > 0', [])])
def test_unknown_names_and_labels_are_found(expression, wrong):
    assert wrong_in(expression) == wrong


def test_dashboards_are_complete():
    assert [file.stem for file in DASHBOARDS] == [f"rmqha-{name}" for name in ("broker", "cluster", "consumers",
                                                                               "replication")]
    uids = set()
    for file in DASHBOARDS:
        dashboard = json.loads(file.read_text("utf-8"))
        uids.add(dashboard["uid"])
        variables = {variable["name"] for variable in dashboard["templating"]["list"]}
        used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(dashboard["panels"])))
        assert used <= variables and variables - used <= {"topic"}, file
        ids = [panel["id"] for panel in dashboard["panels"]]
        assert len(ids) == len(set(ids))
        cells = [(x, y) for panel in dashboard["panels"] for place in (panel["gridPos"],)
                 for x in range(place["x"], place["x"] + place["w"])
                 for y in range(place["y"], place["y"] + place["h"])]
        assert len(cells) == len(set(cells)) and max(x for x, _y in cells) < 24, f"{file}: panels overlap"


def test_alerts_have_a_description_and_use_only_remaining_labels():
    for group in yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]:
        for rule in group["rules"]:
            assert rule["labels"]["severity"] in ("warning", "critical") and rule["annotations"]["description"]
            by = _BY.findall(rule["expr"])
            left = set(re.split(r"[,\s]+", by[0])) if by else set().union(
                *(METRIC_NAMES[name] for name in _WORD.findall(_TEXT.sub("", rule["expr"])) if name in METRIC_NAMES))
            assert set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"]))) <= left, rule["alert"]


def test_promtool_accepts_rules_and_configuration():
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool (Debian: the package prometheus)")
    for what, file in (("rules", ALERTS), ("config", CONF / "prometheus" / "prometheus.yml")):
        result = subprocess.run([promtool, "check", what, str(file)], capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout + result.stderr


def test_configuration_defines_the_jobs_that_alerts_and_dashboards_query():
    config = yaml.safe_load((CONF / "prometheus" / "prometheus.yml").read_text("utf-8"))
    jobs = {job["job_name"] for job in config["scrape_configs"]}
    assert jobs == {"rmqha-broker", "rmqha-namesrv", "rmqha-controller"} and config["rule_files"] == ["alerts.yml"]
    for _where, expression in expressions():
        for job in re.findall(r'job="([^"]*)"', expression):
            assert job in jobs
