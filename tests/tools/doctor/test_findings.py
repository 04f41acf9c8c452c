"""The lines of the doctor: each column keeps a blank between it and the next."""
import re

import pytest

from rmqha.tools.doctor.host_checks import Finding, Severity
from tests.support.sources import ROOT

CHECKS = {name for file in (ROOT / "rmqha" / "tools" / "doctor").glob("*.py")
          for name in re.findall(r"\b(?:error|warning|note|good|say)\(\s*\"(\w+)\"", file.read_text("utf-8"))}


@pytest.mark.parametrize("severity", Severity)
@pytest.mark.parametrize("check", sorted(CHECKS))
def test_columns_are_apart_and_the_advice_stands_below_the_text(severity, check):
    line, advice = Finding(severity, check, "broker-a", "is away", "start it").text().split("\n")
    assert line.split(None, 2) == [severity.value, check, "broker-a: is away"]
    assert advice.index("->") == line.index("broker-a")


def test_the_checks_are_found():
    assert {"replication", "nameserver", "compiled", "ports"} <= CHECKS
