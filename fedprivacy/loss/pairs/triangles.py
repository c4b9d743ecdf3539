"""The fold of a Gaussian sum over a cohort of a fixed size, which also knows what it is above."""

from __future__ import annotations

from dataclasses import dataclass

from ...registry import registered
from .combined import Composed, Fold, Sampled
from .curve import Curve
from .gaussian import Gdp


@registered
@dataclass(frozen=True)
class Triangles(Fold):
    """F(S, S), S = S(G(mu), q), of rounds that each are one of the pairs of a triangle.

    Under ``replace_one`` a round is, given who else is drawn, (1-q) N(0, I) + q N(u, I) against
    (1-q) N(0, I) + q N(v, I), the ends of u, v and 0 being three points of a ball of diameter mu.
    The fold is above all of them in one round; over many rounds less can be shown:
    ``fedprivacy.loss.profiles.playing``. S and its swap are among the pairs.
    """

    def __post_init__(self) -> None:
        known = isinstance(self.up, Sampled) and isinstance(self.up.inner, Gdp)
        if not (known and self.up == self.down):
            raise ValueError(
                f"Triangles: up = {self.up} and down must be one sampled Gaussian pair"
            )

    @property
    def mu(self) -> float:
        """The largest distance of two means."""
        assert isinstance(self.up, Sampled) and isinstance(self.up.inner, Gdp)
        return self.up.inner.mu

    @property
    def q(self) -> float:
        """The sampling probability."""
        assert isinstance(self.up, Sampled)
        return self.up.q

    @property
    def fold(self) -> Fold:
        """The fold alone."""
        return Fold(self.up, self.down)


def triangles(curve: Curve) -> tuple[Triangles, int] | None:
    """Return the round and how often it is run, where a curve is nothing but such rounds."""
    parts = curve.parts if isinstance(curve, Composed) else ((curve, 1),)
    one, rounds = parts[0]
    return (one, rounds) if len(parts) == 1 and isinstance(one, Triangles) else None
