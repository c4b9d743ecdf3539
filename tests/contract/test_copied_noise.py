"""Copies of a run with correlated noise: fresh draws in each, and one more whole run for each."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy import factors
from fedprivacy.bound import Verdict
from fedprivacy.errors import ParameterError

torch = pytest.importorskip("torch")

from fedprivacy.systems.averaging.rows import NoiseFile, noisy  # noqa: E402
from fedprivacy.training import FederatedAveraging, logistic, train  # noqa: E402
from fedprivacy.training.checkpoint import passes  # noqa: E402
from tests.common import two_classes  # noqa: E402

pytestmark = pytest.mark.usefixtures("narrowest")

CLIENTS, ROUNDS, DELTA = 12, 12, 1e-5
DATA = two_classes(24, CLIENTS)
NOISE = fp.CorrelatedNoise(
    factor=factors.BufferedToeplitz(2),
    noise_multiplier=2.0,
    rounds=ROUNDS,
    participation=fp.MinimumSeparation(3),
    unit="client",
)
TREE = replace(NOISE, factor=factors.Tree())


def loop_of(noise=NOISE):
    scheme = fp.FixedSize(3, population=CLIENTS)
    return FederatedAveraging(
        model=logistic(3, 2), perturbation=noise, scheme=scheme, local_steps=1
    )


def ran(path, rounds, noise=NOISE, account=None):
    """Resume a run, or begin it."""
    fresh = not path.exists()
    given = {"unit": "client", "adjacency": "zero_out", "claim": (50.0, DELTA), "plan": noise}
    ledger = fp.Ledger.create(path, **given) if fresh else fp.Ledger.open(path, resume=True)
    with ledger:
        checkpoint = path.with_name(path.name + ".pt")
        told = {"rounds": rounds, "ledger": ledger, "checkpoint": checkpoint, "budget": account}
        return train(loop_of(noise), DATA, **told).state


def copied(tmp_path, before=4, after=(8, 6), noise=NOISE, account=None):
    """Return two copies of a run with all their files, gone on with."""
    for name in "ab":
        (tmp_path / name).mkdir()
    ran(tmp_path / "a" / "run", before, noise, account)
    for file in (tmp_path / "a").iterdir():
        shutil.copy2(file, tmp_path / "b" / file.name)
    paths = [tmp_path / name / "run" for name in "ab"]
    return paths, [ran(p, n, noise, account) for p, n in zip(paths, after, strict=True)]


def epsilon(*noises):
    run = noises[0]
    for noise in noises[1:]:
        run = run + noise
    return fp.epsilon(run, delta=DELTA, adjacency="zero_out").upper


@pytest.mark.parametrize("noise", [NOISE, TREE], ids=["buffers", "tree"])
def test_a_copy_draws_noise_of_its_own(noise):
    """The memory of both is that of the rows before; the next row's draw is no one's but its own.

    Eight coordinates, of 2^20 spacings to a std and more: that two draws agree has a probability
    below 2^-160.
    """
    loop = loop_of(noise)
    state = loop.init()
    for _ in range(3):
        _, _, state = noisy(state, noise, None)
    rows = [noisy(state, noise, None)[0].numpy() for _ in range(2)]
    assert not np.array_equal(*rows)


def test_two_copies_are_two_runs_to_a_budget_and_an_audit(tmp_path):
    """The theorem is in docs/theory/correlated_noise.md, "A run that was copied"."""
    paths, states = copied(tmp_path)
    assert not torch.equal(states[0].parameters, states[1].parameters)
    for order in (paths, paths[::-1]):
        account = fp.Budget(500.0, DELTA, adjacency="zero_out")
        for path in (*order, *order):
            account.charge(fp.Ledger.open(path))
        assert account.spent().upper == pytest.approx(epsilon(NOISE, NOISE), rel=2e-3)
        found = fp.audit(order)
        assert found.bound.upper == pytest.approx(epsilon(NOISE, NOISE), rel=1e-9)
        assert found.rounds == 10 and not found.void
        assert not [told for told in found.auditor_only if "released before" in told]
    one = fp.audit(paths[0]).bound.upper
    assert one == pytest.approx(epsilon(NOISE), rel=1e-9)
    assert fp.audit(paths, claim=((one + epsilon(NOISE, NOISE)) / 2, DELTA)).verdict is (
        Verdict.CANNOT_BE_CERTIFIED
    )


def test_a_loop_s_budget_pays_for_a_copy_as_it_begins(tmp_path):
    account = fp.Budget(500.0, DELTA, adjacency="zero_out")
    copied(tmp_path, account=account)
    assert account.spent().upper == pytest.approx(epsilon(NOISE, NOISE), rel=2e-3)


def test_rows_of_copies_by_turns_are_two_runs(tmp_path):
    """A row that one copy has released is not one that the other released twice."""
    paths, _ = copied(tmp_path, after=(5, 5))
    account = fp.Budget(500.0, DELTA, adjacency="zero_out")
    for rounds in (6, 8, 9):
        for path in paths:
            ran(path, rounds, account=account)
    assert account.spent().upper == pytest.approx(epsilon(NOISE, NOISE), rel=2e-3)


def test_a_copy_without_a_row_of_its_own_costs_nothing(tmp_path):
    paths, _ = copied(tmp_path, after=(8, 4))
    assert fp.audit(paths).bound.upper == pytest.approx(epsilon(NOISE), rel=1e-9)


def test_less_noise_in_a_copy_s_row_is_priced(tmp_path):
    paths, _ = copied(tmp_path)
    with fp.Ledger.open(paths[1], resume=True) as ledger:
        number = ledger.intent(NOISE.row(6), clip_norm=1.0, noise_std=2.0)
        ledger.done(number, cohort=3, arrived=3, refused=0, noise_std=1.0, denominator=3.0)
    found = fp.audit(paths).bound.upper
    assert found > epsilon(NOISE, NOISE) * 1.01
    assert found <= epsilon(NOISE, NOISE.rescaled(0.5)) * (1.0 + 1e-9)


def test_another_clip_norm_in_the_rest_of_a_copy_is_doubted(tmp_path):
    """What the rows before it hold was clipped to another norm."""
    paths, _ = copied(tmp_path)
    with fp.Ledger.open(paths[1], resume=True) as ledger:
        for row in (6, 7):
            number = ledger.intent(NOISE.row(row), clip_norm=2.0, noise_std=4.0)
            ledger.done(number, cohort=3, arrived=3, refused=0, noise_std=4.0, denominator=3.0)
    assert fp.audit(paths).void and fp.audit(paths[::-1]).void


# State that belongs to one copy


def test_the_files_of_one_copy_are_refused_under_the_other(tmp_path):
    paths, _ = copied(tmp_path)
    a, b = paths
    with fp.Ledger.open(a) as ledger, fp.Ledger.open(b) as other:
        assert passes(ledger, ledger.place) and not passes(ledger, other.place)
        state = loop_of().init()
        full = replace(state, last=torch.zeros(CLIENTS).long(), times=torch.zeros(CLIENTS).long())
        assert NoiseFile(ledger).read(full).round == 8
    mine = {suffix: a.with_name(f"run{suffix}").read_bytes() for suffix in (".pt", ".noise")}
    for suffix, content in mine.items():
        shutil.copy(b.with_name(f"run{suffix}"), a.with_name(f"run{suffix}"))
        if suffix == ".pt":
            with pytest.raises(ParameterError, match="checkpoint must be of the same run"):
                ran(a, 10)
        else:
            with fp.Ledger.open(a) as ledger, pytest.raises(ParameterError, match="or a copy"):
                NoiseFile(ledger).read(full)
        a.with_name(f"run{suffix}").write_bytes(content)
    assert ran(a, 10).round == 10


def test_the_noise_file_of_another_copy_is_not_gone_on_with(tmp_path):
    """Its memory is of rows that this copy never released: they would be taken away from these."""
    paths, _ = copied(tmp_path, after=(6, 6))
    a, b = paths
    before = a.with_name("run.pt").read_bytes()
    ran(a, 8)
    # The checkpoint is behind the ledger, so that the file is needed.
    a.with_name("run.pt").write_bytes(before)
    shutil.copy(b.with_name("run.noise"), a.with_name("run.noise"))
    with pytest.raises(ParameterError, match=r"noise file must .*or a copy"):
        ran(a, 9)


def test_a_noise_file_of_before_there_were_places_is_read(tmp_path):
    path = tmp_path / "run"
    ran(path, 3)
    file = path.with_name("run.noise")
    held = torch.load(file, weights_only=True)
    assert held.pop("place")
    torch.save(held, file)
    before = path.with_name("run.pt").read_bytes()
    torch.save(held, file)
    path.with_name("run.pt").write_bytes(before)
    assert ran(path, 5).round == 5


def test_a_saved_model_of_one_copy_is_refused_under_the_other(tmp_path):
    """Flower's and NVFlare's server write and read it so."""
    from fedprivacy.integrations.flower.saved import Saved, SavedContent

    step = fp.Gaussian(noise_multiplier=1.0, unit="client")

    def go_on(path, resume=True):
        given = {"unit": "client", "adjacency": "zero_out"}
        ledger = fp.Ledger.open(path, resume=True) if resume else fp.Ledger.create(path, **given)
        with ledger:
            number = ledger.intent(step, clip_norm=1.0, noise_std=1.0)
            ledger.done(number, cohort=3, arrived=3, refused=0, noise_std=1.0)
            saved = Saved(path.with_name(path.name + ".npz"), ledger)
            saved.write(SavedContent({"w": np.zeros(2)}, ledger.begun_rounds, None))

    go_on(tmp_path / "a", resume=False)
    for end in ("", ".npz"):
        shutil.copy(tmp_path / f"a{end}", tmp_path / f"b{end}")
    # Where they part both still have it.
    assert Saved(tmp_path / "b.npz", fp.Ledger.open(tmp_path / "a")).read().rounds == 1
    for name in "ab":
        go_on(tmp_path / name)
    with pytest.raises(ParameterError, match="be of the run of this ledger, which"):
        Saved(tmp_path / "b.npz", fp.Ledger.open(tmp_path / "a")).read()
    assert Saved(tmp_path / "b.npz", fp.Ledger.open(tmp_path / "b")).read().rounds == 2
