"""Audits by the recorded rounds: noise of every kind, cohorts, shares, denominators."""

import math

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.evidence.defects import Defect
from fedprivacy.evidence.doubts import doubts
from fedprivacy.evidence.repricing import as_observed, as_released, run_of

pytestmark = pytest.mark.usefixtures("narrowest")

LANGEVIN = fp.FederatedLangevin(
    step_size=0.01,
    temperature=1.0,
    correlation=0.6,
    weight=0.5,
    batch_fraction=1.0,
    gradient_sensitivity=0.2,
    steps=3,
)
ONE_STEP = fp.FederatedHamiltonian(
    step_size=0.01,
    leapfrog_steps=1,
    correlation=0.3,
    weight=0.5,
    batch_fraction=1.0,
    gradient_sensitivity=0.1,
    gradient_noise_multiplier=2.0,
)
TRAJECTORY = fp.FederatedHamiltonian(
    step_size=0.5,
    leapfrog_steps=3,
    correlation=0.3,
    weight=0.5,
    batch_fraction=0.5,
    gradient_sensitivity=1.0,
    gradient_noise_multiplier=1.0,
)
CLIPPED = fp.NoisyGradientDescent(step_size=0.1, noise_std=0.5, sensitivity=0.04, steps=3)
OWN = fp.NoisyGradientDescent(
    step_size=0.1, noise_std=0.5, sensitivity=0.25, strong_convexity=1.0, smoothness=2.0, steps=3
)
GAUSS = fp.Gaussian(noise_multiplier=5.0, unit="record")
KINDS = {
    "sum": (GAUSS, 1.0),
    "two sums": (GAUSS + fp.Gaussian(noise_multiplier=8.0, unit="record"), 1.0),
    "Laplace": (fp.Laplace(noise_multiplier=5.0, unit="record"), 1.0),
    "Langevin": (LANGEVIN, 0.1),
    "Hamiltonian": (ONE_STEP, 0.05),
    "trajectory": (TRAJECTORY, 0.5),
    "clipped descent": (CLIPPED, 1.0),
    "descent": (OWN, 0.25),
    "kinds": (fp.Parallel((LANGEVIN.in_cohort(fp.Poisson(0.3)), LANGEVIN)), 0.1),
    "rounds": (LANGEVIN * 2 + LANGEVIN.in_cohort(fp.FixedSize(2, 10)), 0.1),
    "nested": ((GAUSS * 3).in_cohort(fp.FixedSize(5, 10)), 1.0),
}


def written(path, mechanism, clip_norm, planned, used, **facts):
    """Write one round and return the ledger's path."""
    given = {"adjacency": "replace_one", "unit": "record", "claim": (100.0, 1e-5)} | facts
    with fp.Ledger.create(path, **given) as ledger:
        number = ledger.intent(mechanism, clip_norm=clip_norm, noise_std=planned)
        ledger.done(number, cohort=5, arrived=5, refused=0, noise_std=used)
        ledger.close()
    return path


def stated(name):
    """Return a kind's mechanism, clip norm and the least noise that it says it has."""
    mechanism, clip_norm = KINDS[name]
    return mechanism, clip_norm, clip_norm * min(mechanism.noise_ratios(clip_norm))


@pytest.mark.parametrize("name", KINDS)
def test_noise_that_is_not_the_mechanisms_is_never_fine(tmp_path, name):
    mechanism, clip_norm, std = stated(name)
    ask = {"delta": 1e-5, "adjacency": "replace_one"}
    claim = (fp.epsilon(mechanism, **ask, accountant="rdp").upper, 1e-5)
    fine = written(tmp_path / "fine", mechanism, clip_norm, std, std, claim=claim)
    found = fp.audit(fine)
    assert found.verdict == "HOLDS" and found.run == mechanism * 1 and not found.defects
    less = written(tmp_path / "less", mechanism, clip_norm, 0.3 * std, 0.3 * std, claim=claim)
    if name == "trajectory":
        with pytest.raises(
            fp.UnsupportedCombination, match=r"is not recorded|does not state whether"
        ):
            fp.audit(less)
    else:
        found = fp.audit(less)
        # Of two sums, the one number may belong to only one.
        certain = "CANNOT BE CERTIFIED" if name == "two sums" else "FAILS"
        assert found.verdict == certain and found.defects == (Defect.LESS_NOISE,)
        nothing = {"clip_norm": clip_norm, "planned_std": 1e-9, "used_std": 1e-9}
        assert as_released(mechanism, **nothing) != mechanism
    bit = as_released(mechanism, clip_norm=clip_norm, planned_std=std, used_std=0.97 * std)
    assert fp.epsilon(bit, **ask, accountant="rdp").upper > claim[0]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("less", [1e-3, 1e-6, 1e-8])
def test_a_little_less_noise_is_less_noise(name, less):
    """Only the record's decimals are forgiven: 1e-9 of the noise."""
    mechanism, clip_norm, std = stated(name)

    def released(share):
        return as_released(
            mechanism, clip_norm=clip_norm, planned_std=std, used_std=std * (1.0 - share)
        )

    assert released(1e-11) == mechanism
    found = released(less)
    assert found != mechanism
    ask = {"delta": 1e-5, "adjacency": "replace_one", "accountant": "rdp"}
    assert fp.epsilon(found, **ask).upper > fp.epsilon(mechanism, **ask).upper


def test_a_claim_at_the_plan_s_number_fails_once_a_millionth_of_the_noise_is_missing(tmp_path):
    """The claim lies between the number with all noise and the one with a millionth less."""
    ask = {"delta": 1e-5, "adjacency": "replace_one", "tolerance": 1e-9}
    ends = [fp.epsilon(GAUSS.rescaled(share), **ask) for share in (1.0, 1.0 - 1e-6)]
    assert ends[0].upper < ends[1].lower
    claim = (0.5 * (ends[0].upper + ends[1].lower), 1e-5)
    for used, verdict in ((5.0, "HOLDS"), (5.0 * (1.0 - 1e-6), "FAILS")):
        path = written(tmp_path / verdict, GAUSS, 1.0, 5.0, used, claim=claim)
        assert fp.audit(path).verdict == verdict


def test_the_ratios_are_those_that_ledgers_state():
    assert LANGEVIN.noise_ratios(0.1) == {LANGEVIN.step_noise_std / 0.1}
    assert ONE_STEP.noise_ratios(0.05) == {ONE_STEP.step_noise_std / 0.05}
    (clipped,) = CLIPPED.noise_ratios(1.0)
    assert clipped == pytest.approx(0.5 / 0.1 * 50 / 1.0)  # the sum of 50 gradients, clipped to 1
    assert OWN.noise_ratios(0.25) == {0.5 / 0.1 / 0.25}
    assert OWN.noise_ratios(0.3) == frozenset()
    shared = fp.FederatedLangevin(
        step_size=0.01,
        temperature=1.0,
        correlation=1.0,
        weight=0.5,
        batch_fraction=1.0,
        gradient_sensitivity=0.2,
    )
    assert shared.noise_ratios(0.1) == frozenset()


def test_a_fraction_of_the_noise_is_priced_as_that():
    quarter = fp.FederatedLangevin(
        step_size=0.01,
        temperature=0.25,
        correlation=0.6,
        weight=0.5,
        batch_fraction=1.0,
        gradient_sensitivity=0.2,
        steps=3,
    )
    ask = {"delta": 1e-5, "adjacency": "replace_one"}
    assert fp.epsilon(LANGEVIN.rescaled(0.5), **ask).upper == pytest.approx(
        fp.epsilon(quarter, **ask).upper, rel=1e-6
    )
    assert CLIPPED.rescaled(0.5).noise_std == 0.25
    half = ONE_STEP.rescaled(0.5)
    assert half.momentum_multiplier == pytest.approx(0.5 * ONE_STEP.momentum_multiplier)
    assert half.gradient_noise_multiplier == 1.0
    for mechanism in (LANGEVIN, ONE_STEP, CLIPPED, GAUSS, GAUSS * 3, fp.Parallel((LANGEVIN,))):
        assert mechanism.rescaled(0.0) is None


def test_what_the_record_does_not_tell_apart_is_priced_by_the_worst_of_it():
    """Each way to lose noise without a change of the recorded std loses at most the priced loss."""
    eta, std = 0.5, TRAJECTORY.step_noise_std
    momentum = eta * TRAJECTORY.momentum_noise_std
    asked = 0.5 * eta**2 * TRAJECTORY.gradient_noise_std
    ask = {"delta": 1e-5, "adjacency": "replace_one", "accountant": "rdp"}
    priced = fp.epsilon(TRAJECTORY.rescaled(0.97), **ask).upper
    left = (0.97 * std) ** 2
    for moved in np.linspace(math.sqrt(left - asked**2), momentum, 5):
        kept = math.sqrt(left - moved**2)
        other = fp.FederatedHamiltonian(
            step_size=eta,
            leapfrog_steps=3,
            correlation=1.0 - 0.7 * (moved / momentum) ** 2,
            weight=0.5,
            batch_fraction=0.5,
            gradient_sensitivity=1.0,
            gradient_noise_multiplier=kept / asked,
        )
        assert fp.epsilon(other, **ask).upper <= priced
    with pytest.raises(fp.UnsupportedCombination, match="whether momenta or gradients"):
        TRAJECTORY.rescaled(0.1)
    assert as_observed(TRAJECTORY, clip_norm=0.5, planned_std=std, used_std=2 * std) is None


def test_a_ledger_that_states_shared_noise_too_does_not_fail_by_it(tmp_path):
    """Ledgers of before wrote a step's whole noise: more than its private part."""
    std = LANGEVIN.step_noise_std
    bound = fp.epsilon(LANGEVIN, delta=1e-5, adjacency="replace_one")
    path = written(tmp_path / "a", LANGEVIN, 0.1, 1.5 * std, 1.5 * std, claim=(bound.upper, 1e-5))
    found = fp.audit(path)
    assert found.verdict == "HOLDS" and found.bound.lower < bound.lower
    again = fp.audit(path, claim=(0.99 * bound.lower, 1e-5))
    assert again.verdict == "CANNOT BE CERTIFIED"


def test_a_mechanism_of_which_nothing_is_known_is_compared_with_its_plan(tmp_path):
    bare = fp.GaussianDp(mu=0.5, adjacency="replace_one", unit="record")
    args = {"clip_norm": 1.0, "planned_std": 2.0}
    assert as_released(bare, **args, used_std=2.0) == bare
    assert as_observed(bare, **args, used_std=3.0) is None
    with pytest.raises(fp.UnsupportedCombination, match="GaussianDp cannot be accounted"):
        as_released(bare, **args, used_std=1.0)


# Cohorts


def cohorts(path, mechanism, sizes, **options):
    """Write a round for every cohort and return the doubts."""
    given = {"adjacency": "zero_out", "unit": "client", "claim": (1e6, 1e-5)} | options
    with fp.Ledger.create(path, **given) as ledger:
        for size in sizes:
            number = ledger.intent(mechanism, clip_norm=1.0, noise_std=1.0)
            ledger.done(number, cohort=int(size), arrived=int(size), refused=0, noise_std=1.0)
        ledger.close()
        return doubts(ledger.rounds)


ONE = fp.Gaussian(noise_multiplier=1.0, unit="client")


@pytest.mark.parametrize("q", [1e-3, 0.3])
def test_cohorts_that_were_drawn_are_not_doubted(q):
    """Chance of failing by accident: 20 ledgers at 1e-9 each."""
    generator = np.random.default_rng(5)
    for _ in range(20):
        drawn = generator.binomial(4000, q, size=100).tolist()
        assert fp.Poisson(q).unlikely({size: drawn.count(size) for size in drawn}, 1e-9) == []


@pytest.mark.parametrize(
    ("scheme", "sizes"),
    [
        (fp.Poisson(1e-4), [5000] * 8),
        (fp.Poisson(0.3), [2, 3, 100]),
        (fp.Poisson(0.01), [100, 101, 5] * 5),
        (fp.Everyone(), [10, 10, 11]),
        (fp.WithReplacement(10, population=1000), [10, 2, 10]),
        (fp.WithReplacement(10, population=1000), [11]),
        (fp.FixedSize(10, population=1000), [10, 9]),
        (fp.TruncatedPoisson(0.1, population=1000, largest=120), [101, 121]),
        (fp.TruncatedPoisson(0.1, population=1000, largest=120), [101, 110, 30]),
        (fp.TruncatedPoisson(0.1, population=1000, largest=120), [100, 120, 30]),
        (fp.TruncatedPoisson(0.01, population=1000, largest=120), [8, 120]),
        (fp.TruncatedPoisson(0.1, population=1000, largest=600), [130] * 30),
    ],
    ids=repr,
)
def test_cohorts_that_no_scheme_draws_are_doubted(tmp_path, scheme, sizes):
    assert cohorts(tmp_path / "a", ONE.sampled(scheme), sizes)


def test_doubted_cohorts_certify_nothing(tmp_path):
    assert cohorts(tmp_path / "a", ONE.sampled(fp.Poisson(0.3)), [2, 3, 100])
    found = fp.audit(tmp_path / "a")
    assert found.verdict == "CANNOT BE CERTIFIED" and Defect.OTHER_COHORTS in found.defects
    with pytest.raises(
        fp.UnsupportedCombination, match="the recorded run differs from the accounted one"
    ):
        fp.account(tmp_path / "a", delta=1e-5)


def test_three_equal_cohorts_are_no_proof(tmp_path):
    """Of 5 10^7 clients, 5000 are drawn three times running with probability 3 10^-5."""
    assert cohorts(tmp_path / "a", ONE.sampled(fp.Poisson(1e-4)), [5000] * 3) == ()
    plain = ONE.sampled(fp.TruncatedPoisson(0.1, population=1000, largest=120))
    assert cohorts(tmp_path / "b", plain, [100, 120, 90, 111]) == ()


SMP = fp.SparsifiedPerturbation(
    noise_multiplier=2.0, clip_norm=1.0, kept=5, dimension=10, cohort=10, missing=7
)


@pytest.mark.parametrize("topped_up", [False, True])
def test_more_noise_than_the_shares_that_came_is_doubted(tmp_path, topped_up):
    smp = fp.SparsifiedPerturbation(
        noise_multiplier=2.0,
        clip_norm=1.0,
        kept=5,
        dimension=10,
        cohort=10,
        missing=7,
        topped_up=topped_up,
    )
    facts = {"adjacency": "zero_out", "unit": "client", "claim": (1e3, 1e-5)}
    with fp.Ledger.create(tmp_path / "a", **facts) as ledger:
        mechanism = smp.sampled(fp.FixedSize(10, population=100))
        for arrived, refused, std in ((10, 0, 2.0), (2, 1, smp.sum_noise_std(3)), (3, 0, 2.0)):
            number = ledger.intent(mechanism, clip_norm=1.0, noise_std=2.0)
            ledger.done(number, cohort=10, arrived=arrived, refused=refused, noise_std=std)
        ledger.close()
    found = fp.audit(tmp_path / "a")
    if topped_up:
        assert found.verdict == "HOLDS"
    else:
        assert found.verdict == "CANNOT BE CERTIFIED"
        assert "1 round(s), first in round 2" in found.auditor_only[0]
        assert "3 of 10 shares" in found.auditor_only[0]


# Denominators


TENTH = fp.Poisson(0.1)


def divided_by(path, denominators, scheme=TENTH, **options):
    facts = {"adjacency": "add_remove", "unit": "client", "claim": (50.0, 1e-5)} | options
    with fp.Ledger.create(path, **facts) as ledger:
        for denominator in denominators:
            number = ledger.intent(ONE.sampled(scheme), clip_norm=1.0, noise_std=1.0)
            ledger.done(
                number, cohort=5, arrived=5, refused=0, noise_std=1.0, denominator=denominator
            )
        ledger.close()
    return fp.audit(path)


def test_what_a_sum_was_divided_by_is_asked_where_it_tells(tmp_path):
    assert divided_by(tmp_path / "a", [6.0, 6.0]).verdict == "HOLDS"
    lacking = divided_by(tmp_path / "b", [6.0, None])
    assert lacking.verdict == "CANNOT BE CERTIFIED"
    assert lacking.numbers == "valid only if denominators do not depend on the data"
    assert Defect.NO_DENOMINATOR in lacking.defects
    assert "denominators are not recorded" in lacking.statement
    assert "a denominator that depends on the number of" in lacking.reasons[0]
    differing = divided_by(tmp_path / "c", [6.0, 7.0])
    assert differing.verdict == "CANNOT BE CERTIFIED" and differing.void
    assert "divided by numbers that differ" in "".join(differing.reasons)
    quiet = divided_by(tmp_path / "d", [None, None], adjacency="zero_out")
    assert quiet.verdict == "HOLDS" and "denominator" in quiet.granted
    assert fp.audit(tmp_path / "d", adjacency="add_remove").verdict == "CANNOT BE CERTIFIED"
    fixed = fp.FixedSize(5, population=50)
    known = divided_by(tmp_path / "e", [6.0, 7.0], fixed, adjacency="zero_out")
    assert known.verdict == "HOLDS" and not known.granted


SECRET = [
    fp.Poisson(0.1),
    fp.TruncatedPoisson(0.1, population=60, largest=20),
    fp.RandomAllocation(10),
]


@pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])
@pytest.mark.parametrize("scheme", SECRET, ids=repr)
def test_a_denominator_tells_how_many_were_drawn_under_every_adjacency(tmp_path, scheme, adjacency):
    """Given its size a random cohort is one of fixed size, which costs more."""
    found = divided_by(tmp_path / "a", [5.0, 6.0], scheme, adjacency=adjacency)
    assert found.verdict == "CANNOT BE CERTIFIED" and found.void
    assert "divided by numbers that differ" in found.reasons[0]
    # An observer of the participants learns no more from it.
    seen = fp.audit(tmp_path / "a", observer="server")
    assert seen.verdict == "HOLDS"
    assert divided_by(tmp_path / "b", [6.0] * 2, scheme, adjacency=adjacency).verdict == "HOLDS"


def test_the_size_of_a_random_cohort_is_worth_what_is_refused():
    """The certified number of a random cohort is below the certain cost of its known size."""
    facts = {"delta": 1e-5, "adjacency": "zero_out"}
    hidden = fp.epsilon(ONE.sampled(fp.Poisson(0.02)) * 20, **facts)
    known = fp.epsilon(ONE.sampled(fp.FixedSize(20, population=1000)) * 20, **facts)
    assert known.lower > 2.0 * hidden.upper


def recorded(path, stds, scheme=TENTH, aborted=0, **options):
    """Audit rounds with noise of such stds, and some that were aborted."""
    facts = {"adjacency": "zero_out", "unit": "client", "claim": (50.0, 1e-5)} | options
    with fp.Ledger.create(path, **facts) as ledger:
        step = ONE.sampled(scheme)
        for size, std in enumerate(stds, 4):
            number = ledger.intent(step, clip_norm=1.0, noise_std=1.0)
            came = {"cohort": size, "arrived": size, "refused": 0}
            if isinstance(scheme, fp.FixedSize):
                came = {"cohort": 5, "arrived": 5, "refused": 0}
            ledger.done(number, **came, noise_std=std, denominator=6.0)
        for _ in range(aborted):
            ledger.abort(ledger.intent(step, clip_norm=1.0, noise_std=1.0), "nobody was drawn")
        ledger.close()
    return fp.audit(path)


@pytest.mark.parametrize("adjacency", ["zero_out", "add_remove"])
@pytest.mark.parametrize("stds", [(1.0, 1.2, 1.4), (0.8, 0.9, 1.1)])
def test_noise_may_tell_how_many_were_drawn(tmp_path, stds, adjacency):
    found = recorded(tmp_path / "a", stds, adjacency=adjacency)
    assert found.verdict == "CANNOT BE CERTIFIED" and found.void
    assert "noise that differs from the mechanism by factors" in found.reasons[0]
    with pytest.raises(
        fp.UnsupportedCombination, match="noise that differs from the mechanism by factors"
    ):
        fp.account(tmp_path / "a", delta=1e-5)
    # The same factor in every round reveals no size; nor if no size is secret.
    alike = recorded(tmp_path / "b", [stds[0]] * 3, adjacency=adjacency)
    assert alike.verdict == "HOLDS"
    fixed = fp.FixedSize(5, population=50)
    assert recorded(tmp_path / "c", stds, fixed).verdict == "HOLDS"


@pytest.mark.fast_cells(4)
@pytest.mark.parametrize("follows", [False, True])
@pytest.mark.parametrize("power", [0.5, -0.5])
@pytest.mark.parametrize("table", [False, True])
def test_noise_that_goes_with_cohorts_is_doubted(tmp_path, table, power, follows):
    """Also where every round's mechanism says its noise; a schedule of noise is no such thing."""
    sizes = np.random.default_rng(3).binomial(6000, 1 / 60, size=180)
    multipliers = 1.4 * (sizes / 100.0) ** power
    if not follows:
        multipliers = np.sort(multipliers)
    rows = list(zip(range(180), sizes.tolist(), multipliers.tolist(), strict=True))
    if table:
        path = tmp_path / "a.csv"
        head = "round,cohort,noise_multiplier,population,sampling,sampling_probability"
        lines = (f"{i},{size},{noise},6000,poisson,{1 / 60}" for i, size, noise in rows)
        path.write_text("\n".join([head, *lines]))
    else:
        path = tmp_path / "a.ledger"
        with fp.Ledger.create(path, adjacency="zero_out", unit="client") as ledger:
            for _, size, noise in rows:
                step = fp.Gaussian(noise_multiplier=noise, unit="client").sampled(
                    fp.Poisson(1 / 60)
                )
                number = ledger.intent(step, clip_norm=1.0, noise_std=noise)
                came = {"cohort": size, "arrived": size, "refused": 0}
                ledger.done(number, **came, noise_std=noise, denominator=100.0)
            ledger.close()
    found = fp.audit(path, claim=(50.0, 1e-5), adjacency="zero_out", accountant="rdp")
    assert found.verdict == ("CANNOT BE CERTIFIED" if follows else "HOLDS")
    assert found.void == follows


def test_aborts_may_tell_how_many_were_drawn(tmp_path):
    found = recorded(tmp_path / "a", [1.0] * 3, aborted=1)
    assert found.verdict == "CANNOT BE CERTIFIED" and not found.void
    assert Defect.ABORTED_DRAWS in found.defects and "reveal the cohort size" in found.reasons[0]
    (said,) = fp.account(tmp_path / "a", delta=1e-5).qualified
    assert said == found.worth == "valid only if aborts do not depend on the cohort sizes"
    assert fp.audit(tmp_path / "a", observer="server").verdict == "HOLDS"
    fixed = recorded(tmp_path / "b", [1.0] * 3, fp.FixedSize(5, population=50), aborted=1)
    assert fixed.verdict == "HOLDS" and Defect.ABORTED in fixed.defects


@pytest.mark.parametrize("claim", [(0.01, 1e-5), (50.0, 1e-5)])
def test_aborts_that_tell_leave_neither_verdict(tmp_path, claim):
    """FAILS is as unproven as HOLDS: neither end of the interval covers the release."""
    alone = recorded(tmp_path / "a", [1.0] * 3, claim=claim)
    assert alone.verdict == ("FAILS" if claim[0] < 1.0 else "HOLDS")
    found = recorded(tmp_path / "b", [1.0] * 3, aborted=1, claim=claim)
    assert found.verdict == "CANNOT BE CERTIFIED"
    assert found.reasons[0].startswith(f"The verdict cannot be {alone.verdict}")
    assert Defect.ABORTED_DRAWS in found.defects


@pytest.mark.parametrize(
    "sizes",
    [[100] * 180, [99] + [100] * 179, [100, 101] * 90, [95 + i % 11 for i in range(180)]],
    ids=["all", "but one", "in turn", "in a window"],
)
@pytest.mark.parametrize("table", [False, True])
def test_cohorts_that_are_too_much_alike_are_doubted(tmp_path, sizes, table):
    step = ONE.sampled(fp.Poisson(1 / 60))
    if not table:
        assert cohorts(tmp_path / "a", step, sizes)
        return
    path = tmp_path / "a.csv"
    head = "round,noise_multiplier,cohort,population,sampling,sampling_probability"
    rows = (f"{i},1.0,{size},6000,poisson,{1 / 60}" for i, size in enumerate(sizes))
    path.write_text("\n".join([head, *rows]))
    found = fp.audit(path, claim=(100.0, 1e-5), adjacency="zero_out")
    assert found.verdict == "CANNOT BE CERTIFIED" and found.void


def test_rounds_without_noise_have_no_run(tmp_path):
    path = written(tmp_path / "a", GAUSS, 1.0, 5.0, 0.0)
    with pytest.raises(fp.errors.LedgerError, match="has no epsilon"):
        run_of(fp.Ledger.open(path).rounds)
    found = fp.audit(path)
    assert (found.bound.lower, found.bound.upper) == (math.inf, math.inf)
