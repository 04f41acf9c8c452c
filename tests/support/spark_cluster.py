"""A real cluster of Spark on this machine, and the jars that it needs for s3a:."""
import functools
import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

from tests.support import real_rocketmq
from tests.support.ports import free_port
from tests.support.processes import ServerProcess

# A real standalone cluster of Spark (a master, workers), and a Spark Connect server, on this machine, for tests.
#
#     with SparkCluster(folder) as cluster:              # two workers of one core each; PYSPARK_PYTHON is unset
#         spark_session(cluster.master)                  # spark://127.0.0.1:PORT
#
# Each process is killed when the process that started it ends.

HOST = "127.0.0.1"
_START_MS = 300_000  # a JVM's start on a busy machine
# Variables that must not come from the shell that runs the tests.
_UNSET = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_REMOTE", "SPARK_CONF_DIR", "SPARK_MASTER_HOST")
UNSET = ["env", *(word for name in _UNSET for word in ("-u", name))]
# For processes that start and end soon: no time is spent on optimizing compilation.
_QUICK = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
_QUICK_JAVA = " ".join(_QUICK)
# For sessions: executors that fit beside each other on a small machine, and all traffic on the loopback.
CONFIG = {"spark.executor.memory": "512m", "spark.driver.memory": "512m", "spark.ui.enabled": "false",
          "spark.driver.host": HOST, "spark.driver.bindAddress": HOST, "spark.sql.shuffle.partitions": "2",
          "spark.executor.extraJavaOptions": _QUICK_JAVA, "spark.driver.extraJavaOptions": _QUICK_JAVA,
          "spark.network.timeout": "600s", "spark.executor.heartbeatInterval": "60s",
          "spark.python.authenticate.socketTimeout": "300s"}


def spark_home() -> Path:
    """Return the folder of PySpark, whose jars are Spark."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


def _scala_version() -> str:
    """Return the Scala version, which workers need if no script starts them."""
    return next((spark_home() / "jars").glob("spark-core_*.jar")).name.split("_")[1].split("-")[0]


def why_no_connect() -> str | None:
    """Return why a client of Spark Connect is impossible here, or None if it is possible."""
    missing = [name for name in ("grpc", "grpc_status", "google.rpc", "zstandard") if not _is_there(name)]
    return f"{missing[0]} is missing: pip install -e '.[connect]'" if missing else None


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _java(*words: str) -> list[str]:
    return [*UNSET, "java", *_QUICK, "-Xmx256m", "-cp", f"{spark_home()}/jars/*", *words]


class SparkCluster:
    """A master and `workers` workers, each with `cores` cores; started by `with` or `start`. `env`: for the workers,
    and so for all executors and the Python in them."""

    def __init__(self, folder: Path, workers: int = 2, cores: int = 1, env: dict[str, str] | None = None) -> None:
        port = free_port()
        self.master = f"spark://{HOST}:{port}"
        env = {"SPARK_HOME": str(spark_home()), "SPARK_LOCAL_IP": HOST, "SPARK_SCALA_VERSION": _scala_version(),
               **(env or {})}
        place = ["--host", HOST, "--webui-port", "0"]
        self.processes = [ServerProcess("master", _java("org.apache.spark.deploy.master.Master", *place, "--port",
                                                        str(port)), folder, "I have been elected leader", env)]
        for number in range(workers):
            worker = _java("org.apache.spark.deploy.worker.Worker", *place, "--cores", str(cores), "--memory", "600m",
                           "--work-dir", str(folder / f"work-{number}"), self.master)
            self.processes.append(ServerProcess(f"worker-{number}", worker, folder, "Successfully registered", env))

    def start(self) -> "SparkCluster":
        """Start all processes, one after another."""
        try:
            for process in self.processes:
                process.start(_START_MS)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Kill all processes; nothing of theirs is kept."""
        for process in reversed(self.processes):
            process.kill()

    def __enter__(self) -> "SparkCluster":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class ConnectServer:
    """A Spark Connect server in front of `master`; its tasks run in `python`, which must have rmqha."""

    def __init__(self, folder: Path, python: str, master: str = "local[2]", **config: str) -> None:
        port = free_port()
        self.remote = f"sc://{HOST}:{port}"
        options = {**CONFIG, "spark.connect.grpc.binding.address": HOST, "spark.connect.grpc.binding.port": str(port),
                   **config}
        words = [word for name, value in options.items() for word in ("--conf", f"{name}={value}")]
        env = {"SPARK_HOME": str(spark_home()), "SPARK_LOCAL_IP": HOST, "PYSPARK_PYTHON": python,
               "PATH": os.environ["PATH"]}
        command = ["java", *_QUICK, "-Xmx512m", "--add-modules=jdk.incubator.vector",
                   "--add-opens=java.base/java.lang=ALL-UNNAMED", "--add-opens=java.base/java.nio=ALL-UNNAMED",
                   "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED", "--add-opens=java.base/java.util=ALL-UNNAMED",
                   "-Dio.netty.tryReflectionSetAccessible=true", "-cp", f"{spark_home()}/jars/*",
                   "org.apache.spark.deploy.SparkSubmit", "--master", master, "--class",
                   "org.apache.spark.sql.connect.service.SparkConnectServer", *words, "spark-internal"]
        self.process = ServerProcess("connect", command, folder, "Spark Connect server started at", env)

    def __enter__(self) -> "ConnectServer":
        try:
            self.process.start(_START_MS)
        except BaseException:
            self.process.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()


# Jars that Spark needs for s3a:, fetched once by Maven and stored beside those of the real RocketMQ.


@functools.cache
def jars() -> list[Path]:
    """Return the jars."""
    pom = Path(__file__).parent / "java" / "spark" / "pom.xml"
    return sorted(real_rocketmq.fetched("spark-jars", pom).glob("*.jar"))


@functools.cache
def why_unavailable() -> str | None:
    """Return why they are unavailable, or None if they are there."""
    if not real_rocketmq.is_fetched("spark-jars") and shutil.which("mvn") is None:
        return "the jars for s3a: are missing, and so is mvn"
    try:
        jars()
    except (AssertionError, OSError, subprocess.TimeoutExpired) as error:
        return f"the jars for s3a: could not be fetched: {error}"
    return None
