"""`rmqha config path` and `init`: where the files are, and copies of them that overwrite nothing."""
import os

from click.testing import CliRunner

from rmqha.common import filesystem
from rmqha.tools.rmqha_command import rmqha
from tests.support.sources import ROOT

TEMPLATES = {str(file.relative_to(ROOT / "conf")) for file in (ROOT / "conf").rglob("*") if file.is_file()}


def run(*arguments):
    return CliRunner().invoke(rmqha, ["config", *map(str, arguments)])


def files_of(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_path_is_that_of_the_servers(monkeypatch):
    monkeypatch.setenv("ROCKETMQ_HOME", "/srv/rocketmq")
    assert run("path").output == "/srv/rocketmq/conf\n"


def test_templates_are_copied_whole_and_what_is_there_stays(tmp_path, monkeypatch):
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "broker.conf").write_text("brokerName=mine\n")
    (conf / "tools.yml").symlink_to(tmp_path / "elsewhere.yml")
    result = run("init")
    assert result.exit_code == 0 and f"{conf}: {len(TEMPLATES) - 2} files copied, 2 were there" in result.output
    assert f"mqbroker -c {conf}/broker.conf" in result.output
    assert not (tmp_path / "elsewhere.yml").exists()
    wanted = files_of(ROOT / "conf") | {"broker.conf": b"brokerName=mine\n"}
    del wanted["tools.yml"]
    assert files_of(conf) == wanted
    assert "0 files copied" in run("init").output and files_of(conf) == wanted


def test_files_with_accounts_are_for_their_owner_alone(tmp_path):
    before = os.umask(0)
    try:
        assert run("init", tmp_path / "new" / "conf").exit_code == 0
    finally:
        os.umask(before)
    modes = {name: (tmp_path / "new" / "conf" / name).stat().st_mode & 0o777 for name in TEMPLATES}
    assert modes.pop("plain_acl.yml") == modes.pop("tools.yml") == 0o600
    assert set(modes.values()) == {0o666}


def test_a_checkout_is_not_copied_onto_itself(monkeypatch):
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    result = run("init")
    assert result.exit_code == 2 and "name another FOLDER" in result.output


def test_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    result = run("init", tmp_path / "file" / "conf")
    assert result.exit_code == 2 and f"{tmp_path}/file" in result.output


def test_installation_without_templates_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(filesystem, "_PACKAGE", tmp_path / "rmqha")
    result = run("init", tmp_path / "conf")
    assert result.exit_code == 2 and "not installed as a wheel makes it" in result.output
