"""A small HTTP server on the loopback interface that serves one page."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HOST = "127.0.0.1"
NAMES = ("127.0.0.1", "localhost")
IDLE_SECONDS = 10.0  # after which a connection is closed
HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class PageServer(ThreadingHTTPServer):
    """Serves one page at / until it is closed. `port` 0 picks a free port."""

    daemon_threads = True

    def __init__(self, page: str, port: int = 0) -> None:
        self.page = page.encode()
        super().__init__((HOST, port), Handler)

    @property
    def address(self) -> str:
        return f"http://{HOST}:{self.server_address[1]}/"

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a browser that has closed its connection."""


class Handler(BaseHTTPRequestHandler):
    server: PageServer
    timeout = IDLE_SECONDS
    server_version, sys_version = "oncecast", ""

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        port = self.server.server_address[1]
        # A page of another site must not read the recording through a name that it controls.
        if self.headers.get("Host") not in [f"{name}:{port}" for name in NAMES]:
            self.send_error(421, "this server answers only on the loopback address")
            return
        if self.path.partition("?")[0] != "/":
            self.send_error(404, "there is only one page, at /")
            return
        self.send_response(200)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(self.server.page)))
        self.end_headers()
        if with_body:
            self.wfile.write(self.server.page)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing: the terminal shows the address of the page."""
