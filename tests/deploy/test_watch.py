"""The live page: served to this machine alone, up to date, in nobody's way, and never at a loss for words."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from unittest import mock
from urllib.request import urlopen

import deployments
import pytest
from deployments import fresh
from views import followed

from surefoot.deploy import chain, watch
from surefoot.deploy.chain import key_name
from surefoot.deploy.history import History
from surefoot.deploy.session import Deployment
from surefoot.deploy.watch import SCRIPT, Follower, WatchServer
from surefoot.errors import InvalidInput

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
KEY = bytes(range(32))


@contextmanager
def watching(path: Path, key: bytes | None = None) -> Iterator[WatchServer]:
    server = WatchServer(Follower(path, key), 0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def asked(server: WatchServer, place: str = "/", host: str | None = None) -> tuple[HTTPResponse, str]:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=20)
    connection.request("GET", place, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer, text


# ------------------------------------------------------------------------------------------------------- following rows


def test_rows_are_read_once(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    read: list[int] = []
    follower = Follower(path)
    extend = History.extend

    def noting(history: History, rows: list[chain.RawRow], where: Path) -> None:
        read.extend(row[0] for row in rows)
        extend(history, rows, where)

    with mock.patch.object(History, "extend", noting):
        follower.advance(60)
        assert follower.view.word == "Waiting"
        with Deployment.open(path, fresh()) as deployment:
            follower.advance(60)
            for episodes in (3, 9):
                deployments.drive(deployment, episodes)
                follower.advance(60)
                assert f"{episodes} (abandoned" in str(follower.view.facts)
        follower.advance(60)
    assert read == list(range(len(read)))
    assert len(read) == len(list(chain.read(path)))


def test_what_does_not_change_is_not_opened(tmp_path: Path) -> None:
    deployments.deployed(tmp_path / "journal", 3)
    for file in tmp_path.iterdir():
        os.utime(file, (1, 1))
    follower = followed(tmp_path / "journal")
    with mock.patch.object(chain, "iter_checked_blocks", side_effect=AssertionError("opened")):
        follower.advance(60)
    assert follower.changes == 1


def test_a_long_journal_is_read_in_pieces_and_judged_at_the_end(tmp_path: Path) -> None:
    deployments.deployed(tmp_path / "journal", 5)
    rows = len(list(chain.read(tmp_path / "journal")))
    follower = Follower(tmp_path / "journal")
    with mock.patch.object(watch, "BLOCK", 1):
        follower.advance(0)
    for read in range(1, rows + 1):
        assert (follower.view.word, follower.view.cards) == ("Reading", ())
        assert f"{read} of {rows} rows so far, each of them checked" in follower.view.verdict
        follower.advance(0)
    assert ("episodes", "5 (abandoned 1)") in follower.view.facts


def test_what_fails_half_way_is_read_anew(tmp_path: Path) -> None:
    """Half of the rows must not pass for the whole."""
    deployments.deployed(tmp_path / "journal", 5)
    for file in tmp_path.iterdir():
        os.utime(file, (1, 1))
    follower = Follower(tmp_path / "journal")
    with mock.patch.object(watch, "BLOCK", 4):
        follower.advance(0)
    with mock.patch.object(History, "extend", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        follower.advance(60)
    follower.advance(60)
    assert ("episodes", "5 (abandoned 1)") in follower.view.facts


def test_a_replaced_journal_is_read_anew(tmp_path: Path) -> None:
    deployments.deployed(tmp_path / "journal", 9)
    deployments.deployed(tmp_path / "other", 2, "paper")
    follower = followed(tmp_path / "journal")
    (tmp_path / "other").replace(tmp_path / "journal")
    (tmp_path / "journal.mark").unlink()
    follower.advance(60)
    assert "paper" in str(follower.view.facts)
    (tmp_path / "journal").unlink()
    follower.advance(60)
    assert follower.view.word == "Waiting"


def test_a_journal_put_back_in_place_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    deployments.deployed(path, 2)
    older = path.read_bytes()
    deployments.deployed(path, 5)
    follower = followed(path)
    path.write_bytes(older)
    (tmp_path / "journal.mark").unlink()
    for file in tmp_path.iterdir():
        os.utime(file, (1, 1))
    follower.advance(60)
    assert "its head says" in follower.view.verdict
    follower.advance(60)
    assert ("episodes", "2 (abandoned 1)") in follower.view.facts


@pytest.mark.parametrize("damage", ["bytes", "row", "empty", "folder"])
def test_what_is_no_journal_is_said_and_mended_is_shown(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "journal"
    deployments.deployed(path, 4)
    whole = path.read_bytes()
    follower = followed(path)
    good = follower.view
    match damage:
        case "bytes":
            path.write_bytes(b"nonsense" * 1000)
        case "row":
            path.write_bytes(whole.replace(b"operator pressed stop", b"operator pressed stay"))
        case "empty":
            path.write_bytes(b"")
        case "folder":
            path.unlink()
            path.mkdir()
    again = followed(path)
    word = "Damaged" if damage in ("bytes", "row") else "Unreadable"
    assert (again.view.word, again.view.tone) == (word, "bad")
    assert again.view.verdict.startswith(str(path))
    if damage == "folder":
        path.rmdir()
    path.write_bytes(whole)
    again.advance(60)
    assert again.view == good


def test_a_sealed_journal_is_shown_and_its_seal_is_checked_with_the_key(tmp_path: Path) -> None:
    with Deployment.open(tmp_path / "journal", fresh(), key=KEY) as deployment:
        deployments.drive(deployment, 3)
    said = {}
    for name, key in (("none", None), ("right", KEY), ("wrong", KEY[::-1])):
        follower = followed(tmp_path / "journal", key)
        said[name] = follower.view
    assert said["none"].notes == (
        f"Seal: names key {key_name(KEY)}, not checked: without the key nobody can tell who wrote this.",
    )
    assert said["right"].notes == (f"Seal: sealed with this key, {key_name(KEY)}.",)
    assert "not sealed with this key" in said["wrong"].verdict


# ---------------------------------------------------------------------------------------------------------- the server


def test_the_page_is_served_to_this_machine_under_its_own_name_alone(tmp_path: Path) -> None:
    deployments.deployed(tmp_path / "journal", 3)
    with watching(tmp_path / "journal") as server:
        assert server.server_address[0] == "127.0.0.1"
        for host in (None, f"localhost:{server.server_port}"):
            answer, text = asked(server, host=host)
            assert answer.status == 200
            assert "3 (abandoned 1)" in text
        assert "default-src 'none'" in str(answer.headers["Content-Security-Policy"])
        for host in ("evil.example", f"evil.example:{server.server_port}", "127.0.0.1", ""):
            answer, text = asked(server, host=host)
            assert answer.status == 403
            assert "abandoned" not in text
        assert asked(server, "/etc/passwd")[0].status == 404
        with pytest.raises(InvalidInput, match="port must be one that is free"):
            WatchServer(Follower(tmp_path / "journal"), server.server_port)


def test_news_come_once(tmp_path: Path) -> None:
    with watching(tmp_path / "journal") as server:
        assert "There is no journal at" in asked(server)[1]
        answer, text = asked(server, "/body?seen=nothing")
        token = answer.headers["X-Token"]
        assert "Waiting" in text
        assert asked(server, f"/body?seen={token}")[0].status == 204
        with Deployment.open(tmp_path / "journal", fresh()) as deployment:  # the writer begins while it is watched
            for episodes in (1, 2):
                deployments.drive(deployment, episodes)
                answer, text = asked(server, f"/body?seen={token}")
                assert (answer.status, answer.headers["X-Token"] != token) == (200, True)
                assert f"<dd>{episodes} (abandoned" in text
                token = answer.headers["X-Token"]
        assert not list(tmp_path.glob("*-wal")), "the writer could not close its journal while it was watched"


def test_a_long_journal_is_read_while_nobody_asks(tmp_path: Path) -> None:
    """Who asks meanwhile is told how far it is, and gets the page once it is there."""
    deployments.deployed(tmp_path / "journal", 40)
    waiting, extend = threading.Event(), History.extend

    def slow(history: History, rows: list[chain.RawRow], where: Path) -> None:
        if rows[0][0] >= 8:
            assert waiting.wait(60)
        extend(history, rows, where)

    with (
        mock.patch.multiple(watch, SLICE=0.0, PATIENCE=0.01),
        mock.patch.object(watch, "BLOCK", 8),
        mock.patch.object(History, "extend", slow),
        watching(tmp_path / "journal") as server,
    ):
        for _ in range(3):
            text = asked(server)[1]
            assert "<h1>Reading</h1>" in text
            assert "8 of 82 rows" in text
        waiting.set()
        server._reader.join(60)
        assert not server.follower.reading
        assert "40 (abandoned 6)" in asked(server)[1]


@pytest.mark.parametrize("target", ["http://[", "https://[::1/", "http://[/body?seen=x"])
def test_a_malformed_target_is_answered(tmp_path: Path, capsys: pytest.CaptureFixture[str], target: str) -> None:
    with watching(tmp_path / "journal") as server:
        with socket.create_connection(("127.0.0.1", server.server_port), timeout=20) as connection:
            host = f"127.0.0.1:{server.server_port}"
            connection.sendall(f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            answer = connection.makefile("rb").read()
        assert answer.split()[1:3] == [b"400", b"Bad"]
        assert asked(server)[0].status == 200
    assert capsys.readouterr().err == ""


def test_two_hundred_may_ask_at_the_same_moment(tmp_path: Path) -> None:
    """They are connected before the first of them is taken: all wait in line, and all are answered."""
    deployments.deployed(tmp_path / "journal", 3)
    server = WatchServer(Follower(tmp_path / "journal"), 0)
    request = f"GET /body HTTP/1.1\r\nHost: 127.0.0.1:{server.server_port}\r\nConnection: close\r\n\r\n".encode()
    with ExitStack() as stack:
        stack.callback(server.server_close)
        crowd = []
        for _ in range(200):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.server_port), timeout=2))
            connection.sendall(request)
            connection.settimeout(60)
            crowd.append(connection)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        stack.callback(thread.join)
        stack.callback(server.shutdown)
        answers = [connection.makefile("rb").read() for connection in crowd]
    assert all(answer.startswith(b"HTTP/1.0 200") and b"3 (abandoned 1)" in answer for answer in answers)


def test_the_script_loads_nothing_and_is_written_as_it_is() -> None:
    assert "://" not in SCRIPT
    assert "</" not in SCRIPT


def test_a_page_is_served_without_what_it_has_no_use_for() -> None:
    """Methods and matplotlib take a second of the processor to import."""
    code = "import sys, surefoot.cli.pages; print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "surefoot.report.page" in loaded
    assert loaded & {"matplotlib", "pydantic", "surefoot.methods", "surefoot.learning.learner"} == set()


def test_the_command_ends_cleanly_when_interrupted(tmp_path: Path) -> None:
    deployments.deployed(tmp_path / "journal", 2)
    code = "from surefoot.cli import main; main()"
    words = ["watch", str(tmp_path / "journal"), "--port", "0", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    said = json.loads("".join(process.stdout.readline() for _ in range(4)))
    assert said["url"].startswith("http://127.0.0.1:")
    with urlopen(said["url"], timeout=20) as page:
        assert "2 (abandoned 1)" in page.read().decode()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "")


@pytest.mark.skipif(BROWSER is None, reason="needs a Chromium browser on this machine")
def test_a_browser_shows_rows_as_they_are_written(tmp_path: Path) -> None:
    """One visit that begins before there is a journal, and ends when the script has brought in what was written."""
    with watching(tmp_path / "journal") as server:
        told = threading.Event()
        first = server.news

        def news(seen: str) -> tuple[str, str | None]:
            if not told.is_set():  # the browser has the page and asks for news: now there are some
                told.set()
                deployments.deployed(tmp_path / "journal", 6)
            return first(seen)

        with mock.patch.object(server, "news", news):
            shown = subprocess.run(
                [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
                 "--virtual-time-budget=5000", "--dump-dom", server.url],
                capture_output=True, text=True, timeout=120, check=True,
            ).stdout  # fmt: skip
    assert told.is_set()
    assert "There is no journal" not in shown
    assert "<dd>6 (abandoned 1)</dd>" in shown
    assert 'id="lost" role="alert" hidden' in shown
    assert "last row written" in shown
    assert shown.count('role="img"') == 4
