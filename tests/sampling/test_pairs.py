"""Tests of ``fedprivacy.sampling.pairs``."""

import math

import mpmath
import pytest

from fedprivacy.loss import Gdp
from fedprivacy.sampling import TruncatedPoisson
from fedprivacy.sampling.pairs import sampled


def exact(n, q, largest):
    """Return the law by mpmath: P(takes part), P(others fill), P(kept | full), P(no room) ..."""
    q = mpmath.mpf(q)

    def mass(trials, k):
        return mpmath.binomial(trials, k) * q**k * (1 - q) ** (trials - k)

    full = mpmath.fsum(mass(n - 1, m) for m in range(largest, n))
    kept = mpmath.fsum(mass(n - 1, m) * q * largest / (m + 1) for m in range(largest, n))
    takes_one = q * mass(n - 1, largest - 1) + kept
    one = takes_one + (1 - q) * mass(n - 1, largest - 1)
    few = mpmath.fsum(mass(n - 1, m) for m in range(largest - 1))
    return {
        "takes part": q * (1 - full) + kept,
        "full": full,
        "kept": kept / full,
        "one": one,
        "chance": takes_one / one,
        "none": 1 - few - one,
    }


LAWS = [(200, 0.1, 20), (200, 0.1, 45), (200, 0.1, 5), (200, 0.9, 199), (200, 1e-9, 3)]
LAWS += [(40, 1.0, 7), (60, 1 - 1e-9, 30), (2, 0.3, 1), (1000, 0.002, 9), (1000, 0.3, 900)]


@pytest.mark.parametrize("n, q, largest", LAWS)
def test_the_law_is_rounded_to_the_safe_side(n, q, largest):
    scheme = TruncatedPoisson(q, population=n, largest=largest)
    mixture = scheme.by_room(lambda chance: sampled(Gdp(1.0), chance))
    always = {Gdp(1.0): 1.0}
    weights = {getattr(c, "q", always.get(c, 0.0)): weight for weight, c in mixture.parts}
    chance = max(weights)
    with mpmath.workdps(400):
        law = exact(n, q, largest)
        assert scheme.surely <= law["takes part"] <= scheme.rate
        assert scheme.full[0] <= law["full"] <= scheme.full[1]
        assert scheme.kept >= law["kept"]
        assert chance >= law["chance"] and weights[chance] >= law["one"]
        assert weights.get(0.0, 0.0) <= law["none"]
        tight = 1 + mpmath.mpf(1e-10)
        assert scheme.rate <= scheme.surely * tight
        assert scheme.kept <= law["kept"] * tight and chance <= law["chance"] * tight
        assert weights[chance] <= max(law["one"] * tight, 1e-300)
        assert weights.get(0.0, 0.0) >= law["none"] / tight - mpmath.mpf(1e-15)
    assert math.fsum(weight for weight, _ in mixture.parts) == pytest.approx(1.0, abs=1e-15)
