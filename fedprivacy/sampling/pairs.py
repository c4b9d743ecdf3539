"""Shared parts of the rows: pairs, builders of cells, and descriptions of data sets."""

from __future__ import annotations

from dataclasses import replace

from ..errors import UnsupportedCombination
from ..loss import Curve, Fold, Gdp, Sampled, Side, Triangles
from ..privacy_loss import PrivacyLoss, Witness
from ..relations import Adjacency, Observer
from .scheme import VISIBLE, Builder, Cell, Lossy, Pair, Rows, Scheme

ADD, ZERO, SWAP = Adjacency.ADD_REMOVE, Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE
AGGREGATE, SERVER = Observer.AGGREGATE, Observer.SERVER

APART = "one unit sends C u or 0; every other sends 0"
OPPOSED = "one unit sends C u, every other sends -C u, and another unit takes its slot"
EXCHANGED = "one unit sends C u or -C u; every other sends 0"
EXCHANGED_OPPOSED = "one unit sends C u or -C u; every other sends -C u"
GIVEN_WAY = "one unit sends C u or 0; every other sends -C u (or 0)"
LEFT = "one unit sends C u or is absent; every other sends -C u"
ASLANT = "or every other sends C (s v - c u), v across u (if vectors have two coordinates)"
SAME = "the same pair"


def sampled(inner: Curve, probability: float) -> Curve:
    """Return the sampled curve of the inner curve; the inner curve itself at probability 1."""
    return inner if probability == 1.0 else Sampled(inner, probability)


def sampled_pair(loss: PrivacyLoss, q: float) -> Pair:
    """Return the sampled curve of a loss, attained if the curve of the loss is attained."""
    return Pair(sampled(loss.curve, q), _attained(loss.witness, q))


def sampled_zero_out(inner: Lossy, q: float, observer: Observer) -> Curve | None:
    """Return the pair of data sets whose other units, and whose replacement unit, send 0.

    The result is None if a unit that sends 0 may differ from an absent unit.
    """
    if not inner.traits.zeroed_is_absent:
        return None
    try:
        witness = inner.privacy_loss(ZERO, observer).witness
    # Without a loss under zero_out the cell remains valid, but it has no attained curve.
    except UnsupportedCombination:
        return None
    return _attained(witness, q)


def _attained(witness: Witness | None, q: float) -> Curve | None:
    """Return the pair of a sampled unit, if it does not matter which other units are drawn."""
    known = witness is not None and (witness.free or q == 1.0)
    return sampled(witness.curve, q) if witness is not None and known else None


def unamplified_same(inner: Lossy, adjacency: Adjacency, observer: Observer) -> Pair:
    """Return the curves of the inner mechanism."""
    loss = inner.privacy_loss(adjacency, observer)
    return Pair(loss.curve, None if loss.witness is None else loss.witness.curve)


def symmetric_replacement(inner: Lossy, observer: Observer) -> PrivacyLoss:
    """Return the replace-one loss of the inner mechanism, whose curve must be symmetric (T1).

    For Renyi divergences this is the pair that dominates their implications in both directions.
    """
    loss = inner.privacy_loss(SWAP, observer)
    if (pair := loss.curve.components().pair) is not None:
        loss = replace(loss, curve=pair())
    if not loss.curve.support().symmetric:
        raise UnsupportedCombination(
            "T1 needs a replace-one curve that equals its swap, which is not known for the "
            f"inner mechanism {inner}; account for observer='server' instead"
        )
    return loss


def removable(inner: Lossy) -> None:
    """Refuse a mechanism unless leaving a unit out is known to be a special case of replacing it.

    If a unit that is not drawn leaves its slot empty, T1 compares the round without the unit with
    the round with it. The distance between the contributions of two units does not bound that.
    Contributions with a large common part reveal the participants, and then T4 is exact.
    """
    if not (inner.traits.zeroed_is_absent and inner.traits.zeroing_replaces):
        raise UnsupportedCombination(
            f"T1 needs an absent unit to lose at most as much as a replaced one, which {inner} "
            "does not state (zeroed_is_absent, zeroing_replaces); sample it with FixedSize "
            "under replace_one, or account for observer='server', without amplification"
        )


def unamplified(inner: Lossy, scheme: Scheme, observer: Observer) -> Pair:
    """Return the pair of T4 under zero_out, which puts no condition on the inner mechanism.

    The bound assumes that participation is visible. The pair is attained only if every unit takes
    part.
    """
    try:
        loss = inner.privacy_loss(ZERO, observer)
    except UnsupportedCombination as problem:
        raise UnsupportedCombination(
            f"the loss of an absent unit is not known for this mechanism: {problem}"
        ) from problem
    if scheme.rate == 1.0:
        return unamplified_same(inner, ZERO, observer)
    return Pair(scheme.visible(loss.curve), None)


def folded(inner: Lossy, scheme: Scheme, observer: Observer) -> Pair:
    """F(S, S) of the replace-one curve (T1), which must be symmetric."""
    if scheme.rate == 1.0:
        return unamplified_same(inner, SWAP, observer)
    curve, attained = sampled_pair(symmetric_replacement(inner, observer), scheme.rate)
    return Pair(Fold(curve, curve), attained)


def fixed_size_replace(inner: Lossy, scheme: Scheme, observer: Observer) -> Pair:
    """Return ``folded`` at a fixed size; rounds of one Gaussian sum are known to be triangles."""
    found, z = folded(inner, scheme, observer), inner.traits.sum_multiplier
    # At rate 1 every unit takes part and there is no fold.
    if z is None or scheme.rate == 1.0:
        return found
    one = Sampled(Gdp(2.0 / z), scheme.rate)
    same = found.curve == Fold(one, one)
    return found._replace(curve=Triangles(one, one)) if same else found


def visible(adjacency: Adjacency) -> Builder:
    """Return the builder of cells for observers who see the participation of the unit."""

    def build(inner: Lossy, scheme: Scheme, observer: Observer) -> Pair:
        loss = inner.privacy_loss(adjacency, observer)
        if loss.witness is None:
            return Pair(scheme.visible(loss.curve), None)
        # An attained pair may only use guaranteed events, so the rate is rounded down.
        return Pair(scheme.visible(loss.curve), scheme.visible(loss.witness.curve, Side.DOWN))

    return build


def server_rows() -> Rows:
    """Return the cells of T4 for a scheme that draws a unit at most once a round."""
    return {
        (SERVER, ZERO): Cell("Mix(1-q: id, q: G(1/z))", VISIBLE, SAME, APART, visible(ZERO)),
        (SERVER, SWAP): Cell("Mix(1-q: id, q: G(2/z))", VISIBLE, SAME, EXCHANGED, visible(SWAP)),
    }
