"""Journals written page by page, as no deployment would: small files in which SQLite finds far more than they hold.

SQLite follows whatever pages say. A page may be the child of many, an overflow chain may lead back to itself, and rows
may share the pages that they overflow to. Most of it needs no right hash; where it helps, the hashes are right.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from surefoot.deploy.chain import APPLICATION_ID, BEGINNING, MARKED, SCHEMA, SEALS, chain_hash

PAGE = 4096
CHILDREN, LEVELS = 400, 4  # of a table that is the same page over and over: 400^4 rows in five pages
LEAST = (PAGE - 12) * 32 // 255 - 23  # bytes of a row that stay on its own page


class Pages:
    """A journal of one row, whose tables are then made by hand."""

    def __init__(self, path: Path, opened: bytes = b"{}") -> None:
        self.path, digest = path, chain_hash(BEGINNING, b"open", opened)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            for pragma in (f"page_size={PAGE}", f"application_id={APPLICATION_ID}", f"user_version={MARKED}"):
                connection.execute(f"PRAGMA {pragma}")
            for statement in {**SCHEMA, **SEALS}.values():
                connection.execute(statement)
            connection.execute("INSERT INTO rows VALUES (0, 'open', ?, ?)", (opened.decode(), digest))
            connection.execute("INSERT INTO head VALUES (0, 1, ?)", (digest,))
            found = connection.execute("SELECT name, rootpage FROM sqlite_master").fetchall()
        self.roots: dict[str, int] = {"sqlite_master": 1, **dict(found)}
        content = path.read_bytes()
        self.pages = [content[at : at + PAGE] for at in range(0, len(content), PAGE)]

    def add(self, page: bytes) -> int:
        """Its number."""
        self.pages.append(page)
        return len(self.pages)

    def replace(self, table: str, page: bytes) -> None:
        """Make `page` the root of a table. The first page begins with the header of the file."""
        root = self.roots[table]
        self.pages[root - 1] = self.pages[0][:100] + page[100:] if root == 1 else page

    def write(self, size: int = 0) -> Path:
        """With a hole at the end, where the file must be of a certain `size`."""
        count = max(len(self.pages), size // PAGE)
        first = self.pages[0]
        self.pages[0] = first[:28] + count.to_bytes(4, "big") + first[32:]
        self.path.write_bytes(b"".join(self.pages))
        os.truncate(self.path, count * PAGE)
        return self.path


def same_child(pages: Pages, table: str, cells: Sequence[bytes]) -> None:
    """`table` as a pyramid of inner pages, each with many times the same child, above one leaf of these `cells`."""
    child = pages.add(leaf(cells))
    for _ in range(LEVELS - 1):
        child = pages.add(inner(child))
    pages.replace(table, inner(child))


def inner(child: int, start: int = 0) -> bytes:
    """A page all of whose cells are the same one: its child, below key 1."""
    number = child.to_bytes(4, "big")
    cell, place = number + varint(1), PAGE - 8
    header = b"\x05\0\0" + CHILDREN.to_bytes(2, "big") + place.to_bytes(2, "big") + b"\0" + number
    return (bytes(start) + header + place.to_bytes(2, "big") * CHILDREN).ljust(place, b"\0") + cell.ljust(8, b"\0")


def leaf(cells: Sequence[bytes], start: int = 0) -> bytes:
    places, place = [], PAGE
    for cell in cells:
        place -= len(cell)
        places.append(place)
    header = b"\x0d\0\0" + len(cells).to_bytes(2, "big") + place.to_bytes(2, "big") + b"\0"
    page = bytes(start) + header + b"".join(each.to_bytes(2, "big") for each in places)
    return page.ljust(place, b"\0") + b"".join(reversed(cells))


def cell(number: int, values: Sequence[int | bytes | str | None], overflow: int = 0) -> bytes:
    """A row; with `overflow` what does not fit into the page begins on that other one."""
    record = row(values)
    if not overflow:
        return varint(len(record)) + varint(number) + record
    here = record[: kept_with_row(len(record))]
    return varint(len(record)) + varint(number) + here + overflow.to_bytes(4, "big")


def kept_with_row(size: int) -> int:
    local = LEAST + (size - LEAST) % (PAGE - 4)
    return LEAST if local > PAGE - 35 else local


def row(values: Sequence[int | bytes | str | None]) -> bytes:
    """The format of a record: kinds, then values."""
    kinds, contents = [], b""
    for value in values:
        if value is None:
            kinds.append(0)
        elif isinstance(value, int):
            kinds.append(6)
            contents += value.to_bytes(8, "big")
        else:
            content = value.encode() if isinstance(value, str) else value
            kinds.append(2 * len(content) + (13 if isinstance(value, str) else 12))
            contents += content
    return row_head(kinds) + contents


def row_head(kinds: Sequence[int]) -> bytes:
    listed = b"".join(map(varint, kinds))
    return varint(len(listed) + 1) + listed


def varint(value: int) -> bytes:
    groups = [value & 0x7F]
    while value := value >> 7:
        groups.append(value & 0x7F | 0x80)
    return bytes(reversed(groups))


# ------------------------------------------------------------------------------------------------------------ the bombs


def many_heads(path: Path, opened: bytes) -> Path:
    pages = Pages(path, opened)
    same_child(pages, "head", [cell(n, [None, 1, b""]) for n in range(200)])
    return pages.write()


def many_seals(path: Path, opened: bytes) -> Path:
    pages = Pages(path, opened)
    same_child(pages, "seals", [cell(n, [None, b""]) for n in range(200)])
    return pages.write()


def many_rows(path: Path, opened: bytes) -> Path:
    """All empty, so that they count nothing but themselves."""
    pages = Pages(path, opened)
    same_child(pages, "rows", [cell(n, [None, "", "", b""]) for n in range(200)])
    return pages.write()


def many_snapshots(path: Path, opened: bytes) -> Path:
    pages = Pages(path, opened)
    same_child(pages, "snapshots", [cell(0, [None, b"", b"", b""])] * 200)
    return pages.write()


def many_tables(path: Path, opened: bytes) -> Path:
    """The schema, which SQLite reads to its end before it answers anything: one index, over and over."""
    pages = Pages(path, opened)
    index = ["index", "sqlite_autoindex_t_1", "t", 3, None]
    table = ["table", "t", "t", 2, "CREATE TABLE t (x TEXT PRIMARY KEY)"]
    first = pages.add(leaf([cell(1, table), cell(2, index)]))
    child = pages.add(leaf([cell(n, index) for n in range(60)]))
    for _ in range(LEVELS - 1):
        child = pages.add(inner(child))
    page = bytearray(inner(child, 100))
    page[112:114] = (PAGE - 16).to_bytes(2, "big")  # the first child is another one
    page[PAGE - 16 : PAGE - 8] = (first.to_bytes(4, "big") + varint(1)).ljust(8, b"\0")
    pages.replace("sqlite_master", bytes(page))
    return pages.write()


def long_schema(path: Path, opened: bytes) -> Path:
    """One statement that is long, and takes a parser fifty times as much memory."""
    pages = Pages(path, opened)
    sql = f"CREATE TABLE t (x CHECK (x IN (1{',1' * 4_000_000})))"
    values = ["table", "t", "t", 2, sql]
    pages.replace("sqlite_master", leaf([cell(1, values, overflow_chain(pages, row(values)))], 100))
    return pages.write()


def overflow_chain(pages: Pages, record: bytes) -> int:
    """The pages that hold what does not stay with the row; the number of the first."""
    rest, first = record[kept_with_row(len(record)) :], len(pages.pages) + 1
    for at in range(0, len(rest), PAGE - 4):
        after = len(pages.pages) + 2 if at + PAGE - 4 < len(rest) else 0
        pages.add((after.to_bytes(4, "big") + rest[at : at + PAGE - 4]).ljust(PAGE, b"\0"))
    return first


def large_rows(path: Path, opened: bytes, table: str = "rows", rows: int = 64, each: int = 43 * 2**20) -> Path:
    """Rows that share one page that they overflow to, which is followed by itself; the file must look large enough."""
    pages = Pages(path, opened)
    loop = len(pages.pages) + 1
    pages.add(loop.to_bytes(4, "big") + b" " * (PAGE - 4))
    filler = " " * each
    values: list[int | bytes | str | None] = {
        "rows": [None, "event", filler, bytes(32)],
        "head": [None, 1, filler.encode()],
        "seals": [None, filler.encode()],
        "snapshots": [None, bytes(32), filler.encode(), b""],
    }[table]
    cells = [cell(n, values, loop) for n in range(rows)]
    per_page = (PAGE - 8) // (max(map(len, cells)) + 2)
    leaves = [pages.add(leaf(cells[at : at + per_page])) for at in range(0, rows, per_page)]
    pages.replace(table, above(leaves, per_page))
    return pages.write(each + 100 * PAGE)


def nested_rows(path: Path, opened: bytes, rows: int = 500) -> Path:
    """With right hashes: of one chain of pages row n overflows to the first n + 1, and its hash ends the last of them.

    So each row is followed by a longer one, and only the sum of their sizes shows that they cannot all be there.
    """
    pages, previous, chain, cells = Pages(path, opened), BEGINNING, b"", []
    first, filler = len(pages.pages) + 1, b" " * (PAGE - 4 - 32)
    for n in range(rows):
        size = LEAST + (n + 1) * (PAGE - 4)  # of the record
        kinds = next(
            head
            for length in range(size - 60, size)
            for head in [row_head([0, 2 * 7 + 13, 2 * length + 13, 2 * 32 + 12])]
            if len(head) + 7 + length + 32 == size
        )
        local = (kinds + b"outcome").ljust(LEAST)
        payload = local[len(kinds) + 7 :] + chain + filler
        previous = chain_hash(previous, b"outcome", payload)
        chain += filler + previous
        after = 0 if n == rows - 1 else first + n + 1
        pages.add(after.to_bytes(4, "big") + filler + previous)
        cells.append(varint(size) + varint(n) + local + first.to_bytes(4, "big"))
    pages.replace("rows", above([pages.add(leaf(cells[at : at + 8])) for at in range(0, rows, 8)], 8))
    return pages.write()


def above(leaves: Sequence[int], per_page: int) -> bytes:
    """One inner page above these leaves."""
    cells, places, place = [], [], PAGE
    for k, each in enumerate(leaves[:-1]):
        cells.append(each.to_bytes(4, "big") + varint((k + 1) * per_page - 1))
        place -= len(cells[-1])
        places.append(place)
    header = (
        b"\x05\0\0" + len(cells).to_bytes(2, "big") + place.to_bytes(2, "big") + b"\0" + leaves[-1].to_bytes(4, "big")
    )
    page = header + b"".join(each.to_bytes(2, "big") for each in places)
    return page.ljust(place, b"\0") + b"".join(reversed(cells))
