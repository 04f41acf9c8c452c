"""How rmqha's own name server and broker are started: processes of this interpreter, or those of another checkout."""
import os
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]


class Checkout:
    """The servers of the sources in `root`."""

    def __init__(self, root: Path, python: str) -> None:
        self._root = root
        self._python = python

    def namesrv_command(self, config_file: Path, folder: Path) -> tuple[list[str], dict[str, str]]:
        """Command and environment of a name server."""
        return self._command("rmqha.namesrv.namesrv_startup", config_file, folder)

    def broker_command(self, config_file: Path, folder: Path) -> tuple[list[str], dict[str, str]]:
        """Command and environment of a broker; it finds the name server in its file."""
        return self._command("rmqha.broker.broker_startup", config_file, folder)

    def controller_command(self, config_file: Path, folder: Path) -> tuple[list[str], dict[str, str]]:
        """Command and environment of a controller."""
        return self._command("rmqha.controller.controller_startup", config_file, folder)

    def _command(self, module: str, config_file: Path, folder: Path) -> tuple[list[str], dict[str, str]]:
        env = {"HOME": str(folder), "PYTHONPATH": str(self._root), "PYTHONUNBUFFERED": "1",
               "ROCKETMQ_HOME": str(folder)}
        return [self._python, "-m", module, "-c", str(config_file)], env


OURS = Checkout(_ROOT, sys.executable)


def before() -> Checkout:
    """The checkout that RMQHA_BEFORE names, see tests.bench."""
    root = Path(os.environ["RMQHA_BEFORE"]).resolve()
    return Checkout(root, str(root / ".venv" / "bin" / "python"))
