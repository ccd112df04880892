"""A headless Chromium that tests and measurements steer over a pipe.

The protocol is Chrome's DevTools, JSON values that end with a zero byte, on two pipes of the
process: no further package is needed. The browser has a profile of its own in a folder that the
caller removes, and a name that no resolver knows for every host but the loopback.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
from base64 import b64decode
from pathlib import Path
from typing import Any, Self

from tests.waiting import until

NAMES = ("chromium", "chromium-browser", "google-chrome")
_ANSWER_S = 60.0


def program() -> str | None:
    """The path of the browser; None if there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Chromium:
    """One browser with one page.

    Args:
        path: of the program.
        folder: for its profile.
        dark: whether the page shall prefer dark colours.
    """

    def __init__(self, path: str, folder: Path, *, dark: bool = False) -> None:
        to_browser, self._out = os.pipe()
        self._in, from_browser = os.pipe()
        script = f'exec 3<&{to_browser} 4>&{from_browser}; exec "$0" "$@"'
        options = [
            *("--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"),
            *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
            *("--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1", "--disable-breakpad"),
            *(f"--user-data-dir={folder}", "--window-size=1280,1000"),
        ]
        self._process = subprocess.Popen(
            ["bash", "-c", script, path, *options, "about:blank"],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": str(folder)},
        )
        os.close(to_browser)
        os.close(from_browser)
        self._numbers = itertools.count(1)
        self._rest = b""
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        """All events of the page so far."""
        pages = self.ask("Target.getTargets")["targetInfos"]
        target = next(page["targetId"] for page in pages if page["type"] == "page")
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.ask(f"{domain}.enable")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._out)
        os.close(self._in)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def ask(self, method: str, **params: Any) -> Any:
        """The result of one call of the protocol."""
        number = next(self._numbers)
        call = {"id": number, "method": method, "params": params}
        if self._session is not None:
            call["sessionId"] = self._session
        os.write(self._out, json.dumps(call).encode() + b"\0")
        while True:
            told = self._read()
            if told.get("id") == number:
                assert "error" not in told, (method, told)
                return told["result"]
            self.events.append(told)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            data = os.read(self._in, 1 << 20)
            assert data, "the browser ended"
            self._rest += data
        whole, _, self._rest = self._rest.partition(b"\0")
        told: dict[str, Any] = json.loads(whole)
        return told

    def open(self, url: str) -> None:
        """Go to another page, and wait until its files are loaded."""
        before = len(self.events)
        self.ask("Page.navigate", url=url)
        while not any(e["method"] == "Page.loadEventFired" for e in self.events[before:]):
            self.events.append(self._read())

    def run(self, expression: str) -> Any:
        """The value of an expression in the page; a promise is awaited."""
        told = self.ask(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    def until(self, expression: str) -> None:
        """Wait until an expression is true."""
        until(lambda: self.run(f"Boolean({expression})"), expression, _ANSWER_S)

    def press(self, *keys: str) -> None:
        """Press and release keys, by their names in a browser."""
        for key in keys:
            text = {"text": key} if len(key) == 1 else {}
            if key == "Enter":
                text = {"text": "\r"}
            self.ask("Input.dispatchKeyEvent", type="keyDown", key=key, **text)
            self.ask("Input.dispatchKeyEvent", type="keyUp", key=key)

    def point(self, x: float, y: float) -> None:
        """Move the pointer."""
        self.ask("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def requested(self) -> list[str]:
        """The addresses that the page asked for so far."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]

    def picture(self, path: Path, begin: str = "0", end: str = "document.body") -> None:
        """Write a picture of the page in its whole width.

        Args:
            path: of the PNG file.
            begin: an expression for the upper edge: 0, or an element.
            end: an expression for the element at the lower edge.
        """
        top, bottom, width = self.run(
            f"(() => {{ const begin = {begin}, end = {end}.getBoundingClientRect();"
            " const top = begin ? begin.getBoundingClientRect().top + scrollY : 0;"
            " return [top, end.bottom + scrollY, innerWidth]; })()"
        )
        clip = {"x": 0, "y": top, "width": width, "height": bottom - top, "scale": 1}
        shot = self.ask("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(b64decode(shot["data"]))
