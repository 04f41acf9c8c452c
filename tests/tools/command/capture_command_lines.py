"""Run the real mqadmin, one JVM per command line, and record its exit code and output.

`python -m tests.tools.command.capture_command_lines` regenerates tests/golden/mqadmin_command_lines.json in a minute.
"""
import json
from pathlib import Path

from tests.support.mqadmin import JavaMqadmin

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "mqadmin_command_lines.json"
NOBODY = "127.0.0.1:1"
COMMAND_LINES = [
    [], ["help"], ["nothing"], ["help", "nothing"], ["nothing", "-t", "x"], ["help", "topicRoute", "more"],
    ["topicRoute"], ["topicRoute", "-h"], ["topicRoute", "--help"], ["topicRoute", "-h", "-t", "x"],
    ["topicRoute", "-t", "x", "-z"], ["topicRoute", "-t", "x", "--nothing"], ["topicRoute", "-t", "x", "--lis"],
    ["topicRoute", "-t"], ["topicRoute", "-t", "-l"], ["topicRoute", "-lz"], ["topicRoute", "-zt", "x"],
    ["topicRoute", "-l", "--", "-t", "x"], ["topicRoute", "-", "-h", "-t", "x"], ["topicRoute", "--topic=x", "-h"],
    ["topicRoute", "-topic", "x", "-h"], ["topicRoute", "-tx", "-h"], ["topicRoute", "-hltx"], ["topicRoute", "-thl"],
    ["topicRoute", "--topic=", "-h"], ["topicRoute", "--topic", "-h"], ["topicRoute", "-t=x", "-h"],
    ["updateTopic", "-t", "x"], ["updateTopic", "-t", "x", "-b", "a", "-c", "b"], ["updateTopic", "-t", "x", "-b"],
    ["updateTopic", "-t", "x", "-b", "a", "-b", "b", "-h"], ["UPDATETOPIC", "-t", "x"], ["topicList", "-h"],
    ["deleteAccessConfig", "-h"], ["queryMsgTraceById", "-h"], ["resetOffsetByTime", "-g", "g", "-t", "t", "-s"],
    ["topicRoute", "-n", NOBODY, "-t", "x"], ["updateTopic", "-n", NOBODY, "-b", NOBODY, "-t", "x", "-r", "many"],
    ["updateTopic", "-n", NOBODY, "-b", NOBODY, "-t", "x", "-r", "-1"],
    ["updateTopicPerm", "-t", "x", "-p", "-4", "-h"],
    ["getBrokerConfig", "-n", NOBODY], ["brokerStatus", "-n", NOBODY], ["exportMetadata", "-n", NOBODY],
]


def capture(args: list[str]) -> dict:
    """Return the result of one run."""
    done = JavaMqadmin(Path("/tmp/mqadmin-golden")).run(*args)
    # Stack frames are left out.
    errors = "".join(line for line in done.stderr.splitlines(True) if not line.startswith("\t"))
    return {"args": args, "code": done.returncode, "out": done.stdout, "err": errors}


def main() -> None:
    """Capture all command lines."""
    GOLDEN.write_text(json.dumps([capture(args) for args in COMMAND_LINES], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
