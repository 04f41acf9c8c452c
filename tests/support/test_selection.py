"""Which files a -k expression loads."""
import pytest

from tests.support import selection
from tests.support.sources import ROOT


@pytest.mark.parametrize("expression, path, text, may", [
    ("commit", "tests/store/test_commit_log.py", "", True), ("Commit", "tests/a.py", "def test_COMMIT", True),
    ("commit", "tests/a.py", "nothing", False), ("a_b or other", "tests/x.py", "an other", True),
    ("one and two", "tests/x.py", "two", True), ("not one", "tests/x.py", "", True),
    ("(one or not two)", "tests/x.py", "", True), ("", "tests/x.py", "", True),
    ("rmqha-java5", "tests/x.py", '("rmqha", "java5")', True), ("rmqha-java5", "tests/x.py", '("rmqha",)', False)])
def test_a_file_is_loaded_when_a_word_may_be_met(expression, path, text, may):
    assert selection.may_match(expression, path, text) is may


def test_a_word_that_no_file_has_leaves_nothing_out():
    files = [ROOT / "tests" / "support" / "test_selection.py", ROOT / "tests" / "test_tidy.py"]
    nowhere = "nobody" + "writes" + "this"
    assert not any(selection.is_left_out(nowhere, file, ROOT) for file in files)
    assert [selection.is_left_out("leaves_nothing_out", file, ROOT) for file in files] == [False, True]
