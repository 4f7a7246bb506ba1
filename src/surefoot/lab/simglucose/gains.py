"""Settings of a pump by body weight, and one gain on them: what a clinic starts from before it knows the patient.

The usual rules: 0.55 U/kg a day, 45 % of it as basal rate, 450 g and 1700 mg/dl over the daily dose for carbohydrates
and corrections (Walsh, Roberts, Bailey 2011, J. Diabetes Sci. Technol. 5:1129-1135, discuss them).
"""

from __future__ import annotations

import numpy as np

from surefoot.lab.pump.model import WEIGHT
from surefoot.lab.pump.settings import InsulinSettings

DAILY = 0.55 * WEIGHT  # U
USUAL_SETTINGS = InsulinSettings(
    basal=0.45 * DAILY / 24, feedback=0.0, ratio=450 / DAILY, correction_factor=1700 / DAILY
)
# The most sensitive patient of the thirty keeps the budget up to about 0.5, and those around this one are up to 1.65
# times as sensitive.
SAFE_GAIN, LEAST_GAIN, MOST_GAIN = 0.25, 0.4, 2.2


def gain_candidates(count: int = 9) -> tuple[InsulinSettings, dict[str, InsulinSettings]]:
    """Settings for `sf.policy_set`: those meant to be safe for everybody, and so many candidates by name, from least to
    most insulin. Nothing is claimed of them but what `policy_set` then bounds."""
    gains = np.geomspace(LEAST_GAIN, MOST_GAIN, count)
    return USUAL_SETTINGS.scaled(SAFE_GAIN), {f"gain {gain:.2f}": USUAL_SETTINGS.scaled(gain) for gain in gains}
