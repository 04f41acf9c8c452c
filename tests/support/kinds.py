"""Which kinds of server an interop test mixes.

RMQHA_PROVE_HARNESS=1 adds the real one on both sides: if the harness and the tests are right, those pass too.
"""
import os

import pytest

PROVE_HARNESS = os.environ.get("RMQHA_PROVE_HARNESS") == "1"


def pairs(*mixes: tuple[str, str]) -> list:
    """Test parameters (left kind, right kind); each is marked `java`, as the clients are Java's."""
    wanted = [*mixes, *([("java", "java")] if PROVE_HARNESS else [])]
    return [pytest.param(*mix, id="-".join(mix), marks=pytest.mark.java) for mix in wanted]


def single(kind: str) -> list:
    """Test parameters of one kind; with the real one beside it when the harness is to be proven."""
    wanted = [kind, *(["java"] if PROVE_HARNESS and kind != "java" else [])]
    return [pytest.param(one, id=one, marks=[pytest.mark.java] if one == "java" else []) for one in wanted]
