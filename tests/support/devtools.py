"""A headless Chromium that a test drives: pages are opened, clicked, filled in, looked at and photographed.

It speaks the DevTools protocol over a pipe (descriptors 3 and 4 of the browser): JSON texts, each ended by a zero byte.
"""
import base64
import json
import os
import queue
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.support.programs import CHROMIUM
from tests.support.wait import at_least

_ANSWER_S = 120
_STEP_S = 0.05
# Makes two descriptors 3 and 4, and becomes the browser.
_LAUNCH = """import fcntl, os, sys
one, other = (fcntl.fcntl(int(each), fcntl.F_DUPFD, 10) for each in sys.argv[1:3])
os.dup2(one, 3)
os.dup2(other, 4)
os.execv(sys.argv[3], sys.argv[3:])"""


class PageError(AssertionError):
    """A script of the page failed, or something did not appear on it in time."""


class DevTools:
    """One browser with one page; a context manager. `complaints`: errors and warnings on the page's console."""

    def __init__(self, folder: Path, width: int = 1400, height: int = 900, dark: bool = False) -> None:
        assert CHROMIUM is not None
        to_browser, from_browser = os.pipe(), os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LAUNCH, str(to_browser[0]), str(from_browser[1]), CHROMIUM, "--headless=new",
             "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
             "--disable-background-networking", "--disable-component-update", "--disable-sync",
             "--remote-debugging-pipe", f"--user-data-dir={folder}", "about:blank"],
            pass_fds=(to_browser[0], from_browser[1]), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser[0])
        os.close(from_browser[1])
        self._send, self._receive = os.fdopen(to_browser[1], "wb"), os.fdopen(from_browser[0], "rb")
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._number = 0
        threading.Thread(target=self._read, daemon=True).start()
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable", page=True)
        self.look(width, height, dark)

    def __enter__(self) -> "DevTools":
        return self

    def __exit__(self, *_exc: object) -> None:
        with suppress(OSError, PageError):
            self._send_message("Browser.close", {}, None)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for stream in (self._send, self._receive):
            with suppress(OSError):
                stream.close()

    def _read(self) -> None:
        data = b""
        with suppress(OSError, ValueError):
            while chunk := os.read(self._receive.fileno(), 1 << 16):
                data += chunk
                *texts, data = data.split(b"\0")
                for text in texts:
                    self._take(json.loads(text))

    def _take(self, message: dict[str, Any]) -> None:
        if "id" in message:
            self._answers.put(message)
            return
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"])[:2000])
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(json.dumps(params["args"])[:2000])
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def _send_message(self, method: str, params: dict[str, Any], session: str | None) -> int:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        self._send.write(json.dumps(message).encode() + b"\0")
        self._send.flush()
        return self._number

    def _call(self, method: str, page: bool = False, **params: Any) -> dict[str, Any]:
        number = self._send_message(method, params, self._session if page else None)
        deadline = time.monotonic() + _ANSWER_S
        while True:
            try:
                answer = self._answers.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise PageError(f"the browser did not answer {method}") from None
            if answer["id"] == number:
                if "error" in answer:
                    raise PageError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    # ---- the page

    def look(self, width: int, height: int, dark: bool = False) -> None:
        """Set the size of the page, and the colour scheme that the user prefers."""
        self._call("Emulation.setDeviceMetricsOverride", page=True, width=width, height=height, deviceScaleFactor=1,
                   mobile=width < 600)
        self._call("Emulation.setEmulatedMedia", page=True, features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])

    def open(self, address: str) -> None:
        """Open an address."""
        self._call("Page.navigate", page=True, url=address)

    def run(self, script: str) -> Any:
        """Run a script, with `await`, and return its value. PageError when it throws."""
        result = self._call("Runtime.evaluate", page=True, expression=f"(async () => {{ {script} }})()",
                            awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise PageError(json.dumps(result["exceptionDetails"])[:2000])
        return result["result"].get("value")

    def text(self, selector: str = "main") -> str:
        """Return the visible text of an element, "" without it."""
        return str(self.run(f"return document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def wait(self, text: str, selector: str = "main", limit_s: float = 60.0) -> str:
        """Wait until an element shows a text; return all of its text."""
        return self.until(lambda: (shown := self.text(selector)) and (shown if text in shown else ""),
                          f"{text!r} in {selector}", limit_s)

    def until(self, found: Any, what: str, limit_s: float = 60.0) -> Any:
        """Wait until `found()` is true, and return its value. PageError, with the page's text, after the limit."""
        deadline = time.monotonic() + limit_s
        while True:
            with suppress(PageError):  # the page is being replaced
                value = found()
                if value:
                    return value
            if time.monotonic() > deadline:
                raise PageError(f"{what} did not appear on the page:\n{self.text('body')[:4000]}\n{self.complaints}")
            at_least(_STEP_S)

    def click(self, text: str, within: str = "body") -> None:
        """Click the first visible button, link or summary with exactly this text, when it is there."""
        self.until(lambda: self.run(f"""
            const all = [...document.querySelectorAll({json.dumps(within)})].flatMap((each) =>
              [...each.querySelectorAll("button, a, summary")]);
            const found = all.find((each) => each.innerText.trim() === {json.dumps(text)} && each.checkVisibility()
              && !each.disabled);
            found?.click();
            return Boolean(found);"""), f"something to click with the text {text!r}")

    def fill(self, label: str, value: str, within: str = "main") -> None:
        """Fill in the field, or choose the option, of the label with this text."""
        self.until(lambda: self.run(f"""
            const label = [...document.querySelectorAll({json.dumps(within)})].flatMap((each) =>
              [...each.querySelectorAll("label")]).find((each) =>
                each.firstChild.textContent.trim() === {json.dumps(label)});
            const field = label?.querySelector("input, select, textarea");
            if (!field) return false;
            field.value = {json.dumps(value)};
            if (field.tagName === "SELECT" && field.value !== {json.dumps(value)}) return false;
            field.dispatchEvent(new Event("input", {{ bubbles: true }}));
            field.dispatchEvent(new Event("change", {{ bubbles: true }}));
            return true;"""), f"a field {label!r}")

    def picture(self, out: Path, whole: bool = False) -> None:
        """Save a picture (PNG) of what is visible, or of the whole page."""
        data = self._call("Page.captureScreenshot", page=True, format="png", captureBeyondViewport=whole)["data"]
        out.write_bytes(base64.b64decode(data))

    def overflow(self) -> int:
        """Return by how many pixels the page is wider than the window."""
        return int(self.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth"))
