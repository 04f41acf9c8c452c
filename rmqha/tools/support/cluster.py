"""The questions of a bundle to a cluster: rmqha's own commands, and name servers, brokers and controllers by request.

Each server is asked for as long as --timeout says, all at once; one that does not answer is noted and delays no other.
"""
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import asdict
from enum import Enum
from typing import Any

from rmqha.common.texts import JsonTextError, parse_json, whole
from rmqha.tools.admin.cluster_admin import Broker, ClusterAdmin
from rmqha.tools.connection import connected
from rmqha.tools.replication.ask import in_parallel
from rmqha.tools.replication.controllers import Controllers, controllers_of, leader_of
from rmqha.tools.replication.reader import roles_change
from rmqha.tools.support.bundle import Found, Item, JsonItem, Missing
from rmqha.tools.support.commands import Outcome, run_rest, start_rmqha
from rmqha.tools.terminal import CannotAnswerError

_MAX_PAGE = 8 << 20  # bytes of a metrics page
_MAX_BROKERS = 200
# The commands poll servers several times: how many time-outs they may take in all.
_PATIENCE = 10
_LEAST_S = 30.0
_PAGES = ("metrics", "readyz")
# Exit codes of commands that did what they should: they found faults.
_RAN = (0, 1, 2)


def run_commands(commands: dict[str, list[str]], timeout_s: float) -> list[Found]:
    """Run commands of rmqha at the same time; return their output. `commands`: item's name -> arguments."""
    deadline = time.monotonic() + max(_PATIENCE * timeout_s, _LEAST_S)
    started = {name: start_rmqha(arguments) for name, arguments in commands.items()}
    outcomes: dict[str, Outcome] = {}
    try:
        for name, each in started.items():
            outcomes[name] = run_rest(each, deadline - time.monotonic())
    finally:
        for name, each in started.items():
            if name not in outcomes:  # interrupted
                run_rest(each, 0)
    return [_output(name, commands[name], outcome) for name, outcome in outcomes.items()]


def _output(name: str, arguments: list[str], outcome: Outcome) -> Found:
    command = f"rmqha {' '.join(arguments)}"
    if outcome.code not in _RAN or not outcome.output.strip():
        return Missing(f"the output of `{command}`", outcome.why())
    errors = outcome.errors.decode("utf-8", "replace").strip()
    try:
        printed: Any = parse_json(outcome.text(), "its output")
    except JsonTextError:
        printed = outcome.text()
    value = {"exitCode": outcome.code, "errors": errors.splitlines()[:100], "output": printed}
    return JsonItem(f"{name}.json", value, command)


def brokers_of(namesrv: str, timeout_s: float) -> tuple[list[Broker], list[Missing]]:
    """Return the brokers that any of the name servers lists, and the name servers that do not answer."""
    addresses = [address.strip() for address in namesrv.split(";") if address.strip()]

    def ask(address: str) -> list[Broker] | Missing:
        try:
            with connected(address, timeout_s) as admin:
                return admin.brokers()
        except CannotAnswerError as error:
            return Missing(f"name server {address}", error.message)
    answers = in_parallel(ask, addresses, timeout_s * 1000, lambda address: _late("name server", address, timeout_s))
    brokers = sorted({broker for answer in answers.values() if isinstance(answer, list) for broker in answer})
    missing = [answer for answer in answers.values() if isinstance(answer, Missing)]
    if len(brokers) > _MAX_BROKERS:
        missing.append(Missing(f"{len(brokers) - _MAX_BROKERS} brokers", f"only {_MAX_BROKERS} are asked"))
    return brokers[:_MAX_BROKERS], missing


def _late(kind: str, address: str, timeout_s: float) -> Missing:
    return Missing(f"{kind} {address}", f"it did not answer within {timeout_s:g} s")


def ask_brokers(brokers: list[Broker], timeout_s: float) -> dict[Broker, dict[str, Any] | Missing]:
    """Ask each broker for its runtime table, settings, replication, topics and groups; an answer may be a part."""
    with connected(None, timeout_s) as admin:
        return in_parallel(lambda broker: _of_broker(admin, broker), brokers, 3 * timeout_s * 1000,
                           lambda broker: _late("broker", broker.address, 3 * timeout_s))


def _of_broker(admin: ClusterAdmin, broker: Broker) -> dict[str, Any] | Missing:
    address, limit_ms = broker.address, admin.timeout_millis
    found: dict[str, Any] = {"broker": asdict(broker)}
    questions: dict[str, Callable[[], Any]] = {
        "config": lambda: admin.get_broker_config(address), "runtime": lambda: admin.runtime_info(address),
        "replication": lambda: _plain(admin.ha_runtime_info(address)),
        "topics": lambda: _plain(admin.api.get_all_topic_config(address, limit_ms).topicConfigTable),
        "groups": lambda: _plain(admin.api.get_all_subscription_group(address, limit_ms).subscriptionGroupTable),
        "epochs": lambda: _plain(admin.get_broker_epoch_cache(address)) if roles_change([found["config"]]) else None}
    for name, ask in questions.items():
        try:
            found[name] = ask()
        except Exception as error:
            if name == "config":  # it does not answer at all
                return Missing(f"broker {broker.name} {broker.broker_id} at {address}", _text(error))
            found[name] = {"error": _text(error)}
    return found


def _text(error: Exception) -> str:
    return error.message if isinstance(error, CannotAnswerError) else f"{type(error).__name__}: {error}"


def _plain(value: Any) -> Any:
    """Return the body of an answer as values of JSON."""
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(inner) for inner in value]
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, Enum):
        return value.name
    names = getattr(value, "__slots__", ())
    fields = getattr(value, "__dict__", None) or {name: getattr(value, name) for name in names}
    return {name: _plain(inner) for name, inner in fields.items() if not name.startswith("_")}


def broker_items(answers: dict[Broker, dict[str, Any] | Missing]) -> list[Found]:
    """Return an item for each broker that answered."""
    found: list[Found] = []
    for broker, answer in answers.items():
        if isinstance(answer, Missing):
            found.append(answer)
        else:
            name = f"cluster/brokers/{broker.name}-{broker.broker_id}.json"
            found.append(JsonItem(name, answer, f"broker {broker.address}"))
    return found


def controller_items(answers: dict[Broker, dict[str, Any] | Missing], timeout_s: float) -> list[Found]:
    """Return the state of the controllers that the brokers' settings name."""
    configs = [answer["config"] for answer in answers.values() if not isinstance(answer, Missing)]
    addresses = sorted({address for config in configs for address in controllers_of(config)})
    if not addresses:
        return []
    names = sorted({broker.name for broker in answers})
    with connected(None, timeout_s) as admin:
        views = Controllers(admin).ask(addresses)
        state: dict[str, Any] = {"controllers": [asdict(view) for view in views]}
        leader = leader_of(views)
        if leader:
            for name, ask in (("config", lambda: admin.get_controller_config([leader])),
                              ("replicas", lambda: _plain(admin.get_in_sync_state_data(leader, names)))):
                try:
                    state[name] = ask()
                except CannotAnswerError as error:
                    state[name] = {"error": error.message}
    found: list[Found] = [JsonItem("cluster/controllers.json", state, ", ".join(addresses))]
    return [*found, *(Missing(f"controller {view.address}", view.error) for view in views if view.error)]


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the page of a server is at that server."""

    def redirect_request(self, *_arguments: Any, **_named: Any) -> None:
        """Return None: the answer itself counts, as an error."""


def pages_of(answers: dict[Broker, dict[str, Any] | Missing]) -> dict[str, str]:
    """Return the metrics ports of brokers: a name for items -> host:port."""
    found = {}
    for broker, answer in answers.items():
        port = 0 if isinstance(answer, Missing) else whole(answer["config"].get("metricsPort"), 0, 0, 65_535)
        if port:
            found[f"{broker.name}-{broker.broker_id}"] = f"{broker.address.rpartition(':')[0]}:{port}"
    return found


def metrics_items(ports: dict[str, str], timeout_s: float) -> list[Found]:
    """Return the metrics and the readiness of the servers at these ports."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())

    def fetch(asked: tuple[str, str]) -> Found:
        name, page = asked
        url = f"http://{ports[name]}/{page}"
        try:
            with opener.open(url, timeout=timeout_s) as answer:
                text = answer.read(_MAX_PAGE).decode("utf-8", "replace")
        except urllib.error.HTTPError as error:  # readyz is 503 for a server that is not ready, with the reasons
            text = f"{error.code}\n{error.read(_MAX_PAGE).decode('utf-8', 'replace')}"
        except Exception as error:  # besides OSError, those of http.client
            return Missing(url, _text(error))
        return Item(f"metrics/{name}.{page}.txt", text, url)
    asked = [(name, page) for name in ports for page in _PAGES]
    if not asked:
        return []
    limit_s = 2 * timeout_s
    answers = in_parallel(fetch, asked, limit_s * 1000, lambda each: _late(f"/{each[1]} of", ports[each[0]], limit_s))
    return list(answers.values())
