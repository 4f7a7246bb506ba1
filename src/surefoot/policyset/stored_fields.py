"""Which fields the manifest of a policy set has, and of which types."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from surefoot.bounds.cells import Source
from surefoot.cmdp.controllers import LONGEST_NAME
from surefoot.cmdp.own_policy import ObservationType
from surefoot.signals.signals import Kind

MAX_HEADER_BYTES = 2**20
MAX_ELEMENTS = 2**29  # of 8 bytes each: 4 GiB over all files
MAX_FILE_BYTES = 8 * MAX_ELEMENTS + MAX_HEADER_BYTES

Count: TypeAlias = Annotated[int, Field(ge=1, le=MAX_FILE_BYTES)]
Shape: TypeAlias = Annotated[list[Count], Field(max_length=8)]
Sha256: TypeAlias = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Bounds: TypeAlias = Annotated[list[float], Field(min_length=2, max_length=2)]
Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)]
Probability: TypeAlias = Annotated[float, Field(ge=0, le=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)


class StoredFile(_Strict):
    sha256: Sha256
    bytes: Count
    shapes: dict[str, Shape]


class StoredEntry(_Strict):
    parameter: list[float]
    reward: float
    margin: list[float]
    safe_reward: float
    safe_margin: list[float]


class StoredOwn(_Strict):
    """A controller of somebody's own: all of it but where it is recognised, which is in arrays if anywhere."""

    fingerprint: Name | None
    given: bool  # whether that is the owner's
    deterministic: bool
    asked_likeliest: bool
    observation_shape: Annotated[list[Count], Field(max_length=7)]
    observation_type: ObservationType
    action_type: Literal["int64", "float64"]


class StoredPolicy(_Strict):
    """One policy of a set whose policies are of different kinds or shapes."""

    kind: str
    own: StoredOwn | None = None


class StoredFeatures(_Strict):
    """Features of somebody's own: all of them but the episodes that they are recognised by, which are in arrays."""

    name: Name
    observation_type: ObservationType
    action_type: ObservationType


class StoredReadings(_Strict):
    """All of the readings but their arrays."""

    kind: Kind
    steps: Annotated[int, Field(ge=1, le=2**53)]
    own: StoredFeatures | None = None
    paid: Literal[True] | None = None


class StoredCells(_Strict):
    """All of the cells but their arrays, and which of the optional arrays there are."""

    source: Source
    uncovered: Probability
    by_start: bool
    outside: bool
    first_states: Literal[True] | None = None  # since 1.3: bounds are for some states and not for all
    model: Literal["none", "balls", "affine"]
    sparse: Literal[True] | None = None  # since 1.3: only the possible transitions are stored
    payments: Literal["transitions", "unknown"] | None = None  # since 1.3: not by state and action
    readings: StoredReadings | None = None  # since 1.4


class Manifest(_Strict):
    format: str
    format_version: Annotated[list[int], Field(min_length=2, max_length=2)]
    library_version: str
    discount: float
    reward_range: Bounds
    cost_range: list[Bounds]
    budget: list[float]
    horizon: Annotated[int, Field(ge=1)] | None = None  # since 1.2, and only where there is one
    reward_sum_range: Bounds | None = None  # since 1.3, and only where declared, as the next
    cost_sum_range: list[Bounds] | None = None
    epsilon: float | None = None  # since 1.3 these three are not there without a cover
    delta: float | None = None
    xi: float | None = None
    task_digest: str
    recipe: dict[str, Any]
    training: dict[str, Any]
    policy_kind: str
    policies: list[StoredPolicy] | None = None  # since 1.3, and only where policy_kind is MIXED
    names: list[Name] | None = None  # since 1.3
    entries: Annotated[list[StoredEntry], Field(min_length=1)]
    cells: StoredCells | None = None
    safe_risk: Probability | None = None  # since 1.1, and only without cells, which know it
    files: dict[str, StoredFile]
    manifest_sha256: Sha256  # of the canonical JSON of all the fields above


class Tensor(_Strict):
    """One line of a safetensors header."""

    dtype: str
    shape: Shape
    data_offsets: list[int]
