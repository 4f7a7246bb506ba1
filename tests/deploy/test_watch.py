"""The live page: served to this machine alone, up to date, in nobody's way, and never at a loss for words."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from unittest import mock
from urllib.request import urlopen

import deployments
import pytest
from deployments import fresh

from surefoot.deploy import chain, follow
from surefoot.deploy.follow import Follower
from surefoot.deploy.seals import key_name
from surefoot.deploy.session import Deployment
from surefoot.deploy.watch import SCRIPT, WatchServer
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
    path, read = tmp_path / "journal", []
    follower = Follower(path)
    with mock.patch.object(follow, "named", side_effect=lambda raw, at: read.append(raw[0]) or chain.named(raw, at)):
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
    follower = Follower(tmp_path / "journal")
    follower.advance(60)
    with mock.patch.object(follow, "checked_rows", side_effect=AssertionError("opened")):
        follower.advance(60)
    assert follower.changes == 1


def test_a_long_journal_is_read_in_pieces_and_judged_at_the_end(tmp_path: Path) -> None:
    deployments.deployed(tmp_path / "journal", 5)
    follower = Follower(tmp_path / "journal")
    follower.advance(0)
    assert follower.view.word == "Reading"
    assert "1 rows so far" in follower.view.verdict
    while follower.view.word == "Reading":
        follower.advance(0)
    assert ("episodes", "5 (abandoned 1)") in follower.view.facts


def test_a_replaced_journal_is_read_anew(tmp_path: Path) -> None:
    deployments.deployed(tmp_path / "journal", 9)
    deployments.deployed(tmp_path / "other", 2, "paper")
    follower = Follower(tmp_path / "journal")
    follower.advance(60)
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
    follower = Follower(path)
    follower.advance(60)
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
    follower = Follower(path)
    follower.advance(60)
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
    again = Follower(path)
    again.advance(60)
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
        follower = Follower(tmp_path / "journal", key)
        follower.advance(60)
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


def test_the_script_loads_nothing_and_is_written_as_it_is() -> None:
    assert "://" not in SCRIPT
    assert "</" not in SCRIPT


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
