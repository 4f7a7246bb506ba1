"""A frozen lake of one's own, as a table: cross it, and fall into a hole in at most 15 % of the attempts.

How slippery the ice is nobody knows: with probability `slip` one slides to either side of where one wanted to go.
Nothing but the table and the distribution of the slip is given. Run it: python examples/lake.py
"""

import numpy as np

import surefoot as sf

MAP = "SFFF FHFH FFFH HFFG".replace(" ", "")  # start, frozen, hole, goal
SIDE, SINK = 4, 16  # the sink is where an episode has ended
MOVES = ((0, -1), (1, 0), (0, 1), (-1, 0))  # left, down, right, up


def after(state: int, move: int) -> int:
    """The square that a move leads to; the banks stop it."""
    row, column = divmod(state, SIDE)
    down, right = MOVES[move % 4]
    return min(max(row + down, 0), SIDE - 1) * SIDE + min(max(column + right, 0), SIDE - 1)


def build(parameter: np.ndarray) -> sf.TabularCMDP:
    """The lake with a slip of parameter[0]."""
    slip = parameter[0]
    transitions, reward, cost = np.zeros((17, 4, 17)), np.zeros((17, 4, 17)), np.zeros((17, 4, 17))
    for state in range(17):
        for action in range(4):
            if state == SINK or MAP[state] in "HG":  # it is over: nothing more is earned or spent
                transitions[state, action, SINK] = 1
                continue
            for move, probability in ((action, 1 - slip), (action - 1, slip / 2), (action + 1, slip / 2)):
                transitions[state, action, after(state, move)] += probability
    reward[:, :, MAP.index("G")] = 1  # paid on the way into the goal,
    cost[:, :, [k for k, square in enumerate(MAP) if square == "H"]] = 1  # and into a hole; once, since both end it
    return sf.TabularCMDP(transitions, reward, cost, budget=0.15, start=np.eye(17)[0], discount=0.99)


METHODS = ("safe-only", "certified-model-free", "certified-returns", "certified-ball", "certified")


def main(episodes: int = 3000, slip: float = 0.1, methods: tuple[str, ...] = METHODS) -> dict[str, sf.Run]:
    tasks = sf.tasks.family(build, sf.tasks.Uniform(0.05, 0.5))
    policies = sf.train(tasks, epsilon=0.02, delta=0.05, seed=0)
    truth = tasks.task([slip])  # which the learner is not told
    print(
        f"{len(policies)} policies trained; {episodes} crossings of a lake with slip {slip:g}, by what is used of them:"
    )
    runs = {}
    for method in methods:
        runs[method] = run = sf.adapt(policies, truth, method=method, episodes=episodes, risk=0.05, seed=1)
        print(f"{method:21s} regret {run.regret[-1]:7.1f}   unsafe episodes {run.unsafe_episodes}", end="   ")
        print(f"least margin {run.margin.min():.4f}")
    return runs


if __name__ == "__main__":
    main()
