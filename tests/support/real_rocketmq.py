"""The real RocketMQ, 4.9 and 5.1.4: its jars, fetched once, and the commands that start its servers and our Java
driver."""
import fcntl
import functools
import hashlib
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.programs import not_installed
from tests.support.wait import at_least

# The real RocketMQ 4.9: its jars, fetched once, and the commands that start its servers and our Java driver.
#
# $RMQHA_JAVA_CACHE (default ~/.cache/rmqha/rocketmq-4.9.7) keeps jars and compiled driver. Without java or mvn, tests
# marked `java` are skipped, unless RMQHA_REQUIRE_JAVA=1 makes that a failure. RMQHA_JAVA_LOG_LEVEL=INFO shows the
# servers' logs. The JVMs are small and start quickly, and the servers have no TLS unless JAVA_TOOL_OPTIONS configures
# it. RMQHA_JAVA_OPTIONS replaces these options (the benchmarks use FULL_SPEED).

VERSION = "4.9.7"
_PAUSES_S = (5, 10, 20, 40, 60)
_HERE = Path(__file__).resolve().parent / "java"
_HEAP = ["-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
# Otherwise each server creates an RSA key when it starts, which takes five seconds of CPU.
_NO_TLS = "-Dtls.server.mode=disabled"
FULL_SPEED = "-Xms1g -Xmx1g -XX:+UseG1GC"
# JDK 17 hides internals that RocketMQ 4.9 uses; without these options the broker fails at its first mapped file.
_OPENS = [
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED", "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED", "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
]
_LOGBACK = """<configuration>
  <appender name="STDOUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%d{HH:mm:ss.SSS} %p %t %c{0} %m%n</pattern></encoder>
  </appender>
  <root level="${RMQHA_JAVA_LOG_LEVEL:-OFF}"><appender-ref ref="STDOUT"/></root>
</configuration>
"""
NAMESRV, BROKER = "org.apache.rocketmq.namesrv.NamesrvStartup", "org.apache.rocketmq.broker.BrokerStartup"
_CLASSES = {
    "namesrv": NAMESRV,
    "broker": BROKER,
    "driver": "org.rmqha.driver.Driver",
}


def why_unavailable() -> str | None:
    """Return why the real RocketMQ can't run here, or None if it can."""
    return not_installed("java", "javac", *(() if (_cache() / "lib.complete").exists() else ("mvn",)))


def namesrv_command(config_file: Path, folder: Path) -> tuple[list[str], dict[str, str]]:
    """Return command and environment of a name server."""
    return _command("namesrv", folder) + ["-c", str(config_file)], _env()


def broker_command(config_file: Path, folder: Path) -> tuple[list[str], dict[str, str]]:
    """Return command and environment of a broker; it finds the name server in its file."""
    return _command("broker", folder) + ["-c", str(config_file)], _env()


def driver_command(folder: Path) -> tuple[list[str], dict[str, str]]:
    """Return command and environment of our Java driver (java/src)."""
    return _command("driver", folder), _env()


def _command(what: str, folder: Path) -> list[str]:
    reason = why_unavailable()
    assert reason is None, f"the real RocketMQ can't run here: {reason}"
    lib, classes = jars(), driver_classes()
    flags = [f"-Duser.home={folder}", f"-Drocketmq.client.logRoot={folder}/clientlogs",
             "-Drocketmq.client.logLevel=WARN"]
    options = os.environ.get("RMQHA_JAVA_OPTIONS", "").split() or [*_HEAP, *tls_options()]
    return ["java", *options, *_OPENS, *flags, "-cp", f"{lib}/*:{classes}", _CLASSES[what]]


def host_command(version: str, folder: Path, main: str) -> tuple[list[str], dict[str, str]]:
    """Return command and environment of a JVM with many servers of this version (java/host)."""
    lib = jars() if version == VERSION else jars_of(version)
    classes = compiled(lib, sorted((_HERE / "host").rglob("*.java")))
    logback = folder / "logback.xml"
    _write_once(logback, _LOGBACK)
    jars()  # includes the files of `home`
    return ["java", *_HEAP, "-Xmx1g", *tls_options(), *_OPENS, f"-Duser.home={folder}",
            f"-Drmq.logback.configurationFile={logback}", f"-Drocketmq.client.logRoot={folder}/clientlogs",
            "-Drocketmq.client.logLevel=WARN", "-cp", f"{lib}/*:{classes}", main], _env()


def home() -> str:
    """Return the $ROCKETMQ_HOME of servers that need no files of their own there."""
    return str(_cache() / "home")


def _env() -> dict[str, str]:
    return {"ROCKETMQ_HOME": home()}


def _cache() -> Path:
    default = Path.home() / ".cache" / "rmqha" / f"rocketmq-{VERSION}"
    return Path(os.environ.get("RMQHA_JAVA_CACHE") or default)


@contextmanager
def _cache_locked() -> Iterator[Path]:
    """Yield the cache folder, locked against other test processes."""
    folder = _cache()
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


@functools.cache
def jars() -> Path:
    """Return the folder of RocketMQ's jars; Maven fetches them at the first use."""
    with _cache_locked() as folder:
        conf = folder / "home" / "conf"
        conf.mkdir(parents=True, exist_ok=True)
        for name in ("broker", "namesrv", "tools"):
            _write_once(conf / f"logback_{name}.xml", _LOGBACK)
        return _fetched(folder, _HERE / "pom.xml")


def _fetched(folder: Path, pom: Path, **versions: str) -> Path:
    """Return the jars of a pom, in `folder`/lib."""
    if not (folder / "lib.complete").exists():
        _run(["mvn", "-q", "-B", "-U", "-f", str(pom), "dependency:copy-dependencies",
              f"-DoutputDirectory={folder / 'lib'}",
              *(f"-Drocketmq.{key.replace('_', '.')}={version}" for key, version in versions.items())], _PAUSES_S)
        (folder / "lib.complete").touch()
    return folder / "lib"


def _write_once(file: Path, text: str) -> None:
    """Write a file atomically, and only if its text changes: another process's JVM may be reading it."""
    if not file.exists() or file.read_text("ascii") != text:
        new = file.with_suffix(".new")
        new.write_text(text, encoding="ascii")
        new.replace(file)


@functools.cache
def driver_classes() -> Path:
    """Return the folder of our compiled driver, named by the hash of its sources."""
    return compiled(jars(), sorted((_HERE / "src").rglob("*.java")))


def tls_options() -> list[str]:
    """Return the options of a server that needs no TLS."""
    return [] if "tls." in os.environ.get("JAVA_TOOL_OPTIONS", "") else [_NO_TLS]


def java_command() -> list[str]:
    """Return java with the flags that RocketMQ needs; class path, class and arguments have to follow."""
    return ["java", *_HEAP, *_OPENS]


@functools.cache
def jars_of(version: str) -> Path:
    """Return the folder of the jars of another version of RocketMQ, beside those of 4.9; Maven fetches them at the
    first use."""
    with _cache_locked() as folder:
        return _fetched(folder.with_name(f"rocketmq-{version}"), _HERE / "pom.xml", version=version,
                        client_version=version)


def has_jars_of(version: str) -> bool:
    """Return whether they are already fetched."""
    return (_cache().with_name(f"rocketmq-{version}") / "lib.complete").exists()


def fetched(name: str, pom: Path) -> Path:
    """Return the folder of the jars of another pom, beside those of RocketMQ; Maven fetches them at the first use."""
    with _cache_locked() as folder:
        return _fetched(folder.with_name(name), pom)


def is_fetched(name: str) -> bool:
    """Return whether they are already fetched."""
    return (_cache().with_name(name) / "lib.complete").exists()


@functools.cache
def integration_jars() -> Path:
    """Return the folder of the jars of RocketMQ's own integration tests and their dependencies; fetched at the first
    use."""
    with _cache_locked() as folder:
        return _fetched(folder.with_name(f"rocketmq-{VERSION}-integration"), _HERE / "integration" / "pom.xml")


def why_no_integration_jars() -> str | None:
    """Return why they are unavailable, or None if they are there."""
    try:
        integration_jars()
    except (AssertionError, OSError, subprocess.TimeoutExpired) as error:
        return f"RocketMQ's integration tests could not be fetched: {error}"
    return None


def compiled(lib: Path, sources: list[Path]) -> Path:
    """Return the folder of the classes of `sources`, compiled against the jars in `lib`; beside them, named by their
    hash."""
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    with _cache_locked():
        classes = lib.parent / f"classes-{digest}"
        if not (classes / "complete").exists():
            _run(["javac", "-nowarn", "-encoding", "UTF-8", "-d", str(classes), "-cp", f"{lib}/*", *map(str, sources)])
            (classes / "complete").touch()
    return classes


def _run(command: list[str], pauses_s: Sequence[float] = ()) -> None:
    """Run a command that may ask a registry. `pauses_s`: pauses before further attempts, because the registry's name
    may not resolve for a minute."""
    for pause_s in (0, *pauses_s):
        at_least(pause_s)
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode == 0:
            return
    raise AssertionError(f"{' '.join(command)}: code {done.returncode}\n{done.stdout}{done.stderr}")


# The real RocketMQ 5.1.4: commands that start its broker and its controller.

VERSION_5 = "5.1.4"
_JAVA5_LOGBACK = "<configuration><root level=\"OFF\"/></configuration>\n"
_CONTROLLER = "org.apache.rocketmq.controller.ControllerStartup"
_MQADMIN = "org.apache.rocketmq.tools.command.MQAdminStartup"


class Java5:
    """The servers of 5.1.4, as `nodes` starts them: brokers, with name servers of 4.9."""

    namesrv_command = staticmethod(namesrv_command)

    @staticmethod
    def broker_command(config_file: Path, folder: Path) -> tuple[list[str], dict[str, str]]:
        """Return command and environment of a broker."""
        with config_file.open("a", encoding="utf-8") as file:
            file.write("timerWheelEnable=false\n")  # its files are large, and not replicated
        return _java5_command(BROKER, config_file, folder)


def controller_command(config_file: Path, folder: Path) -> tuple[list[str], dict[str, str]]:
    """Return command and environment of a controller."""
    return _java5_command(_CONTROLLER, config_file, folder)


def namesrv5_command(config_file: Path, folder: Path) -> tuple[list[str], dict[str, str]]:
    """Return command and environment of a name server of 5.1.4."""
    return _java5_command(NAMESRV, config_file, folder)


def mqadmin5_command(folder: Path, *words: str) -> tuple[list[str], dict[str, str]]:
    """Return command and environment of mqadmin of 5.1.4."""
    return [*java_command(), f"-Duser.home={folder}", "-cp", f"{jars_of(VERSION_5)}/*", _MQADMIN, *words], {
        "ROCKETMQ_HOME": str(folder)}


def _java5_command(name: str, config_file: Path, folder: Path) -> tuple[list[str], dict[str, str]]:
    logback = folder / "logback.xml"
    logback.write_text(_JAVA5_LOGBACK, encoding="ascii")
    flags = [f"-Drmq.logback.configurationFile={logback}", f"-Duser.home={folder}",
             f"-Drocketmq.client.logRoot={folder}/clientlogs", "-Drocketmq.client.logLevel=WARN"]
    command = [*java_command(), *tls_options(), *flags,
               "-cp", f"{jars_of(VERSION_5)}/*", name]
    return [*command, "-c", str(config_file)], {"ROCKETMQ_HOME": str(folder)}
