"""What processes of tests get before they become their commands."""
import signal
import subprocess
import sys
import threading

from tests.support import start_as


def test_it_ends_with_the_thread_that_started_it():
    made = []
    thread = threading.Thread(target=lambda: made.append(subprocess.Popen(start_as.killed_with_parent(
        ["sh", "-c", "echo begun; exec sleep 600"]), stdout=subprocess.PIPE, text=True)) or made[0].stdout.readline())
    thread.start()
    thread.join()
    with made[0] as process:
        assert process.wait(240) == -signal.SIGKILL


def test_interrupts_are_taken_where_they_were_ignored():
    show = [sys.executable, "-c", "import signal; print([signal.getsignal(one) == default for one, default in ("
            "(signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL))])"]
    ignored = ["sh", "-c", "trap '' INT HUP; exec \"$@\"", "sh"]
    plain, with_ctrl_c = (
        subprocess.run([*ignored, *words], capture_output=True, text=True, check=True).stdout
        for words in (show, start_as.command(show, ctrl_c=True)))
    assert (plain, with_ctrl_c) == ("[False, False]\n", "[True, True]\n")


def test_a_command_that_is_missing_is_named():
    done = subprocess.run(start_as.command(["no-such-command", "x"]), capture_output=True, text=True, check=False,
                          env={"PATH": "/usr/bin:/bin"})  # a folder that may not be read makes another error
    assert (done.returncode, done.stderr) == (1, "no-such-command: No such file or directory\n")
