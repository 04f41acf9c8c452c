"""Projects that use the plugin, releases of the real RocketMQ, as a user unpacks them, and a cluster for each backend.
"""
import shutil
import textwrap
from pathlib import Path

import pytest

from tests.support import real_rocketmq
from tests.testing.support import started_cluster


@pytest.fixture
def project(tmp_path):
    """project(code, ini="") -> a folder with a test file."""
    def make(code: str, ini: str = "") -> Path:
        (tmp_path / "pytest.ini").write_text("[pytest]\n" + textwrap.dedent(ini))
        (tmp_path / "test_it.py").write_text(textwrap.dedent(code))
        return tmp_path

    return make


@pytest.fixture(scope="session")
def release(tmp_path_factory):
    """release(version) -> the folder of a binary release, with the jars in lib."""
    def unpacked(version):
        if version == real_rocketmq.VERSION:
            jars = real_rocketmq.jars()
        else:
            if shutil.which("mvn") is None and not real_rocketmq.has_jars_of(version):
                pytest.skip(f"not installed: mvn, to fetch {version}")
            jars = real_rocketmq.jars_of(version)
        home = tmp_path_factory.mktemp("releases") / f"rocketmq-{version}"
        (home / "bin").mkdir(parents=True)
        (home / "lib").symlink_to(jars)
        return home

    return unpacked


@pytest.fixture(scope="module")
def cluster(request, release):
    """A cluster of the module's parameter: "embedded", "process", or the version of a release of RocketMQ."""
    kind = request.param
    home = None if kind in ("embedded", "process") else release(kind)
    with started_cluster(kind, home) as mq:
        yield mq
