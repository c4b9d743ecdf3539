"""Fed-PLT's privacy as printed (Bastianello, Liu and Johansson, Proposition 4), with a verdict."""

from __future__ import annotations

import math
from dataclasses import replace

from ...bound import Bound, Verdict
from ...errors import open_unit
from ...mechanisms import Gaussian
from ...questions.claim import Claim, judged
from ...questions.epsilon import epsilon as epsilon_of
from ...relations import Observer
from ...theory.splitting_privacy import (
    LONGEST,
    Attained,
    PrivateSplitting,
    attained,
    clipped_attained,
    final_models_mu,
    rounds_mu,
    server_or_final,
    steps_mu,
)

MISPLACED = 1e-6
"""Share of delta by which a lower end is weakened for iterates that are not in their place."""

SECRET = (
    "The lower end has the start N(0, 2 tau^2 / l) of the proposition, and the upper end holds "
    "for every start."
)
LINKS = (
    "For a linear model with one output, clipping only flattens the link, so the clipped loss "
    "equals an unclipped loss with the strong convexity of the regulariser."
)

LONG = f"In runs of more than {LONGEST} local steps only constant shifts are tried."


def fed_plt_proposition_4(
    *,
    sensitivity: float,
    strong_convexity: float,
    smoothness: float,
    penalty: float,
    step_size: float,
    noise_scale: float,
    local_steps: int,
    rounds: int,
    delta: float,
    observer: str = "final",
    clipped: bool = False,
) -> Claim:
    """Return Proposition 4's epsilon at a delta, and whether it holds.

    As printed: rdp(a) = a g^2 / (l tau^2) (1 - exp(-l gamma K N_e / 2)) for every agent, with gamma
    < 2 / (L + 1 / rho) and x_i,0 drawn from N(0, 2 tau^2 / l). Its Lemma 5 converts the best order
    a = 1 + sqrt(log(1 / delta) / (rdp(a) / a)) into epsilon.

    The verdict is HOLDS if a sound account gives no larger value. The account composes K rounds of
    T6. For ``final`` it takes the bound that does not have to grow with K
    (``theory.splitting_privacy.final_models_mu``) if that is smaller. With clipped gradients it
    composes all steps. The verdict is FAILS if two data sets within the proposition's hypotheses
    lose more. The proposition is stated for every number of agents and every h; the named data sets
    have one agent and h = 0.

    Args:
        sensitivity: g = L / q_i of the paper's Assumption 3.
        strong_convexity: l of every f_i, above 0.
        smoothness: L of every f_i.
        penalty: rho, above 0.
        step_size: gamma.
        noise_scale: tau; a local step's noise has std sqrt(2 gamma) tau.
        local_steps: N_e.
        rounds: K.
        delta: in (0, 1).
        observer: "final" (only the models x_i,K) or "server" (every z_i,k).
        clipped: whether ``sensitivity`` comes from clipping gradients, as the paper suggests.

    Raises:
        ParameterError: a value out of its range, including the printed limit of the step size.
    """
    run = PrivateSplitting(
        sensitivity=sensitivity,
        strong_convexity=strong_convexity,
        smoothness=smoothness,
        penalty=penalty,
        step_size=step_size,
        noise_scale=noise_scale,
        local_steps=local_steps,
        rounds=rounds,
    )
    sees, small = server_or_final(observer), open_unit(delta=delta)
    slope = printed_slope(run)
    claimed = slope + 2.0 * math.sqrt(slope * -math.log(small))
    mu, rule = _upper(run, sees, clipped)
    # So small that delta plus this value stays in (0, 1).
    wrong = MISPLACED * min(small, 1.0 - small)
    pair = clipped_attained(run, sees) if clipped else attained(run, sees, wrong)
    bound = _between(mu, rule, pair, small, wrong)
    named = bound.verdict(claimed) is Verdict.FAILS
    long = not clipped and run.rounds * run.local_steps > LONGEST
    remarks = [SECRET, LINKS * clipped, LONG * long, _renyi(pair, slope, named)]
    return judged(claimed, small, bound, " ".join(filter(None, remarks)))


def printed_slope(run: PrivateSplitting) -> float:
    """Return rdp(a) / a as printed in Proposition 4: a pair of Gaussians has mu^2 / 2."""
    exponent = -0.5 * run.strong_convexity * run.step_size * run.rounds * run.local_steps
    scale = run.sensitivity**2 / (run.strong_convexity * run.noise_scale**2)
    return -scale * math.expm1(exponent)


def _upper(run: PrivateSplitting, observer: Observer, clipped: bool) -> tuple[float, str]:
    """Return a sound mu and its rule."""
    if clipped:
        return steps_mu(run), f"{run.rounds * run.local_steps} clipped steps composed"
    found = [(rounds_mu(run), f"T6 and {run.rounds} rounds composed")]
    if observer is Observer.FINAL:
        found.append((final_models_mu(run), "runs that stay close and meet at the end"))
    return min(found)


def _between(mu: float, rule: str, pair: Attained, delta: float, wrong: float) -> Bound:
    """Return epsilon's Bound from a sound mu and an attained pair."""
    above = _gaussian(mu, delta)
    lower = _gaussian(pair.mu, delta + wrong).lower if pair.mu > 0.0 else 0.0
    return replace(
        above,
        lower=lower,
        resolution=(min(lower, above.upper), above.upper),
        witness=pair.witness,
        method=f"{rule}: {mu:.6g}-GDP",
        assumptions=(),
    )


def _gaussian(mu: float, delta: float) -> Bound:
    """Return epsilon's Bound for N(mu, 1) against N(0, 1)."""
    # A replaced record moves a sum by twice the clip norm, so the multiplier is 2 / mu.
    run = Gaussian(noise_multiplier=2.0 / mu, unit="record")
    return epsilon_of(run, delta=delta, adjacency="replace_one", observer="server")


def _renyi(pair: Attained, slope: float, named: bool) -> str:
    """Return a remark if the attained pair refutes the Renyi statement, else an empty text."""
    if 0.5 * pair.mu**2 <= slope:
        return ""
    by = "the same data sets" if named else pair.witness
    return (
        f"The Renyi statement also fails: rdp(a) = {slope:.6g} a is claimed, but {by} "
        f"approaches {0.5 * pair.mu**2:.6g} a."
    )
