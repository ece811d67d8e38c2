"""A server on the loopback with ranges, which can break off, and counts what it sent."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@dataclass
class Served:
    body: bytes
    version: str = '"first"'
    break_after: int | None = None  # bytes of a response after which the connection is closed
    status: int = 200
    ranges: bool = True
    length: str | None = None  # what it says instead of the true one
    content_range: str = "bytes {start}-{last}/*"  # what it says of the range that it sends
    sent: list[int] = field(default_factory=list)
    asked: list[Message] = field(default_factory=list)  # the headers of each request
    url: str = ""

    def slice_for(self, wanted: str | None, version: str | None) -> int:
        """Where the answer begins: 0 unless a range of this very version is asked for."""
        match = re.fullmatch(r"bytes=(\d+)-", wanted or "")
        return int(match[1]) if match and self.ranges and version in (None, self.version) else 0


@contextmanager
def serve(served: Served) -> Iterator[Served]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.asked.append(self.headers)
            start = served.slice_for(self.headers["Range"], self.headers["If-Range"])
            beyond = start and start >= len(served.body)
            partial = 206 if start else served.status
            self.send_response(416 if beyond else partial)
            body = b"" if beyond else served.body[start:]
            self.send_header("Content-Length", served.length or str(len(body)))
            self.send_header("ETag", served.version)
            if start:
                places = {"start": start, "after": start + 1, "last": len(served.body) - 1}
                self.send_header("Content-Range", served.content_range.format(**places))
            self.end_headers()
            body = body[: served.break_after]
            served.sent.append(len(body))
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        served.url = f"http://127.0.0.1:{server.server_port}/checkpoint.pt"
        try:
            yield served
        finally:
            server.shutdown()
            thread.join()
