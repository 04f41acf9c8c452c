"""Where `conf/` lies: in ROCKETMQ_HOME, else in the checkout, else in the user's config folder; and its templates."""
import os
from pathlib import Path

import rmqha

ROCKETMQ_HOME_ENV = "ROCKETMQ_HOME"
CONFIG_HOME_ENV = "XDG_CONFIG_HOME"
_PACKAGE = Path(rmqha.__file__).resolve().parent


def rocketmq_home() -> Path:
    """The folder above `conf/`. Never the one that a package was installed into: the next install would empty it."""
    # Differs: Java's start scripts set the variable, and its servers refuse to start without it
    named = os.environ.get(ROCKETMQ_HOME_ENV)
    return Path(named) if named else default_rocketmq_home()


def default_rocketmq_home() -> Path:
    """The same where the environment names none."""
    return checkout() or user_home()


def package_folder() -> Path:
    """The folder of the package rmqha."""
    return _PACKAGE


def checkout() -> Path | None:
    """The folder of the sources that the package is run from; None when it was installed."""
    folder = _PACKAGE.parent
    return folder if (folder / "setup.cfg").is_file() and (folder / "conf").is_dir() else None


def user_home() -> Path:
    """`rmqha` in the user's config folder, as the XDG base directory specification has it."""
    named = os.environ.get(CONFIG_HOME_ENV, "")
    # a relative path is to be passed over
    return Path(named if os.path.isabs(named) else os.path.expanduser("~/.config")) / "rmqha"


def templates() -> Path:
    """The configuration files that rmqha comes with: `conf/` of the checkout, or the package's copy of it."""
    source = checkout()
    return source / "conf" if source is not None else _PACKAGE / "conf"
