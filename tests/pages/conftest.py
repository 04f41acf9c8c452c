"""Fixtures for running the pages: the fresh clone of this test run, and machines that have it."""
import contextlib
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.pages import guided
from tests.pages.guided import Guided, Hosts
from tests.pages.shell import Fresh, Machine, environment, unavailable
from tests.pages.shell import fresh as made


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Fresh:
    """The fresh clone, shared by all processes of a test run."""
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
    """The machine of one reader."""
    return make_machine()


@pytest.fixture
def make_hosts(tmp_path: Path) -> Iterator[Callable[..., Hosts]]:
    """make_hosts(addresses, places=...) -> hosts, which are closed when the test ends."""
    reason = guided.why_not()
    if reason is not None:
        unavailable(reason)
    with contextlib.ExitStack() as made:
        yield lambda *addresses, places=None: made.enter_context(Hosts(tmp_path / "hosts", addresses, places))


@pytest.fixture
def walk_of(fresh: Fresh, make_hosts: Callable[..., Hosts], tmp_path: Path) -> Iterator[Callable[..., Guided]]:
    """walk_of(guide, addresses, own_clone=...) -> the walk of docs/how-to; `own_clone`: the path of a copy of the
    clone that it may change."""
    with contextlib.ExitStack() as made:
        def walk(guide: str, *addresses: str, own_clone: Path | None = None) -> Guided:
            if own_clone is not None:
                subprocess.run(["cp", "-a", fresh.folder, own_clone], check=True, timeout=600)
                made.callback(shutil.rmtree, own_clone)
            where = make_hosts(*addresses, places={fresh.folder: own_clone} if own_clone else None)
            return made.enter_context(Guided(f"docs/how-to/{guide}.md", where, fresh.folder))
        yield walk
