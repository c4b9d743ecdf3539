"""Tests of ``fedprivacy.audit.imports.events``."""

import dp_accounting as dpa
import pytest

import fedprivacy as fp
from fedprivacy.errors import ConversionError, FedPrivacyError
from tests.common import RECORDS


def test_three_ways_of_writing_an_event_are_one():
    event = dpa.SelfComposedDpEvent(dpa.PoissonSampledDpEvent(0.1, dpa.GaussianDpEvent(1.0)), 30)
    ours = {
        "type": "SelfComposedDpEvent",
        "event": {
            "type": "PoissonSampledDpEvent",
            "sampling_probability": 0.1,
            "event": {"type": "GaussianDpEvent", "noise_multiplier": 1.0},
        },
        "count": 30,
    }
    facts = {"claim": (5.0, 1e-5), "adjacency": "add_remove"}
    sources = (event, ours, RECORDS / "event.json", RECORDS / "event_list.json")
    assert len({fp.audit(each, **facts).bound.upper for each in sources}) == 1
    assert fp.audit(event, **facts).verdict == "HOLDS"


DEEP = 2000


@pytest.mark.parametrize(
    "text",
    [
        "[" * DEEP,
        '{"a":' * DEEP,
        '{"type": "SelfComposedDpEvent", "event": ' * DEEP,
        "noise_multiplier = " + "[" * DEEP,
        '{"round": 1, "noise_multiplier": ' + "[" * 1000,
    ],
)
def test_deep_nesting_is_refused(tmp_path, text):
    path = tmp_path / "a"
    path.write_text(text)
    with pytest.raises(FedPrivacyError):
        fp.audit(path, claim=(1.0, 1e-5), adjacency="zero_out", sampling="poisson")


class Alike:
    """Something with an event's method."""

    def to_named_tuple(self):
        return None


def test_only_dp_accountings_own_events_are_understood():
    with pytest.raises(ConversionError, match="a Alike cannot be read"):
        fp.account(Alike(), delta=1e-5, adjacency="zero_out")
