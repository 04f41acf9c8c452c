"""What Spark and its tasks say when something goes wrong, as one line for people. Imports no pyspark."""
import re

_OURS = ("PipelineError: ", "VanishedError: ")
_CAUSE = re.compile(r"^(?:Caused by: )?(?:[\w$]+\.)*(\w*(?:Error|Exception|Refused|Interrupt)\w*): (.+)$")
_PYTHON_TRACEBACK = "Traceback (most recent call last)"
_JVM_STACK = re.compile(r"^\s+at [\w.$/<>]+\(")
_STATE = re.compile(r"\s*SQLSTATE: \w+")
_PLACE = re.compile(r";?( line \d+ pos \d+)?;$")
_CLASS = re.compile(r"^\[[A-Z_0-9.]+\]\s*")
_NO_SUCH_FILE = "FileNotFoundError"


def told_by_task(error: BaseException) -> str | None:
    """The message of a PipelineError that was raised in a task or in a format, out of Spark's report of it."""
    for line in reversed(str(error).splitlines()):
        for name in _OURS:
            if name in line:
                return line.partition(name)[2]
    return None


def told_by_spark(error: BaseException) -> str | None:
    """What is wrong, when Spark raised `error`; None for an error of anybody else."""
    if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j", "grpc"):
        return None
    name = type(error).__name__
    if name in ("Py4JNetworkError", "Py4JError") and "Py4JJavaError" not in name and not _causes(str(error)):
        return f"Spark's JVM is gone ({first_line(str(error))}): perhaps it had too little memory, see --memory"
    text = str(error)
    python = _of_python(text)
    if python is not None:
        return f"a task failed: {python}"
    causes = _causes(text)
    if name == "Py4JJavaError" and causes:
        return f"Spark: {causes[-1]}"
    return f"Spark: {first_line(text) or name}"


def first_line(text: str) -> str:
    """The first line that says something of an error's text, without Spark's names and numbers of its kind."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not _JVM_STACK.match(line)]
    return _said(lines[0]) if lines else ""


def _said(line: str) -> str:
    return _PLACE.sub("", _STATE.sub("", _CLASS.sub("", line)).strip()).strip()


def _of_python(text: str) -> str | None:
    """The last line of the last traceback of Python: its kind and what it says."""
    if _PYTHON_TRACEBACK not in text:
        return None
    for line in text.rpartition(_PYTHON_TRACEBACK)[2].splitlines()[1:]:
        if line.strip() and not line.startswith((" ", "\t")):
            said = line.strip()
            hint = "; each machine that runs tasks needs the files at the same path" \
                if said.startswith(_NO_SUCH_FILE) else ""
            return said + hint
    return None


def _causes(text: str) -> list[str]:
    """What the exceptions of a Java stack say, outermost first."""
    found = []
    for line in text.splitlines():
        match = _CAUSE.match(line.strip().removeprefix(": "))
        if match and not _JVM_STACK.match(line):
            kind, said = match.groups()
            found.append(f"{kind}: {_said(said)}")
    return found
