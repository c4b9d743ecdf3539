"""jax-privacy: noise of its Gaussian privatizer, and the norm of one clipped gradient."""

import sys
from importlib.metadata import version

# This file has the name of the package, and its folder comes first on the path.
sys.path.append(sys.path.pop(0))

import jax
import jax.numpy as jnp
from jax_privacy import clipping, noise_addition
from probe import printed, std_of


def main():
    privatizer = noise_addition.gaussian_privatizer(prng_key=jax.random.key(1), stddev=1.0)
    zeros = jnp.zeros(40_000)
    noise, _ = privatizer.update(zeros, privatizer.init(zeros))
    gradient = clipping.clipped_grad(lambda w, x: jnp.sum(x @ w), l2_clip_norm=1.0, batch_argnums=1)
    moved = gradient(jnp.zeros(3), jnp.array([[30.0, 40.0, 0.0]]))
    rows = [
        {
            "program": f"jax-privacy {version('jax_privacy')}",
            "option": "gaussian_privatizer(stddev 1) after clipped_grad(l2_clip_norm 1)",
            "clipped": "gradient of a record, one norm over the tree",
            "noise": f"{std_of(noise):.4f} on the sum; one record moves it by "
            f"{float(jnp.linalg.norm(moved)):.4f}",
            "sampled": "as the batch selection of the plan draws",
            "printed": "by its accountants",
            "needs": "the adjacency and the batches of the account",
            "ratio": std_of(noise) / float(jnp.linalg.norm(moved)),
        }
    ]
    printed(rows)


main()
