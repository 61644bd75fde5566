"""A web server that sends `acquire` elsewhere: to an object store with the user's credentials, to other protocols, to
weaker ones, and around in circles."""

import contextlib
import http.server
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from attack.stage import Broken, Stage

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_SESSION_TOKEN": "session"}
CONTENT = b"AN OBJECT OF ANOTHER CASE" * 4096
ELSEWHERE = (
    "s3://private/other-case.raw", "S3://private/other-case.raw", "file:///etc/passwd", "ftp://127.0.0.1/d.raw",
    "nbd://127.0.0.1/x", "http://192.0.2.1/d.raw", "//192.0.2.1/d.raw", "https://user:secret@127.0.0.1/d.raw",
    "data:,x", "", "?", "#", "disk.raw", "\\\\127.0.0.1\\x", "http://", "http:///x", "https://[::1", "x" * 60_000,
)  # fmt: skip


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    to = ""
    signed: list[str]

    def do_GET(self) -> None:
        if self.headers.get("authorization"):
            self.signed.append(self.path)
            self.send_response(206)
            self.send_header("etag", '"1"')
            self.send_header("content-range", f"bytes 0-0/{len(CONTENT)}")
            self.send_header("content-length", "1")
            self.end_headers()
            self.wfile.write(CONTENT[:1])
            return
        self.send_response(302)
        self.send_header("location", self.to)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def _server() -> Iterator[tuple[str, type[_Handler]]]:
    handler = type("Handler", (_Handler,), {"signed": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", handler
        server.shutdown()


def redirections(stage: Stage) -> None:
    """Redirects an acquisition; nothing may be acquired, and no request signed."""
    with _server() as (address, handler):
        before = dict(os.environ)
        os.environ.update(CREDENTIALS, AWS_ENDPOINT_URL=address)
        try:
            for to in ELSEWHERE:
                handler.to = to
                copy = Path(stage.path(".raw"))
                code, _, stderr = stage.run("acquire", f"{address}/disk.raw", copy, "--timeout", "5")
                if code != 1 or copy.exists():
                    raise Broken(f"a redirection to {to[:60]!r} ends with {code}: {stderr[-200:]}")
                if handler.signed:
                    raise Broken(f"a redirection to {to[:60]!r} is followed with the user's credentials")
        finally:
            os.environ.clear()
            os.environ.update(before)
