"""The image of conf/docker, built once for all tests of this folder that run it."""
from collections.abc import Iterator

import pytest

from tests.containers.cluster import make_etcd_image
from tests.containers.engine import Podman, require_base
from tests.support.etcd import require_etcd


@pytest.fixture(scope="session")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    """Podman at this host, with a base image; the tests are skipped without either."""
    base = require_base()
    made = Podman(tmp_path_factory.mktemp("podman"))
    made.base = made.make_base(base)
    made.choose_runtime(made.base)
    try:
        yield made
    finally:
        made.remove_all()


@pytest.fixture(scope="session")
def image(podman: Podman) -> Iterator[str]:
    """The image, built from this checkout."""
    tag = f"localhost/{podman.name}"
    podman.build(podman.base, tag)
    try:
        yield tag
    finally:
        podman("rmi", "-f", tag)


@pytest.fixture(scope="session")
def etcd_image(podman: Podman, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An image with this host's etcd."""
    require_etcd()
    tag = make_etcd_image(podman, tmp_path_factory.mktemp("etcd"))
    try:
        yield tag
    finally:
        podman("rmi", "-f", tag)
