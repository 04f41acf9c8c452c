"""Groups that need an extra: in the help without it, and a clear answer when they are used."""
import re
import sys

from click.testing import CliRunner

from rmqha.common.filesystem import how_to_install
from rmqha.tools.rmqha_command import rmqha


def test_the_help_names_it_without_importing_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "rmqha.pipeline.pipeline_command", None)
    result = CliRunner().invoke(rmqha, ["--help"])
    assert result.exit_code == 0 and re.search(r"^  pipeline +Jobs on Spark", result.output, re.MULTILINE)


def test_its_use_without_the_extra_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("rmqha.pipeline")]:
        monkeypatch.delitem(sys.modules, name)
    for name in ["pyspark", *(name for name in sys.modules if name.startswith("pyspark."))]:
        monkeypatch.setitem(sys.modules, name, None)
    result = CliRunner().invoke(rmqha, ["pipeline", "audit", ".", "."])
    assert result.exit_code == 2
    assert "`rmqha pipeline audit` needs the extra `spark`" in result.output
    assert how_to_install("spark") in result.output
