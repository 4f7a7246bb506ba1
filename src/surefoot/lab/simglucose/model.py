"""Glucose and insulin of a person with type 1 diabetes: the equations of the UVA/Padova simulator of 2008 as the
package simglucose 0.2.11 has them (Dalla Man, Rizza, Cobelli 2007, IEEE Trans. Biomed. Eng. 54:1740-1749; Kovatchev et
al. 2009, J. Diabetes Sci. Technol. 3:44-55), for lanes side by side.

    stomach      q₁' = d - k_max q₁,   q₂' = k_max q₁ - k(q/D) q₂,   q = q₁ + q₂
                 k(r) = k_min + (k_max - k_min)/2 [tanh(α(r - b)) - tanh(β(r - c)) + 2],  α = 5/(2(1-b)), β = 5/(2c)
    intestine    q₃' = k(q/D) q₂ - k_abs q₃                             R = f k_abs q₃/w
    under skin   S₁' = u - a (k_a1 + k_d) S₁                            S₂' = a k_d S₁ - a k_a2 S₂
    insulin      L' = m₂ P - (m₁ + m₃₀) L                               P' = m₁ L - (m₂ + m₄) P + a k_a1 S₁ + a k_a2 S₂
    actions      X' = p_2u (s P/V_I - I_b - X),   Y' = k_i (s P/V_I - Y),   Z' = k_i (Y - Z)
    glucose      G' = [k_p1 - k_p2 G - k_p3 Z]₊ + R - F - k_e1 [G - k_e2]₊ - k₁ G + k₂ T
                 T' = k₁ G - k₂ T - (V_m0 + V_mx X) T/(K_m0 + T)
    sensor       C' = k_sc (G - C)                                      C/V_G in mg/dl

d is what is eaten, 5 g a minute, and D the food of the meal that was begun last, with what it found in the stomach; u
insulin and w the weight. With s = a = 1 these are the package's equations: s is what a unit of insulin is worth to this
body, a how fast it leaves the skin. G and T rest once they are negative, as there.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import expm

from surefoot.arrays import Floats, Integers
from surefoot.lab.pump.model import SKIN_TIME, STEP, WEIGHT, on_board_at_rest
from surefoot.lab.simglucose.patients import Patient

MINUTES = int(STEP)  # of a step
EATING = 5.0  # g/min
PMOL_PER_UNIT = 6000.0
# Steps of the Runge-Kutta rule within a step; where somebody eats there is one a minute besides.
PARTS = 2
BITES, BITE = 4, 0.25  # a minute in which somebody eats, in min
TABLE = 2**14
NODES = np.linspace(0, STEP, 2 * PARTS + 1)  # at which it asks for rates
AVERAGE_BASAL = 0.45 * 0.55 * WEIGHT / 24  # U/h of the usual dose, 0.55 U/kg a day, 45 % of it basal


class Bodies:
    """n bodies of one patient side by side, 5 minutes a step. All insulin is that of a body of 75 kg: a pump knows the
    weight, and gives doses in proportion to it.

    Insulin is linear: its step is exact. Stomach and glucose are stepped by the Runge-Kutta rule of fourth order.
    """

    def __init__(self, patient: Patient, glucose: Floats) -> None:
        """At rest at `glucose` [n] mg/dl: the insulin that flows is what keeps it there, or none where glucose
        falls even so."""
        self._patient, self._chain, self._gut = patient, insulin_step(patient), Gut(patient, len(glucose))
        self._sensor, self._unaided = filter_step(patient.ksc, NODES)[-1], patient.Vm0 - patient.Vmx * patient.Ib
        action, self._tissue = resting_action(patient, glucose)
        self._plasma = self._under_skin = patient.Vg * glucose
        self._insulin = np.concatenate([np.zeros((1, len(glucose))), insulin_at_rest(patient, action)])

    @property
    def glucose(self) -> Floats:
        """[n] mg/dl under the skin, where the sensor is."""
        return self._under_skin / self._patient.Vg

    @property
    def on_board(self) -> Floats:
        """[n] U delivered and not yet absorbed, as a pump reckons."""
        on_board: Floats = self._insulin[-1]
        return on_board

    def advance(self, insulin: Floats, meals: Floats) -> None:
        """One step: U of insulin [n] delivered evenly in it, and grams [5, n] of the meals that begin in a minute."""
        self._insulin[0] = insulin
        after = self._chain @ self._insulin
        self._insulin[1:] = after[:9]
        production, use = after[9:].reshape(2, len(NODES), -1)
        path = self._follow_glucose(self._patient.kp1 - production, use + self._unaided, self._gut.advance(meals))
        self._under_skin = self._sensor[0] * self._under_skin + self._sensor[1:] @ path

    def _follow_glucose(self, production: Floats, use: Floats, appearance: Floats) -> Floats:
        """[nodes, n] glucose in plasma; k_p1 - k_p3 Z, V_m0 + V_mx X and R at the nodes are given."""
        h, g, t = STEP / PARTS, self._plasma, self._tissue
        path = np.empty((len(NODES), len(g)))
        path[0] = g
        for k in range(0, 2 * PARTS, 2):
            begin, middle, end = ((production[j], use[j], appearance[j]) for j in (k, k + 1, k + 2))
            g1, t1 = glucose_rates(self._patient, g, t, *begin)
            g2, t2 = glucose_rates(self._patient, g + h / 2 * g1, t + h / 2 * t1, *middle)
            g3, t3 = glucose_rates(self._patient, g + h / 2 * g2, t + h / 2 * t2, *middle)
            g4, t4 = glucose_rates(self._patient, g + h * g3, t + h * t3, *end)
            g, t = g + h / 6 * (g1 + 2 * (g2 + g3) + g4), t + h / 6 * (t1 + 2 * (t2 + t3) + t4)
            path[k + 2] = g
            path[k + 1] = (path[k] + g) / 2 + h / 8 * (g1 - g4)  # the cubic with these slopes
        self._plasma, self._tissue = g, t
        return path


def glucose_rates(
    patient: Patient, g: Floats, t: Floats, production: Floats, use: Floats, appearance: Floats
) -> tuple[Floats, Floats]:
    """G' and T'."""
    p = patient
    exchange = p.k1 * g - p.k2 * t
    plasma = np.maximum(production - p.kp2 * g, 0.0) + appearance - p.Fsnc - exchange
    plasma -= p.ke1 * np.maximum(g - p.ke2, 0.0)
    tissue = exchange - use * t / (p.Km0 + t)
    return plasma * (g >= 0), tissue * (t >= 0)


# ------------------------------------------------------------------------------------------------------ what is eaten


class Gut:
    """Stomach and intestine of n bodies, in mg of glucose."""

    def __init__(self, patient: Patient, n: int) -> None:
        self._patient, self._emptying = patient, emptying(patient)
        self._solid, self._stomach, self._absorbed = np.zeros((3, n))  # q₁, q₁ + q₂, k_abs q₃
        self._planned, self._meal = np.zeros(n), np.ones(n)  # g still to be eaten; D, of no matter before the first
        self._eats = np.zeros(n, np.bool_)  # in the minute before
        self._slow, self._fast = (filter_step(patient.kabs, [0.0, h / 2, h])[-1] for h in (NODES[1], BITE))

    def advance(self, meals: Floats) -> Floats:
        """[nodes, n] the rate of appearance R over a step in which meals [5, n] g begin."""
        busy = np.flatnonzero((self._planned > 0) | self._eats | meals.any(axis=0))
        before = [part[busy] for part in (self._solid, self._stomach, self._absorbed)]
        found = self._digest()
        if busy.size:
            found[:, busy] = self._eat(busy, before, meals[:, busy])
        self._absorbed = found[-1]
        return found * (self._patient.f / self._patient.BW)

    def _digest(self) -> Floats:
        """[nodes, n] k_abs q₃ over a step in which nothing is eaten."""
        found = np.zeros((len(NODES), len(self._solid)))
        if self._absorbed.any():
            found[0], nothing = self._absorbed, np.zeros(1)
            for k in range(len(NODES) - 1):
                self._solid, self._stomach, *flows = self._empty(
                    self._solid, self._stomach, self._meal, nothing, NODES[1]
                )
                found[k + 1] = _mix(self._slow, found[k], *flows)
        return found

    def _eat(self, busy: Integers, before: list[Floats], meals: Floats) -> Floats:
        """The same of the bodies with these numbers, in short steps: how fast a stomach empties changes with every
        bite, much and at once. In the middle of each part is not what is absorbed then, but what gives Simpson's rule,
        and so Runge and Kutta's, the mean of the part: what the gut has less of after it."""
        solid, stomach, absorbed = before
        found, arrived = np.empty((len(NODES), len(busy))), np.zeros(len(busy))
        found[0], held = absorbed, stomach + absorbed / self._patient.kabs
        for bite in range(MINUTES * BITES):
            if bite % BITES == 0:
                meal, eaten = self._bite(busy, stomach, meals[bite // BITES])
            solid, stomach, *flows = self._empty(solid, stomach, meal, eaten, BITE)
            absorbed, arrived = _mix(self._fast, absorbed, *flows), arrived + BITE * eaten
            if (bite + 1) * PARTS % (MINUTES * BITES) == 0:
                k = 2 * (bite + 1) * PARTS // (MINUTES * BITES)
                left = stomach + absorbed / self._patient.kabs
                mean = (held + arrived - left) * (PARTS / STEP)
                found[k - 1], found[k] = (6 * mean - found[k - 2] - absorbed) / 4, absorbed
                held, arrived = left, np.zeros(len(busy))
        self._solid[busy], self._stomach[busy] = solid, stomach
        return found

    def _bite(self, busy: Integers, stomach: Floats, begun: Floats) -> tuple[Floats, Floats]:
        """D, and mg/min that are eaten in a minute at whose beginning there are meals of so many g more."""
        planned = self._planned[busy] + begun
        eaten = np.minimum(planned, EATING)
        first = (eaten > 0) & ~self._eats[busy]
        meal = np.where(first, stomach, self._meal[busy]) + 1000 * eaten
        self._planned[busy], self._eats[busy], self._meal[busy] = planned - eaten, eaten > 0, meal
        return meal, 1000 * eaten

    def _empty(
        self, solid: Floats, stomach: Floats, meal: Floats, eaten: Floats, h: float
    ) -> tuple[Floats, Floats, Floats, Floats, Floats]:
        """q₁ and q₁ + q₂ after h minutes, and what leaves the stomach at their beginning,
        middle and end."""
        p, scale = self._patient, TABLE / meal
        arrived = eaten / p.kmax
        middle, after = (arrived + (solid - arrived) * np.exp(-p.kmax * minutes) for minutes in (h / 2, h))

        def flow(solid: Floats, stomach: Floats) -> Floats:
            return self._emptying[(stomach * scale).astype(np.intp)] * (stomach - solid)

        begin = flow(solid, stomach)
        first = flow(middle, stomach + h / 2 * (eaten - begin))
        second = flow(middle, stomach + h / 2 * (eaten - first))
        end = flow(after, stomach + h * (eaten - second))
        half = (first + second) / 2
        return after, stomach + h * eaten - h / 6 * (begin + 4 * half + end), begin, half, end


def _mix(weights: Floats, a: Floats, b: Floats, c: Floats, d: Floats) -> Floats:
    mixed: Floats = weights[0] * a + weights[1] * b + weights[2] * c + weights[3] * d
    return mixed


def emptying(patient: Patient) -> Floats:
    """k per minute of a stomach that holds 0, 1/TABLE, 2/TABLE, … of its meal."""
    p, left = patient, (np.arange(TABLE + 2) + 0.5) / TABLE
    fuller, emptier = np.tanh(2.5 / (1 - p.b) * (left - p.b)), np.tanh(2.5 / p.d * (left - p.d))
    rate: Floats = p.kmin + (p.kmax - p.kmin) / 2 * (fuller - emptier + 2)
    return rate


def filter_step(rate: float, nodes: ArrayLike) -> Floats:
    """[nodes, 1 + nodes] what y before and x at the nodes in between contribute to y at each node, if y' = k (x - y):
    exact where x is a polynomial through the nodes."""
    at = np.asarray(nodes, dtype=np.float64)
    rows = []
    for end in at:
        # ∫ k e^(-k(end-t)) tᵐ dt from 0 to `end`, by Iₘ = endᵐ - (m/k) Iₘ₋₁
        moments = [1 - np.exp(-rate * end)]
        for m in range(1, len(at)):
            moments.append(end**m - m / rate * moments[-1])
        rows.append([np.exp(-rate * end), *np.linalg.solve(np.vander(at, increasing=True).T, moments)])
    return np.array(rows)


# ------------------------------------------------------------------------------------------------- insulin and sensor


def insulin_step(patient: Patient) -> Floats:
    """[9 + 2·nodes, 10] from (insulin of the step in U, the 9 states before) to the states after it, then k_p3 Z and
    V_mx (X + I_b) at the nodes.

    The states are S₁, S₂, L, P (pmol/kg), X + I_b, Y, Z (pmol/l), then first depot and sum of both as the pump reckons
    them (U).
    """
    rates = insulin_rates(patient)
    steps = [expm(minutes * rates) for minutes in NODES]
    return np.concatenate(
        [
            steps[-1][1:],
            np.stack([patient.kp3 * step[7] for step in steps]),
            np.stack([patient.Vmx * step[5] for step in steps]),
        ]
    )


def insulin_rates(patient: Patient) -> Floats:
    """[10, 10] of (insulin of the step, states)."""
    p, speed, effect = patient, patient.absorption, patient.action / patient.Vi
    rates = np.zeros((10, 10))
    rates[1, 0] = PMOL_PER_UNIT / WEIGHT / STEP
    rates[1, 1], rates[2, 1:3] = -speed * (p.ka1 + p.kd), (speed * p.kd, -speed * p.ka2)
    rates[3, 3:5] = -(p.m1 + p.m30), p.m2
    rates[4, 1:5] = speed * p.ka1, speed * p.ka2, p.m1, -(p.m2 + p.m4)
    rates[5, 4:6] = p.p2u * effect, -p.p2u
    rates[6, 4], rates[6, 6] = p.ki * effect, -p.ki
    rates[7, 6:8] = p.ki, -p.ki
    rates[8:, 0] = 1 / STEP
    rates[8:, 8] = -1 / SKIN_TIME, 1 / SKIN_TIME
    rates[9, 9] = -1 / SKIN_TIME
    return rates


# ----------------------------------------------------------------------------------------------------- bodies at rest


def resting_action(patient: Patient, glucose: Floats) -> tuple[Floats, Floats]:
    """s P/V_I and T at which glucose [n] mg/dl rests, by bisection: more insulin leaves less of what is produced and
    uses more of it."""
    p, g = patient, patient.Vg * glucose
    low, high = np.zeros_like(g), np.full_like(g, MOST_INSULIN * p.kp1 / p.kp3)
    for _ in range(BISECTIONS):
        action = (low + high) / 2
        spare = np.maximum(p.kp1 - p.kp2 * g - p.kp3 * action, 0.0) - p.Fsnc - p.ke1 * np.maximum(g - p.ke2, 0.0)
        tissue = np.maximum((p.k1 * g - spare) / p.k2, 0.0)
        used = (p.Vm0 + p.Vmx * (action - p.Ib)) * tissue / (p.Km0 + tissue)
        low, high = np.where(used < spare, action, low), np.where(used < spare, high, action)
    return action, tissue


def insulin_at_rest(patient: Patient, action: Floats) -> Floats:
    """[9, n] the states of `insulin_step` under the insulin that keeps s P/V_I at `action` [n]; a pump does not know
    that, and reckons with the usual basal rate."""
    body = insulin_rates(patient)[1:8]
    unit = np.linalg.solve(body[:, 1:8], -body[:, 0])  # for 1 U in every step
    state = np.outer(np.append(unit, [0.0, 0.0]), action / unit[4])
    state[8] = on_board_at_rest(AVERAGE_BASAL)
    state[7] = state[8] / 2
    return state


BISECTIONS = 50
MOST_INSULIN = 5.0  # as a multiple of what stops the liver
