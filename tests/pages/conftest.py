"""Fixtures for pages that are run: the fresh clone of this test run, and machines that have it."""
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.pages.fresh import Fresh, environment
from tests.pages.fresh import fresh as made
from tests.pages.shell import Machine


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Fresh:
    """The clone, which all processes of a test run share."""
    base = tmp_path_factory.getbasetemp()
    return made((base.parent if hasattr(request.config, "workerinput") else base) / "pages-of-this-run")


@pytest.fixture
def make_machine(fresh: Fresh, tmp_path: Path) -> Iterator[Callable[[str], Machine]]:
    """make_machine(name) -> a machine of that name, which runs until the test ends."""
    machines: list[Machine] = []

    def make(name: str = "machine") -> Machine:
        folder = tmp_path / name
        machines.append(Machine(fresh.folder, folder, environment(folder / "home")).start())
        return machines[-1]
    try:
        yield make
    finally:
        for machine in machines:
            machine.close()


@pytest.fixture
def machine(make_machine: Callable[[], Machine]) -> Machine:
    """One reader's machine."""
    return make_machine()
