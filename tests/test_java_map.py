"""docs/reference/java-map.md is generated from the `Java:` lines of docstrings by `python -m tests.test_java_map`."""
import ast
import re
import sys
from collections import defaultdict

from tests.support.sources import ROOT, modules

JAVA_LINE = re.compile(r"^Java: (?P<name>[\w.$#]+)(?: \((?P<version>[\w. ]+)\))?$")
MAP = ROOT / "docs" / "reference" / "java-map.md"
PREFIX = "org.apache.rocketmq."
HEAD = """# Map of Java's classes

This page says where in rmqha each class of RocketMQ 4.9.8 is, for readers who know the Java source. Automatic failover
follows classes of 5.1.4. A class that is not in the table has no counterpart, because no code would call it.

## Where to look

By the rule, a class is in the module of its name: `org.apache.rocketmq.store.ha.HAConnection` is
`rmqha/store/ha/ha_connection.py::HAConnection`. The column "exception" says why a class is elsewhere:

- **folder**: the module has the name of the class, but is in another folder.
- **shared**: the class shares a module with others on one subject (headers, bodies, listeners, results, commands), or
  functions and constants of such a module take its place.
- **function**: a function in the module of its name takes its place.
- **nested**: a nested class is at module level in the module of its outer class.
- **moved**: a nested class is not with its outer class, but in a module of its own or of its subject.
- **divided**: the class was divided among several places. Each of them has a row.
- **transport**: `Netty` is left out of the names, and the classes of the transport are in `rmqha/remoting/`.

`python -m tests.test_java_map` generates this page from the `Java:` lines of the docstrings.

## The classes

| Java class | rmqha | exception |
|---|---|---|
"""


def snake(name: str) -> str:
    """Convert CamelCase to a module name: HAConnection -> ha_connection, MQVersion -> mq_version."""
    name = name.replace("RocketMQ", "Rocketmq").replace("IPv", "Ipv")
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


def entries():
    """Return (Java class, path::name) of each docstring with a RocketMQ twin, sorted."""
    found = []
    for path, tree in modules().items():
        for node in ast.walk(tree):
            if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                continue
            for line in (ast.get_docstring(node) or "").replace("\n(5.1.4)", " (5.1.4)").splitlines():
                match = JAVA_LINE.match(line.strip())
                if line.strip().startswith("Java: ") and not match:
                    raise AssertionError(f"{path}: a malformed Java: line: {line.strip()}")
                if match and match["name"].startswith(PREFIX) and "#" not in match["name"]:
                    name = "" if isinstance(node, ast.Module) else f"::{node.name}"
                    found.append((match["name"], path, name, match["version"]))
    return sorted(found)


def expected_path(java: str) -> str:
    """Return the module that the rule gives for a Java class."""
    parts = java.removeprefix(PREFIX).split("$")[0].split(".")
    return "rmqha/" + "/".join([*parts[:-1], snake(parts[-1])]) + ".py"


def exception(java: str, path: str, name: str, places: dict[str, list[str]]) -> str:
    """Return the exception that an entry is an instance of, '' when the rule holds. `places`: each class's modules."""
    expected, own = expected_path(java), java.rsplit(".", 1)[1]
    if path == expected and name in ("", f"::{own}"):
        return ""
    if java.startswith(PREFIX + "remoting.netty."):
        return "transport"
    if len(places[java]) > 1:
        return "divided"
    if "$" in java:
        return "nested" if path == expected or path in places.get(java.split("$")[0], ()) else "moved"
    if path == expected:
        return "function"
    return "folder" if path.endswith(f"/{snake(own)}.py") else "shared"


def render() -> str:
    """Return the whole page."""
    found, places = entries(), defaultdict(list)
    for java, path, _name, _version in found:
        places[java].append(path)
    rows = [f"| {java} | `{path}{name}` | {exception(java, path, name, places)} |"
            for java, path, name, _version in found]
    return HEAD + "\n".join(rows) + "\n"


def test_java_map_matches_the_docstrings():
    assert MAP.read_text("utf-8") == render(), "run: python -m tests.test_java_map"


def test_every_java_line_names_a_version():
    wrong = [f"{path}{name}: {java}" for java, path, name, version in entries() if version not in ("4.9.8", "5.1.4")]
    assert not wrong, "\n".join(wrong)


def test_names_follow_the_rule():
    assert snake("HAConnection") == "ha_connection" and snake("MQVersion") == "mq_version"
    assert snake("KVConfigManager") == "kv_config_manager"
    assert snake("DefaultMQPushConsumer") == "default_mq_push_consumer"
    assert expected_path("org.apache.rocketmq.store.ha.HAService$HAClient") == "rmqha/store/ha/ha_service.py"
    assert expected_path("org.apache.rocketmq.common.BrokerConfig") == "rmqha/common/broker_config.py"


if __name__ == "__main__":
    MAP.write_text(render(), "utf-8")
    sys.stdout.write(f"wrote {MAP.name}: {len(entries())} classes\n")
