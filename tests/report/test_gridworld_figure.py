"""Figure 1: arrows point where the policy goes, cells are where the task has them."""

import numpy as np
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle
from matplotlib.quiver import Quiver

from surefoot.lab.experiments.gridworld import GREEN, RED, policies_and_values
from surefoot.report.figures import png
from surefoot.tasks import gridworld as make_gridworld

VALUES = np.arange(49.0)
GOAL = (3, 6)
REDS = {(x, y) for x in (2, 4) for y in (1, 2, 3, 4)}


def deterministic(actions: dict[tuple[int, int], int], otherwise: int = 1) -> np.ndarray:
    policy = np.zeros((49, 4))
    for state in range(49):
        policy[state, actions.get((state % 7, state // 7), otherwise)] = 1
    return policy


def panel(noise: float, policy: np.ndarray, state_values: np.ndarray, optimal_value: float) -> dict[str, object]:
    return {"noise": noise, "policy": policy, "state_values": state_values, "optimal_value": optimal_value}


def arrows(axes) -> list[tuple[np.ndarray, np.ndarray, float]]:
    """(tail, arrow, opacity) of every arrow in data coordinates."""
    (quiver,) = [each for each in axes.collections if isinstance(each, Quiver)]
    assert quiver.angles == "xy"
    assert quiver.scale_units == "xy"
    assert quiver.scale == 1
    return [
        (np.array(tail), np.array([u, v]), colour[3])
        for tail, u, v, colour in zip(quiver.get_offsets(), quiver.U, quiver.V, quiver.get_facecolor(), strict=True)
    ]


def test_arrows_of_a_deterministic_policy_point_its_way():
    actions = {(0, 0): 0, (1, 0): 1, (2, 0): 2, (3, 0): 3}
    figure = policies_and_values([panel(0.1, deterministic(actions), VALUES, 59.737)])
    drawn = arrows(figure.axes[0])
    assert len(drawn) == 48  # none at the goal
    way = {}
    for tail, arrow, opacity in drawn:
        middle = tail + arrow / 2
        np.testing.assert_allclose(middle, middle.round(), atol=1e-12)
        assert opacity == 1
        way[tuple(middle.round().astype(int).tolist())] = tuple(np.sign(arrow).astype(int).tolist())
    assert GOAL not in way
    expected = {(0, 0): (1, 0), (1, 0): (0, 1), (2, 0): (-1, 0), (3, 0): (0, -1)}
    assert way == {(x, y): expected.get((x, y), (0, 1)) for x in range(7) for y in range(7) if (x, y) != GOAL}


def test_arrows_agree_with_the_task():
    """Without noise the state after an action lies where the arrow points."""
    task = make_gridworld().task(np.array([0.0]))
    figure = policies_and_values([panel(0.0, deterministic({}, otherwise=k), VALUES, 0.0) for k in range(4)])
    for action in range(4):
        for tail, arrow, _ in arrows(figure.axes[action]):
            x, y = (tail + arrow / 2).round().astype(int)
            after = int(np.argmax(np.asarray(task.transitions)[7 * y + x, action]))
            target = np.array([x, y]) + np.sign(arrow).astype(int)
            inside = ((target >= 0) & (target < 7)).all()
            assert after == (7 * target[1] + target[0] if inside else 7 * y + x)


def test_stochastic_states_show_every_action_by_its_probability():
    policy = deterministic({})
    policy[0] = [0.7, 0.29, 0.0, 0.01]
    drawn = arrows(policies_and_values([panel(0.3, policy, VALUES, 51.96)]).axes[0])
    here = [(tail, arrow, opacity) for tail, arrow, opacity in drawn if np.abs(tail).max() < 0.5]
    assert len(here) == 2
    np.testing.assert_allclose(here[0][0], here[1][0])
    (_, right, strong), (_, up, weak) = here
    assert right[0] > up[1] > 0
    assert right[1] == up[0] == 0
    assert strong > weak


def test_cells_titles_and_values():
    figure = policies_and_values(
        [panel(0.1, deterministic({}), VALUES, 59.737), panel(0.3, deterministic({}), VALUES, 51.963)]
    )
    assert [axes.get_title() for axes in figure.axes] == ["noise 0.1, V* = 59.74", "noise 0.3, V* = 51.96"]
    for axes in figure.axes:
        cells = {
            (round(patch.get_x() + 0.5), round(patch.get_y() + 0.5)): to_hex(patch.get_facecolor())
            for patch in axes.patches
            if isinstance(patch, Rectangle)
        }
        assert len(cells) == 49
        assert {place for place, colour in cells.items() if colour == RED} == REDS
        assert {place for place, colour in cells.items() if colour == GREEN} == {GOAL}
        texts = {(round(text.get_position()[0]), round(text.get_position()[1]), text.get_text()) for text in axes.texts}
        assert {(x, y, str(7 * y + x)) for x in range(7) for y in range(7)} | {(3, 6, "goal")} == texts
        assert axes.get_ylim()[0] < axes.get_ylim()[1]  # the bottom row is at the bottom


def test_shades_share_one_scale_over_the_panels():
    figure = policies_and_values(
        [panel(0.1, deterministic({}), VALUES, 0.0), panel(0.3, deterministic({}), VALUES / 2, 0.0)]
    )
    first, second = ([to_hex(patch.get_facecolor()) for patch in axes.patches] for axes in figure.axes)
    assert second[40] == first[20]
    assert second[40] != first[40]


def test_saves_as_reproducible_png():
    panels = [panel(0.1, deterministic({}), VALUES, 59.737)]
    assert png(policies_and_values(panels), dpi=60) == png(policies_and_values(panels), dpi=60)
