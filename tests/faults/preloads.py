"""Small C libraries that are preloaded into a broker, compiled when they are needed."""
import functools
import shutil
import subprocess
from pathlib import Path

_HERE = Path(__file__).parent


@functools.cache
def why_not() -> str | None:
    """The reason why nothing can be compiled on this machine; None when it can."""
    return None if shutil.which("gcc") else "not installed: gcc"


def compiled(name: str, folder: Path) -> Path:
    """Compile `name`.c of this package into `folder`; the library."""
    library = folder / f"{name}.so"
    done = subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(_HERE / f"{name}.c"), "-ldl"],
                          capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return library
