"""The page of a deployment, served to browsers on this machine while the deployment goes on."""

from __future__ import annotations

import base64
import secrets
import threading
from hashlib import sha256
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from typing import Any
from urllib.parse import parse_qs, urlsplit

from markupsafe import Markup

from surefoot.deploy.follow import Follower
from surefoot.deploy.page import rendered, rendered_body
from surefoot.errors import InvalidInput

ADDRESS = "127.0.0.1"
PATIENCE = 1.0  # seconds that a request waits for what is being read
SLICE = 0.25  # seconds between two notes of how far a long journal has been read
BACKLOG = 256  # connections that wait until they are taken: so many may ask at the same moment
SCRIPT = resources.files("surefoot.deploy").joinpath("watch.js").read_text(encoding="utf-8")
SCRIPT_HASH = base64.b64encode(sha256(SCRIPT.encode()).digest()).decode()
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        f"default-src 'none'; script-src 'sha256-{SCRIPT_HASH}'; style-src 'unsafe-inline'; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class WatchServer(ThreadingHTTPServer):
    """Answers `/` with the page and `/body?seen=TOKEN` with what changed since, or 204 if nothing did.

    Who asks reads what is new. A journal that takes long is read on in the background, from the start on and by one
    thread at a time; who asks meanwhile is told how far it is.
    """

    daemon_threads = True
    request_queue_size = BACKLOG

    def __init__(self, follower: Follower, port: int) -> None:
        """Port 0 is any that is free."""
        self.follower = follower
        self._turn, self._origin = threading.Lock(), secrets.token_hex(4)
        self._ended = threading.Event()
        self._reader = threading.Thread(target=self._read_on, daemon=True)
        try:
            super().__init__((ADDRESS, port), Answer)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise InvalidInput(f"port must be one that is free on this machine, got {port} ({why})") from None
        self._reader.start()

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self.server_port}/"

    def page(self) -> str:
        self._look()
        return rendered(script=Markup(SCRIPT), **self._latest())

    def news(self, seen: str) -> tuple[str, str | None]:
        """The token of what is to be seen, and the page's body if that is not what was `seen`."""
        self._look()
        latest = self._latest()
        return latest["token"], None if latest["token"] == seen else rendered_body(**latest)

    def server_close(self) -> None:
        super().server_close()
        self._ended.set()
        if self._reader.is_alive():
            self._reader.join(PATIENCE)

    def _look(self) -> None:
        """Take in what is new. If that takes long somebody reads on, and what is there to see says so."""
        if not self._turn.acquire(timeout=PATIENCE):
            return
        try:
            self.follower.advance(PATIENCE)
            if self.follower.reading and not self._reader.is_alive():
                self._reader = threading.Thread(target=self._read_on, daemon=True)
                self._reader.start()
        finally:
            self._turn.release()

    def _read_on(self) -> None:
        """Until all is read; nobody else reads meanwhile."""
        with self._turn:
            self.follower.advance(SLICE)
            while self.follower.reading and not self._ended.is_set():
                self.follower.advance(SLICE)

    def _latest(self) -> dict[str, Any]:
        """What is there to see, and its token, which is taken first: it may be older than what is seen, not newer."""
        token = f"{self._origin}-{self.follower.changes}"
        written = f"{self.follower.written:.0f}" if self.follower.written else ""
        return {"token": token, "written": written, "shown": self.follower.view}


class Answer(BaseHTTPRequestHandler):
    """One request. Only who asks for this machine by its own name is answered: a page from elsewhere whose name leads
    here (DNS rebinding) sends that name as Host."""

    server: WatchServer
    server_version, sys_version = "surefoot", ""
    timeout = 30

    def do_GET(self) -> None:
        hosts = [f"{name}:{self.server.server_port}" for name in (ADDRESS, "localhost")]
        if self.headers.get("Host") not in hosts:
            self._send(HTTPStatus.FORBIDDEN, f"ask for {self.server.url}\n", "text/plain")
            return
        try:
            place = urlsplit(self.path)
        except ValueError:
            self._send(HTTPStatus.BAD_REQUEST, f"ask for {self.server.url}\n", "text/plain")
            return
        if place.path == "/":
            self._send(HTTPStatus.OK, self.server.page())
        elif place.path == "/body":
            token, body = self.server.news(parse_qs(place.query).get("seen", [""])[0])
            status = HTTPStatus.NO_CONTENT if body is None else HTTPStatus.OK
            self._send(status, body or "", token=token)
        else:
            self._send(HTTPStatus.NOT_FOUND, f"there is nothing but {self.server.url}\n", "text/plain")

    def _send(self, status: HTTPStatus, text: str, kind: str = "text/html", token: str | None = None) -> None:
        content = text.encode()
        try:
            self.send_response(status)
            for name, value in HEADERS.items():
                self.send_header(name, value)
            if token is not None:
                self.send_header("X-Token", token)
            if status != HTTPStatus.NO_CONTENT:
                self.send_header("Content-Type", f"{kind}; charset=utf-8")
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
        except OSError:
            self.close_connection = True  # whoever asked is gone

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing: requests come every second."""
