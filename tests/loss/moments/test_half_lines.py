"""Half lines side by side: the same integrals as one by one, and those of thirty digits."""

import math

import mpmath
import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.loss import Fold, GaussianMix, Gdp, Mix, Sampled
from fedprivacy.loss.moments.contour import Contour, NoMoments
from fedprivacy.loss.moments.half_lines import HalfLines, stacked

LABELS = ((0.96, 1), (0.039, 2), (0.001, 4))
"""(weight, number of draws): the weights add up to 1."""


def several(z, q):
    """The fold of a unit that is drawn once, twice or four times, and set to 0."""
    there = []
    for weight, s in LABELS:
        stays = (1.0 - q, -float(s))
        there.append((weight, GaussianMix(z, (stays, (q, float(s))), (stays, (q, 0.0)))))
    return Fold(Mix(tuple(there)), Sampled(Mix(tuple((w, Gdp(s / z)) for w, s in LABELS)), q)).part


def integral(rule, line, mass):
    """The sum over a rule's nodes, and its error, without the rest of P that some rules add."""
    found = rule.spectrum(line)
    size = np.exp(found.log_size)
    rest = 1.0 - mass if rule.log_plain is not None else 0.0
    return size * found.values - rest, size * found.error + 1e-15


@pytest.mark.parametrize("z, q", [(1.0, 0.01), (2.0, 0.2), (6.0, 0.001)])
@pytest.mark.parametrize(
    "line",
    [Contour(0.5, 0.0, 1), Contour(0.55, 0.7, 200), Contour(3.0, 0.4, 60), Contour(0.05, 9.0, 90)],
)
def test_a_sum_of_half_lines_is_that_of_each(z, q, line):
    part = several(z, q)
    groups = stacked(part.pieces)
    assert groups == [list(part.pieces[:3]), list(part.pieces[3:])]
    for pieces in groups:
        stack = HalfLines.of(pieces)
        rules = [
            piece.rule(line.tilt, line.top, True, True, 0.0).weighted(math.log(piece.weight))
            for piece in pieces
        ]
        each = [integral(rule, line, p.mass) for rule, p in zip(rules, pieces, strict=True)]
        values, errors = (sum(column) for column in zip(*each, strict=True))
        found, error = integral(stack.joined(line), line, sum(piece.mass for piece in pieces))
        assert np.all(np.abs(found - values) <= error + errors)
        assert np.max(error) <= 1e-10 * max(abs(found[0]), 1.0)


def test_a_moment_of_many_labels_is_within_its_error_of_twenty_digits():
    z, q, tilt, height = 2.0, 0.0625, 0.75, 6.0
    found = several(z, q).spectrum(Contour(tilt, height, 2))
    with mpmath.workdps(22):
        truth = moment(mpmath.mpf(z), mpmath.mpf(q), mpmath.mpc(tilt, height))
        size = mpmath.exp(mpmath.mpf(float(found.log_size)))
        value = mpmath.mpc(complex(found.values[1])) * size
        assert abs(value - truth) <= float(found.error[1]) * size
        assert float(found.error[1]) <= 1e-12


def moment(z, q, s):
    """E e^{s L} of the fold: outcomes above 0 of each label, those below, and the rest at 0."""
    total = mpmath.mpc(0)
    for weight, draws in LABELS:
        far = draws / z
        start = far / 2

        def leaving(y, far=far):
            ratio = (1 - q) * mpmath.exp(-2 * far * y), q * mpmath.exp(-far * y + far * far / 2)
            share = q + ratio[0]
            return mpmath.npdf(y - far) * share, mpmath.log(share / (ratio[0] + ratio[1]))

        def joining(y, far=far):
            return mpmath.npdf(y), -mpmath.log(1 - q + q * mpmath.exp(far * y - far * far / 2))

        for pair in (leaving, joining):

            def excess(y, pair=pair):
                p, loss = pair(y)
                return p * mpmath.expm1(s * loss)

            cuts = [start + k for k in range(13 + draws)]
            total += mpmath.mpf(weight) * mpmath.quad(excess, cuts, method="gauss-legendre")
    return 1 + total


def test_a_rule_for_greater_heights_serves_the_next_line():
    part, fresh = several(1.0, 0.01), several(1.0, 0.01)
    tall, line = Contour(0.5, 1.0, 100), Contour(0.5, 0.11, 800)
    part.spectrum(tall)
    assert part._served[0] == tall
    found, other = part.spectrum(line), fresh.spectrum(line)
    assert "_served" not in vars(part) or part._served[0] == line
    size = math.exp(found.log_size - other.log_size)
    apart = np.abs(size * found.values - other.values)
    assert np.all(apart <= size * found.error + other.error)
    assert np.max(found.error) <= 1e-12


def test_steep_half_lines_have_short_panels_where_they_are_steep():
    """A loss that is flat over most outcomes needs few nodes there."""
    stack = HalfLines.of(stacked(several(1.0, 0.01).pieces)[0])
    nodes = len(stack.joined(Contour(0.5, 1.0, 501)).loss)
    lowest = len(stack.joined(Contour(0.5, 1.0, 2)).loss)
    # One length for all panels would take 30 times as many as for the lowest line.
    assert lowest < nodes < 15 * lowest


def test_half_lines_too_long_for_one_rule_are_integrated_alone():
    """A loss of thousands: the likely outcomes are far from 0 and few."""
    z, q = 0.02, 0.01
    stays = (1.0 - q, -1.0)
    there = GaussianMix(z, (stays, (q, 1.0)), (stays, (q, 0.0)))
    part = Fold(there, Sampled(Gdp(1.0 / z), q)).part
    together, line = HalfLines.of([part.pieces[0]]), Contour(1.0, 0.0, 1)
    with pytest.raises(NoMoments):
        together.joined(line)
    assert not together.short(line.tilt)
    found = part.spectrum(line)
    assert abs(found.log_size - part.cumulants(line.tilt).value) < 1e-3 and found.error[0] < 1e-9


def test_a_plan_without_panels_is_no_rule():
    scheme = fp.WithReplacement(draws=3, probability=0.010381461095721084)
    noise = fp.SparsifiedPerturbation(
        noise_multiplier=2.981811896903626,
        clip_norm=1.0,
        kept=1,
        dimension=1,
        cohort=3,
        missing=0,
        colluding=0,
        topped_up=False,
    )
    rare = fp.ApproximateDp(
        guarantees=((5.167115721068729, 8.528071534114392e-15),),
        adjacency="zero_out",
        zeroed_is_absent=True,
    )
    asked = {"delta": 2.8528260510372533e-11, "adjacency": "zero_out"}
    run = (noise.sampled(scheme) + rare) * 2
    # The stated delta has no finite Renyi divergence; its own rounds have.
    assert fp.epsilon(run, accountant="rdp", **asked).upper == math.inf
    assert fp.epsilon(run, **asked).upper < 100.0
