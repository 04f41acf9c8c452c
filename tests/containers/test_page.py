"""docs/containers.md as its reader follows it: commands of its shell blocks, as written, with podman as `docker`."""
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.containers.engine import DEBOOTSTRAP, VARIABLE, Podman, host_files
from tests.support.sources import ROOT
from tests.support.tiers import in_all

pytestmark = [in_all, pytest.mark.timeout(1800), pytest.mark.xdist_group("containers")]

PAGE = ROOT / "docs" / "containers.md"
_BLOCK = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)
DOCKER = """#!/bin/sh
[ "$1" = compose ] && shift && exec podman-compose "$@"
exec podman "$@"
"""
# A build gets what the page says about an index with its own authority, wherever this host needs it.
PODMAN = """#!/bin/sh
[ "$1" = build ] && shift && set -- build {build} "$@"
exec {podman} {options} "$@"
"""


def blocks(heading: str) -> list[str]:
    """Return the shell blocks below a heading, up to the next heading."""
    part = PAGE.read_text("utf-8").split(f"\n{heading}\n", 1)[1]
    return _BLOCK.findall(re.split(r"^#", part, maxsplit=1, flags=re.MULTILINE)[0])


class Reader:
    """A reader's shell, in a copy of the checkout, with docker and podman on its path."""

    def __init__(self, podman: Podman, folder: Path) -> None:
        self.podman, self.checkout, programs = podman, folder / "checkout", folder / "bin"
        for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE", "NOTICE", "rmqha", "conf"):
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            self.checkout.mkdir(exist_ok=True)
            copy(ROOT / name, self.checkout / name)
        programs.mkdir()
        texts = {"docker": DOCKER, "podman": PODMAN.format(
            podman=shutil.which("podman"), options=" ".join(podman.options), build=" ".join(host_files()))}
        for name, text in texts.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        self.env = podman.env | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
        [setting] = re.findall(r"^export (\w+)=(\w+)$", PAGE.read_text("utf-8"), re.MULTILINE)
        # The storage is removed at the end, with all layers; they make each build after the first one quick.
        self.env |= dict([setting]) | {"BUILDAH_LAYERS": "true"}

    def types(self, block: str) -> str:
        """Run a block as written, and return what it printed."""
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", block], cwd=self.checkout, env=self.env, timeout=1500,
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{block}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
        return done.stdout


@pytest.fixture(scope="module")
def reader(podman: Podman, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """A reader whose docker has the default base image, and no other one."""
    folder = tmp_path_factory.mktemp("reader")
    with podman.own_storage(folder) as own:
        own("tag", own.base, "docker.io/library/python:3.13-slim")
        yield Reader(own, folder)


def test_build(reader: Reader):
    default, own_base = blocks("## Build the image")
    assert "all 1,000, none twice" in reader.types(default)
    if os.environ[VARIABLE] == DEBOOTSTRAP:
        reader.types(own_base)
        assert reader.podman.has_image("localhost/debian-python")


def test_start_servers(reader: Reader):
    start, send, again, delete = blocks("## Start servers")
    reader.types(blocks("## Build the image")[0].splitlines()[0])
    assert reader.types(start).count("SERVER OK") == 2
    assert reader.types(send).splitlines()[-1] == "hello"
    assert "abort" in reader.types("docker exec broker-a ls store")
    printed = reader.types(again)
    assert printed.splitlines()[-1] == "hello" and "SERVER OK" in printed
    reader.types(delete)
    assert reader.types("docker ps -aq; docker volume ls -q; docker network ls -q --filter name=rmqha") == ""


def test_compose(reader: Reader):
    if shutil.which("podman-compose", path=reader.env["PATH"]) is None:
        pytest.skip("not installed: podman-compose (the extra containers)")
    [block] = blocks("## Compose")
    up, names, check, down = block.splitlines()
    # What the page says about podman-compose.
    up = up.replace("--wait", "-d")
    reader.types(up)
    try:
        until = "until {}; do sleep 1; done"
        assert "broker-a" in reader.types(until.format(f"{names} | grep ' 1  '"))
        assert "HA OK - 1 broker name, 1 slave" in reader.types(until.format(check))
    finally:
        reader.types(down)
    assert reader.types("docker ps -aq; docker volume ls -q") == ""
    four = [line.replace("1m-1s", "2m-2s") for line in (up, check, down)]
    reader.types(four[0].replace("--build ", ""))
    try:
        assert "HA OK - 2 broker names, 2 slaves" in reader.types(until.format(four[1]))
    finally:
        reader.types(four[2])
