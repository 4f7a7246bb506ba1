"""Greedy cover: the same centres as the N x N pseudo-code, to the last bit and the last tie."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surefoot.errors import InvalidInput
from surefoot.training import cover as module
from surefoot.training.cover import greedy_cover

SHARES = (0.0, 0.05, 0.3)
MANY = settings(max_examples=5 * settings().max_examples)


def close_matrix(points: np.ndarray, radius: float) -> np.ndarray:
    """A [N, N] by the stated predicate."""
    x = np.asarray(points, dtype=np.float64).reshape(len(points), -1)
    return (np.abs(x[:, None, :] - x[None, :, :]) <= radius).all(axis=2)


def reference(A: np.ndarray, uncovered: float, candidates: np.ndarray | None = None) -> list[int]:
    """The paper's subroutine, line by line; refuses to go on without gain."""
    total = len(A)
    allowed = range(total) if candidates is None else sorted(set(candidates.tolist()))
    chosen: list[int] = []
    left = np.ones(total, dtype=bool)
    while left.sum() > uncovered * total:
        free = [j for j in allowed if j not in chosen]
        gains = [int(A[left, j].sum()) for j in free]
        if max(gains, default=0) == 0:
            raise InvalidInput("reference cannot go on")
        best = free[gains.index(max(gains))]  # index() finds the first, i.e. the lowest
        chosen.append(best)
        left &= ~A[:, best]
    return chosen


def same_as_reference(points: np.ndarray, radius: float, uncovered: float, candidates=None) -> None:
    A = close_matrix(points, radius)
    try:
        expected = reference(A, uncovered, candidates)
    except InvalidInput:
        for arguments in ((points, radius), (A,)):
            with pytest.raises(InvalidInput, match="stay uncovered"):
                greedy_cover(*arguments, uncovered=uncovered, candidates=candidates)
        return
    assert greedy_cover(points, radius, uncovered=uncovered, candidates=candidates).tolist() == expected
    assert greedy_cover(A, uncovered=uncovered, candidates=candidates).tolist() == expected


@st.composite
def clouds(draw: st.DrawFn) -> tuple[np.ndarray, float]:
    """Points [N] or [N, d] and a radius: decimals (ties, duplicates, boundaries that round), or anything."""
    dim = draw(st.sampled_from([0, 1, 2, 3]))
    size = draw(st.integers(1, 40))
    step = draw(st.sampled_from([0.1, 0.01, 1 / 3, 1.0]))
    decimals = st.integers(-12, 12).map(lambda n: n * step)
    coordinate = draw(st.sampled_from([decimals, decimals.map(lambda x: x + 1e3), st.floats(-2, 2)]))
    flat = draw(st.lists(coordinate, min_size=size * max(dim, 1), max_size=size * max(dim, 1)))
    points = np.array(flat).reshape((size, dim) if dim else (size,))
    multiples = st.integers(0, 12).map(lambda n: n * step)
    distances = st.sampled_from(np.abs(np.ravel(points)[:, None] - np.ravel(points)[None]).ravel().tolist())
    return points, draw(st.one_of(multiples, distances, st.floats(0, 3)))


@MANY
@given(clouds(), st.sampled_from(SHARES))
def test_same_centres_as_the_matrix(cloud: tuple[np.ndarray, float], uncovered: float) -> None:
    same_as_reference(*cloud, uncovered)


@MANY
@given(clouds(), st.sampled_from(SHARES), st.data())
def test_same_centres_as_the_matrix_among_candidates(
    cloud: tuple[np.ndarray, float], uncovered: float, data: st.DataObject
) -> None:
    indices = st.lists(st.integers(0, len(cloud[0]) - 1), min_size=1)
    same_as_reference(*cloud, uncovered, np.array(data.draw(indices)))


@MANY
@given(st.integers(1, 12), st.integers(0, 2**32 - 1), st.sampled_from(SHARES))
def test_matrix_need_be_neither_symmetric_nor_reflexive(size: int, seed: int, uncovered: float) -> None:
    A = np.random.default_rng(seed).random((size, size)) < 0.4
    try:
        expected = reference(A, uncovered)
    except InvalidInput:
        with pytest.raises(InvalidInput, match="stay uncovered"):
            greedy_cover(A, uncovered=uncovered)
    else:
        assert greedy_cover(A.astype(int), uncovered=uncovered).tolist() == expected


@pytest.mark.short_for(uncovered=[0.05], dim=[1, 2])
@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("uncovered", SHARES)
@pytest.mark.parametrize("kind", ["uniform", "decimals", "clusters"])
def test_hundreds_of_points(dim: int, uncovered: float, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TILE", 64)  # so that several tiles meet each box
    rng = np.random.default_rng([dim, len(kind)])
    points = {
        "uniform": rng.random((300, dim)),
        "decimals": rng.integers(0, 30, (300, dim)) * 0.1,
        "clusters": np.round(rng.normal(rng.integers(0, 3, (300, 1)), 0.1, (300, dim)), 2),
    }[kind]
    for radius in (0.0, 0.1, 0.30000000000000004, 1.0):
        matrix = close_matrix(points, radius)
        ranked = greedy_cover(matrix, uncovered=uncovered)
        np.testing.assert_array_equal(greedy_cover(points, radius, uncovered=uncovered), ranked)
    same_as_reference(points[:120], 0.2, uncovered)


@pytest.mark.short_for(shape=[(1500, 2)])
@pytest.mark.parametrize("shape", [(2500,), (1500, 2), (2500, 2), (2500, 3)])
def test_thousands_of_points_with_full_tiles(shape: tuple[int, ...]) -> None:
    points = np.random.default_rng(0).random(shape)
    for radius in (0.02, 0.2):
        expected = greedy_cover(close_in_rows(points, radius), uncovered=0.05)
        np.testing.assert_array_equal(greedy_cover(points, radius, uncovered=0.05), expected)


def close_in_rows(points: np.ndarray, radius: float) -> np.ndarray:
    """`close_matrix` without its [N, N, d] temporary."""
    x = points.reshape(len(points), -1)
    return np.array([(np.abs(x - row) <= radius).all(axis=1) for row in x])


@pytest.mark.parametrize("dim", [1, 2])
def test_many_values_within_one_rounding_of_the_boundary(dim: int) -> None:
    # fl(1 - x) = 1 for every one of the tiny negative x, though x < 1 - radius = 0 for all of them.
    tiny = -np.logspace(-300, -14, 60)
    line = np.concatenate([tiny, [1.0, 1.0, 1.5], -1 - tiny])
    points = line if dim == 1 else np.stack([line, line[::-1]], axis=1)
    for uncovered in SHARES:
        same_as_reference(points, 1.0, uncovered)


@pytest.mark.parametrize(
    ("low", "high", "radius", "within"),
    [
        (0.1, 0.30000000000000004, 0.2, False),  # high <= low + radius says otherwise
        (0.1, 1.1, 1.0, True),  # low >= high - radius says otherwise
        (0.2, 0.4, 0.2, True),
        (0.3, 0.4, 0.1, False),
    ],
)
def test_boundary_follows_the_rounded_difference(low: float, high: float, radius: float, within: bool) -> None:
    assert (high - low <= radius) == within
    line = np.array([low, high, 100.0])
    for points in (line, np.stack([line, line * 0], axis=1), np.stack([line * 0, line], axis=1)):
        assert greedy_cover(points, radius, uncovered=0).tolist() == ([0, 2] if within else [0, 1, 2])


@MANY
@given(clouds(), st.sampled_from(SHARES))
def test_covers_what_it_promises_and_no_centre_twice(cloud: tuple[np.ndarray, float], uncovered: float) -> None:
    points, radius = cloud
    centres = greedy_cover(points, radius, uncovered=uncovered)
    missed = np.count_nonzero(~close_matrix(points, radius)[:, centres].any(axis=1))
    assert missed <= uncovered * len(points)
    assert len(set(centres.tolist())) == len(centres) >= 1
    assert centres.dtype == np.intp


def test_by_hand() -> None:
    line = [0.0, 1.0, 2.0, 10.0, 11.0, 20.0]
    assert greedy_cover(line, 1.0, uncovered=0).tolist() == [1, 3, 5]  # ball sizes 3, then the tie 10 / 11, then 20
    assert greedy_cover(line, 1.0, uncovered=0.17).tolist() == [1, 3]  # 1 of 6 may stay
    assert greedy_cover(line, 1.0, uncovered=0.5).tolist() == [1]  # exactly 3 of 6 left is enough
    assert greedy_cover(line, 1.0, uncovered=0, candidates=[5, 4, 2, 0, 4]).tolist() == [0, 4, 2, 5]
    assert greedy_cover([[7.0, 7.0]] * 4, 0.0, uncovered=0).tolist() == [0]
    # Index 1 is covered by centre 0 and still becomes a centre: only it reaches task 3.
    A = np.array([[1, 1, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0]])
    assert greedy_cover(A, uncovered=0).tolist() == [0, 1]


@pytest.mark.parametrize("radius", [math.inf, 1e308, 5])
def test_a_radius_beyond_the_spread_needs_one_centre(radius: float) -> None:
    assert greedy_cover(np.arange(5), radius, uncovered=0).tolist() == [0]
    assert greedy_cover(np.arange(10).reshape(5, 2), radius * 2, uncovered=0).tolist() == [0]


def test_extreme_coordinates_do_not_warn(recwarn: pytest.WarningsRecorder) -> None:
    points = np.array([-8e307, 0.0, 8e307])
    for cloud in (points, np.stack([points, points], axis=1)):
        assert greedy_cover(cloud, 8e307, uncovered=0).tolist() == [1]
    assert not recwarn.list


def test_input_is_left_alone() -> None:
    points, A = np.random.default_rng(0).random((20, 2)), np.eye(5)
    kept, kept_A = points.copy(), A.copy()
    greedy_cover(points, 0.1, uncovered=0)
    greedy_cover(A, uncovered=0)
    np.testing.assert_array_equal(points, kept)
    np.testing.assert_array_equal(A, kept_A)


LINE = np.arange(4.0)


@pytest.mark.parametrize(
    ("points", "radius", "options", "message"),
    [
        (LINE, -0.5, {}, r"radius must be .*>= 0, got -0\.5"),
        (LINE, math.nan, {}, r"radius .* got nan"),
        ([0.0, math.nan], 1.0, {}, r"points_or_matrix .*finite.* got nan"),
        ([[0.0, 1.0], [math.inf, 1.0]], 1.0, {}, r"points_or_matrix .*finite.* got inf"),
        ([-1e308, 1e308], 1.0, {}, r"points_or_matrix .*finite.* spread, got inf"),
        (np.zeros((2, 2, 2)), 1.0, {}, r"points_or_matrix .* got shape \(2, 2, 2\)"),
        (3.0, 1.0, {}, r"points_or_matrix .* got shape \(\)"),
        ([], 1.0, {}, r"points_or_matrix .*non-empty.* got shape \(0,\)"),
        (np.zeros((3, 0)), 1.0, {}, r"points_or_matrix .* got shape \(3, 0\)"),
        (LINE, None, {}, r"points_or_matrix must be \[N, N\] when radius is None, got shape \(4,\)"),
        (np.ones((2, 3)), None, {}, r"points_or_matrix .* got shape \(2, 3\)"),
        (np.ones((0, 0)), None, {}, r"points_or_matrix .* got shape \(0, 0\)"),
        ([[1, 0], [2, 1]], None, {}, r"points_or_matrix .*0 and 1.* got 2"),
        ([[1.0, math.nan], [0.0, 1.0]], None, {}, r"points_or_matrix .*0 and 1.* got nan"),
        (LINE, 1.0, {"uncovered": 1.0}, r"uncovered .*\[0, 1\), got 1\.0"),
        (LINE, 1.0, {"uncovered": -0.1}, r"uncovered .* got -0\.1"),
        (LINE, 1.0, {"uncovered": math.nan}, r"uncovered .* got nan"),
        (LINE, 1.0, {"candidates": [0, 4]}, r"candidates .*\[0, 4\), got 4"),
        (LINE, 1.0, {"candidates": [-1]}, r"candidates .* got -1"),
        (LINE, 1.0, {"candidates": []}, r"candidates must be integers \[M\], M >= 1"),
        (LINE, 1.0, {"candidates": [0.0]}, r"candidates must be integers .* got float64"),
        (LINE, 1.0, {"candidates": [[0]]}, r"candidates .* shape \(1, 1\)"),
        (LINE, 1.0, {"candidates": [0]}, r"2 of 4 tasks that stay uncovered.*uncovered=0 allows only 0"),
        (np.stack([LINE, LINE], axis=1), 1.0, {"candidates": [0]}, r"2 of 4 tasks that stay uncovered"),
        ([[1, 0], [0, 0]], None, {}, r"1 of 2 tasks that stay uncovered"),
    ],
)
def test_errors_name_the_argument_and_the_value(points, radius, options, message) -> None:
    with pytest.raises(InvalidInput, match=message):
        greedy_cover(points, radius, **{"uncovered": 0, **options})
