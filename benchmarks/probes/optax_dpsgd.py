"""optax: ``contrib.differentially_private_aggregate`` on gradients of records."""

from importlib.metadata import version

import jax.numpy as jnp
import optax
from probe import printed, std_of

SIZE, BATCH = 40_000, 8


def main():
    made = optax.contrib.differentially_private_aggregate(
        l2_norm_clip=1.0, noise_multiplier=1.0, key=1
    )
    zeros = jnp.zeros((BATCH, SIZE))
    noise, _ = made.update(zeros, made.init(zeros[0]))
    quiet = optax.contrib.differentially_private_aggregate(
        l2_norm_clip=1.0, noise_multiplier=0.0, key=1
    )
    one = zeros.at[0].set(3.0)
    moved, _ = quiet.update(one, quiet.init(zeros[0]))
    std, norm = std_of(noise) * BATCH, float(jnp.linalg.norm(moved)) * BATCH
    printed(
        [
            {
                "program": f"optax {version('optax')}",
                "option": "differentially_private_aggregate, noise_multiplier 1, l2_norm_clip 1",
                "clipped": "gradient of a record, one norm over the tree",
                "noise": f"{std:.4f} on the sum; one record moves it by {norm:.4f}",
                "sampled": "as the caller draws",
                "printed": "none",
                "needs": "a public batch size: the divisor is the size of the batch",
                "ratio": std / norm,
            }
        ]
    )


main()
