"""The build backend: it builds the project with setuptools and, where a C compiler is available, an extension of each C
source in this folder.

It is named in pyproject.toml and imported only by pip. Extensions can't be declared in setup.cfg. All of them are
optional: if one can't be compiled, setuptools reports that, and the project is installed without it.

Spark finds formats in top-level modules named `pyspark_*` in the folders on its path. This module puts those of
rmqha/pipeline into the wheel, and also into that of an editable install, because Spark's search does not use import
hooks. The import hook of an editable install is editable_hook.py instead of setuptools' own.

The wheel contains the checkout's conf/ as rmqha/conf: templates, which `rmqha config init` copies. The source
distribution contains everything that a checkout has.

Both contain rmqha/build.json, which a checkout does not have: `{"commit": ..., "home": ...}`. `commit` is git's HEAD
(with `-dirty` after it if files were changed), which `rmqha --version` prints. `home` is the web page of the
repository, from the address of git's remote `origin`. The metadata has the project's addresses below it, and the links
in the long description lead there.

`pip wheel --config-settings pure=true` makes a wheel without compiled parts, for all Pythons and platforms. With
SOURCE_DATE_EPOCH, archives contain that time (seconds since 1970) in place of the files' own.
"""
import base64
import functools
import gzip
import hashlib
import io
import json
import os
import re
import stat
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import setuptools
from setuptools import build_meta
from setuptools.command.sdist import sdist

_Settings = dict[str, str | list[str]] | None  # the settings passed by the front end

_setup = setuptools.setup
_FOLDER = Path("rmqha/native")  # of the checkout: build backends run in its root
# Parts of the source distribution that setuptools does not include.
_SOURCES = (".ci", ".github", "bin", "conf", "docs", "tests", "CHANGELOG.md")
_MADE = {".pyc", ".so", ".pyd"}
# The names of the two files of setuptools' import hook begin with this.
_THEIR_HOOK = "__editable__"
_BUILD_FILE = "rmqha/build.json"
_EPOCH = "SOURCE_DATE_EPOCH"
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
# A link or picture of Markdown with a relative target: "!" or "", text, target.
_RELATIVE_LINK = re.compile(r"(!?)\[((?:[^][]|\[[^][]*\])*)\]\((?![a-z]+:|[/#])([^)\s]+)\)")
# The addresses that git clones from: one with a scheme, and ssh's short form. Accounts and passwords are left out.
_REMOTES = (re.compile(r"(?P<scheme>https?|ssh|git)://(?:[^@/]*@)?(?P<host>[\w.-]+)(?P<port>:\d+)?/(?P<path>.+)"),
            re.compile(r"(?:[\w.-]+@)(?P<host>[\w.-]+):(?P<path>[^/].*)"))

_is_pure = False  # set before setuptools runs


def _git(*words: str) -> str | None:
    """Return the output of git for the checkout; None if this folder is not one, or git fails."""
    if not os.path.exists(".git"):
        return None
    try:
        # A hook of git may run the build, with variables that name another repository or index.
        env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        done = subprocess.run(["git", *words], capture_output=True, text=True, check=False, timeout=60, env=env)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _web_page(remote: str) -> str | None:
    """Return the web page of a repository that git clones from `remote`; None for a folder."""
    for form in _REMOTES:
        if (match := form.fullmatch(remote)) is not None:
            parts = match.groupdict(default="")
            scheme, port = parts.get("scheme", ""), parts.get("port", "")
            web = scheme in ("http", "https")
            return f"{scheme if web else 'https'}://{parts['host']}{port if web else ''}/" + \
                parts["path"].strip("/").removesuffix(".git")
    return None


@functools.cache
def _build() -> dict[str, str]:
    """Return the contents of rmqha/build.json: of the file of a source distribution, or from git."""
    if os.path.exists(_BUILD_FILE):
        said = json.loads(Path(_BUILD_FILE).read_text("utf-8"))
        return {name: str(said[name]) for name in ("commit", "home") if said.get(name)}
    commit = _git("describe", "--always", "--abbrev=40", "--dirty", "--exclude=*")
    home = _web_page(_git("remote", "get-url", "origin") or "")
    return {name: value for name, value in (("commit", commit), ("home", home)) if value}


def build_file() -> bytes:
    """Return the text of rmqha/build.json."""
    return json.dumps(_build(), indent=1, sort_keys=True).encode() + b"\n"


def _below(home: str, kind: str) -> str:
    """Return the address of the files of the built commit, as code hosts have it; `kind`: blob or raw."""
    return f"{home}/{kind}/{_build().get('commit', 'HEAD').removesuffix('-dirty')}"


def _addresses() -> dict[str, str]:
    """Return the project's addresses for the metadata; empty if they are not known."""
    home = _build().get("home")
    return {} if home is None else {
        "Homepage": home, "Documentation": f"{_below(home, 'blob')}/docs/index.md", "Source": home,
        "Issues": f"{home}/issues", "Changelog": f"{_below(home, 'blob')}/CHANGELOG.md"}


def _long_description() -> str:
    """Return README.md with links that work elsewhere; without a home, only the links' texts."""
    home = _build().get("home")

    def moved(link: re.Match[str]) -> str:
        is_picture, text, target = link.groups()
        if home is None:
            return "" if is_picture else text
        return f"{is_picture}[{text}]({_below(home, 'raw' if is_picture else 'blob')}/{target})"
    readme = Path("README.md").read_text("utf-8")
    parts, blocks = _FENCED.split(readme), [*_FENCED.findall(readme), ""]
    return "".join(_RELATIVE_LINK.sub(moved, part) + block for part, block in zip(parts, blocks))


def _extensions() -> list[setuptools.Extension]:
    if _is_pure:
        return []
    flags = [] if sys.platform == "win32" else ["-O2", "-std=c11"]
    headers = [str(header) for header in _FOLDER.glob("*.h")]
    return [setuptools.Extension(".".join(source.with_suffix("").parts), [str(source)], depends=headers,
                                 extra_compile_args=flags, optional=True)
            for source in sorted(_FOLDER.glob("*.c"))]


def _files(name: str) -> Iterator[Path]:
    """Yield a file, or all files below a folder, without those that Python generates."""
    path = Path(name)
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file() and file.suffix not in _MADE:
            yield file


class _WholeSdist(sdist):
    """The source distribution, from which everything can be built and tested."""

    def make_distribution(self) -> None:
        """Add the folders to the list of files, which saves a MANIFEST.in in the project's root."""
        self.filelist.extend([str(file) for name in _SOURCES for file in _files(name)])
        super().make_distribution()

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        """Add rmqha/build.json."""
        super().make_release_tree(base_dir, files)
        Path(base_dir, _BUILD_FILE).write_bytes(build_file())


@functools.wraps(_setup)
def _setup_with_extensions(**attributes: Any) -> Any:
    # What is given here takes precedence over setup.cfg.
    return _setup(ext_modules=_extensions(), cmdclass={"sdist": _WholeSdist}, project_urls=_addresses(),
                  long_description=_long_description(), **attributes)


# The project has no setup.py, so build_meta runs a bare `setuptools.setup()`.
setuptools.setup = _setup_with_extensions


def _formats() -> dict[str, Path]:
    """Return the modules for Spark: name in the wheel -> file."""
    return {module.name: module for module in sorted(Path("rmqha/pipeline").glob("pyspark_*.py"))}


def _templates() -> dict[str, Path]:
    """Return the files of conf/: name in the wheel -> file."""
    return {f"rmqha/{file.as_posix()}": file for file in _files("conf")}


def _hook() -> dict[str, Path | bytes]:
    """Return the import hook for the checkout's package: name in the wheel -> file, or its bytes."""
    start = f"import _rmqha_hook; _rmqha_hook.install({ascii(os.getcwd())})\n"
    return {"_rmqha_hook.py": _FOLDER / "editable_hook.py", "_rmqha_hook.pth": start.encode()}


def _member(name: str) -> zipfile.ZipInfo:
    """Return the head of a file of a wheel."""
    # zip has no earlier time
    moment = max(int(os.environ.get(_EPOCH, time.time())), 315532800)
    member = zipfile.ZipInfo(name, time.gmtime(moment)[:6])
    member.external_attr = (stat.S_IFREG | 0o644) << 16
    member.compress_type = zipfile.ZIP_DEFLATED
    return member


def _with(files: Mapping[str, Path | bytes], folder: str, wheel: str) -> str:
    """Add files to a wheel, and remove setuptools' hook of an editable install."""
    path, rows = Path(folder, wheel), []
    with zipfile.ZipFile(path) as old:
        there = {item: old.read(item) for item in old.infolist() if not item.filename.startswith(_THEIR_HOOK)}
    record = next(item for item in there if item.filename.endswith(".dist-info/RECORD"))
    kept = [row for row in there[record].splitlines(keepends=True) if not row.startswith(_THEIR_HOOK.encode())]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for item, data in there.items():
            if item is not record:
                new.writestr(item, data)
        for name, file in files.items():
            data = file if isinstance(file, bytes) else file.read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            new.writestr(_member(name), data)
            rows.append(f"{name},sha256={digest},{len(data)}\n".encode())
        new.writestr(record, b"".join(kept + rows))
    return wheel


def _repack(sdist: Path) -> None:
    """Write a source distribution again with the time of SOURCE_DATE_EPOCH, without owners, in the order of names."""
    moment = int(os.environ[_EPOCH])
    packed = io.BytesIO()
    with tarfile.open(sdist) as old, tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda each: each.name):
            member.mtime, member.pax_headers = moment, {}
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    with open(sdist, "wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=moment) as stream:
        stream.write(packed.getvalue())


def build_sdist(sdist_directory: str, config_settings: _Settings = None) -> str:
    """Build the source distribution."""
    sdist: str = build_meta.build_sdist(sdist_directory, config_settings)
    if _EPOCH in os.environ:
        _repack(Path(sdist_directory, sdist))
    return sdist


def build_wheel(wheel_directory: str, config_settings: _Settings = None, metadata_directory: str | None = None) -> str:
    """Build the wheel, with `pure=true` in the settings one without compiled parts."""
    global _is_pure
    _is_pure = (config_settings or {}).get("pure") == "true"
    wheel = build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
    return _with({**_formats(), **_templates(), _BUILD_FILE: build_file()}, wheel_directory, wheel)


def build_editable(wheel_directory: str, config_settings: _Settings = None,
                   metadata_directory: str | None = None) -> str:
    """Build the wheel of an editable install, which uses the templates of the checkout."""
    wheel = build_meta.build_editable(wheel_directory, config_settings, metadata_directory)
    return _with({**_formats(), **_hook()}, wheel_directory, wheel)


prepare_metadata_for_build_wheel = build_meta.prepare_metadata_for_build_wheel
prepare_metadata_for_build_editable = build_meta.prepare_metadata_for_build_editable
get_requires_for_build_wheel = build_meta.get_requires_for_build_wheel
get_requires_for_build_sdist = build_meta.get_requires_for_build_sdist
get_requires_for_build_editable = build_meta.get_requires_for_build_editable
