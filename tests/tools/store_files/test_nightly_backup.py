"""The nightly recipe of docs/how-to/backup-and-restore.md, as the page writes it, night after night."""
import re
import subprocess
import sys
from pathlib import Path

from click.testing import CliRunner

from rmqha.tools.rmqha_command import rmqha
from tests.store.support import wait_dispatched
from tests.tools.conftest import broker_at

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs/how-to/backup-and-restore.md"
NIGHTS = 3


def nightly_script(master: str, root: Path, backup: Path) -> str:
    """The page's script, for these places."""
    section = PAGE.read_text("utf-8").split("\n## Each night\n")[1].split("\n## ")[0]
    (script,) = re.findall(r"```bash\n(.*?)```", section, re.DOTALL)
    for told, real in (("bin/rmqha", f"{sys.executable} -m rmqha.tools.rmqha_command"), ("10.0.0.2:10912", master),
                       ("/backup/broker-a", str(backup)), ("/data/rocketmq", str(root))):
        assert told in script
        script = script.replace(told, real)
    return script


def test_the_pages_script_proves_the_backup_each_night_and_leaves_nothing_of_the_last(tmp_path):
    backup = tmp_path / "backup"
    with broker_at(tmp_path / "master", None) as master:
        address = f"127.0.0.1:{master.store.ha_service.ha_listen_port}"
        script = nightly_script(address, tmp_path / "master" / "store", backup)
        names = []
        for night in range(NIGHTS):
            for number in range(20):
                body = f"night {night}, {number}".encode()
                assert master.send("T", body, properties={"KEYS": f"k{night}-{number}"}).code in (0, 11)
            wait_dispatched(master.store)
            done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=600)
            assert done.returncode == 0, done.stdout + done.stderr
            assert done.stdout.rstrip().endswith("clean")
            assert f"{20 * (night + 1)} records" in done.stdout
            names.append(sorted(path.name for path in backup.iterdir()))
    assert names[0] == names[1] == names[2]
    assert {"commitlog", "config", "consumequeue", "index"} <= set(names[0])
    assert not [name for name in names[0] if "before" in name or "replaced" in name or "rebuild" in name]


def rebuild(root, *options):
    done = CliRunner().invoke(rmqha, ["store", "rebuild", str(root), *options])
    return done.exit_code, done.output


def test_what_is_replaced_is_deleted_only_after_the_new_one_has_its_place(copy, monkeypatch):
    root = copy("normal")
    old = sorted(path.name for path in (root / "consumequeue").iterdir())
    (root / "consumequeue" / "Stale" / "0").mkdir(parents=True)
    leftover = root / "index.replaced"  # of a rebuild that was broken off
    leftover.mkdir()
    assert rebuild(root, "--apply", "--replace")[0] == 0
    assert sorted(path.name for path in (root / "consumequeue").iterdir()) == old
    assert not [path.name for path in root.iterdir() if re.search("replaced|rebuild|before", path.name)]


def test_replace_contradicts_force_and_needs_apply(copy):
    root = copy("normal")
    assert rebuild(root, "--replace")[0] == 2
    code, text = rebuild(root, "--apply", "--force", "--replace")
    assert code == 2 and "give one of them" in text
    code, text = rebuild(root, "--apply")
    assert code == 2 and "--replace" in text
