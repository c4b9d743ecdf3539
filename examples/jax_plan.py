"""Correct end to end: jax_privacy trains by its execution plan, and our ledger is audited.

Prints::

    HOLDS: epsilon is at most 4.00 after 60 steps
    right for more than half of the test images
"""

import os
from importlib.resources import files

import dp_accounting as dpa
import jax
import numpy as np
import optax
from jax_privacy import batch_selection, noise_addition
from jax_privacy.experimental.execution_plan import BandMFExecutionPlanConfig

import fedprivacy as fp
from fedprivacy.integrations.dp_accounting import CertifiedAccountant, from_event

with np.load(files("fedprivacy") / "training" / "digits.npz") as held:
    images, labels = held["images"].reshape(-1, 64).astype(np.float32) / 16, held["labels"]
# The relation belongs to the accountant: REPLACE_SPECIAL is zero_out.
relation = dpa.NeighboringRelation.REPLACE_SPECIAL
plan = BandMFExecutionPlanConfig(
    strategy=[1.0], iterations=60, epsilon=4.0, delta=1e-5, sampling_prob=0.1, normalize_by=140.0,
    accountant=CertifiedAccountant(relation),
).plan  # fmt: skip
((step, steps),) = from_event(plan.dp_event, adjacency="zero_out", unit="record").parts


def loss(weights, image, label):
    return optax.softmax_cross_entropy_with_integer_labels(image @ weights, label).mean()


clipped = plan.clipped_grad(loss, batch_argnums=(1, 2))
gradient, std = jax.jit(clipped), step.inner.noise_multiplier * clipped.sensitivity(relation)
# The plan's own key has 31 bits of NumPy's generator; this one has 64 of the operating system.
key = jax.random.wrap_key_data(np.frombuffer(os.urandom(8), np.uint32))
noise, optimizer = noise_addition.gaussian_privatizer(stddev=std, prng_key=key), optax.sgd(4.0)
weights = np.zeros((64, 10), np.float32)
state, noise_state = optimizer.init(weights), noise.init(weights)
with fp.Ledger.create("run.ledger", unit="record", adjacency="zero_out") as ledger:
    for drawn in plan.batch_selection_strategy.batch_iterator(1400):
        number = ledger.intent(step, clip_norm=1.0, noise_std=140.0 * std)
        # One size for all batches, so that XLA compiles once; added rows have a gradient of zero.
        rows = batch_selection.pad_to_multiple_of(drawn, 256)
        total = gradient(weights, images[rows], labels[rows], is_padding_example=rows < 0)
        average, noise_state = noise.update(total, noise_state)
        change, state = optimizer.update(average, state)
        weights = optax.apply_updates(weights, change)
        told = {"cohort": len(drawn), "arrived": len(drawn), "refused": 0, "denominator": 140.0}
        ledger.done(number, noise_std=140.0 * std, **told)
    ledger.close()
found = fp.audit("run.ledger", claim=(4.0, 1e-5))
print(f"{found.verdict}: epsilon is at most {found.bound.upper:.2f} after {steps} steps")
right = np.mean(np.argmax(images[1400:] @ weights, axis=1) == labels[1400:])
print(f"right for {'more' if right > 0.5 else 'less'} than half of the test images")
