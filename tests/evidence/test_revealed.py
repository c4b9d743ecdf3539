"""Tests of ``fedprivacy.evidence.revealed``."""

import fedprivacy as fp
from fedprivacy.evidence import Defect, RunEvidence
from fedprivacy.evidence.revealed import Revealed, revealed_numbers, secret_sizes
from fedprivacy.relations import Adjacency, Facts, Observer, Unit
from tests.evidence.test_doubts import told


def test_denominators_of_one_population_differ_by_less_than_one_unit():
    """d and d' are of N units if N - 1 / q < d / q <= N for both."""
    assert not told({10.0})
    assert told({10.0, 10.999}) == []
    assert told({10.0, 11.0}) and told({10.0, 12.0})
    assert told({10.0}, noises=(1.0, 0.9)) and not told({10.0}, noises=(1.0, 0.9), secret=False)
    assert list(revealed_numbers([], follows=True)) and not list(
        revealed_numbers([], follows=False)
    )


def test_one_abort_of_a_random_cohort_may_tell_its_size():
    def may_tell(secret, aborted):
        return Revealed(secret, 0.1, frozenset(), frozenset(), aborted).aborted_draws

    assert [may_tell(True, n) for n in (0, 1, 2)] == [False, True, True]
    assert not any(may_tell(False, n) for n in (0, 1, 2))


def under(revealed, adjacency):
    run = fp.Gaussian(noise_multiplier=2.0, unit="client").sampled(fp.Poisson(0.1))
    facts = Facts(Unit.CLIENT, Adjacency(adjacency), Observer.AGGREGATE)
    return RunEvidence(run, run, 1, revealed=(revealed,)).under(facts)[1]


def test_aborted_draws_and_missing_denominators_are_defects():
    aborted = Revealed(True, 0.1, frozenset({10.0}), frozenset({1.0}), 1)
    assert Defect.ABORTED_DRAWS in under(aborted, "zero_out")
    silent = Revealed(True, 0.1, frozenset({None}), frozenset({1.0}), 0)
    assert Defect.NO_DENOMINATOR in under(silent, "add_remove")
    assert Defect.NO_DENOMINATOR not in under(silent, "zero_out")


ONE = fp.Gaussian(noise_multiplier=1.0, unit="client")


def test_secret_sizes_are_found_wherever_they_stand():
    drawn = ONE.sampled(fp.Poisson(0.1))
    fixed = ONE.sampled(fp.FixedSize(5, population=50))
    assert all(map(secret_sizes, (drawn, drawn * 2 + fixed, fp.Parallel((fixed, drawn)))))
    assert not any(map(secret_sizes, (None, ONE, fixed, ONE.sampled(fp.Poisson(1.0)))))
