"""The policy sets of the experiment on robots: trained once and shipped with the package, or trained anew."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from surefoot import __version__, files
from surefoot.bounded_json import Limits, parse_strictly
from surefoot.errors import ArtifactError, InvalidInput
from surefoot.experiments.locomotion.families import FAMILIES, Family
from surefoot.policyset.policy_value_set import PolicyValueSet

TRAINED = Path(__file__).parent / "trained"
LIMITS = Limits(size=2**16, values=1000, depth=4)


@dataclass(frozen=True)
class Origin:
    """How a policy set came about.

    Attributes:
        digest: of the set.
        version: of the package.
        seconds: that it took.
        steps: of training in the simulator, as far as planned: policies that fail their test are trained further.
        safe_steps: those of the safe policy among them.
    """

    command: str
    seed: int
    digest: str
    version: str
    seconds: float
    steps: int
    safe_steps: int


def shipped(name: str) -> tuple[PolicyValueSet, Origin]:
    """The set of a family, if it is the one that its origin tells of."""
    folder, told = TRAINED / f"{name}.policyset", TRAINED / f"{name}.json"
    if not (folder.is_dir() and told.is_file()):
        raise InvalidInput(f"families must be trained, and {name} is not shipped with this package: use --retrain")
    policies, found = PolicyValueSet.load(folder), _read(told)
    origin = _origin(FAMILIES[name], policies, 1.0, **found)
    if origin.digest != policies.digest():
        raise ArtifactError(f"{folder}: its digest is not the one in {told.name}: {policies.digest()}")
    return policies, origin


def trained_anew(name: str, out: Path, *, seed: int, share: float, jobs: int) -> tuple[PolicyValueSet, Origin]:
    """Algorithm 1 on a family; the set and its origin are left in `out`."""
    # Imported when it is needed: training takes JAX, adapting does not.
    from surefoot.experiments.locomotion.schooling import Bounds, schooled

    began = time.perf_counter()
    policies = schooled(FAMILIES[name], Bounds(), seed=seed, jobs=jobs, share=share)
    origin = _origin(
        FAMILIES[name],
        policies,
        share,
        command=f"surefoot reproduce locomotion --families {name} --retrain --share {share:g} --seed {seed} --out DIR",
        seed=seed,
        digest=policies.digest(),
        version=__version__,
        seconds=time.perf_counter() - began,
    )
    policies.save(out / f"{name}.policyset")
    files.write_files(out, {f"{name}.json": json.dumps(asdict(origin), indent=1).encode()})
    return policies, origin


def _read(path: Path) -> dict[str, Any]:
    try:
        found = parse_strictly(files.read_file(path, LIMITS.size), LIMITS)
    except ValueError as error:
        raise ArtifactError(f"{path}: not JSON: {error}") from None
    wanted = {"command": str, "seed": int, "digest": str, "version": str, "seconds": float | int}
    for key, kind in wanted.items():
        if not isinstance(found, dict) or not isinstance(found.get(key), kind):
            raise ArtifactError(f"{path}: must tell {', '.join(wanted)}; {key!r} is missing or no {kind}")
    return {key: found[key] for key in (*wanted, *({"steps", "safe_steps"} & set(found)))}


def _origin(family: Family, policies: PolicyValueSet, share: float, **told: Any) -> Origin:
    """Steps follow from the family where nobody tells them."""
    safe = round(share * family.safe_steps)
    experts = round(share * (family.steps + (len(policies) - 1) * family.warm_steps))
    return Origin(**{"steps": safe + experts, "safe_steps": safe, **told})
