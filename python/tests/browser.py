"""Pages as a browser renders them."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import PATIENCE_S, program


def rendered(folder: Path) -> str:
    """Returns report.html of a directory as Chromium renders it, after its scripts."""
    chromium = program("chromium")
    argv = [chromium, "--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    argv += ["--dump-dom", (folder / "report.html").as_uri()]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if "</html>" not in done.stdout:
        pytest.skip(f"Chromium shows nothing here: {done.stderr[-200:]}")
    return done.stdout


class Browser:
    """Chromium, without a window, that runs until it is closed. It is driven over a pair of pipes."""

    def __init__(self, folder: Path) -> None:
        chromium = program("chromium")
        read_here, write_there = os.pipe()
        read_there, write_here = os.pipe()
        argv = [chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
        argv += [f"--user-data-dir={folder / 'profile'}", "--remote-debugging-pipe", "about:blank"]
        # It reads from descriptor 3 and writes to 4.
        shell = ["bash", "-c", f'exec "$@" 3<&{read_there} 4>&{write_there}', "bash", *argv]
        self._child = subprocess.Popen(
            shell, pass_fds=(read_there, write_there), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(read_there)
        os.close(write_there)
        self._to, self._from = os.fdopen(write_here, "wb", buffering=0), os.fdopen(read_here, "rb")
        self._number, self._session = 0, None
        self._session = self._attach()

    def _attach(self) -> str:
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        except EOFError:
            self.close()
            pytest.skip("Chromium does not start here")
        return str(session)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Calls a method of the DevTools protocol, and returns its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._to.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = json.loads(self._next())
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return dict(answer["result"])

    def _next(self) -> bytes:
        text = bytearray()
        while (byte := self._from.read(1)) != b"\0":
            if not byte:
                raise EOFError("Chromium has ended")
            text += byte
        return bytes(text)

    def open(self, url: str) -> None:
        """Opens a page, and waits until its document is there."""
        self.call("Page.enable")
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && location.protocol !== 'about:'")

    def value(self, expression: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, expression: str) -> Any:
        """Waits until an expression in the page holds, and returns its value."""
        begun = time.monotonic()
        while not (found := self.value(expression)):
            assert time.monotonic() < begun + PATIENCE_S, (
                f"never: {expression}: {self.value('document.body.innerText')}"
            )
            time.sleep(0.05)
        return found

    def size(self, width: int, height: int) -> None:
        """Gives the page a window of this size."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def scheme(self, name: str, media: str = "") -> None:
        """Shows the page in `light` or `dark`, or as it is printed."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)

    def press(self, key: str, code: str, number: int) -> None:
        """Presses a key."""
        text = {"text": key} if len(key) == 1 else {}
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=code,
                windowsVirtualKeyCode=number,
                **(text if kind == "keyDown" else {}),
            )

    def picture(self, path: Path) -> None:
        """Writes all of the page as a PNG file."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=True)["data"]))

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends it."""
        self._child.terminate()
        self._child.wait(PATIENCE_S)
        self._to.close()
        self._from.close()
