"""The policy sets of the experiment on robots: trained once and shipped with the package, or trained anew; and how many
simulator steps they took."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from surefoot import __version__, files
from surefoot.bounded_json import Limits, parse_strictly
from surefoot.bounds.settings import Envelopes, LearnedSignals
from surefoot.bounds.signal_model import LOOK_TASKS
from surefoot.bounds.simulation import LOOK_PART
from surefoot.cmdp.policy import Policy
from surefoot.control.mlp_policy import MLPPolicy
from surefoot.errors import ArtifactError, InvalidInput
from surefoot.fan_out import workers
from surefoot.interrupts import defer_sigint
from surefoot.lab.baselines.history_policy import HISTORY_CONDITIONED, HistoryPolicy
from surefoot.lab.baselines.rollout_buffer import safe_network
from surefoot.lab.experiments.locomotion.settings import FAMILIES, FIXED, LocomotionFamily
from surefoot.learning.spec import MethodSpec
from surefoot.policyset.policy_value_set import PolicyValueSet
from surefoot.progress import Progress, silent
from surefoot.tasks.task_distribution import TaskDistribution

TRAINED = Path(__file__).parent / "trained"
LIMITS = Limits(size=2**16, values=1000, depth=5)
MOST_BYTES = 2**22  # of a meta-policy
SAMPLE, HELD_OUT, SIGNALS = "first sample", "held-out tasks", "signals"  # what steps are simulated for
OPTIONAL = {"steps", "baselines", "meta_steps", "starts", "accepted", "tuning", "simulated"}  # in the file of an origin


@dataclass(frozen=True)
class Origin:
    """How a policy set came about.

    Attributes:
        digest: of the set.
        version: of the package.
        seconds: that it took.
        steps: of training experts and the safe policy, as far as planned: who fails a test is trained further.
        meta_steps: of training each of the meta-policies, and each network that never adapts, from the safe policy on.
        starts: SHA-256 of the file of each of these, by method.
        accepted: updates of each meta-policy that its meta-training accepted, where that is known.
        tuning: how the step of each baseline was chosen (`Tuning`), where it was.
        simulated: steps of bounds and signals (`simulated_steps`).
        baselines: the command that tuned and meta-trained the baselines, where it is known.
    """

    command: str
    seed: int
    digest: str
    version: str
    seconds: float
    steps: int
    meta_steps: int = 0
    starts: Mapping[str, str] = field(default_factory=dict)
    accepted: Mapping[str, int] = field(default_factory=dict)
    tuning: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    simulated: Mapping[str, int] = field(default_factory=dict)
    baselines: str = ""


@dataclass(frozen=True, eq=False)
class FamilyPolicies:
    """The policy set of a family, and what meta-learners begin with on a new task, by method, or never leave."""

    policies: PolicyValueSet
    starts: Mapping[str, Policy]
    origin: Origin

    @property
    def unchanged_starts(self) -> list[str]:
        """The meta-learners that begin with the network of the safe policy itself, bit for bit."""
        return [name for name, start in self.starts.items() if same_network(start, safe_network(self.policies))]


def same_network(one: Policy, other: Policy) -> bool:
    """Whether meta-training would have to change nothing to make one of the other. It keeps the normaliser, whose scale
    is computed from a variance on the way and may differ in its last bit."""
    first, second = (
        {name: part for name, part in policy.to_arrays().items() if name not in ("shift", "scale", "clip")}
        for policy in (one, other)
    )
    return first.keys() == second.keys() and all(np.array_equal(first[name], second[name]) for name in first)


def load_shipped(name: str) -> FamilyPolicies:
    """The policies shipped for a family."""
    if not holds(TRAINED, name):
        raise InvalidInput(f"families must be trained, and {name} is not shipped with this package: use --retrain")
    return load_trained(name, TRAINED)


def holds(folder: Path, name: str) -> bool:
    """Whether the policies of a family, and with them its baselines, were trained into a folder."""
    return (folder / f"{name}.policyset").is_dir() and (folder / f"{name}.json").is_file()


def load_trained(name: str, folder: Path) -> FamilyPolicies:
    """What training left in a folder for a family, if it is what its origin tells of."""
    path, told = folder / f"{name}.policyset", folder / f"{name}.json"
    policies, found = PolicyValueSet.load(path), _read(told)
    origin = _origin(FAMILIES[name], policies, 1.0, **found)
    if origin.digest != policies.digest():
        raise ArtifactError(f"{path}: its digest is not the one in {told.name}: {policies.digest()}")
    starts = {method: _start(folder / _file(name, method), method, digest) for method, digest in origin.starts.items()}
    return FamilyPolicies(policies, starts, origin)


def train_from_scratch(
    name: str,
    out: Path,
    *,
    seed: int,
    share: float,
    jobs: int,
    bounds: bool = True,
    tuning: Mapping[str, Mapping[str, Any]] | None = None,
    progress: Progress = silent,
) -> FamilyPolicies:
    """Algorithm 1 on a family, then its baselines; all of it is left in `out`.

    Args:
        bounds: False bounds nothing but how often the safe policy is infeasible.
        tuning: of the baselines, where they were tuned before (`Origin.tuning`).
    """
    # Imported when it is needed: training takes JAX, adapting does not.
    from surefoot.lab.experiments.locomotion.training import train_policies

    began = time.perf_counter()
    policies = train_policies(FAMILIES[name], seed=seed, jobs=jobs, share=share, bounds=bounds, progress=progress)
    with defer_sigint():  # before meta-training, which may fail
        policies.save(out / f"{name}.policyset")
    origin = _origin(
        FAMILIES[name],
        policies,
        share,
        command=_command(name, "--retrain", share, seed),
        seed=seed,
        digest=policies.digest(),
        version=__version__,
        seconds=time.perf_counter() - began,
    )
    how: dict[str, Any] = {"seed": seed, "share": share, "jobs": jobs, "tuning": tuning, "progress": progress}
    return train_baselines(name, policies, origin, out, **how)


def train_baselines(
    name: str,
    policies: PolicyValueSet,
    origin: Origin,
    out: Path,
    *,
    seed: int,
    share: float,
    jobs: int,
    tuning: Mapping[str, Mapping[str, Any]] | None = None,
    progress: Progress = silent,
) -> FamilyPolicies:
    """Baselines of the policy set of a family: steps tuned on validation tasks, if they were not before, then
    meta-policies."""
    from surefoot.lab.experiments.locomotion.training import META_RULES, meta_policy, meta_steps, train_across_domains

    family = FAMILIES[name]
    if tuning is None:
        from surefoot.lab.experiments.locomotion.tuning import tune_baselines

        tuned = tune_baselines(family.tasks(), policies, seed=seed, jobs=jobs, progress=progress)
        tuning = {method: asdict(found) for method, found in tuned.items()}
    safe = safe_network(policies)
    with workers(jobs) as ready:
        calls = [(family, method, safe, tuning[method]["chosen"], seed, share) for method in META_RULES]
        learned = dict(zip(META_RULES, ready.map("meta-training", meta_policy, calls, progress), strict=True))
        fixed = [(family, method, safe, seed, share) for method in FIXED]
        found = ready.map("training across domains", train_across_domains, fixed, progress)
        starts = dict(zip(FIXED, found, strict=True))
    starts |= {method: found.policy for method, found in learned.items()}
    stored = {method: safetensors.numpy.save(policy.to_arrays()) for method, policy in starts.items()}
    origin = replace(
        origin,
        baselines=_command(name, "--retrain-baselines", share, seed),
        meta_steps=meta_steps(policies.units.episode_length, share),
        starts={method: sha256(content).hexdigest() for method, content in stored.items()},
        accepted={method: found.accepted for method, found in learned.items()},
        tuning=tuning,
    )
    told = {f"{name}.json": json.dumps(asdict(origin), indent=1).encode()}
    with defer_sigint():
        files.write_files(out, {**{_file(name, method): content for method, content in stored.items()}, **told})
    return FamilyPolicies(policies, starts, origin)


def _command(name: str, what: str, share: float, seed: int) -> str:
    return f"surefoot reproduce locomotion --families {name} {what} --share {share:g} --seed {seed} --out DIR"


def _file(name: str, method: str) -> str:
    return f"{name}.{method}.safetensors"


def _start(path: Path, method: str, digest: str) -> Policy:
    """What a method begins with, if its file is the one that was told of."""
    content = files.read_file(path, MOST_BYTES)
    if sha256(content).hexdigest() != digest:
        raise ArtifactError(f"{path}: its digest is not the one that was told: {sha256(content).hexdigest()}")
    kind = HistoryPolicy if method == HISTORY_CONDITIONED.name else MLPPolicy
    return kind.from_arrays(safetensors.numpy.load(content))


def _read(path: Path) -> dict[str, Any]:
    try:
        found = parse_strictly(files.read_file(path, LIMITS.size), LIMITS)
    except ValueError as error:
        raise ArtifactError(f"{path}: not JSON: {error}") from None
    wanted = {"command": str, "seed": int, "digest": str, "version": str, "seconds": float | int}
    for key, kind in wanted.items():
        if not isinstance(found, dict) or not isinstance(found.get(key), kind):
            raise ArtifactError(f"{path}: must tell {', '.join(wanted)}; {key!r} is missing or no {kind}")
    return {key: found[key] for key in (*wanted, *(OPTIONAL & set(found)))}


def _origin(family: LocomotionFamily, policies: PolicyValueSet, share: float, **told: Any) -> Origin:
    """Steps follow from the family where nobody tells them."""
    # The first expert is trained from nothing, and goes on for each budget that was looser; all others begin warm.
    warm = len(policies) - 1 + len(family.loosened)
    planned = family.steps + warm * family.warm_steps + family.safe_steps
    simulated = simulated_steps(family.tasks(), family.envelopes, family.signals, len(policies.policies))
    return Origin(**{"steps": round(share * planned), "simulated": simulated, **told})


# ------------------------------------------------------------------------------------------------------ simulator steps


def simulated_steps(
    tasks: TaskDistribution, envelopes: Envelopes, signals: LearnedSignals, policies: int
) -> dict[str, int]:
    """Of the value bounds of so many policies and of the signals that are learned of them, by what they are for.

    At most: episodes may end before the horizon, and on held-out tasks hopeless policies are skipped.
    """
    settled = envelopes.resolve(tasks.example, tasks.shared_costs)
    looked = max(1, math.floor(LOOK_PART * settled.episodes))
    episodes = {
        SAMPLE: settled.sample * looked,
        HELD_OUT: settled.holdout * settled.episodes,
        SIGNALS: (signals.tasks + LOOK_TASKS) * signals.episodes,
    }
    return {what: count * policies * tasks.units.episode_length for what, count in episodes.items()}


def steps_before(spec: MethodSpec, trained: int, simulated: Mapping[str, int]) -> int:
    """Before the first episode of a method whose policies took `trained` steps: what is certified rests on bounds, if
    only on the one that the safe policy is feasible, what goes by cells on what was simulated for these, and what reads
    signals on signals."""
    bounds = simulated[SAMPLE] + simulated[HELD_OUT] if spec.certified or spec.needs in ("cells", "signals") else 0
    return trained + bounds + (simulated[SIGNALS] if spec.observes == "signals" else 0)
