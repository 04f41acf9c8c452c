"""Where `conf/` is looked for: the environment, the checkout, the user's config folder."""
from pathlib import Path

import pytest

from rmqha.common import filesystem, server_util
from tests.support.sources import ROOT


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """As if the package lay in a site-packages folder."""
    package = tmp_path / "site-packages" / "rmqha"
    package.mkdir(parents=True)
    monkeypatch.setattr(filesystem, "_PACKAGE", package)
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return package


def test_checkout_is_its_own_home(monkeypatch):
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    assert filesystem.rocketmq_home() == filesystem.checkout() == ROOT
    assert filesystem.templates() == ROOT / "conf"


def test_the_environment_goes_first(installed, monkeypatch):
    monkeypatch.setenv("ROCKETMQ_HOME", "/srv/rocketmq")
    assert filesystem.rocketmq_home() == Path("/srv/rocketmq")


def test_installed_package_has_its_home_in_the_users_config_folder(installed, tmp_path, monkeypatch):
    assert filesystem.checkout() is None and filesystem.templates() == installed / "conf"
    assert filesystem.rocketmq_home() == tmp_path / "home" / ".config" / "rmqha"
    assert server_util.default_rocketmq_home() == str(tmp_path / "home" / ".config" / "rmqha")
    monkeypatch.setenv("XDG_CONFIG_HOME", "/etc/xdg")
    assert filesystem.rocketmq_home() == Path("/etc/xdg/rmqha")
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    assert filesystem.rocketmq_home() == tmp_path / "home" / ".config" / "rmqha"
