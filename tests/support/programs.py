"""Programs of the system that tests need."""
import shutil


def not_installed(*names: str) -> str | None:
    """The reason to skip what needs these programs, which names those that are not on PATH; None when all are."""
    missing = [name for name in names if shutil.which(name) is None]
    return f"not installed: {', '.join(missing)}" if missing else None
