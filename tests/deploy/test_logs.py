"""Logs of episodes: what files may hold, and errors that name the line, whatever they hold."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.deploy.logs import episodes_of
from surefoot.errors import ArtifactError, InvalidInput, SurefootError


def read(folder: Path, name: str, content: str | bytes) -> object:
    file = folder / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return episodes_of(file)


def test_columns_by_name(tmp_path: Path) -> None:
    found = read(tmp_path, "a.csv", "\ufeffday, reward ,cost,first_state\r\nMon,1e0,0.5,3\r\n\r\nTue,-2,0,0\r\n")
    assert found == [
        {"cost": [0.5], "reward": 1.0, "first_state": 3},
        {"cost": [0.0], "reward": -2.0, "first_state": 0},
    ]
    assert read(tmp_path, "b.CSV", "cost_2,cost_1\n1,2\n") == [{"cost": [2.0, 1.0]}]


def test_what_may_be_told_line_by_line(tmp_path: Path) -> None:
    found = read(tmp_path, "a.jsonl", '{"reward": 1, "cost": 0.5}\n\n{"rewards": [1.0], "costs": [0.5]}')
    assert found == [{"reward": 1, "cost": 0.5}, {"rewards": [1.0], "costs": [0.5]}]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "", "must have a column cost"),
        ("a.csv", "price\n1\n", "must have a column cost"),
        ("a.csv", "cost,cost_1\n1,2\n", "must have a column cost"),
        ("a.csv", "cost_1,cost_3\n1,2\n", "must have a column cost"),
        ("a.csv", "cost,cost\n1,2\n", "must name column 'cost' once"),
        ("a.csv", "cost\n", "must hold at least one episode"),
        ("a.csv", "cost\n1\nmuch\n", "line 3: cost must be a finite number, found 'much'"),
        ("a.csv", "cost\nnan\n", "line 2: cost must be a finite number"),
        ("a.csv", "cost,first_state\n1,a\n", "line 2: first_state must be a whole number"),
        ("a.csv", "cost,day\n1\n", "line 2: must have 2 columns"),
        ("a.csv", b"cost\n\xff\n", "must be text in UTF-8"),
        ("a.jsonl", "\n", "must hold at least one episode"),
        ("a.jsonl", "{}\n[]\n", "line 2: must hold an object"),
        ("a.jsonl", "{\n", "line 1: must hold JSON"),
        ("a.jsonl", "[" * 100, "line 1: must hold JSON"),
        ("a.jsonl", '{"breach": true}', "got 'breach'"),
        ("a.parquet", "PAR1", "must be a journal or end in .csv or .jsonl"),
        ("journal", b"SQLite format 3\0" + bytes(4000), "not a database|is not"),
    ],
)
def test_errors_name_the_line(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    with pytest.raises((ArtifactError, InvalidInput), match=message):
        read(tmp_path, name, content)


def test_a_folder_is_no_log(tmp_path: Path) -> None:
    (tmp_path / "a.csv").mkdir()
    with pytest.raises(ArtifactError, match="must be a file"):
        episodes_of(tmp_path / "a.csv")


@given(
    st.sampled_from(["csv", "jsonl"]),
    st.one_of(st.binary(max_size=60), st.text('{}[]",:cost_12eE+-.\n\r ', max_size=60)),
)
def test_whatever_is_in_a_file(tmp_path_factory: pytest.TempPathFactory, ending: str, content: str | bytes) -> None:
    folder = tmp_path_factory.getbasetemp()
    try:
        found = read(folder, f"a.{ending}", content)
    except SurefootError:
        return
    assert found
