"""How rmqha's own name server and broker are started: as processes of this interpreter."""
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]


def _env(folder: Path) -> dict[str, str]:
    return {"HOME": str(folder), "PYTHONPATH": str(_ROOT), "PYTHONUNBUFFERED": "1", "ROCKETMQ_HOME": str(folder)}


def namesrv_command(config_file: Path, folder: Path) -> tuple[list[str], dict[str, str]]:
    """Command and environment of a name server."""
    return [sys.executable, "-m", "rmqha.namesrv.namesrv_startup", "-c", str(config_file)], _env(folder)


def broker_command(config_file: Path, folder: Path) -> tuple[list[str], dict[str, str]]:
    """Command and environment of a broker; it finds the name server in its file."""
    return [sys.executable, "-m", "rmqha.broker.broker_startup", "-c", str(config_file)], _env(folder)
