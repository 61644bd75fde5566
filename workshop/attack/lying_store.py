"""An object store that can lie."""

import base64
import contextlib
import hashlib
import http.server
import threading
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field

TOKEN = "x-amz-meta-cheetah-upload"
CHECKSUM = "x-amz-checksum-sha256"
COMPLETED = "<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>"
Headers = dict[str, str]


@dataclass
class Answer:
    """An answer with a body."""

    status: int = 200
    body: bytes = b""
    headers: Headers = field(default_factory=dict)
    is_endless: bool = False
    """Whether the body is sent again and again, in chunks."""


@dataclass
class Upload:
    """An upload in parts."""

    token: str
    parts: dict[int, bytes] = field(default_factory=dict)
    pages: int = 0
    """The number of requests for its list of parts."""


class Store:
    """A store that speaks the truth. Lies change its methods."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, str]] = {}
        """The content and the token of each object, by its path."""
        self.uploads: dict[str, Upload] = {}
        self.lock = threading.Lock()

    def begin(self, upload: Upload) -> Answer:
        """Begins an upload."""
        name = f"u{len(self.uploads)}"
        self.uploads[name] = upload
        return Answer(body=f"<R><UploadId>{name}</UploadId></R>".encode())

    def put_part(self, upload: Upload, number: int, content: bytes) -> Answer:
        """Stores a part."""
        upload.parts[number] = content
        return Answer(headers={"ETag": f'"p{number}"', CHECKSUM: checksum(content)})

    def list_parts(self, upload: Upload) -> Answer:
        """Lists the parts of an upload."""
        listed = "".join(
            f"<Part><PartNumber>{number}</PartNumber><Size>{len(part)}</Size><ETag>p{number}</ETag>"
            f"<ChecksumSHA256>{checksum(part)}</ChecksumSHA256></Part>"
            for number, part in sorted(upload.parts.items())
        )
        return Answer(body=f"<R>{listed}<IsTruncated>false</IsTruncated></R>".encode())

    def joined(self, parts: list[bytes]) -> bytes:
        """Makes the content of an object of its parts."""
        return b"".join(parts)

    def complete(self, path: str, upload: Upload) -> Answer:
        """Makes an object."""
        parts = [part for _, part in sorted(upload.parts.items())]
        self.objects[path] = self.joined(parts), upload.token
        return Answer(body=COMPLETED.encode())


def checksum(content: bytes) -> str:
    """Returns the checksum of a content, as the protocol writes it."""
    return base64.b64encode(hashlib.sha256(content).digest()).decode()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: Store

    def handle(self) -> None:
        """Serves a client until it hangs up."""
        with contextlib.suppress(OSError):
            super().handle()

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if answer.is_endless:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            while True:
                self.wfile.write(b"%x\r\n" % len(answer.body) + answer.body + b"\r\n")
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def _asked(self) -> tuple[str, dict[str, str], bytes]:
        """Returns path, query and content of the request."""
        path, _, query = self.path.partition("?")
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        return path, dict(urllib.parse.parse_qsl(query, keep_blank_values=True)), content

    def do_POST(self) -> None:
        path, query, _ = self._asked()
        with self.store.lock:
            if "uploads" in query:
                answer = self.store.begin(Upload(self.headers.get(TOKEN, "")))
            elif upload := self.store.uploads.get(query.get("uploadId", "")):
                answer = self.store.complete(path, upload)
            else:
                answer = Answer(404)
        self._send(answer)

    def do_PUT(self) -> None:
        path, query, content = self._asked()
        with self.store.lock:
            if "partNumber" not in query:
                self.store.objects[path] = content, ""
                answer = Answer(headers={"ETag": '"e"'})
            elif upload := self.store.uploads.get(query.get("uploadId", "")):
                answer = self.store.put_part(upload, int(query["partNumber"]), content)
            else:
                answer = Answer(404)
        self._send(answer)

    def do_DELETE(self) -> None:
        self._asked()
        self._send(Answer(204))

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path, query, _ = self._asked()
        if "uploadId" in query:
            upload = self.store.uploads.get(query["uploadId"])
            if upload:
                upload.pages += 1
            self._send(self.store.list_parts(upload) if upload else Answer(404))
        elif path in self.store.objects:
            self._send(self._object(*self.store.objects[path]))
        else:
            self._send(Answer(404))

    def _object(self, content: bytes, token: str) -> Answer:
        headers = {"ETag": '"e"', TOKEN: token}
        asked = self.headers.get("Range")
        if asked is None:
            return Answer(200, content, headers)
        first, last = (int(number) for number in asked.removeprefix("bytes=").split("-"))
        last = min(last, len(content) - 1)
        headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
        return Answer(206, content[first : last + 1], headers)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextlib.contextmanager
def served(store: Store) -> Iterator[str]:
    """Serves a store; yields its address."""
    handler = type("Handler", (_Handler,), {"store": store})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
