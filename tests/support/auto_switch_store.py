"""A store of RocketMQ 5.1.4 with its AutoSwitchHAService, driven line by line: see java/src5."""
import functools
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support import real_rocketmq
from tests.support.processes import ServerProcess
from tests.support.start_as import killed_with_parent

VERSION = "5.1.4"
_SOURCES = Path(__file__).resolve().parent / "java" / "src5"
_LOGBACK = '<configuration><root level="OFF"/></configuration>\n'
_MAIN = "org.rmqha.autoswitch.AutoSwitchStore"


@functools.cache
def class_path() -> str:
    """The jars of 5.1.4 and our class; Maven fetches them at the first use."""
    lib = real_rocketmq.jars_of(VERSION)
    return f"{lib}/*:{real_rocketmq.compiled(lib, sorted(_SOURCES.rglob('*.java')))}"


@dataclass
class State:
    """What the store says about itself."""

    max: int
    min: int
    confirm: int
    set: list[int]
    queue: int  # messages in its consume queue
    behind: int
    client: str
    connections: list[str]
    epochs: list[tuple[int, int]]


class AutoSwitchStore:
    """The Java store in its own process. `properties` are MessageStoreConfig's."""

    def __init__(self, folder: Path, broker_id: int, **properties: object) -> None:
        logback = folder / "logback.xml"
        folder.mkdir(parents=True, exist_ok=True)
        logback.write_text(_LOGBACK, encoding="ascii")
        self.root = folder / "store"
        self.broker_id = broker_id
        self.name = f"java-{broker_id}"
        self.port = 0
        wanted = {"haListenPort": 0, "mappedFileSizeConsumeQueue": 20000, "maxHashSlotNum": 1000, "maxIndexNum": 4000,
                  "haSendHeartbeatInterval": 200, "flushDiskType": "ASYNC_FLUSH", "brokerRole": "SLAVE", **properties}
        self._command = [*real_rocketmq.java_command(), f"-Drmq.logback.configurationFile={logback}",
                         f"-Duser.home={folder}", "-cp", class_path(), _MAIN, str(self.root), str(broker_id),
                         *(f"{key}={value}" for key, value in wanted.items())]
        self._server = ServerProcess(self.name, self._command, folder, "")
        self._process: subprocess.Popen | None = None

    @property
    def address(self) -> str:
        """Where its slaves connect."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> "AutoSwitchStore":
        """Open the store; it has no role yet."""
        with open(self._server.output_file, "ab") as err:
            self._process = subprocess.Popen(killed_with_parent(self._command), stdin=subprocess.PIPE,
                                             stdout=subprocess.PIPE, stderr=err, text=True, start_new_session=True)
        self.port = int(self._answer())
        return self

    def tell(self, *words: object) -> str:
        """Run one command; its answer."""
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        line = self._process.stdout.readline()
        assert line.startswith("ok"), f"{self.name} says {line!r}\n{self.tail()}"
        return line[3:].rstrip("\n")

    def state(self) -> State:
        """What the store says about itself."""
        fields = dict(re.findall(r"(\w+)=(\S*)", self.tell("state")))
        numbers = {key: int(fields[key]) for key in ("max", "min", "confirm", "queue", "behind")}
        epochs = [tuple(map(int, part.split("-"))) for part in fields["epochs"].split(",") if part]
        return State(**numbers, set=[int(part) for part in fields["set"].split(",") if part], client=fields["client"],
                     connections=[part for part in fields["connections"].split(",") if part], epochs=epochs)

    def acked(self) -> set[int]:
        """Numbers of the messages that were answered PUT_OK since the process started."""
        return {int(part) for part in self.tell("acked").split(" ")[0].split(",") if part}

    def shutdown(self) -> None:
        """Close the store well."""
        if self._process is not None:
            self._process.stdin.close()
            assert self._process.wait(240) == 0, self.tail()
            self._process.stdout.close()
            self._process = None

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(240)
            self._process.stdin.close()
            self._process.stdout.close()
            self._process = None

    def tail(self) -> str:
        """The end of what it printed."""
        return self._server.tail()
