"""The questions about a run: epsilon, delta, and the whole privacy profile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..bound import Bound
from ..errors import at_least_zero, refuse
from ..loss.strategies.memo import answered_once, uncollected
from ..privacy_loss import PrivacyLoss
from ..relations import Adjacency, Observer
from .certificate import CertificateRun
from .effort import Effort
from .units import remarks_on


class Accountable(Protocol):
    """Any object with a privacy loss: a mechanism, a sampled round, a run."""

    def privacy_loss(
        self, adjacency: Adjacency | str, observer: Observer | str = ...
    ) -> PrivacyLoss:
        """Return the loss under an adjacency and an observer."""


def loss_of(run: Accountable, adjacency: Adjacency | str, observer: Observer | str) -> PrivacyLoss:
    """Return the privacy loss of a run.

    Raises:
        ParameterError: ``run`` has no privacy loss.
        UnsupportedCombination: no theorem covers the run under these facts.
    """
    if isinstance(run, type) or not hasattr(run, "privacy_loss"):
        way_out = "pass a mechanism, such as Gaussian(noise_multiplier=1.0)"
        if type(run).__module__.startswith("dp_accounting"):
            way_out = "convert it: fedprivacy.integrations.dp_accounting.from_event(event)"
        if "ccountant" in type(run).__name__:
            way_out = "fp.audit(accountant, claim=(epsilon, delta)) reads an accountant"
        text = f"the class {run.__name__}" if isinstance(run, type) else type(run).__name__
        refuse("run", text, "have a privacy loss", way_out)
    with answered_once(), uncollected():
        return run.privacy_loss(adjacency, observer).require_upper()


@uncollected()
def epsilon(
    run: Accountable,
    *,
    delta: float,
    adjacency: Adjacency | str,
    observer: Observer | str = Observer.AGGREGATE,
    accountant: str = "pld",
    tolerance: float = 1e-3,
    deadline: float | None = None,
) -> Bound:
    """Return the certified epsilon of a run at a delta.

    Args:
        run: a mechanism, sampled, repeated or nested exactly as it ran.
        delta: in [0, 1]. A delta of 0 means pure differential privacy.
        adjacency: how neighbouring data sets differ; there is no default on purpose.
        observer: who sees the outputs.
        accountant: "pld" (an interval); "game" (the same, but sharper and slower for rounds of
            ``FixedSize`` under replace_one); "rdp" or "advanced" (only upper ends).
        tolerance: wanted width of the interval. It is absolute for an epsilon and relative for a
            probability. "pld" refines until the width is met, or the answer gives the reason.
        deadline: seconds for the whole answer. After that no finer computation starts, and the
            answer says so.

    Returns:
        A Bound; ``upper`` may be published. If delta is 1/n or more, ``qualified`` says so; n is
        the number of units in the sampling schemes of the run.

    Raises:
        ParameterError: a value that breaks its rule.
        UnsupportedCombination: no theorem covers the run under these facts.

    >>> import fedprivacy as fp
    >>> run = fp.Gaussian(noise_multiplier=50.0) * 10_000
    >>> print(f"{fp.epsilon(run, delta=1e-5, adjacency='add_remove').upper:.6f}")
    9.997256
    """
    effort = Effort(accountant, tolerance, deadline)
    loss = loss_of(run, adjacency, observer)
    bound = _certifiable(run, loss, effort.account(loss).epsilon(delta))
    return replace(bound, qualified=remarks_on(run, bound.given))


@uncollected()
def delta(
    run: Accountable,
    *,
    epsilon: float,
    adjacency: Adjacency | str,
    observer: Observer | str = Observer.AGGREGATE,
    accountant: str = "pld",
    tolerance: float = 1e-3,
    deadline: float | None = None,
) -> Bound:
    """Return the certified delta of a run at an epsilon of at least 0, infinity included.

    Arguments, result and errors are those of ``epsilon``; ``tolerance`` is relative here.
    """
    effort = Effort(accountant, tolerance, deadline)
    loss = loss_of(run, adjacency, observer)
    return _certifiable(run, loss, effort.account(loss).delta(epsilon))


def _certifiable(run: Accountable, loss: PrivacyLoss, bound: Bound) -> Bound:
    """Return the bound with its run, so that a certificate can prove the number again."""
    return replace(bound, evidence=CertificateRun(run, loss.curve))


def axes(values: object) -> int:
    """Return the number of axes: 0 for a number, -1 for text and ragged rows."""
    # A string is also a sequence, of letters.
    if isinstance(values, str | bytes):
        return -1
    try:
        return np.ndim(values)  # type: ignore[arg-type]
    except ValueError:
        return -1


class Profile(NamedTuple):
    """A privacy profile: certified ends of delta at each epsilon, all of shape (n,)."""

    epsilons: NDArray[np.float64]
    upper: NDArray[np.float64]
    lower: NDArray[np.float64]


def profile(
    run: Accountable,
    *,
    epsilons: Sequence[float] | NDArray[np.float64],
    adjacency: Adjacency | str,
    observer: Observer | str = Observer.AGGREGATE,
    accountant: str = "pld",
    tolerance: float = 0.01,
    deadline: float | None = None,
) -> Profile:
    """Return the certified privacy profile delta(epsilon) of a run.

    Args:
        run: see ``epsilon``.
        epsilons: where to evaluate, each at least 0, infinity included.
        adjacency: see ``epsilon``.
        observer: see ``epsilon``.
        accountant: see ``epsilon``.
        tolerance: see ``epsilon``.
        deadline: see ``epsilon``; later deltas of the profile then have wider intervals.

    Raises:
        ParameterError: a value that breaks its rule.
        UnsupportedCombination: no theorem covers the run under these facts.
    """
    if axes(epsilons) != 1:
        refuse("epsilons", epsilons, "be a sequence of numbers")
    at = [at_least_zero(epsilons=value) for value in epsilons]
    effort = Effort(accountant, tolerance, deadline)
    loss = loss_of(run, adjacency, observer)
    account = effort.account(loss)
    # If the epsilons are known beforehand, neighbouring ones can share their work.
    account.foresee(at)
    found = []
    for value in at:
        account.deadline = effort.left  # for the whole profile, not for every point
        found.append(account.delta(value))
    ends = np.array([(bound.upper, bound.resolution[0]) for bound in found]).reshape(-1, 2)
    return Profile(np.array(at), ends[:, 0], ends[:, 1])
