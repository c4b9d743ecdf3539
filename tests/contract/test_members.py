"""The members that a mechanism implements: few, and documented."""

from pathlib import Path

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.mechanisms import Encoding, Mechanism, Perturbation, Traits
from fedprivacy.mechanisms.base import Algebra
from fedprivacy.mechanisms.noise_shares import single_uploads

PAGE = (Path(__file__).parents[2] / "docs" / "extending.md").read_text(encoding="utf-8")

DERIVED = {Mechanism: {"privacy_loss"}, Perturbation: {"grid", "gridded"}}
"""Members that follow from the others."""


def members(kind):
    """Return the names to implement: all public ones of a class itself that are not derived."""
    own = {*vars(kind), *vars(kind).get("__annotations__", ())}
    return {name for name in own if not name.startswith("_")} - DERIVED[kind]


def test_a_mechanism_has_eight_members_and_a_perturbation_eight_more():
    assert len(members(Mechanism)) == 8
    new = members(Perturbation) - members(Mechanism)
    assert len(new) == 8 and {"clip_norm", "full_noise_std", "contribution", "noise"} <= new
    # What a user writes needs no code in a mechanism.
    assert not members(Mechanism) & set(vars(Algebra))


@pytest.mark.parametrize(
    "name", sorted(members(Mechanism) | members(Perturbation) | set(Traits._fields))
)
def test_every_member_is_on_the_page_on_extensions(name):
    assert f"`{name}" in PAGE


def test_a_sum_says_three_things_at_once():
    assert Traits.of_sum(2.0) == fp.Gaussian(noise_multiplier=2.0).traits
    assert Traits.of_sum(2.0)[:3] == (2.0, True, True) and not any(Traits.of_sum(2.0)[3:])


def share(multiplier, **more):
    facts = {"clip_norm": 1.0, "kept": 3, "dimension": 3, "cohort": 4}
    return fp.SparsifiedPerturbation(noise_multiplier=multiplier, **facts, **more)


def test_single_uploads_are_found_in_every_mechanism_that_adds_no_noise():
    scheme = fp.FixedSize(4, population=20)
    alone = fp.Gaussian(noise_multiplier=1.0, unit="client")
    quiet = fp.Gaussian(noise_multiplier=2.0, unit="client")
    assert single_uploads(share(2.0)) == alone
    assert single_uploads(share(2.0).sampled(scheme) * 3) == alone.sampled(scheme) * 3
    kinds = fp.Parallel((share(2.0).sampled(scheme), share(4.0).sampled(scheme)))
    assert single_uploads(kinds).mechanisms == (alone.sampled(scheme), quiet.sampled(scheme))
    # One kind without a secure sum: the others do not get a line by themselves.
    assert single_uploads(fp.Parallel((share(2.0), alone))) is None
    with pytest.raises(fp.UnsupportedCombination, match="topped up"):
        single_uploads(share(2.0, topped_up=True) * 2)


def test_parts_change_at_every_place_and_keep_their_counts():
    run = fp.Gaussian(noise_multiplier=2.0) * 3 + fp.Laplace(noise_multiplier=4.0) * 5
    half = run.rescaled(0.5)
    assert [(part.noise_multiplier, count) for part, count in half.parts] == [(1.0, 3), (2.0, 5)]
    trials = fp.PrivateSelection(run, fp.PoissonTrials(2.0), others=(run * 2,))
    changed = trials.rescaled(0.5)
    assert changed.base == half and changed.others == (half * 2,)
    assert changed.trials == trials.trials


def test_contributions_travel_as_they_are_unless_an_encoding_says_otherwise():
    plain = fp.Gaussian(noise_multiplier=2.0, unit="client")
    form = plain.encoding
    assert isinstance(form, Encoding) and form.of_round() is plain
    assert (form.spacing, form.travelling(7), form.upload_bits(7)) == (plain.grid, 7, 224)
    with_bit = fp.AdaptiveClipping(noise_multiplier=2.0, unit="client")
    assert with_bit.encoding.travelling(7) == len(with_bit.contribution(np.ones(7))) == 8
    assert with_bit.encoding.upload_bits(7) == 225
    assert with_bit.encoding.decoded(np.arange(8.0)).tolist() == list(range(7))
