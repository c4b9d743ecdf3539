"""What the rows of several schemes are made of: pairs, builders of cells, names of data sets."""

from __future__ import annotations

from dataclasses import replace

from ..errors import UnsupportedCombination
from ..loss import Curve, Fold, Gdp, RenyiPoints, Sampled, Side, Triangles
from ..privacy_loss import PrivacyLoss
from ..relations import Adjacency, Observer
from .scheme import VISIBLE, Builder, Cell, Lossy, Pair, Rows, Scheme

ADD, ZERO, SWAP = Adjacency.ADD_REMOVE, Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE
AGGREGATE, SERVER = Observer.AGGREGATE, Observer.SERVER

APART = "one unit sends C u or nothing; every other sends 0"
OPPOSED = "one unit sends C u, every other sends -C u, another of them takes its slot"
EXCHANGED = "one unit sends C u or -C u; every other sends 0"
EXCHANGED_OPPOSED = "one unit sends C u or -C u; every other sends -C u"
GIVEN_WAY = "one unit sends C u or nothing; every other sends -C u (or nothing)"
SAME = "the same pair"


def sampled(inner: Curve, probability: float) -> Curve:
    """Return the inner curve's sampled one; recognisably the inner one at probability 1."""
    return inner if probability == 1.0 else Sampled(inner, probability)


def sampled_pair(loss: PrivacyLoss, q: float) -> Pair:
    """Return the sampled curve of a loss, attained where the loss's own curve is."""
    attained = None if loss.witness is None else sampled(loss.witness.curve, q)
    return Pair(sampled(loss.curve, q), attained)


def sampled_zero_out(inner: Lossy, q: float, observer: Observer) -> Curve | None:
    """Return the pair of data sets in which everybody else, and the second unit, send nothing.

    None where nothing sent may differ from nobody there.
    """
    if not inner.zeroed_is_absent:
        return None
    try:
        witness = inner.privacy_loss(ZERO, observer).witness
    # Without a loss under zero_out the cell stands, but nothing is attained.
    except UnsupportedCombination:
        return None
    return None if witness is None else sampled(witness.curve, q)


def as_it_is(inner: Lossy, adjacency: Adjacency, observer: Observer) -> Pair:
    """Return the inner mechanism's own curves."""
    loss = inner.privacy_loss(adjacency, observer)
    return Pair(loss.curve, None if loss.witness is None else loss.witness.curve)


def symmetric_replacement(inner: Lossy, observer: Observer) -> PrivacyLoss:
    """Return the inner mechanism's replace-one loss, whose curve must be symmetric (T1).

    Of Renyi divergences that is the pair which dominates what they imply, both ways.
    """
    loss = inner.privacy_loss(SWAP, observer)
    if isinstance(loss.curve, RenyiPoints):
        loss = replace(loss, curve=loss.curve.pair)
    if not loss.curve.symmetric:
        raise UnsupportedCombination(
            f"T1 needs a replace-one curve that equals its swap; this inner mechanism's, {inner}, "
            "is not known to; account for observer='server' instead"
        )
    return loss


def removable(inner: Lossy) -> None:
    """Refuse a mechanism of which it is not known that leaving a unit out is a way to replace it.

    Where a unit that is not drawn leaves no other in its place, T1 compares the round without the
    unit with the round with it. How far two units' contributions are apart does not bound that:
    contributions with a large part in common show who takes part, and then T4 is exact.
    """
    if not (inner.zeroed_is_absent and inner.zeroing_replaces):
        raise UnsupportedCombination(
            f"T1 asks that leaving a unit out lose no more than replacing it, and {inner} "
            "does not say so (zeroed_is_absent, zeroing_replaces); sample it with FixedSize under "
            "replace_one, or account for observer='server', where nothing is amplified"
        )


def unamplified(inner: Lossy, scheme: Scheme, observer: Observer) -> Pair:
    """T4's pair under zero_out, which asks nothing of the inner mechanism.

    Who takes part is counted as seen, so that nothing is attained unless everybody does.
    """
    try:
        loss = inner.privacy_loss(ZERO, observer)
    except UnsupportedCombination as problem:
        raise UnsupportedCombination(
            f"what leaving a unit out loses is not known of this mechanism: {problem}"
        ) from problem
    if scheme.rate == 1.0:
        return as_it_is(inner, ZERO, observer)
    return Pair(scheme.visible(loss.curve), None)


def folded(inner: Lossy, scheme: Scheme, observer: Observer) -> Pair:
    """F(S, S) of the replace-one curve (T1), which must be symmetric."""
    if scheme.rate == 1.0:
        return as_it_is(inner, SWAP, observer)
    curve, attained = sampled_pair(symmetric_replacement(inner, observer), scheme.rate)
    return Pair(Fold(curve, curve), attained)


def slotted(inner: Lossy, scheme: Scheme, observer: Observer) -> Pair:
    """``folded`` at a fixed size, where rounds of one Gaussian sum are known to be triangles."""
    found, z = folded(inner, scheme, observer), inner.sum_multiplier
    # Everybody takes part at rate 1: then nothing is folded.
    if z is None or not isinstance(found.curve, Fold):
        return found
    one = Sampled(Gdp(2.0 / z), scheme.rate)
    return found if found.curve.up != one else found._replace(curve=Triangles(one, one))


def visible(adjacency: Adjacency) -> Builder:
    """Return the builder of cells that give everything about the unit's participation away."""

    def build(inner: Lossy, scheme: Scheme, observer: Observer) -> Pair:
        loss = inner.privacy_loss(adjacency, observer)
        if loss.witness is None:
            return Pair(scheme.visible(loss.curve), None)
        # Attained is only what surely happens: the rate is rounded down here.
        return Pair(scheme.visible(loss.curve), scheme.visible(loss.witness.curve, Side.DOWN))

    return build


def server_rows() -> Rows:
    """Return T4's cells for a scheme that draws a unit at most once a round."""
    return {
        (SERVER, ZERO): Cell("Mix(1-q: id, q: G(1/z))", VISIBLE, SAME, APART, visible(ZERO)),
        (SERVER, SWAP): Cell("Mix(1-q: id, q: G(2/z))", VISIBLE, SAME, EXCHANGED, visible(SWAP)),
    }
