"""Words of files for sampling, adjacency and the unit: only words with one meaning are read."""

import pytest

import fedprivacy as fp
from fedprivacy.audit.imports.words import adjacency_in, sampling_in, unit_in

ADJACENCIES = {
    "add_remove": ["add/remove", "Add-or-remove-one", "unbounded DP", "ADD_OR_REMOVE_ONE"],
    "replace_one": ["REPLACE_ONE", "bounded", "substitution", "change one record"],
    "zero_out": ["zero-out", "REPLACE_SPECIAL", "zeroing out"],
    None: ["edge-level", "not bounded", "add_remove or replace_one", "user", ""],
}
SAMPLINGS = {
    "poisson": ["Poisson", "poisson subsampling", "PoissonSampler", "bernoulli"],
    "fixed": ["fixed size", "uniform_without_replacement", "without replacement"],
    "with-replacement": ["with replacement"],
    "shuffled": ["shuffle", "random reshuffling"],
    "everyone": ["full batch", "full participation"],
    None: ["uniform", "random", "not poisson", "shuffled or poisson", "importance", "none"],
}
UNITS = {
    "client": ["user-level", "client"],
    "record": ["sample", "example_level"],
    None: ["users and records", "group"],
}


def cases(table):
    return [(text, meaning) for meaning, texts in table.items() for text in texts]


@pytest.mark.parametrize(("text", "meaning"), cases(ADJACENCIES))
def test_adjacencies(text, meaning):
    assert adjacency_in(text) == meaning


@pytest.mark.parametrize(("text", "meaning"), cases(SAMPLINGS))
def test_samplings(text, meaning):
    assert sampling_in(text) == meaning


@pytest.mark.parametrize(("text", "meaning"), cases(UNITS))
def test_units(text, meaning):
    assert unit_in(text) == meaning


def test_a_rate_of_a_clients_batches_is_no_rate_of_clients():
    settings = {"unit": "client", "num_clients": 100, "noise_multiplier": 1.0, "sample_rate": 0.01}
    given = {"noise_multiplier": 1.0, "rounds": 10, "sampling": "poisson"}
    with pytest.raises(fp.ParameterError, match="sampling probability"):
        fp.audit(settings, adjacency="add_remove", claim=(1.0, 1e-5), **given)


def test_variables_with_a_prefix_are_those_without_it(tmp_path):
    """In an .env file DP_SAMPLE_RATE is a rate; with another rate it ends in a question."""
    path = tmp_path / "run.env"
    path.write_text(
        "DP_NOISE_MULTIPLIER=1.0\nDP_MAX_GRAD_NORM=1.0\nDP_SAMPLE_RATE=0.01\nDP_STEPS=1000\n"
    )
    facts = {"sampling": "poisson", "adjacency": "add_remove", "claim": (1.9, 1e-5)}
    assert fp.audit(path, **facts).verdict == "HOLDS"
    path.write_text(path.read_text() + "SAMPLE_RATE=0.02\n")
    with pytest.raises(ValueError, match="not settled by DP_SAMPLE_RATE"):
        fp.audit(path, **facts)
