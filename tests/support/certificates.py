"""Keys and certificates for tests, made by the openssl command: authorities, and who is signed by them."""
import subprocess
from dataclasses import dataclass
from pathlib import Path

DAYS = "30"


@dataclass(frozen=True)
class Identity:
    """A certificate and its key, PEM."""

    certificate: Path
    key: Path


class Authority:
    """Signs; its own certificate is what others trust."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.certificate, self._key = folder / f"{name}.pem", folder / f"{name}.key"
        openssl("req", "-x509", *_NEW_KEY, "-subj", f"/CN={name}", "-days", DAYS, "-keyout", self._key, "-out",
                self.certificate)

    def sign(self, name: str, alternative_name: str = "") -> Identity:
        """A new key, and a certificate for it; `alternative_name` as in `IP:127.0.0.1`."""
        made = Identity(self.folder / f"{name}.pem", self.folder / f"{name}.key")
        request = self.folder / f"{name}.csr"
        openssl("req", *_NEW_KEY, "-subj", f"/CN={name}", "-keyout", made.key, "-out", request)
        extensions: tuple[object, ...] = ()
        if alternative_name:
            file = self.folder / f"{name}.ext"
            file.write_text(f"subjectAltName={alternative_name}\n")
            extensions = "-extfile", file
        openssl("x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key, "-CAcreateserial",
                "-days", DAYS, "-out", made.certificate, *extensions)
        return made


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


OLD_SCHEME = ("-v1", "PBE-SHA1-3DES")  # PKCS #12's: what 4.9's Netty can open


def encrypted(key: Path, password: str, scheme: tuple[str, ...] = ()) -> Path:
    """The same key in a file of its own that only the password opens: PKCS #8, by default with PBES2."""
    result = key.with_suffix(".encrypted.key")
    openssl("pkcs8", "-topk8", *scheme, "-in", key, "-out", result, "-passout", f"pass:{password}")
    return result


def openssl(*arguments: object) -> str:
    """Run it; what it printed. AssertionError with its errors when it fails."""
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"openssl {' '.join(map(str, arguments))}: {done.stderr}"
    return done.stdout
