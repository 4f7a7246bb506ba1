"""The page of a deployment, served to browsers on this machine while the deployment goes on.

`Follower` reads the journal as it grows, without disturbing who writes it: each row is read, checked and taken in once.
`WatchServer` shows what it has read.
"""

from __future__ import annotations

import base64
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from markupsafe import Markup

from surefoot.deploy import chain
from surefoot.deploy.chain import Damaged
from surefoot.deploy.forms import check_opening
from surefoot.deploy.history import History
from surefoot.deploy.marks import Mark, mark_path
from surefoot.deploy.page import View, render_body, render_page, take_rows, view
from surefoot.errors import InvalidInput, SurefootError

if TYPE_CHECKING:
    from surefoot.deploy.verify import Possible

SETTLED = 2.0  # seconds after which a file that looks the same is taken to be the same
BLOCK, REPLAYED = 4096, 64  # rows that are taken in at once, by themselves and where each is computed again

Stamp = tuple[tuple[int, int, int, int] | None, ...]
Maker = Callable[[Mapping[str, Any]], "Possible"]


class Follower:
    """The latest view of the journal at `path`, which need not exist yet.

    It opens the file to read, for moments only, and takes no lock. Rows are checked against each other as by every
    reader, and with a `key` against their seal; those read earlier are not looked at again. If the file was replaced
    or is not what it was, everything is read anew.

    Args:
        maker: makes of row 0 what replays the journal, where the policy set is at hand; it follows too.
    """

    def __init__(self, path: str | os.PathLike[str], key: bytes | None = None, maker: Maker | None = None) -> None:
        self.path, self._key, self._maker = chain.resolve_journal_path(path), chain.check_key(key), maker
        self.view = self._waiting()
        self.changes = 0  # of the view
        self.written = 0.0  # when the journal was written to last, in seconds since 1970
        self._stamp: Stamp = ()
        self._possible: Possible | None = None
        self._blocks: Iterator[list[chain.RawRow]] | None = None  # those that are being read
        self._first = self._announced = 0  # number of the first of these, and how many rows there are said to be
        self._restart()

    @property
    def reading(self) -> bool:
        """Whether rows are left that the next call of `advance` will take in."""
        return self._blocks is not None

    def advance(self, seconds: float) -> None:
        """Take in what is new, for about so long at most; what is left then is taken in at the next call."""
        try:
            self._advance(seconds)
        except BaseException:
            self._restart()  # half of the rows are no history
            self._stamp = ()
            raise

    def _advance(self, seconds: float) -> None:
        if self._blocks is None:
            stamp = journal_stamp(self.path)
            if stamp == self._stamp and time.time() - self.written > SETTLED:
                return
            if self._is_new_file(stamp):
                self._restart()
            self._stamp, self.written = stamp, max((each[3] / 1e9 for each in stamp if each), default=0.0)
            if stamp[0] is None:
                self._restart()
                return self._show(self._waiting())
            most = BLOCK if self._maker is None else REPLAYED
            self._blocks = chain.iter_checked_blocks(self.path, most, key=self._key, after=self._end)
            self._first, self._announced = self._end.rows, 0
        try:
            with chain.raise_as_damaged(self.path):
                self._show(self._read(self._blocks, time.monotonic() + seconds))
        except (SurefootError, OSError) as error:
            if self._first:  # not what it was: read it anew, once
                self._stamp = ()
            self._restart()
            word = "Damaged" if isinstance(error, Damaged) else "Unreadable"
            self._show(View(self.path.name, word, "bad", f"{error}."))

    def _read(self, found: Iterator[list[chain.RawRow]], deadline: float) -> View:
        for rows in found:
            self._take(rows)
            if time.monotonic() > deadline:  # what an earlier row says may no longer be so
                return self._progress()
        self._blocks = None
        if self._possible is not None:
            self._possible.finish()
        return view(self.path.name, self._history, self._possible)

    def _take(self, rows: list[chain.RawRow]) -> None:
        if rows[0][0] == 0:
            opened = check_opening(chain.decode_row(rows[0], self.path), self.path)
            self._possible = None if self._maker is None else self._maker(opened)
        take_rows(rows, self.path, self._history, self._possible)
        n, _, _, digest = rows[-1]
        self._end = Mark(n + 1, digest)

    def _progress(self) -> View:
        """Rows may be added meanwhile: how many there are is asked once, and again if there turn out to be more."""
        if self._announced < self._end.rows:
            self._announced = max(chain.head_count(self.path), self._end.rows)
        text = f"Reading the journal: {self._end.rows:,} of {self._announced:,} rows so far, each of them checked."
        return View(self.path.name, "Reading", "", f"{text} What it says comes when all are read.")

    def _show(self, shown: View) -> None:
        if shown != self.view:
            self.view = shown
            self.changes += 1

    def _is_new_file(self, stamp: Stamp) -> bool:
        old, new = (each[0] if each else None for each in (self._stamp, stamp))
        return old is not None and new is not None and old[:2] != new[:2]

    def _restart(self) -> None:
        self._history = History(sealed=self._key is not None)
        self._possible, self._blocks = None, None
        self._end = Mark(0, chain.BEGINNING)

    def _waiting(self) -> View:
        text = f"There is no journal at {self.path} yet. This page fills when a deployment begins it."
        return View(self.path.name, "Waiting", "", text)


def journal_stamp(path: Path) -> Stamp:
    """What changes with every write: device, file, size and time of the journal, its log and its mark."""
    return tuple(_stamp(each) for each in (path, path.with_name(path.name + "-wal"), mark_path(path)))


def _stamp(path: Path) -> tuple[int, int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


# ----------------------------------------------------------------------------------------------------------- the server

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
            super().__init__((ADDRESS, port), RequestHandler)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise InvalidInput(f"port must be one that is free on this machine, got {port} ({why})") from None
        self._reader.start()

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self.server_port}/"

    def page(self) -> str:
        self._look()
        return render_page(script=Markup(SCRIPT), **self._latest())

    def news(self, seen: str) -> tuple[str, str | None]:
        """The token of what is to be seen, and the page's body if that is not what was `seen`."""
        self._look()
        latest = self._latest()
        return latest["token"], None if latest["token"] == seen else render_body(**latest)

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


class RequestHandler(BaseHTTPRequestHandler):
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
