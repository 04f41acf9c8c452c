"""Dashboards and alerts name only metrics and labels that rmqha tells, and documents only those that there are."""
import json
import re
import shutil
import subprocess

import pytest
import yaml

from rmqha.broker.metrics.broker_metrics import BROKER_METRICS
from rmqha.common.metrics import HISTOGRAM, OF_EACH_ANSWER, process_metrics
from rmqha.controller.controller_metrics import CONTROLLER_METRICS
from rmqha.namesrv.namesrv_controller import NAMESRV_METRICS
from tests.support.sources import ROOT

CONF = ROOT / "conf"
DASHBOARDS = sorted((CONF / "grafana").glob("*.json"))
ALERTS = CONF / "prometheus" / "alerts.yml"
SCRAPED = {"job", "instance"}  # what Prometheus adds
METRICS = {metric.name: metric for metric in (
    *BROKER_METRICS, *NAMESRV_METRICS, *CONTROLLER_METRICS, *OF_EACH_ANSWER)}
_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"')
_WORD = re.compile(r"(?<![\w.$])[a-zA-Z_:][\w:]*")
_BY = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
_SELECTOR = re.compile(r"([a-zA-Z_:][\w:]*)\s*(\{[^}]*\})?")
# PromQL's own words that are used
PROMQL = {"sum", "max", "min", "count", "rate", "increase", "topk", "histogram_quantile", "max_over_time", "vector",
          "or", "and", "m", "h", "d", "s"}


def known_names() -> dict[str, set[str]]:
    """The names that can be asked for, with their labels."""
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


NAMES = known_names()


def wrong_in(expression: str) -> list[str]:
    """The names, and the labels of names, that nobody tells."""
    text = _TEXT.sub('""', expression)
    wrong, labels = [], set()
    for name, selector in _SELECTOR.findall(_BY.sub(" ", text)):
        if name in PROMQL or re.fullmatch(r"__\w+", name):
            continue
        if name in NAMES:
            labels |= NAMES[name]
            wrong += [f"{name}: no label {label}" for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector)
                      if label not in NAMES[name]]
        elif not any(name in group for group in re.findall(r"\{[^}]*\}", text)):
            wrong.append(f"{name} is not known")
    wrong += [f"grouped by {label}" for group in _BY.findall(text) for label in re.split(r"[,\s]+", group)
              if label and label not in labels]
    return wrong


def expressions() -> list[tuple[str, str]]:
    """(where, expression) of all panels, variables and alerts."""
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


def test_all_names_and_labels_are_told():
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
def test_the_check_finds_what_is_wrong(expression, wrong):
    assert wrong_in(expression) == wrong


def test_dashboards_are_whole():
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


def test_alerts_say_what_and_use_labels_that_are_left():
    for group in yaml.safe_load(ALERTS.read_text("utf-8"))["groups"]:
        for rule in group["rules"]:
            assert rule["labels"]["severity"] in ("warning", "critical") and rule["annotations"]["description"]
            by = _BY.findall(rule["expr"])
            left = set(re.split(r"[,\s]+", by[0])) if by else set().union(
                *(NAMES[name] for name in _WORD.findall(_TEXT.sub("", rule["expr"])) if name in NAMES))
            assert set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"]))) <= left, rule["alert"]


def test_promtool_takes_rules_and_configuration():
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool (Debian: the package prometheus)")
    for what, file in (("rules", ALERTS), ("config", CONF / "prometheus" / "prometheus.yml")):
        result = subprocess.run([promtool, "check", what, str(file)], capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout + result.stderr


def test_configuration_names_the_jobs_that_alerts_and_dashboards_ask_for():
    config = yaml.safe_load((CONF / "prometheus" / "prometheus.yml").read_text("utf-8"))
    jobs = {job["job_name"] for job in config["scrape_configs"]}
    assert jobs == {"rmqha-broker", "rmqha-namesrv", "rmqha-controller"} and config["rule_files"] == ["alerts.yml"]
    for _where, expression in expressions():
        for job in re.findall(r'job="([^"]*)"', expression):
            assert job in jobs
