"""Glucose and insulin of an adult with type 1 diabetes: equations and mean parameters of Hovorka et al. (2004),
"Nonlinear model predictive control of glucose concentration in subjects with type 1 diabetes", Physiological
Measurement 25:905-920.

    gut          D₁' = A_G D(t) - D₁/t_G            D₂' = (D₁ - D₂)/t_G            U_G = D₂/t_G
    under skin   S₁' = u - S₁/t_I                   S₂' = (S₁ - S₂)/t_I            U_I = S₂/t_I
    plasma       I' = U_I/V_I - k_e I
    actions      zᵢ' = k_aᵢ (I - zᵢ)                xᵢ = s ρ(t) Sᵢ zᵢ              i = 1, 2, 3
    glucose      Q₁' = -F₀₁ᶜ - F_R - x₁Q₁ + k₁₂Q₂ + U_G + EGP₀ [1 - x₃]₊           G = Q₁/V_G
                 Q₂' = x₁Q₁ - (k₁₂ + x₂) Q₂
    with         F₀₁ᶜ = F₀₁ min(G/4.5, 1),          F_R = 0.003 [G - 9]₊ V_G       (G in mmol/l)

s is how sensitive the patient is to insulin, 1 being the mean of the paper, and ρ(t) how much more than usual just now;
where ρ is constant the xᵢ are those of the paper. Q, U_G, F and EGP₀ are per kg of body weight. A simulation, no
medical device: docs/glucose.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import expm

from surefoot.arrays import Floats

STEP = 5.0  # minutes
WEIGHT = 75.0  # kg
MG_PER_DL = 18.016  # in a mmol/l of glucose
MMOL_PER_GRAM = 1000 / 180.16

GUT_FRACTION, GUT_TIME = 0.8, 40.0  # A_G; t_G in min
SKIN_TIME = 55.0  # t_I in min
INSULIN_LOSS, INSULIN_VOLUME = 0.138, 0.12  # k_e per min; V_I in l/kg
ACTION_RATES = np.array([0.006, 0.06, 0.03])  # k_aᵢ per min
TRANSPORT, DISPOSAL, LIVER = 51.2e-4, 8.2e-4, 520e-4  # S₁, S₂ in l/min/mU; S₃ in l/mU
EXCHANGE, GLUCOSE_VOLUME = 0.066, 0.16  # k₁₂ per min; V_G in l/kg
BRAIN, BRAIN_FALLS_BELOW = 0.0097, 4.5  # F₀₁ in mmol/kg/min; mmol/l
KIDNEY, KIDNEY_FROM = 0.003, 9.0  # per min; mmol/l
LIVER_OUTPUT = 0.0161  # EGP₀ in mmol/kg/min


@dataclass(frozen=True)
class Patient:
    """What differs between patients.

    Attributes:
        sensitivity: to insulin, a factor on S₁, S₂ and S₃; 1 is the mean.
        skin_time: t_I in minutes, after which insulin leaves the depot under the skin fastest.
    """

    sensitivity: float = 1.0
    skin_time: float = SKIN_TIME


class Bodies:
    """n bodies of one patient side by side, 5 minutes a step.

    Insulin and gut are linear: their step is exact. Glucose is bilinear: x₁, x₂, x₃ and U_G enter by their exact means
    over the step, F₀₁ᶜ and F_R at the middle of the step as the last two values foretell it, and what is then linear is
    solved by the trapezoidal rule, which is of second order too.
    """

    def __init__(self, patient: Patient, glucose: Floats) -> None:
        """At rest at `glucose` [n] mg/dl: the insulin that flows is what keeps it there."""
        n = len(glucose)
        q1 = GLUCOSE_VOLUME * glucose / MG_PER_DL
        effect = resting_insulin(q1)  # s·I
        self._chain = insulin_step(patient)
        self._q1 = self._q1_before = q1
        self._q2 = TRANSPORT * effect * q1 / (EXCHANGE + DISPOSAL * effect)
        self._gut, self._eaten = np.zeros(n), np.zeros(n)  # D₁ and D₁ + D₂, before A_G
        self._now, self._next = np.zeros((12, n)), np.zeros((12, n))
        plasma = effect / patient.sensitivity
        depot = plasma * INSULIN_LOSS * INSULIN_VOLUME * WEIGHT * patient.skin_time
        self._now[1:7] = depot, depot, plasma, plasma, plasma, plasma
        self._now[8] = on_board_at_rest(AVERAGE_BASAL)
        self._now[7] = self._now[8] / 2

    @property
    def glucose(self) -> Floats:
        """[n] mg/dl in plasma."""
        return self._q1 * (MG_PER_DL / GLUCOSE_VOLUME)

    @property
    def on_board(self) -> Floats:
        """[n] U delivered and not yet absorbed, as a pump reckons with the mean t_I; as if the night before had seen
        the basal rate of the average adult, for a pump does not know more at midnight."""
        on_board: Floats = self._now[8]
        return on_board

    def advance(self, insulin: Floats, carbohydrates: Floats, response: Floats) -> None:
        """One step: U of insulin delivered evenly in it, grams eaten at its beginning, ρ in it; each [n]."""
        self._now[0] = insulin
        np.matmul(self._chain, self._now[:9], out=self._next[1:])
        self._now, self._next = self._next, self._now
        moved, disposed, suppressed = self._now[9:] * response  # h/2·x₁, h/2·x₂ and EGP₀·x₃

        q1, q2, between = self._q1, self._q2, EXCHANGE * STEP / 2
        middle = 1.5 * q1 - 0.5 * self._q1_before
        flow = self._gut_absorption(carbohydrates) - np.minimum(
            middle * (BRAIN / BRAIN_FALLS_BELOW / GLUCOSE_VOLUME), BRAIN
        )
        flow -= np.maximum(KIDNEY * middle - KIDNEY * KIDNEY_FROM * GLUCOSE_VOLUME, 0.0)
        flow += np.maximum(LIVER_OUTPUT - suppressed, 0.0)

        # The middle m of the trapezoidal step: (1 - h/2·M) m = Q + h/2·flow, of which the next Q is 2m - Q.
        first, second, known = 1 + moved, (1 + between) + disposed, q1 + STEP / 2 * flow
        scale = 2 / (first * second - between * moved)
        self._q2 = (first * q2 + moved * known) * scale - q2
        self._q1, self._q1_before = np.maximum((second * known + between * q2) * scale - q1, 0.0), q1

    def _gut_absorption(self, carbohydrates: Floats) -> Floats:
        """[n] mean U_G over the step, in mmol/kg/min: what the gut has less of after it."""
        kept = np.exp(-STEP / GUT_TIME)
        gut, eaten = self._gut + carbohydrates, self._eaten + carbohydrates
        self._gut = kept * gut
        self._eaten = kept * (eaten + STEP / GUT_TIME * gut)
        flow: Floats = (eaten - self._eaten) * (GUT_FRACTION * MMOL_PER_GRAM / WEIGHT / STEP)
        return flow


def insulin_step(patient: Patient) -> Floats:
    """[11, 9] from (insulin of the step in U, the 8 states before) to (the 8 states after, 3 means over the step).

    The states are S₁, S₂ (mU), I, z₁, z₂, z₃ (mU/l), then first depot and sum of both as the pump reckons them (U); the
    means are h/2·x₁, h/2·x₂ and EGP₀·x₃ for ρ = 1.
    """
    skin_time = patient.skin_time
    rates = np.zeros((12, 12))  # of (U per step, states, integrals of z)
    rates[1, 0] = 1000 / STEP
    rates[1, 1] = rates[2, 2] = -1 / skin_time
    rates[2, 1] = 1 / skin_time
    rates[3, 2] = 1 / (skin_time * INSULIN_VOLUME * WEIGHT)
    rates[3, 3] = -INSULIN_LOSS
    rates[4:7, 3] = ACTION_RATES
    rates[4:7, 4:7] = -np.diag(ACTION_RATES)
    rates[7:9, 0] = 1 / STEP
    rates[7:9, 7] = -1 / SKIN_TIME, 1 / SKIN_TIME
    rates[8, 8] = -1 / SKIN_TIME
    rates[9:, 4:7] = patient.sensitivity * np.diag([TRANSPORT / 2, DISPOSAL / 2, LIVER_OUTPUT * LIVER / STEP])
    step: Floats = expm(STEP * rates)[1:, :9]
    return step


def resting_insulin(q1: Floats) -> Floats:
    """s·I at which glucose Q₁ [n] rests: the positive root y of (A - E y)(k₁₂ + S₂ y) = S₁ S₂ Q₁ y², which is
    Q₁' = Q₂' = 0 with x = y S, A = EGP₀ - F₀₁ᶜ - F_R and E = EGP₀ S₃."""
    kidney = KIDNEY * np.maximum(q1 - KIDNEY_FROM * GLUCOSE_VOLUME, 0.0)
    spare = LIVER_OUTPUT - BRAIN * np.minimum(q1 / (BRAIN_FALLS_BELOW * GLUCOSE_VOLUME), 1.0) - kidney
    by_liver = LIVER_OUTPUT * LIVER
    a = DISPOSAL * (by_liver + TRANSPORT * q1)
    b = by_liver * EXCHANGE - spare * DISPOSAL
    root: Floats = (np.sqrt(b * b + 4 * a * spare * EXCHANGE) - b) / (2 * a)
    return root


def resting_basal(patient: Patient, glucose: float) -> float:
    """U/h at which `glucose` mg/dl rests."""
    effect = resting_insulin(np.array([GLUCOSE_VOLUME * glucose / MG_PER_DL]))[0]
    return float(effect / patient.sensitivity * INSULIN_LOSS * INSULIN_VOLUME * WEIGHT * 60 / 1000)


def on_board_at_rest(basal: float) -> float:
    """U on board, as a pump reckons, under a basal rate of U/h that has long been the same: 2 t_I of it."""
    return basal * 2 * SKIN_TIME / 60


AVERAGE_BASAL = resting_basal(Patient(), 110.0)


# What digests are made of, in this order and by these names: they stay, whatever constants are called.
NUMBERS = (
    "ACTION_RATES AVERAGE_BASAL BRAIN BRAIN_FALLS_BELOW DISPOSAL EXCHANGE GLUCOSE_VOLUME GUT_FRACTION GUT_TIME "
    "INSULIN_LOSS INSULIN_VOLUME KIDNEY KIDNEY_FROM LIVER LIVER_OUTPUT MG_PER_DL MMOL_PER_GRAM SKIN_TIME STEP "
    "TRANSPORT WEIGHT"
)


def numbers() -> dict[str, ArrayLike]:
    """All constants of this file by name."""
    return {name: globals()[name] for name in NUMBERS.split()}
