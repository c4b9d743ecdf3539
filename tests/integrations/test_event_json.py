"""Tests of ``fedprivacy.integrations.event_json``."""

import pytest

import fedprivacy as fp
from fedprivacy.errors import ConversionError, LedgerError

# ---- events of another library

NO_EVENTS = {
    "a number": 3,
    "nothing": None,
    "a list of nothing": [],
    "a class of nobody's": {"type": "Nonesuch"},
    "a field too few": {"type": "PoissonSampledDpEvent", "sampling_probability": 0.1},
    "a field too many": {"type": "GaussianDpEvent", "noise_multiplier": 1.0, "colour": 3},
    "a list with a value too many": ["dp_accounting.dp_event", "GaussianDpEvent", 1.0, 2.0],
    "a list of a class of nobody's": ["dp_accounting.dp_event", "Nonesuch", 1.0],
    "two names": {"type": "GaussianDpEvent", "class_name": "LaplaceDpEvent"},
    "an event that is none inside": {
        "type": "PoissonSampledDpEvent",
        "sampling_probability": 0.1,
        "event": 3,
    },
    "a list that is none": {"type": "ComposedDpEvent", "events": 3},
}


@pytest.mark.parametrize("what", NO_EVENTS)
def test_what_is_no_event_is_refused(what):
    pytest.importorskip("dp_accounting")
    from fedprivacy.integrations.event_json import event_from_json

    with pytest.raises(LedgerError) as caught:
        event_from_json(NO_EVENTS[what])
    assert "event" in str(caught.value) or "not a list" in str(caught.value)
    assert len(str(caught.value)) < 300


def test_an_event_that_is_nested_too_deeply_is_refused():
    pytest.importorskip("dp_accounting")
    from fedprivacy.integrations.event_json import event_from_json

    inner = {"type": "GaussianDpEvent", "noise_multiplier": 1.0}
    for _ in range(200):
        inner = {"type": "SelfComposedDpEvent", "event": inner, "count": 1}
    with pytest.raises(LedgerError, match="nested deeper than"):
        event_from_json(inner)


def test_neighbours_of_another_library_go_by_their_names():
    pytest.importorskip("dp_accounting")
    from fedprivacy.integrations.event_json import adjacency_named, runs_of

    assert adjacency_named("REPLACE_ONE") is fp.Adjacency.REPLACE_ONE
    with pytest.raises(fp.ParameterError, match="neighboring_relation must be a name of"):
        adjacency_named("next door")
    with pytest.raises(ConversionError, match="not a DpEvent: int"):
        runs_of(3)
