"""The English of the project: turns of phrase that readers stumble over, docstrings' first words, sentences' lengths.

A count in `MOST` only falls: lower it when a test says so. A hit is a place to read, not a verdict: "behind" is right
for a slave that lags behind its master, and those that remain are right where they stand.
"""
import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from tests.support.sources import ROOT
from tests.support.tiers import in_all

pytestmark = in_all  # of_sources, by the name that is read without loading this file

PHRASES = {name: re.compile(pattern, re.IGNORECASE | re.MULTILINE) for name, pattern in {
    "is no": r"\b(?:is|are|was|were) no (?!longer\b|more\b|less\b|way\b|need\b|doubt\b)[a-z`]",
    "is none": r"\bis none\b|\bare none\b",
    "of before": r"\bof before\b",
    "on end": r"\btimes on end\b",
    "goes on": r"\b(?:go|goes|going|went|gone) on\b",
    "tells": r"\b(?:tell|tells|told|telling)\b",
    "nobody": r"\b(?:nobody|somebody|whoever)\b",
    "who, for a program": r"(?:^|[.:;] )Who\b|\bwho (?:holds|waits|asks|comes back|reads|writes|leads|follows|puts)\b",
    "mend": r"\bmend(?:s|ed|ing)?\b",
    "anew": r"\banew\b",
    "as a rule": r"\bas a rule\b",
    "each 5 s": r"\beach \d+ ?(?:s|ms|min|seconds)\b",
    "so many": r"\b(?:at most|for|after) so (?:many|long|often)\b",
    "in vain": r"\bin vain\b",
    "by itself": r"\bby itself\b",
    "What it has": r"(?:^|[.:;] )What (?:is|was|are|were|it|they|has|have|a|the)\b",
    "there exists": r"\bthere exists\b|\bis there:",
    "has nothing of": r"\bhas nothing of\b",
    "behind, for after": r"\bbehind (?:it|that|them|this|those|which|what|the last|a good|a clean|its end)\b",
    "stands, for is": r"\b(?:stands|stood|stand) (?:in|at|on|once|there|for|three|twice|behind|before)\b",
    "at hand": r"\bat hand\b",
    "looks at": r"\b(?:one look more|looks? (?:once|again|at once)|is looked at|are looked at|took a look)\b",
    "came": r"\b(?:message|messages|of \d+) came\b",
    "goodbye": r"\bgoodbye\b",
    "takes along": r"\b(?:takes?|took|taken) (?:along|away)\b",
}.items()}
OPENERS = re.compile(r"(?:What|Who|Where|Of|Nobody|Whether|How|When|That|Those)\b")
MOST = {"pages": 0, "texts": 4, "comments": 40}
MOST_WORDS = 45  # of a sentence
MOST_MEAN_WORDS = 22  # of a page's sentences
# A list of values is long without being hard to read.
_PROSE = re.compile(r"^(?!\s*(?:\||#|<|!\[|    )).*\S.*$")
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)

PAGES = [*ROOT.glob("*.md"), *sorted(ROOT.glob("docs/**/*.md"))]
SOURCES = sorted(ROOT.glob("rmqha/**/*.py"))
WEB = [path for kind in ("js", "html", "yml") for folder in ("rmqha", "conf")
       for path in sorted(ROOT.glob(f"{folder}/**/*.{kind}"))]


def _is_command(node: ast.AST) -> bool:
    """True if the docstring of `node` is the help of a command."""
    return any(word in ast.unparse(one) for one in getattr(node, "decorator_list", []) for word in ("command", "group"))


def docstrings(tree: ast.Module) -> Iterator[tuple[ast.Constant, bool]]:
    """(the docstring, whether it is the help of a command) of each documented node."""
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node) is not None:
            yield node.body[0].value, _is_command(node)


def texts_of(source: str) -> Iterator[tuple[str, int, str]]:
    """(kind, line, text) of each docstring, comment, and message of a module."""
    tree, seen = ast.parse(source), set()
    for constant, is_help in docstrings(tree):
        seen.add(id(constant))
        yield "texts" if is_help else "comments", constant.lineno, constant.value
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in seen:
            if " " in node.value:
                yield "texts", node.lineno, node.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield "comments", token.start[0], token.string


def hits(kind: str) -> list[str]:
    """The places of all phrases in a kind of texts."""
    if kind == "pages":
        found = [(path, 1, path.read_text("utf-8")) for path in PAGES]
    else:
        found = [(path, line, text) for path in SOURCES for one, line, text in texts_of(path.read_text("utf-8"))
                 if one == kind]
        found += [(path, 1, path.read_text("utf-8")) for path in WEB if kind == "texts"]
    return [f"{path.relative_to(ROOT)}:{line + text[:match.start()].count(chr(10))}: {name}: {match.group().strip()}"
            for path, line, text in found for name, phrase in PHRASES.items() for match in phrase.finditer(text)]


@pytest.mark.parametrize("kind", MOST)
def test_phrases_that_readers_stumble_over_only_become_fewer(kind):
    found = hits(kind)
    assert len(found) <= MOST[kind], "\n".join(found)
    assert len(found) == MOST[kind], f"now there are fewer: lower MOST[{kind!r}] to {len(found)}"


def test_a_phrase_is_found_in_each_kind_of_text():
    source = ('"""What it has."""\n# told so\n\n'
              '@click.command()\ndef f():\n    """Goes on."""\n    say("in vain again")\n')
    assert [(kind, line, name) for kind, line, text in texts_of(source) for name, phrase in PHRASES.items()
            if phrase.search(text)] == [("comments", 1, "What it has"), ("texts", 6, "goes on"),
                                        ("texts", 7, "in vain"), ("comments", 2, "tells")]


def test_docstrings_name_their_subject():
    paths = [*SOURCES, *sorted(ROOT.glob("tests/**/*.py")), *sorted(ROOT.glob("docs/**/*.py"))]
    wrong = [f"{path.relative_to(ROOT)}:{constant.lineno}: {constant.value.strip()[:60]!r}" for path in paths
             for constant, _is_help in docstrings(ast.parse(path.read_text("utf-8")))
             if OPENERS.match(constant.value.strip())]
    assert not wrong, "\n".join(wrong)


def sentences(page: str) -> list[str]:
    """The sentences of a page's prose: no code, no tables, no headings."""
    page = re.sub(r"^ *```.*?^ *```", "", page, flags=re.MULTILINE | re.DOTALL)
    page = re.sub(r"<!--.*?-->", "", page, flags=re.DOTALL)
    prose = "\n".join(line if _PROSE.match(line) else "" for line in page.split("\n"))
    found = []
    for paragraph in re.split(r"\n\s*\n|^\s*(?:[-*]|\d+\.) ", prose, flags=re.MULTILINE):
        text = " ".join(re.sub(r"\]\([^)]*\)", "", re.sub(r"`[^`]*`", "code", paragraph)).split())
        found += [one for one in re.split(r"(?<=[.!?])\s+(?=\S)", text) if one]
    return found


@pytest.mark.parametrize("page", [str(path.relative_to(ROOT)) for path in PAGES])
def test_sentences_of_a_page_are_short(page):
    found = sentences((ROOT / page).read_text("utf-8"))
    lengths = [len(one.split()) for one in found]
    assert not [one for one, length in zip(found, lengths) if length > MOST_WORDS]
    assert sum(lengths) <= MOST_MEAN_WORDS * len(lengths)


def test_sentences_are_told_apart():
    page = "# A heading\n\nOne is `here`. Two\nis there; three.\n\n- four\n- five six\n\n```\ncode\n```\n\n| a | b |\n"
    assert sentences(page) == ["One is code.", "Two is there; three.", "four", "five six"]


@pytest.mark.skipif(find_spec("codespell_lib") is None, reason="codespell is not installed: bin/ensure-venv test,dev")
def test_spelling():
    checked = subprocess.run([sys.executable, "-m", "codespell_lib", *map(str, (
        ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "docs", ROOT / "rmqha", ROOT / "tests", ROOT / "conf",
        ROOT / "bin"))], cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
