"""docs/reference/java-map.md is made from the `Java:` lines of the docstrings by `python -m tests.test_java_map`."""
import ast
import re
import sys

from tests.support.sources import ROOT, modules

JAVA_LINE = re.compile(r"^Java: (?P<name>[\w.$#]+)(?: \((?P<version>[\w. ]+)\))?$")
MAP = ROOT / "docs" / "reference" / "java-map.md"
PREFIX = "org.apache.rocketmq."
HEAD = """# Where each Java class is found

Generated from the `Java:` line of each docstring by `python -m tests.test_java_map`; a test compares.

The rule: a class is in the module of its name, `org.apache.rocketmq.store.ha.HAConnection` in
`rmqha/store/ha/ha_connection.py::HAConnection`, or in its package's module that this table names. What is not in the
table is not ported: no code would call it. The last column says why a class is elsewhere:

- **nested**: a nested class stands at module level in its outer class's module;
- **family**: small classes share a module with what they are about (headers, bodies, listeners, results, commands),
  or a class is functions;
- **split**: a port above 800 lines is split and the parent re-exports;
- **transport**: `Netty` leaves the names, and the transport's classes stand in `rmqha/remoting/`.

| Java class | rmqha | exception |
|---|---|---|
"""


def snake(name: str) -> str:
    """CamelCase as a module name: HAConnection -> ha_connection, MQVersion -> mq_version."""
    name = name.replace("RocketMQ", "Rocketmq").replace("IPv", "Ipv")
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


def entries():
    """(Java class, path::name) of each docstring with a RocketMQ twin, sorted."""
    found = []
    for path, tree in modules().items():
        for node in ast.walk(tree):
            if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                continue
            for line in (ast.get_docstring(node) or "").replace("\n(5.1.4)", " (5.1.4)").splitlines():
                match = JAVA_LINE.match(line.strip())
                if line.strip().startswith("Java: ") and not match:
                    raise AssertionError(f"{path}: a Java: line of another form: {line.strip()}")
                if match and match["name"].startswith(PREFIX) and "#" not in match["name"]:
                    name = "" if isinstance(node, ast.Module) else f"::{node.name}"
                    found.append((match["name"], path, name, match["version"]))
    return sorted(found)


def expected_path(java: str) -> str:
    """The module that the rule gives for a Java class."""
    parts = java.removeprefix(PREFIX).split("$")[0].split(".")
    return "rmqha/" + "/".join([*parts[:-1], snake(parts[-1])]) + ".py"


def exception(java: str, path: str, name: str) -> str:
    """Which of the exceptions an entry is, '' when the rule holds."""
    expected = expected_path(java)
    if "$" in java and path == expected:
        return "nested"
    if path == expected and (name == "" or name == "::" + java.rsplit(".", 1)[1]):
        return ""
    if java.startswith(PREFIX + "remoting.netty."):
        return "transport"
    return "split" if "$" in java else "family"


def render() -> str:
    """The whole file."""
    rows = [f"| {java} | `{path}{name}` | {exception(java, path, name)} |" for java, path, name, _version in entries()]
    return HEAD + "\n".join(rows) + "\n"


def test_java_map_is_what_the_docstrings_say():
    assert MAP.read_text("utf-8") == render(), "run: python -m tests.test_java_map"


def test_every_java_line_names_the_version_that_was_read():
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
