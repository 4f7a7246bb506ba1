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
PATIENCE = 1.0  # seconds of reading per request; a long journal is read in several
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
    """Answers `/` with the page and `/body?seen=TOKEN` with what changed since, or 204 if nothing did."""

    daemon_threads = True

    def __init__(self, follower: Follower, port: int) -> None:
        """Port 0 is any that is free."""
        self.follower = follower
        self._turn, self._origin = threading.Lock(), secrets.token_hex(4)
        try:
            super().__init__((ADDRESS, port), Answer)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise InvalidInput(f"port must be one that is free on this machine, got {port} ({why})") from None

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self.server_port}/"

    def page(self) -> str:
        with self._turn:
            self.follower.advance(PATIENCE)
            return rendered(self.follower.view, script=Markup(SCRIPT), **self._live())

    def news(self, seen: str) -> tuple[str, str | None]:
        """The token of what is to be seen, and the page's body if that is not what was `seen`."""
        with self._turn:
            self.follower.advance(PATIENCE)
            token = self._token()
            return token, None if token == seen else rendered_body(self.follower.view, **self._live())

    def _live(self) -> dict[str, Any]:
        return {"token": self._token(), "written": f"{self.follower.written:.0f}" if self.follower.written else ""}

    def _token(self) -> str:
        return f"{self._origin}-{self.follower.changes}"


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
        place = urlsplit(self.path)
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
