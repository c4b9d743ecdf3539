"""Claims: their rules, remarks on weak claims, and claims with one half missing."""

import json
import math

import pytest

import fedprivacy as fp
from fedprivacy.audit import account
from fedprivacy.audit.imports import Origin, Rounds, Trace
from fedprivacy.cli import main
from fedprivacy.errors import ConversionError
from fedprivacy.evidence import Defect

pytestmark = pytest.mark.usefixtures("narrowest")

RUN = fp.Gaussian(noise_multiplier=1.0, unit="client")
SMALL = RUN.sampled(fp.FixedSize(10, population=100)) * 10
SWAPPED = r"^delta must be at least 0 and below 1, got .*did you swap epsilon and delta"
ZERO = {"adjacency": "zero_out"}


def answer(capsys, *arguments):
    """Return exit code, output and errors of one command."""
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    told = capsys.readouterr()
    return stopped.value.code, told.out, told.err


# ---- a claim without content

TAKERS = {
    "audit": lambda delta, path: fp.audit(SMALL, claim=(1e-5, delta), **ZERO),
    "ledger": lambda delta, path: fp.Ledger.create(
        path, claim=(1e-5, delta), unit="client", **ZERO
    ),
    "budget": lambda delta, path: fp.Budget(1e-5, delta, **ZERO),
    "adaptive budget": lambda delta, path: fp.Budget(1e-5, delta, adaptive=True, **ZERO),
    "calibrate": lambda delta, path: fp.calibrate(
        lambda z: fp.Gaussian(noise_multiplier=z), epsilon=1e-5, delta=delta, **ZERO
    ),
    "trace": lambda delta, path: Trace(Origin("log"), ((Rounds(1.0), 1),), claim=(1e-5, delta)),
    "half of a trace": lambda delta, path: Trace(
        Origin("log"), ((Rounds(1.0), 1),), half={"delta": delta}
    ),
}


@pytest.mark.parametrize("delta", [1, 1.0, 8.0])
@pytest.mark.parametrize("taker", TAKERS)
def test_a_delta_of_1_is_no_claim(tmp_path, taker, delta):
    with pytest.raises(fp.ParameterError, match=SWAPPED):
        TAKERS[taker](delta, tmp_path / "a.ledger")
    assert not (tmp_path / "a.ledger").exists()
    with pytest.raises(fp.ParameterError, match=r"^delta must be a finite number of at least 0"):
        TAKERS[taker](math.nan, tmp_path / "a.ledger")


@pytest.mark.parametrize("epsilon", [-1.0, math.nan, math.inf])
def test_an_epsilon_is_finite_and_not_below_0(epsilon):
    for take in (
        lambda: fp.audit(SMALL, claim=(epsilon, 1e-5), **ZERO),
        lambda: fp.Budget(epsilon, 1e-5, **ZERO),
    ):
        with pytest.raises(fp.ParameterError, match=r"^epsilon must be a finite number of at le"):
            take()


def test_a_statement_with_the_two_swapped_is_told(tmp_path):
    path = tmp_path / "a.toml"
    path.write_text(
        "noise_multiplier = 1.0\nrounds = 1\nsampling = 'everyone'\nadjacency = 'zero_out'\n"
        "epsilon = 1e-5\ndelta = 8\n"
    )
    with pytest.raises(fp.ParameterError, match=SWAPPED):
        fp.audit(path)


@pytest.mark.parametrize("command", ["audit", "calibrate", "train"])
def test_commands_refuse_them_in_one_line(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    options = {
        "audit": [
            *["--noise-multiplier", "1", "--sampling", "everyone", "--claim", "0.00001,1"],
            *["--adjacency", "zero_out", "--strict"],
        ],
        "calibrate": ["--epsilon", "1e-5", "--delta", "1", "--adjacency", "zero_out"],
        "train": ["--method", "dp-fedavg", "--epsilon", "1e-5", "--delta", "1", "--rounds", "1"],
    }
    if command == "train":
        pytest.importorskip("torch")
    code, out, err = answer(capsys, command, *options[command])
    assert code == 2 and out == "" and "did you swap epsilon and delta?" in err
    assert len(err.strip().splitlines()) == 1 and not list(tmp_path.iterdir())


WORDS = "delta = 0.01 is not below 1 / 100 for 100 clients"


def test_every_answer_says_that_delta_is_large():
    bound = fp.epsilon(SMALL, delta=0.01, **ZERO)
    assert WORDS in bound.qualified[0] and WORDS in str(bound)
    assert WORDS in bound.to_dict()["qualified"][0]
    assert fp.epsilon(SMALL, delta=0.009, **ZERO).qualified == ()
    found = fp.calibrate(
        lambda z: fp.Gaussian(noise_multiplier=z, unit="client").sampled(
            fp.FixedSize(10, population=100)
        ),
        epsilon=1.0,
        delta=0.01,
        **ZERO,
    )
    assert WORDS in str(found.bound)
    assert WORDS in str(account(SMALL, delta=0.01, **ZERO))


@pytest.mark.usefixtures("no_plots")
def test_a_verdict_is_shown_with_it(tmp_path):
    found = fp.audit(SMALL, claim=(50.0, 0.01), **ZERO)
    assert found.statement == "HOLDS, delta is not below 1/n for n units"
    # Poisson sampling has curves that cost less to draw.
    rounds = Rounds(2.0, sampling="poisson", rate=0.1, population=100)
    record = Trace(Origin("log"), ((rounds, 1),), unit="client", adjacency="zero_out")
    found = fp.audit(record, claim=(50.0, 0.01))
    assert found.verdict == "HOLDS" and Defect.LARGE_DELTA in found.defects
    assert found.statement.endswith(", delta is not below 1/n for n units")
    assert str(found).startswith(found.statement)
    assert any(WORDS in reason.lower() for reason in found.reasons)
    assert all(bound.qualified for bounds in found.bounds.values() for bound in bounds.values())
    for ending in ("html", "md"):
        fp.report(found, tmp_path / f"r.{ending}")
        assert found.statement in (tmp_path / f"r.{ending}").read_text()
    fp.report(found, tmp_path / "r.json")
    plain = json.loads((tmp_path / "r.json").read_text())["runs"]["run"]
    assert plain["statement"] == found.statement and str(Defect.LARGE_DELTA) in plain["defects"]
    deployment = {
        name: "x" for name in ("name", "description", "intended_use", "data_product_region")
    } | {"data_curators": ["x"], "registry_authors": ["x"], "publication_date": "2026-01-01"}
    fp.report(found, tmp_path / "r.yaml", deployment=deployment)
    assert (tmp_path / "r.yaml").read_text().count("delta is not below 1/n") >= 2
    fine = fp.audit(SMALL, claim=(50.0, 0.0099), **ZERO)
    assert fine.statement == "HOLDS" and not fine.defects
    fails = fp.audit(SMALL, claim=(0.1, 0.01), **ZERO)
    assert fails.statement.startswith("FAILS, delta is not below 1/n")


def test_a_number_of_units_that_is_recorded_or_stated_counts(tmp_path):
    path = tmp_path / "a.toml"
    text = (
        "noise_multiplier = 1.0\nrounds = 5\nsampling = 'poisson'\nsampling_probability = 0.1\n"
        "unit = 'client'\nadjacency = 'zero_out'\nepsilon = 50\ndelta = 0.01\n"
    )
    path.write_text(text)
    assert Defect.LARGE_DELTA not in fp.audit(path).defects
    assert Defect.LARGE_DELTA in fp.audit(path, population=100).defects
    assert Defect.LARGE_DELTA not in fp.audit(path, population=99).defects
    path.write_text(text + "population = 100\n")
    assert Defect.LARGE_DELTA in fp.audit(path).defects
    known = fp.audit(path, sampling=fp.FixedSize(9, population=90))
    assert Defect.LARGE_DELTA not in known.defects


def test_commands_say_it_in_their_first_line(tmp_path, capsys):
    small = ["--cohort", "10", "--population", "100", "--unit", "client", *ZERO_OUT]
    noise = ["--noise-multiplier", "1"]
    asked = {
        "epsilon": [*noise, *small, "--delta", "0.01"],
        "calibrate": ["--epsilon", "1", "--delta", "0.01", *small],
        "audit": [*noise, *small, "--sampling", "fixed", "--claim", "50,0.01"],
    }
    for command, options in asked.items():
        code, out, _ = answer(capsys, command, *options)
        assert code == 0 and "delta" in out and "is not below 1" in out.splitlines()[0]
        code, out, _ = answer(capsys, command, *options, "--json")
        assert code == 0 and "is not below 1" in json.dumps(json.loads(out))
    # Poisson sampling has no number of units: it is stated separately.
    rate = ["--sampling-probability", "0.1", "--rounds", "5", *ZERO_OUT]
    options = [*noise, *rate, "--delta", "0.01"]
    _, out, _ = answer(capsys, "epsilon", *options, "--population", "100")
    assert "not below 1 / 100" in out.splitlines()[0]
    _, other, _ = answer(capsys, "epsilon", *options)
    assert "not below" not in other and out.startswith(other.splitlines()[0])
    _, out, _ = answer(
        capsys, "calibrate", "--epsilon", "1", "--delta", "0.01", "--population", "100", *rate
    )
    assert "not below 1 / 100" in out.splitlines()[0]


ZERO_OUT = ["--adjacency", "zero_out"]
# ---- halves of a claim

HALF = (
    "noise_multiplier = 1.0\nrounds = 500\nsampling = 'poisson'\nsampling_probability = 0.02\n"
    "unit = 'client'\nadjacency = 'zero_out'\n"
)


@pytest.fixture
def half(tmp_path):
    """A statement with a delta and without an epsilon, as most configurations are."""
    path = tmp_path / "d.toml"
    path.write_text(HALF + "delta = 1e-6\n")
    return path


def test_a_given_claim_completes_a_statement_with_a_delta_alone(half, capsys):
    found = fp.audit(half, claim=(6.0, 1e-6))
    assert found.verdict == "HOLDS" and found.claim == (6.0, 1e-6) and len(found.reasons) == 1
    assert 3.2135 < found.bound.upper < 3.2137
    code, out, _ = answer(capsys, "audit", str(half), "--claim", "6,1e-6", "--strict")
    assert code == 0 and out.startswith("HOLDS")


def test_an_epsilon_alone_takes_the_files_delta(half, capsys):
    assert fp.audit(half, claim=(6.0, None)).claim == (6.0, 1e-6)
    code, out, _ = answer(capsys, "audit", str(half), "--claim-epsilon", "6", "--strict")
    assert code == 0 and "epsilon = 6 at delta = 1e-06" in out
    code, out, _ = answer(capsys, "audit", str(half), "--claim-epsilon", "3", "--strict")
    assert code == 3


def test_a_delta_alone_takes_the_files_epsilon(half, capsys):
    half.write_text(HALF + "epsilon = 6.0\n")
    assert fp.audit(half, claim=(None, 1e-6)).claim == (6.0, 1e-6)
    code, _, _ = answer(capsys, "audit", str(half), "--claim-delta", "1e-6", "--strict")
    assert code == 0


def test_a_delta_that_differs_from_the_files_is_told(half):
    found = fp.audit(half, claim=(6.0, 1e-5))
    assert found.claim == (6.0, 1e-5) and found.verdict == "HOLDS"
    told = "The statement of parameters states delta = 1e-06; the claim is judged at the given "
    assert any(reason.startswith(told) for reason in found.reasons)
    half.write_text(HALF + "epsilon = 4.0\ndelta = 1e-6\n")
    assert any(reason.startswith(told) for reason in fp.audit(half, claim=(6, 1e-5)).reasons)
    assert fp.audit(half, claim=(6.0, None)).claim == (6.0, 1e-6)
    assert fp.audit(half).claim == (4.0, 1e-6)


def test_a_target_delta_of_flower_is_half_a_claim(tmp_path):
    state = {
        "schema_version": 1,
        "backend": "dp-accounting-rdp",
        "config": {
            "target_delta": 1e-5,
            "population_size": 100,
            "neighboring_relation": "add-or-remove-one",
            "sampling_method": "poisson",
        },
        "compositions": [
            {
                "event": {"noise_multiplier": 2.0, "sample_size": 10, "population_size": 100},
                "count": 2,
            }
        ],
    }
    found = fp.audit(state, claim=(6.0, None))
    assert found.claim == (6.0, 1e-5) and found.verdict == "HOLDS"


def test_half_a_claim_alone_is_no_claim(half):
    with pytest.raises(fp.ParameterError, match=r"^claim must be \(epsilon, delta\), got \(None"):
        fp.audit(half)
    with pytest.raises(fp.ParameterError, match="--claim-delta"):
        fp.audit(SMALL, claim=(3.0, None), **ZERO)
    half.write_text(HALF + "delta = 0.0\n")
    with pytest.raises(ConversionError, match="delta"):
        fp.audit(half, claim=(6.0, 1e-6))
