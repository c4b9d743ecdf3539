"""Questions about missing facts."""

import pytest

import fedprivacy as fp
from fedprivacy.audit.imports.draft import MAX_MESSAGE
from tests.contract.test_corpus import options_in


def test_a_long_message_keeps_its_questions_and_shortens_what_it_found():
    place = "configuration_of_a_program_with_long_names"
    facts = {"noise_multiplier": 1.4, "target_delta": 7e-5, "sampling_method": "by date"}
    facts |= {"batch_size": 100, "dataset_size": 5000, "neighboring_relation": "changed record"}
    with pytest.raises(fp.ParameterError) as caught:
        fp.audit({"privacy": {place: {place: facts}}})
    message = str(caught.value)
    assert len(message) <= MAX_MESSAGE and " ...; not found: " in message
    assert options_in(message) >= {"rounds", "sampling", "adjacency", "claim_epsilon"}


def test_a_stated_claim_answers_the_question_about_it():
    run = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "sample_rate": 0.01, "steps": 100}
    facts = {"sampling": "poisson", "adjacency": "add_remove"}
    grouped = {**run, "epsilon": 9.0, "delta": 1e-5, "group_size": 4}
    with pytest.raises(fp.ParameterError, match="an epsilon of a group"):
        fp.audit(grouped, **facts)
    assert fp.audit(grouped, claim=(5.0, 1e-5), **facts).verdict == "HOLDS"


def test_an_infinite_epsilon_is_no_evidence_of_noise():
    run = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "sample_rate": 0.01, "steps": 100}
    facts = {"sampling": "poisson", "adjacency": "add_remove", "claim": (5.0, 1e-5)}
    infinite = {**run, "target_epsilon": "inf"}
    with pytest.raises(fp.ParameterError, match="may turn the noise off"):
        fp.audit(infinite, **facts)
    assert fp.audit(infinite, noise_multiplier=1.0, **facts).verdict == "CANNOT BE CERTIFIED"
