"""Unchanged programs of dp-accounting on certified numbers."""

import io
import subprocess
import sys
import textwrap

import dp_accounting as dpa
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

import fedprivacy as fp
from fedprivacy.integrations import dp_accounting as ours

OWN = dpa.pld.PLDAccountant
EVENT = dpa.GaussianDpEvent(1.0)


@pytest.fixture
def block():
    """Open a block, and return its answers and its report."""
    report = io.StringIO()
    with ours.certified(out=report) as answers:
        yield answers, report
    # The report is written when the block ends; see test_the_report.


def test_every_name_of_a_class_and_a_constructor_is_replaced(block):
    assert type(dpa.pld.PLDAccountant()) is ours.PLDAccountant
    assert type(dpa.rdp.RdpAccountant()) is ours.RdpAccountant
    # Names that were imported before the block.
    assert type(OWN()) is ours.PLDAccountant
    made = [from_gaussian_mechanism(1.0), privacy_loss_distribution.from_laplace_mechanism(1.0)]
    assert all(type(each) is ours.PrivacyLossDistribution for each in made)
    given = OWN(dpa.NeighboringRelation.REPLACE_ONE, value_discretization_interval=1e-3)
    assert given.neighboring_relation is dpa.NeighboringRelation.REPLACE_ONE


def test_afterwards_everything_is_theirs_again():
    before = OWN.__init__, from_gaussian_mechanism
    with ours.certified(out=io.StringIO()):
        pass
    assert (OWN.__init__, from_gaussian_mechanism) == before
    assert type(OWN()) is OWN
    assert type(from_gaussian_mechanism(1.0)) is privacy_loss_distribution.PrivacyLossDistribution
    with pytest.raises(ZeroDivisionError), ours.certified(out=io.StringIO()):
        1 / 0  # noqa: B018
    assert type(OWN()) is OWN


def test_the_report():
    report = io.StringIO()
    with ours.certified(out=report) as answers:
        account = dpa.rdp.RdpAccountant().compose(EVENT, 100)
        found = account.get_epsilon(1e-5)
        account.get_epsilon(1e-5)
        # A later composition does not change an earlier answer.
        account.compose(EVENT, 100)
        from_gaussian_mechanism(1.0).self_compose(4).get_delta_for_epsilon(1.0)
        dpa.pld.PLDAccountant().compose(EVENT).get_true_positive_rates(np.array([0.1, 0.2]))
    assert len(answers) == 4 and answers[0].ours == found
    theirs = dpa.rdp.RdpAccountant().compose(EVENT, 100).get_epsilon(1e-5)
    lines = report.getvalue().splitlines()
    assert lines[0] == "fedprivacy certified 4 answers of dp-accounting's interface:"
    assert f"{found:.6g} (theirs {theirs:.6g})" in lines[1] and "(2 times)" in lines[1]
    own = privacy_loss_distribution.from_gaussian_mechanism(1.0).self_compose(4)
    assert f"(theirs {own.get_delta_for_epsilon(1.0):.6g})" in lines[2]
    # 0.6.0 has no true-positive rates, and the report says so.
    assert "get_true_positive_rates" in lines[3] and len(lines) == 4


def test_what_stays_theirs_is_counted(block):
    answers, _ = block

    class Own(dpa.pld.PLDAccountant):
        pass

    assert type(Own()) is Own
    kind = privacy_loss_distribution.PrivacyLossDistribution
    made = kind.create_from_rounded_probability({0: 1.0}, 0.0, 1e-4)
    assert type(made) is kind
    masses = {1: 0.0}
    privacy_loss_distribution.from_two_probability_mass_functions(masses, masses)
    assert set(answers.uncertified) == {
        "Own, a subclass of PLDAccountant",
        "PrivacyLossDistribution of given masses",
        "from_two_probability_mass_functions",
    }


def test_blocks_do_not_nest(block):
    with pytest.raises(fp.ParameterError, match="open already"), ours.certified():
        pass


def test_a_crosscheck_inside_still_asks_theirs(block):
    run = fp.Gaussian(noise_multiplier=1.0).sampled(fp.Poisson(0.01)) * 100
    found = fp.crosscheck(run, delta=1e-5, adjacency="add_remove")
    assert not block[0]
    theirs = next(row for row in found.rows if row.who == "dp-accounting rdp")
    assert theirs.epsilon > found.bounds[fp.Adjacency.ADD_REMOVE].upper + 0.01


SCRIPT = """
    import sys
    import dp_accounting as dpa
    from dp_accounting.rdp import RdpAccountant

    once = dpa.GaussianDpEvent(1.1)
    sampled = dpa.PoissonSampledDpEvent(250 / 60_000, once)
    for event, count in ((once, 60), (sampled, 14_400)):
        print(f"{RdpAccountant().compose(event, count).get_epsilon(1e-5):.3f}")
    print(sys.argv[1:], __name__)
    sys.exit(3)
"""


def run(arguments, cwd):
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


def test_the_command_runs_an_unchanged_script(tmp_path):
    (tmp_path / "program.py").write_text(textwrap.dedent(SCRIPT))
    plain = run(["program.py", "a"], tmp_path)
    assert plain.stdout.splitlines()[:2] == ["56.950", "2.562"]
    for target in (["program.py"], ["-m", "program"]):
        certain = run(["-m", "fedprivacy.integrations.dp_accounting", *target, "a"], tmp_path)
        assert certain.stdout.splitlines() == ["54.046", "2.350", "['a'] __main__"]
        assert certain.returncode == 3
        assert "54.0458 (theirs 56.9505)" in certain.stderr
        assert "2.34955 (theirs 2.56172)" in certain.stderr


def test_the_command_without_a_script_says_how(tmp_path):
    said = run(["-m", "fedprivacy.integrations.dp_accounting"], tmp_path)
    assert said.returncode == 2 and "usage" in said.stderr
