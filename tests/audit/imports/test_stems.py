"""Words of names that put a fact in doubt, and numbers that only count a run."""

import pytest

from fedprivacy.audit.imports import stems
from fedprivacy.audit.imports.draft import Draft
from fedprivacy.audit.imports.fields import Fields
from fedprivacy.relations import Unit


def asked(data, **facts):
    known = {"noise_multiplier": 1.1, "rounds": 1000, "sampling_probability": 0.01, **facts}
    draft = Draft(Fields(data), "a file", facts=known)
    stems.check(draft)
    stems.others(draft)
    return {question.name for question in draft.questions}


@pytest.mark.parametrize(
    ("data", "facts"),
    [
        ({"clip_share": 2}, {"noise_multiplier"}),
        ({"training_dp_share": 0.5}, {"noise_multiplier"}),
        ({"a": {"b": [{"privately_trained": 3}]}}, {"noise_multiplier"}),
        ({"hidden_steps": 5}, {"rounds"}),
        ({"global_step": 1001}, {"rounds"}),
        ({"global_step": 1000}, set()),
        ({"epoch": 20}, {"rounds"}),
        ({"epoch": 10}, set()),
        ({"extra_sampling": 2}, {"sampling_probability"}),
        ({"repeats_per_seed": {}, "seeds": "1-5"}, {"trials"}),
        ({"clip_every": 0, "dp_ratio": None, "restarted": False}, set()),
        ({"eval": {"extra_steps": 5, "clip_every": 2}}, set()),
    ],
)
def test_a_word_of_a_name_asks_for_its_fact(data, facts):
    assert asked(data) == facts


def test_clients_draw_their_own_batches():
    data = {"local_steps": 5, "extra_sampling": 2, "extra_epochs": 3}
    assert asked(data, unit=Unit.CLIENT) == set()
    assert asked({"start_round": 100}, unit=Unit.CLIENT) == {"rounds"}
    assert asked({"weighting": "num_examples"}, unit=Unit.CLIENT) == {"noise_multiplier"}
    assert asked({"weighting": "uniform"}, unit=Unit.CLIENT) == set()


def test_a_larger_epsilon_of_the_file_is_asked_for():
    assert asked({"final_epsilon": 7.9}, epsilon=3.0) == {"claim_epsilon"}
    assert asked({"final_epsilon": 2.9, "adam_eps": 1e-8}, epsilon=3.0) == set()
