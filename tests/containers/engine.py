"""Podman, as it works at this host: builds the image, runs containers and networks of a test, and removes them.

A base image is needed, because a test can't rely on a registry. RMQHA_TEST_BASE_IMAGE names an image that podman has,
or is `debootstrap`: then the base is made of Debian's packages, which takes a minute and needs their mirror.
"""
import copy
import os
import resource
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.sources import ROOT
from tests.support.wait import wait_until

VARIABLE = "RMQHA_TEST_BASE_IMAGE"
DEBOOTSTRAP = "debootstrap"
MADE = "localhost/rmqha-test-base"
# What pip and apt-get need to reach package indexes that this host reaches: authorities, and pip's settings.
HOST_FILES = ("/etc/ssl/certs", "/etc/pip.conf")
LIMIT_S = 900


def require_base() -> str:
    """Return the base image that the environment names; skip the test at once if it can't be used."""
    base = os.environ.get(VARIABLE, "")
    if not base:
        pytest.skip(f"{VARIABLE} names no base image for the image of rmqha")
    missing = [name for name in ("podman", *([DEBOOTSTRAP] if base == DEBOOTSTRAP else [])) if not shutil.which(name)]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    if os.geteuid() != 0:
        pytest.skip("containers of these tests run as root")
    return base


def host_files() -> list[str]:
    """Return options that give a build this host's authorities and pip's settings."""
    return [word for path in HOST_FILES if os.path.exists(path) for word in ("-v", f"{path}:{path}:ro")]


@dataclass
class Podman:
    """Runs podman with settings that work at this host. What it creates has the prefix `name`, and is removed by
    `remove_all`."""

    folder: Path
    name: str = field(default_factory=lambda: f"rmqha-test-{os.getpid()}")
    env: dict[str, str] = field(default_factory=dict)
    base: str = ""
    # options of podman itself, for a storage of its own
    options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        # Defaults of podman may be above this host's limits; without cgroups v2, some versions of crun run nothing.
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        file = self.folder / "containers.conf"
        self.env = {**os.environ, "CONTAINERS_CONF": str(file), "BUILDAH_ISOLATION": "chroot",
                    # no layers that stay when the image is removed
                    "BUILDAH_LAYERS": "false"}
        self.settings = f'[containers]\ndefault_ulimits = ["nofile={soft}:{hard}", "nproc=4096:4096"]\n'
        file.write_text(self.settings)

    def choose_runtime(self, image: str) -> None:
        """Use the first runtime with which a container runs; skip the test if there is none."""
        errors = []
        for runtime in ("", "crun", "runc"):
            if runtime and not shutil.which(runtime):
                continue
            chosen = f'[engine]\nruntime = "{runtime}"\n' if runtime else ""
            (self.folder / "containers.conf").write_text(self.settings + chosen)
            done = self("run", "--rm", "--entrypoint", "/bin/sh", image, "-c", "true", check=False)
            if done.returncode == 0:
                return
            errors.append(done.stderr.strip().splitlines()[-1])
        pytest.skip(f"podman can't run containers here: {errors[0]}")

    def __call__(self, *words: str, check: bool = True, text: str | None = None,
                 limit_s: float = LIMIT_S) -> "subprocess.CompletedProcess[str]":
        done = subprocess.run(["podman", *self.options, *words], input=text, capture_output=True, text=True,
                              env=self.env, timeout=limit_s, check=False)
        output = done.stdout[-3000:] + done.stderr[-3000:]
        assert done.returncode == 0 or not check, f"podman {' '.join(words)}\n{output}"
        return done

    def has_image(self, image: str) -> bool:
        """Return whether podman has the image already."""
        return self("image", "exists", image, check=False).returncode == 0

    def make_base(self, image: str) -> str:
        """Return the base image; make it if `image` is `debootstrap`."""
        if image != DEBOOTSTRAP:
            if not self.has_image(image):
                pytest.fail(f"podman has no image {image}, which {VARIABLE} names")
            return image
        if not self.has_image(MADE):
            tree, archive = self.folder / "base", self.folder / "base.tar"
            subprocess.run([DEBOOTSTRAP, "--variant=minbase", "--include=ca-certificates,python3,python3-venv",
                            "trixie", str(tree)], check=True, capture_output=True, timeout=LIMIT_S)
            subprocess.run(["tar", "-C", str(tree), "-cf", str(archive), "."], check=True, timeout=LIMIT_S)
            self("import", str(archive), MADE)
            shutil.rmtree(tree)
            archive.unlink()
        return MADE

    def build(self, base: str, tag: str, file: Path = ROOT / "conf/docker/Dockerfile", context: Path = ROOT) -> None:
        """Build an image on the base."""
        self("build", "--format", "docker", "--build-arg", f"BASE={base}", *host_files(), "-f", str(file), "-t", tag,
             str(context))

    def run_tool(self, *words: str, check: bool = True, text: str | None = None,
                 options: Sequence[str] = ()) -> "subprocess.CompletedProcess[str]":
        """Run a container until it ends. `words`: the image, and the command in it."""
        return self("run", "--rm", "-i", "--label", self.name, *options, *words, check=check, text=text)

    def start(self, name: str, *words: str) -> str:
        """Start a container in the background, and return its name."""
        self("run", "-d", "--label", self.name, "--name", name, *words)
        return name

    def is_healthy(self, container: str) -> bool:
        """Return whether the image's health check succeeds now."""
        return self("healthcheck", "run", container, check=False).returncode == 0

    def wait_until_healthy(self, container: str) -> None:
        """Wait for the image's health check, which podman runs only under systemd."""
        wait_until(lambda: self.is_healthy(container), what=f"{container} is healthy: {self.logs(container)}")

    def logs(self, container: str) -> str:
        """Return what the container printed so far."""
        done = self("logs", container, check=False)
        return done.stdout + done.stderr

    def inspected(self, name: str, form: str) -> str:
        """Return what `podman inspect --format` prints of a container or an image."""
        return self("inspect", "--format", form, name).stdout.strip()

    @contextmanager
    def own_storage(self, folder: Path) -> "Iterator[Podman]":
        """Yield a podman whose images, containers, networks and volumes nobody else has: at first, the base image."""
        options = [f"--root={folder / 'root'}", f"--runroot={folder / 'run'}",
                   f"--network-config-dir={folder / 'networks'}"]
        made = copy.copy(self)
        made.options = tuple(options)
        archive = folder / "base.tar"
        self("save", "-o", str(archive), self.base)
        try:
            made("load", "-i", str(archive))
            archive.unlink()
            yield made
        finally:
            made("rm", "-f", "-a", "-v", "-t", "0")
            made("rmi", "-f", "-a")

    @contextmanager
    def network(self, name: str) -> Iterator[str]:
        """Create a network with its own names, and remove it with its containers."""
        self("network", "create", "--label", self.name, name)
        try:
            yield name
        finally:
            self.remove_containers()
            self("network", "rm", "-f", name)

    def remove_containers(self) -> None:
        """End and remove all containers that were started here."""
        found = self("ps", "-aq", "--filter", f"label={self.name}").stdout.split()
        if found:
            self("rm", "-f", "-v", "-t", "0", *found)

    def remove_all(self) -> None:
        """Remove containers, networks and volumes that were created here."""
        self.remove_containers()
        for kind in ("network", "volume"):
            for name in self(kind, "ls", "-q", "--filter", f"label={self.name}").stdout.split():
                self(kind, "rm", "-f", name)
