"""dp-accounting: its events, our interval, in its own interface.

A demonstration: events are priced, and no data are used.

Prints::

    PoissonSampledDpEvent(..., event=GaussianDpEvent(noise_multiplier=1.4)) 100 times
    theirs 0.69..., ours in [0.69..., 0.69...]
    our accountant behind their interface: 0.69...
"""

import dp_accounting as dpa

import fedprivacy as fp
from fedprivacy.integrations.dp_accounting import CertifiedAccountant, from_event, to_event

run = fp.Gaussian(noise_multiplier=1.4).sampled(fp.Poisson(0.02)) * 100
event = to_event(run, adjacency="add_remove")
print(event.event, event.count, "times")

theirs = dpa.pld.PLDAccountant(dpa.NeighboringRelation.ADD_OR_REMOVE_ONE).compose(event)
ours = fp.epsilon(from_event(event), delta=1e-5, adjacency="add_remove")
print(
    f"theirs {theirs.get_epsilon(1e-5):.4f}, ours in [{ours.lower:.4f}, {ours.upper:.4f}]",
)

account = CertifiedAccountant(dpa.NeighboringRelation.ADD_OR_REMOVE_ONE).compose(event)
print(f"our accountant behind their interface: {account.get_epsilon(1e-5):.4f}")
