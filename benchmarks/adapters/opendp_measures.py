"""OpenDP: zCDP of Gaussian sums, pure epsilon of Laplace sums, composed by its own composition."""

from importlib.metadata import version

import opendp.prelude as dp
from common import event_of, parts

NAME, VERSION, ANSWERS = "OpenDP", version("opendp"), "upper"
dp.enable_features("contrib")
L2 = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l2_distance(T=float)
L1 = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.l1_distance(T=float)


def epsilon(case):
    moved = 2.0 if case["relation"] == "REPLACE_ONE" else 1.0
    found = list(parts(event_of(case)))
    kinds = {inner["type"] for inner, *_ in found}
    if any(sampling for _, sampling, _ in found) or sum(count for *_, count in found) > 1000:
        raise NotImplementedError("only at most 1,000 sums without sampling")
    scales = [(inner.get("noise_multiplier"), count) for inner, _, count in found]
    if kinds == {"GaussianDpEvent"}:
        each = [L2 >> dp.m.then_gaussian(scale=z) for z, n in scales for _ in range(n)]
        profile = dp.c.make_zCDP_to_approxDP(dp.c.make_basic_composition(each)).map(moved)
        return profile.epsilon(case["delta"])
    if kinds == {"LaplaceDpEvent"}:
        each = [L1 >> dp.m.then_laplace(scale=b) for b, n in scales for _ in range(n)]
        return dp.c.make_basic_composition(each).map(moved)
    raise NotImplementedError("only Gaussian or only Laplace sums")
