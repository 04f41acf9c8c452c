"""Tutorials, how-to guides and docs/examples: snippets and programs run, and the site builds."""
import ast
import codeop
import importlib.util
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from runpy import run_path

import click
import pytest

from rmqha.store.message_store_config import BrokerRole
from rmqha.tools.command.mq_admin_startup import find_sub_command
from rmqha.tools.rmqha_command import rmqha
from tests.support import patience
from tests.support.guide import loaded, needs_extra
from tests.support.in_process import running_name_server, start_broker
from tests.support.sources import ROOT
from tests.support.tiers import of_sources
from tests.support.wait import wait_until

# Tutorials and how-to guides: Python snippets run, commands and options in shell snippets exist, and the site builds.

DOCS = ROOT / "docs"
GUIDES = sorted(page.relative_to(DOCS).as_posix() for kind in ("tutorials", "how-to")
                for page in DOCS.glob(f"{kind}/*.md"))
SHELL = re.compile(r"^( *)```bash\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^ *```(\S*)\n.*?^ *```", re.MULTILINE | re.DOTALL)
LANGUAGES = {"bash", "python", "text", "properties"}
BACKGROUND = re.compile(r" & *(\w+=\$!)?$")
LOOP = re.compile(r"^(?:until|while) (.*?); do (.*); done$")
# System programs that guides use.
SYSTEM = {"cp", "curl", "echo", "export", "git", "grep", "haproxy", "install", "ip", "keepalived", "kill", "mkdir",
          "mv", "seq", "set", "sleep", "tail", "tar", "/etc/rocketmq/check-master.sh", "/etc/rocketmq/vip.sh"}
SITE = ("sphinx", "furo", "myst_parser", "sphinx_copybutton")


def text_of(page: str) -> str:
    return (DOCS / page).read_text("utf-8")


def command_lines(text: str) -> list[list[str]]:
    """Return the words of each command in the shell snippets of a page."""
    lines = [line.strip() for _, block in SHELL.findall(text)
             for line in textwrap.dedent(block).replace("\\\n", "").splitlines()]
    commands = [command for line in lines for command in LOOP.sub(r"\1\n\2", line).replace(" | ", "\n").splitlines()]
    return [shlex.split(BACKGROUND.sub("", command), comments=True) for command in commands if command]


def wrong_with(words: list[str]) -> str | None:
    """Return the reason why a command can't be run as it is; None when it can."""
    program, arguments = words[0], words[1:]
    if program == "bin/rmqha":
        return wrong_with_rmqha(rmqha, arguments)
    if program == "bin/mqadmin":
        return wrong_with_mqadmin(arguments)
    if program == ".venv/bin/python":
        return None if (ROOT / arguments[0]).is_file() else f"no file {arguments[0]}"
    if program.startswith("bin/"):
        return None if (ROOT / program).is_file() else f"no program {program}"
    return None if program in SYSTEM else f"unknown program {program}"


def wrong_with_rmqha(command: click.Command, arguments: list[str]) -> str | None:
    while isinstance(command, click.Group) and not needs_extra(command):
        name = arguments[0]
        found = command.commands.get(name)
        if found is None:
            return f"{command.name} has no command {name}"
        command, arguments = found if needs_extra(found) else loaded(found), arguments[1:]
    known = {name for parameter in command.params for name in parameter.opts}
    # A lone - is the standard input.
    wrong = [word for word in arguments if word.startswith("-") and word not in known and word != "-"]
    if needs_extra(command):
        return None
    return f"{command.name} has no option {wrong[0]}" if wrong else wrong_with_values(command, arguments)


def wrong_with_values(command: click.Command, arguments: list[str]) -> str | None:
    """Return the reason if a value or a required parameter is missing, or an argument is left over; values are not
    converted, because files and servers need not exist."""
    context = click.Context(command, **command.context_settings)
    try:
        given, left, _order = command.make_parser(context).parse_args(list(arguments))
    except click.UsageError as error:
        return error.format_message()
    present = {name for name, value in given.items() if isinstance(value, (str, tuple, list)) and value}
    missing = [parameter for parameter in command.params if parameter.required and parameter.name not in present]
    if missing:
        return f"{command.name} needs {missing[0].get_error_hint(context)}"
    return f"{command.name} has no argument {left[0]}" if left else None


def wrong_with_mqadmin(arguments: list[str]) -> str | None:
    found = find_sub_command(arguments[0])
    if found is None:
        return f"mqadmin has no command {arguments[0]}"
    options = found.options_to_parse()
    wrong = [word for word in arguments[1:] if word.startswith("-") and options.find(word) is None]
    return f"{arguments[0]} has no option {wrong[0]}" if wrong else None


@pytest.mark.parametrize("page", [*GUIDES, "examples.md"])
def test_commands_and_their_options_exist(page):
    wrong = [(" ".join(words), reason) for words in command_lines(text_of(page)) if (reason := wrong_with(words))]
    assert not wrong


@pytest.mark.parametrize("page", GUIDES)
def test_each_snippet_names_its_language(page):
    assert set(FENCE.findall(text_of(page))) <= LANGUAGES and text_of(page).count("```") % 2 == 0


def shown_texts() -> Iterator[str]:
    """Yield the texts of rmqha and of its alerts, with `...` in place of inserted values."""
    for path in sorted(ROOT.glob("rmqha/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "..." for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield re.sub("%[sdr]", "...", node.value)
    yield (ROOT / "conf" / "prometheus" / "alerts.yml").read_text("utf-8")


@of_sources
def test_symptoms_are_quoted_as_rmqha_writes_them():
    """Check quoted texts: readers search for a symptom by its text."""
    headings = "\n".join(re.findall("^### .*", text_of("how-to/troubleshooting.md"), re.MULTILINE))
    quoted, texts = set(re.findall("`([^`]+)`", headings)), "\n".join(shown_texts())
    assert len(quoted) > 40
    assert [quote for quote in sorted(quoted)
            if not re.search("[^\n]*".join(map(re.escape, quote.split("..."))), texts)] == []


@pytest.mark.parametrize("words, reason", [
    ("bin/rmqha ha stats", "ha has no command stats"), ("bin/rmqha ha status --fast", "status has no option --fast"),
    ("bin/rmqha ha rejoin -b a:1 --wait", "Option '--wait' requires an argument."),
    ("bin/rmqha ha rejoin --wait 2m", "rejoin needs '-b' / '--broker'"),
    ("bin/rmqha store verify", "verify needs 'ROOT'"), ("bin/rmqha ha status -b a:1", None),
    ("bin/rmqha store verify /a /b", "verify has no argument /b"),
    ("bin/mqadmin topicStats -t T", "mqadmin has no command topicStats"), ("sudo reboot", "unknown program sudo"),
    ("bin/mqadmin topicStatus -z T", "topicStatus has no option -z"), ("bin/up", "no program bin/up"),
    (".venv/bin/python docs/examples/fly.py", "no file docs/examples/fly.py"),
])
def test_a_wrong_command_is_found(words, reason):
    assert wrong_with(words.split()) == reason


def test_shell_snippets_are_parsed_as_a_shell_does():
    page = "```bash\nbin/mqnamesrv & ns=$!\nsleep 8  # a while\nkill -9 $ns | cat\n```\n" \
           "   ```bash\n   bin/test all &\n   until bin/a b; do sleep 1; done\n   ```\n"
    assert command_lines(page) == [["bin/mqnamesrv"], ["sleep", "8"], ["kill", "-9", "$ns"], ["cat"],
                                   ["bin/test", "all"],
                                   ["bin/a", "b"], ["sleep", "1"]]


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A name server and a master; NAMESRV_ADDR names the former, and the working folder is empty."""
    work = tmp_path / "work"
    work.mkdir()
    with running_name_server(tmp_path) as address:
        broker = start_broker("broker-a", address, tmp_path / "broker")
        monkeypatch.setenv("NAMESRV_ADDR", address)
        monkeypatch.chdir(work)
        try:
            yield address
        finally:
            broker.shutdown()


@pytest.mark.parametrize("page", [page for page in GUIDES if PYTHON.search(text_of(page))])
def test_python_snippets_run_in_order(page, cluster, capsys):
    names: dict[str, object] = {"__name__": "__main__"}
    for number, block in enumerate(PYTHON.findall(text_of(page)), 1):
        exec(compile(block, f"{page}, snippet {number}", "exec"), names)
    if page == "tutorials/first-producer.md":
        printed = capsys.readouterr().out
        assert printed.startswith("SEND_OK\nbonjour is message ") and "got " in printed


def wrong_at_the_prompt(block: str) -> str | None:
    """Return the error of Python's prompt for a block that is pasted with an empty line after it; None when it has
    none.

    At the prompt an empty line, and nothing else, ends a block.
    """
    waiting: list[str] = []
    for line in [*block.rstrip("\n").split("\n"), ""]:
        if not waiting and not line.strip():
            continue
        waiting.append(line)
        try:
            if codeop.compile_command("\n".join(waiting)) is not None:
                waiting = []
        except SyntaxError as error:
            return f"{line!r}: {error.msg}"
    return f"{waiting[-1]!r} is not the end" if waiting else None


def test_snippets_can_be_pasted_where_a_page_opens_the_prompt():
    pages = ["../README.md", *(page for page in GUIDES if page.startswith("tutorials/"))]
    blocks = [(page, block) for page in pages for block in PYTHON.findall(text_of(page))]
    assert len(blocks) >= 6
    assert [(page, wrong) for page, block in blocks if (wrong := wrong_at_the_prompt(block))] == []


@pytest.mark.parametrize("block, wrong", [
    ("for n in 1, 2:\n    print(n)\nprint(3)\n", "'print(3)'"), ("with x:\n    pass\nassert y\n", "'assert y'"),
    ("def f():\n    a = 1\n\n    return a\n", "'    return a'")])
def test_block_that_the_prompt_rejects_is_found(block, wrong):
    assert (wrong_at_the_prompt(block) or "").startswith(wrong)


def navigation() -> list[str]:
    """Return the pages that docs/conf.py lists, in the order of the site."""
    return [f"{page}.md" for pages in run_path(str(DOCS / "conf.py"))["NAVIGATION"].values() for page in pages]


def test_the_navigation_names_every_page_once():
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.glob("**/*.md")
             if not page.is_relative_to(DOCS / "examples")}
    assert sorted(navigation()) == sorted(pages - {"index.md"})


def test_the_landing_page_lists_every_page():
    assert set(navigation()) - set(re.findall(r"\]\(([\w./-]+\.md)\)", text_of("index.md"))) == set()


@pytest.mark.skipif(any(importlib.util.find_spec(name) is None for name in SITE),
                    reason="the extra docs is not installed: bin/ensure-venv test,docs")
def test_site_builds_without_a_warning(tmp_path):
    built = subprocess.run([sys.executable, "-m", "sphinx", "-q", "-E", "-W", "--keep-going", "-b", "dirhtml",
                            "-d", str(tmp_path / "trees"), str(DOCS), str(tmp_path / "site")],
                           text=True, capture_output=True, check=False)
    assert (built.returncode, built.stdout, built.stderr) == (0, "", "")
    assert (tmp_path / "site" / "tutorials" / "quickstart" / "index.html").exists()
    assert "pictures/swap.svg" in (tmp_path / "site" / "index.html").read_text("utf-8") or (
        tmp_path / "site" / "_images" / "swap.svg").exists()


# The programs of docs/examples produce the documented output, with a master and its slave.

EXAMPLES = ROOT / "docs" / "examples"
MAX_LINES = 40
# The complete output of each, as a regular expression.
PRINTED = {
    "send.py": r"(order-\d: SEND_OK, queue \d of broker-a, id [0-9A-F]{32}\n){3}",
    "consume.py": r"(order-\d: \d kg of apples for Ada\n){3}",
    "ordered.py": r"(order 1[789]: created -> paid -> sent\n){3}",
    "delayed.py": r"(not yet\n)*the kettle boils, after [1-9]\d*\.\d s\n",
    "transaction.py": r"7: COMMIT_MESSAGE\n5: ROLLBACK_MESSAGE\npaid: \['7 from Ada'\]\n",
    "request_reply.py": r"1\+2 = 3\n30\+4\+5 = 39\n",
    "batch.py": r"(10000 messages from offset \d+ of queue \d on: SEND_OK\n){3}",
    "sql_filter.py": r"hot: Cairo Delhi\n",
    "aio.py": r"sent 1000\nreceived 1000, by two loops: 1\d{3} messages\n",
    "replication.py": r"(broker-a has no slave yet: .*\n)*([0-9A-F]{32}: SEND_OK, master and slave end at \d+\n){3}"
                      r"\d+ bytes at \d+ of .*commitlog:\n"
                      r"topic Watched, queue \d, offset \d+, b'2 apples'\nthe master has the same bytes\n",
}


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory):
    """The address of the name server of a SYNC_MASTER and its slave, which is in sync."""
    folder = tmp_path_factory.mktemp("examples")
    with running_name_server(folder) as address:
        master = start_broker("broker-a", address, folder / "master", brokerRole=BrokerRole.SYNC_MASTER,
                              enablePropertyFilter=True, slaveTimeout=30_000)
        ha_address = f"127.0.0.1:{master.message_store.ha_service.ha_listen_port}"
        slave = start_broker("broker-a", address, folder / "slave", brokerRole=BrokerRole.SLAVE, brokerId=1,
                             haMasterAddress=ha_address)
        try:
            wait_until(lambda: master.message_store.ha_service.connection_count.get() == 1)
            # Otherwise the slave would retry only after 10 s.
            wait_until(lambda: slave.registration.name_servers_registered == 1)
            yield address
        finally:
            slave.shutdown()
            master.shutdown()


def test_each_program_exists_and_is_short():
    programs = {path.name for path in EXAMPLES.glob("*.py")}
    assert programs == set(PRINTED)
    for name in programs:
        assert len((EXAMPLES / name).read_text("utf-8").splitlines()) < MAX_LINES, name


def test_one_program_receives_the_messages_of_another(namesrv, tmp_path):
    check_output("send.py", namesrv, tmp_path)
    printed = check_output("consume.py", namesrv, tmp_path)
    assert sorted(re.findall("order-[0-9]", printed)) == ["order-1", "order-2", "order-3"]


@pytest.mark.parametrize("name", sorted(PRINTED.keys() - {"send.py", "consume.py"}))
def test_program_prints_the_expected_output(name, namesrv, tmp_path):
    printed = check_output(name, namesrv, tmp_path)
    # The tutorial's record has the same size, and so the same keys.
    if name == "replication.py":
        page = (ROOT / "docs" / "tutorials" / "replication-you-can-watch.md").read_text("utf-8")
        assert re.findall(r"^(\d+) bytes at", printed, re.MULTILINE) == re.findall(
            r"^(\d+) bytes at", page, re.MULTILINE)


def check_output(name: str, namesrv: str, tmp_path: Path) -> str:
    """Return a program's output after checking it against the expected pattern."""
    environment = {**os.environ, "NAMESRV_ADDR": namesrv, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(patience.command([EXAMPLES / name]), cwd=tmp_path, env=environment, text=True,
                            capture_output=True, timeout=600, check=False)
    assert result.returncode == 0, result.stderr
    assert re.fullmatch(PRINTED[name], result.stdout), result.stdout
    assert result.stderr == ""
    return result.stdout
