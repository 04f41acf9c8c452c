"""Tests of the page runner: parsing of pages, detection of wrong ones, and isolation of hosts."""
import contextlib
import re
from pathlib import Path

import pytest

from tests.pages import walk as page
from tests.pages.guided import MASTER, OFFSET, SLAVE, Guided
from tests.pages.shell import Done, environment, fresh
from tests.pages.walk import (
    CHOSEN_PORT,
    COMMANDS,
    Differs,
    Scenario,
    Walk,
    blocks_of,
    complete_commands,
    named,
    normal,
    page_of,
    pages,
    read,
    wrong_with,
)
from tests.support.sources import ROOT
from tests.support.wait import wait_until

# Parsing of pages, and detection of what is wrong in one.

PARTS = "shows parts of programs; docs/examples has whole ones, which tests/test_guides.py runs"
SPARK = "needs Spark and Java; tests/pipeline runs what it describes"
# Pages with commands or Python that no test here runs, with the reason. Only remove entries.
NOT_RUN = {
    "docs/CONTRIBUTING.md": "its commands run, check and build what this test is a part of",
    "docs/acl.md": PARTS, "docs/client.md": PARTS,
    "docs/commands.md": "its contexts have addresses of other hosts; tests/tools/test_context_command.py has its own",
    "docs/containers.md": "tests/containers/test_page.py runs it, where containers can be run",
    "docs/console.md": "tests/tools/console asks the console, which serves until it is stopped",
    "docs/controllers-at-etcd.md": "needs etcd; tests/controller/test_etcd_cluster.py runs controllers there",
    "docs/index.md": "its command is the first one of the README, which is run",
    "docs/metrics.md": "tests/test_package.py does it with the extras installed",
    "docs/performance.md": "its commands are benchmarks, which need an idle machine for hours",
    "docs/reference/fast-ways.md": "its command makes the page itself, and tests/fast_ways compares that",
    "docs/tls.md": "its addresses are of other hosts; tests/remoting has servers with TLS",
    **dict.fromkeys(("docs/spark/index.md", "docs/spark/archives.md", "docs/spark/many-machines.md",
                     "docs/spark/scale.md", "docs/spark/live-clusters.md", "docs/spark/streams.md"), SPARK),
}
PAGE = """# A page

First:

    bin/a        # a comment
    bin/b --c

- an item

      not a block

Then Python. It prints `one`.

```python
print(1)
```

1. A step:

   ```bash
   cd x && \\
     bin/d &
   ```

```text
  shown
```

    key=value
    other=1
"""


def test_blocks_of_a_page():
    blocks = blocks_of("page.md", PAGE)
    assert [(block.language, block.line, block.text) for block in blocks] == [
        ("indented", 5, "bin/a        # a comment\nbin/b --c\n"), ("python", 15, "print(1)\n"),
        ("bash", 21, "cd x && \\\n  bin/d &\n"), ("text", 26, "shown\n"), ("properties", 29, "key=value\nother=1\n")]
    assert "It prints `one`" in blocks[1].prose and "It prints" not in blocks[2].prose


def test_unterminated_block_is_refused():
    with pytest.raises(AssertionError, match="page.md:1: unterminated block"):
        blocks_of("page.md", "```bash\nls\n")


@pytest.mark.parametrize("text, commands", [
    ("a\n\n# only a comment\nb  # c\n", ["a", "b  # c"]), ("a \\\n  b\nc\n", ["a \\\n  b", "c"]),
    ("for x in 1 2; do\n  echo $x\ndone\ne\n", ["for x in 1 2; do\n  echo $x\ndone", "e"]),
    ("cat > f <<EOF\nx\nEOF\nls\n", ["cat > f <<EOF\nx\nEOF", "ls"]), ("echo 'a\nb'\n", ["echo 'a\nb'"])])
def test_commands_include_all_their_lines(text, commands):
    assert complete_commands(text) == commands


@pytest.mark.parametrize("text, why", [("if true; then\n", "unterminated command"), ("echo )\n", "rejects this")])
def test_command_with_a_syntax_error_is_found(text, why):
    with pytest.raises(AssertionError, match=why):
        complete_commands(text)


SHOWN = """name    address          lag
------  ---------------  ---
broker  127.0.0.1:10911    0

sent 3, 12 s, 2,659 per second, id 0F1C3D477BC4A06BCD4B7AB4557A0001 at 2026-11-24 19:50:38.663
"""


@pytest.mark.parametrize("old, new", [
    ("12 s", "3.5 s"), ("2,659 per second", "17 per second"), ("7AB4557A0001", "7AB4557A0002"),
    ("19:50:38.663", "00:00:00.001"), ("name    address ", "name  address   "), ("------  ", "---  "),
    ("sent", "/x: line 1:  17 Killed bin/mqbroker\nsent")])
def test_values_that_vary_from_run_to_run_are_ignored(old, new):
    assert old in SHOWN and wrong_with(SHOWN, SHOWN.replace(old, new)) is None


@pytest.mark.parametrize("old, new", [
    ("broker", "brokers"), ("10911", "10921"), ("sent 3", "sent 4"), ("name", "Name"), ("   0\n", "   1\n"),
    ("12 s", "12 m"), ("sent", "warning: x\nsent"), ("\nsent", "sent"), ("id 0F", "0F"), ("per second", "per minute"),
    ("broker  127.0.0.1:10911    0\n", ""), ("663\n", "663\nmore\n"), ("name    address          lag\n", "")])
def test_a_planted_difference_is_found(old, new):
    changed = SHOWN.replace(old, new, 1)
    assert changed != SHOWN
    assert wrong_with(SHOWN, changed) is not None and wrong_with(changed, SHOWN) is not None


def test_lines_are_skipped_only_where_the_page_has_an_ellipsis():
    printed = "one\ntwo\nthree\nfour\n"
    assert wrong_with("one\n...\nfour\n", printed) is None
    assert wrong_with("...\nfour\n", printed) is None
    assert wrong_with("one\ntwo\n...\n", printed) is None
    assert wrong_with("...\ntwo\nthree\n...\n", printed) is None
    for shown in ("one\n...\nthree\n", "two\n...\n", "...\ntwo\nfour\n...\n", "one\n...\nfive\n",
                  "one\n...\nfour\nfive\n"):
        assert wrong_with(shown, printed) is not None, shown


def test_one_printed_line_does_not_match_twice():
    assert wrong_with("one\n...\none\n", "one\n") is not None


def test_chosen_ports_may_differ_and_others_may_not():
    assert normal("127.0.0.1:24557 127.0.0.1:32000", [CHOSEN_PORT]) == ["127.0.0.1:<port> 127.0.0.1:<port>"]
    assert normal("127.0.0.1:9876 127.0.0.1:10911 127.0.0.1:32001", [CHOSEN_PORT]) == [
        "127.0.0.1:9876 127.0.0.1:10911 127.0.0.1:32001"]


class Recorded:
    """A machine with prepared output for each command."""

    is_at_the_prompt = False

    def __init__(self, home, **known):
        self.home = home
        self.known = {"a": "1\n", "b": "2\n", **known}

    def run(self, command, online=False):
        found = re.fullmatch(r"\{ mqadmin (.*)\n\} 2>~/errors", command)
        if found is not None:
            (self.home / "errors").write_text("Exception\n" if found[1] == "fails" else "")
            return Done(f"The sub command {found[1]} not exist.\n" if found[1] == "x" else "ok\n", 0, Path("/dev/null"))
        return Done(self.known.get(command, ""), 0 if command in self.known else 127, Path("/dev/null"))

    def leave_the_prompt(self):
        pass

    def outputs(self):
        return ""


@pytest.fixture
def walk(tmp_path):
    """walk(text, scenario) walks through a page with that text; known=... are commands and their output."""
    def walk(text, scenario=None, **known):
        return Walk(page_of("page.md", text), Recorded(tmp_path, **known), scenario).run()
    return walk


def test_correct_page_passes(walk):
    walk("    mqadmin works\n", Scenario())
    walk("```bash\na\nb\n```\n\nIt prints `1`.\n\n```text\n1\n2\n```\n", Scenario())
    walk("    a\n    c  # d\n", Scenario(exempt={"c": "not here"}))
    walk("    X\n", Scenario(replace={"X": "a"}))


@pytest.mark.parametrize("text, scenario, wrong", [
    ("```bash\na\nb\n```\n```text\n1\n3\n```\n", Scenario(), "page.md:6: the page shows: 3"),
    ("```bash\na\nb\n```\n```text\n1\n```\n", Scenario(), "the page does not show: 2"),
    ("    a\n    c\n", Scenario(), "page.md:1: c\nends with 127, not 0"),
    ("    a\n", Scenario(fails={"a": 2}), "ends with 0, not 2"),
    ("    a\n\nIt prints `3`.\n\n    b\n", Scenario(), "it does not print 3"),
    ("    a\n\nIt prints `3`.\n", Scenario(), "it does not print 3"),
    ("    a\n", Scenario(exempt={"b": "not here"}), "no longer has anything like this: .*'b'"),
    ("    a\n", Scenario(differs=[Differs("q", "r")]), "no longer has anything like this: .*'q'"),
    ("    a\n", Scenario(online=["b"]), "no longer has anything like this: .*'b'"),
    ("```java\nx();\n```\n", Scenario(), "this block is not run"),
    ("    mqadmin x\n", Scenario(), "page.md:1: mqadmin x\nfails:\nThe sub command x not exist"),
    ("    mqadmin fails\n", Scenario(), "page.md:1: mqadmin fails\nfails:\nok\nException"),
    ("    d\n", Scenario(), "page.md:1: d\nTraceback")])
def test_wrong_page_fails_with_the_reason(walk, text, scenario, wrong):
    with pytest.raises(AssertionError, match=wrong):
        walk(text, scenario, d="Traceback (most recent call last)\n")


def test_page_must_say_how_to_leave_python(walk, monkeypatch):
    monkeypatch.setattr(Recorded, "is_at_the_prompt", True)
    walk("Leave with Ctrl-D.\n\n    a\n")
    with pytest.raises(AssertionError, match="page.md:3: the page does not say how to leave Python"):
        walk("Then:\n\n    a\n")


def test_command_names_exclude_trailing_comments():
    assert named("bin/a -b   # c") == "bin/a -b" and named("echo '#1' $#") == "echo '#1' $#"


def test_each_page_is_run_or_gives_a_reason():
    tests = "".join(file.read_text("utf-8") for file in Path(__file__).parent.glob("test_*.py")
                    if file.name != Path(__file__).name)
    found = {name for name in ("README.md", *pages("docs", "docs/tutorials", "docs/explanation", "docs/reference",
                                                   "docs/spark"))
             if any(block.language in (*COMMANDS, "python") for block in read(name).blocks)}
    run = {name for name in found if f'Walk("{name}"' in tests}
    assert len(run) >= 8 and found - run == NOT_RUN.keys()


def test_pages_of_this_checkout_are_read():
    blocks = {name: read(name).blocks for name in ("README.md", "docs/clusters.md", "docs/testing.md")}
    assert [block.language for block in blocks["README.md"]] == [
        "indented", "indented", "python", "indented", "python"]
    assert sum(block.language in COMMANDS for block in blocks["docs/clusters.md"]) == 5
    assert {block.language for block in blocks["docs/testing.md"]} == {"python", "sh", "java", "go"}


@pytest.mark.parametrize("required, outcome", [("0", pytest.skip.Exception), ("1", pytest.fail.Exception)])
def test_pages_must_not_skip_where_they_are_required(required, outcome, monkeypatch, tmp_path):
    monkeypatch.setenv("RMQHA_REQUIRE_PAGES", required)
    monkeypatch.setattr("tests.pages.shell.why_not", lambda: "no namespaces")
    with pytest.raises(outcome, match="no namespaces"):
        fresh(tmp_path / "shared")


def test_readers_environment_contains_nothing_of_the_tests(monkeypatch, tmp_path):
    for name in ("PYTHONPATH", "NAMESRV_ADDR", "PYTHONDONTWRITEBYTECODE", "ROCKETMQ_HOME", "VIRTUAL_ENV"):
        monkeypatch.setenv(name, "/x")
    monkeypatch.setenv("PATH", f"{ROOT / '.venv' / 'bin'}:/usr/bin")
    found = environment(tmp_path)
    assert "/x" not in found.values() and (found["HOME"], found["PATH"]) == (str(tmp_path), "/usr/bin")


# Hosts are isolated from each other, and a scenario that does not fit its page fails.

ONE_BLOCK = "# Look\n\n```bash\necho 1,000 bytes on 2 disks\n```\n\n```text\n{}\n```\n"
EDIT = "# Edit\n\nIn the file `/etc/rocketmq/a.properties` set\n\n```properties\nkey=2\nnew=3\n```\n"


@pytest.fixture
def guided(make_hosts):
    hosts = make_hosts(MASTER, SLAVE)
    with contextlib.ExitStack() as made:
        yield lambda text: made.enter_context(
            Guided(page.Page("a.md", tuple(page.blocks_of("a.md", text))), hosts, "/"))


def test_each_host_has_its_own_address_files_processes_and_home(guided):
    walk = guided("")
    for at in (MASTER, SLAVE):
        assert f"inet {at}/24" in walk.tool(at, "ip -o addr")
        walk.tool(at, f"echo {at} | tee /data/x /etc/rocketmq/x ~/x")
        assert walk.hosts[at].path("/data/x").read_text() == f"{at}\n"
    assert walk.tool(MASTER, "cat /data/x /etc/rocketmq/x ~/x").split() == [MASTER] * 3
    walk.tool(MASTER, "echo both >/backup/x; sleep 1234 >/dev/null 2>&1 &")
    assert walk.tool(SLAVE, "cat /backup/x").strip() == "both"
    wait_until(lambda: ["sleep", "1234"] in [process.cmdline() for process in walk.hosts[MASTER].processes()])
    assert "sleep 1234" in walk.tool(MASTER, "ps ax") and "sleep 1234" not in walk.tool(SLAVE, "ps ax")


def test_cable_is_unplugged_and_plugged_in_again(guided):
    walk = guided("")
    reach = f"timeout 2 bash -c 'exec 3<>/dev/tcp/{SLAVE}/1' 2>&1; true"
    assert "refused" in walk.tool(MASTER, reach)
    with walk.hosts[SLAVE].unplugged():
        assert "refused" not in walk.tool(MASTER, reach)
    walk.until(MASTER, reach, "refused")


@pytest.mark.parametrize("shown, differs, wrong", [
    ("1,000 bytes on 2 disks", [], None), ("4,096 bytes on 2 disks", [], "4,096"),
    ("4,096 bytes on 2 disks", [OFFSET], None), ("1,000 bytes on 3 disks", [OFFSET], "3 disks"),
    ("1,000 bytes", [], "1,000 bytes"), ("...", [], None), ("", [], "on 2 disks")])
def test_output_missing_from_the_page_fails(guided, shown, differs, wrong):
    walk = guided(ONE_BLOCK.format(shown))
    if wrong is None:
        walk.types("Look", MASTER, differs=differs)
        walk.done()
    else:
        with pytest.raises(AssertionError, match=re.escape(wrong)):
            walk.types("Look", MASTER, differs=differs)


@pytest.mark.parametrize("does, wrong", [
    (lambda walk: walk.types("Look", MASTER, codes={"echo": 1}), "exit code 0, not 1"),
    (lambda walk: walk.types("Look", MASTER, codes={"cat": 1}), "no command begins with ['cat']"),
    (lambda walk: walk.types("See", MASTER), "'bash' under 'Look'"),
    (lambda walk: walk.edits("Look", MASTER, "/etc/rocketmq/a.properties"), "'bash' under 'Look'"),
    (lambda walk: walk.done(), "has left out: ['a.md:4', 'a.md:8']"),
    (lambda walk: [walk.types("Look", MASTER), walk.types("Look", MASTER)], "no further block")])
def test_a_scenario_that_does_not_fit_the_page_fails(guided, does, wrong):
    with pytest.raises(AssertionError, match=re.escape(wrong)):
        does(guided(ONE_BLOCK.format("1,000 bytes on 2 disks")))


def test_lines_are_written_to_the_file_named_by_the_page(guided):
    walk = guided(EDIT)
    file = walk.hosts[SLAVE].path("/etc/rocketmq/a.properties")
    file.write_text("# mine\nkey=1\nother=1\n")
    walk.edits("Edit", SLAVE, "/etc/rocketmq/a.properties")
    assert file.read_text() == "# mine\nkey=2\nother=1\nnew=3\n"
    with pytest.raises(AssertionError, match="does not name /etc/rocketmq/b.properties"):
        guided(EDIT).edits("Edit", SLAVE, "/etc/rocketmq/b.properties")


def test_shell_keeps_its_variables_and_a_server_exit_is_reported(guided):
    walk = guided("# Look\n\n```bash\nexport NAME=value\necho $NAME\n```\n\n```text\nvalue\n```\n")
    walk.types("Look", MASTER)
    with pytest.raises(AssertionError, match="no such file"):
        walk.starts(MASTER, ["bash", "-c", "echo no such file; exit 3"])
