"""Programs of the system that tests need: openssl, for keys and certificates, and a headless browser."""
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest


def not_installed(*names: str) -> str | None:
    """Return the reason to skip a test of these programs, which names those that are not on PATH, or None if all
    are."""
    missing = [name for name in names if shutil.which(name) is None]
    return f"not installed: {', '.join(missing)}" if missing else None


# Keys and certificates for tests, made by the openssl command: authorities, and the identities that they sign.

DAYS = "30"


@dataclass(frozen=True)
class Identity:
    """A certificate and its key, PEM."""

    certificate: Path
    key: Path


class Authority:
    """An authority that signs certificates; its own certificate is the one that others trust."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.certificate, self._key = folder / f"{name}.pem", folder / f"{name}.key"
        openssl("req", "-x509", *_NEW_KEY, "-subj", f"/CN={name}", "-days", DAYS, "-keyout", self._key, "-out",
                self.certificate, "-addext", "keyUsage=critical,keyCertSign,cRLSign")  # Python 3.13 needs it

    def sign(self, name: str, alternative_name: str = "") -> Identity:
        """Return a new key, and a certificate for it; `alternative_name` as in `IP:127.0.0.1`."""
        made = Identity(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        request = self.folder / f"{name}.csr"
        openssl("req", *_NEW_KEY, "-subj", f"/CN={name}", "-keyout", made.key, "-out", request)
        file = self.folder / f"{name}.ext"
        file.write_text("authorityKeyIdentifier=keyid\n"
                        + (f"subjectAltName={alternative_name}\n" if alternative_name else ""))
        openssl("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial",
                "-days", DAYS, "-out", made.certificate, "-extfile", file)
        return made


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


OLD_SCHEME = ("-v1", "PBE-SHA1-3DES")  # PKCS #12's: 4.9's Netty can open it


def encrypted(key: Path, password: str, scheme: tuple[str, ...] = ()) -> Path:
    """Write the same key to a file that only the password opens: PKCS #8, by default with PBES2."""
    result = key.with_suffix(".encrypted.key")
    openssl("pkcs8", "-topk8", *scheme, "-in", key, "-out", result, "-passout", f"pass:{password}")
    return result


def openssl(*arguments: object) -> str:
    """Run openssl and return its output. AssertionError with its errors if it fails."""
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"openssl {' '.join(map(str, arguments))}: {done.stderr}"
    return done.stdout


# A real headless browser: Chromium, which renders a page and returns the result.

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on PATH (package chromium)")


class Browser:
    """A browser: `dom(address)` returns the page two seconds after it was opened; `complaints` has the errors that
    it logged."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.complaints: list[str] = []

    def dom(self, address: str) -> str:
        """Return the page with the changes that its scripts made."""
        return self._run(address, "--dump-dom")

    def picture(self, address: str, out: Path, width: int = 1280, height: int = 900) -> None:
        """Save a picture (PNG) of the page."""
        self._run(address, f"--screenshot={out}", "--hide-scrollbars", f"--window-size={width},{height}")

    def _run(self, address: str, *arguments: str) -> str:
        assert CHROMIUM is not None
        done = subprocess.run(
            [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-sync",
             f"--user-data-dir={self._folder}", "--enable-logging=stderr", "--window-size=1280,900",
             "--virtual-time-budget=4000", *arguments, address],
            capture_output=True, text=True, timeout=600, check=True)
        self.complaints += [line for line in done.stderr.splitlines() if "CONSOLE" in line]
        return done.stdout
