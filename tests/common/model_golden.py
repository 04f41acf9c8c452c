"""What a real RocketMQ made of the models: tests/golden/model_*.json."""
import json
from typing import Any

from tests.support.sources import ROOT


def golden(name: str) -> Any:
    """The content of tests/golden/model_<name>.json."""
    return json.loads((ROOT / "tests" / "golden" / f"model_{name}.json").read_text("utf-8"))
