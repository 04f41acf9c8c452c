"""How the libraries that only some need are installed: a command for the Python and the place that rmqha runs from."""
import functools
import re
import shlex
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

from rmqha.common import home
from rmqha.common.json_text import parse_json

_REQUIREMENT = re.compile(r"Requires-Dist: (?P<requirement>[^;\n]+); extra == ['\"](?P<extra>[\w-]+)['\"]")


def how_to_install(extra: str) -> str:
    """The command that adds an extra of setup.cfg to this Python."""
    pip = f"{shlex.quote(sys.executable or 'python3')} -m pip install"
    return f"{pip} {' '.join(map(shlex.quote, _wanted(extra)))}"


def _wanted(extra: str) -> list[str]:
    """What pip is given: rmqha with the extra from where it came, or the extra's libraries where that is gone."""
    source = home.checkout()
    if source is not None:
        return [f"{source}[{extra}]"]
    info = _dist_info()
    came_from = info / "direct_url.json" if info is not None else None
    if info is None or came_from is None or not came_from.is_file():  # pip notes the place of all but an index
        return [f"rmqha[{extra}]"]
    try:
        origin = parse_json(came_from.read_bytes(), str(came_from))
        url, vcs = str(origin["url"]), f"{origin['vcs_info']['vcs']}+" if "vcs_info" in origin else ""
    except (KeyError, TypeError, ValueError):  # not as pip writes it
        return [f"rmqha[{extra}]"]
    if urlsplit(url).scheme != "file":
        return [f"rmqha[{extra}] @ {vcs}{url}"]
    path = unquote(urlsplit(url).path)
    if Path(path).exists():
        return [f"{path}[{extra}]"]
    found = _REQUIREMENT.finditer((info / "METADATA").read_text("utf-8"))
    return [match["requirement"].strip() for match in found if match["extra"] == extra] or [f"rmqha[{extra}]"]


@functools.cache
def _dist_info() -> Path | None:
    """The folder in which pip noted what it installed, and from where."""
    return next(iter(home.package_folder().parent.glob("rmqha-*.dist-info")), None)
