"""Two threads may ask questions at once without an effect on each other's answers."""

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Barrier

import fedprivacy as fp
from fedprivacy.accountants import PldAccountant
from fedprivacy.loss import LaplacePair, Sampled
from fedprivacy.loss.curves.laplace import LaplaceMoments

BOTH = Barrier(2, timeout=250.0)


@dataclass(frozen=True)
class Met(LaplacePair):
    """A curve that returns a moment only after two threads have requested it."""

    def moments(self):
        return Waiting(self.shift)


class Waiting(LaplaceMoments):
    """Moments that answer once two threads have asked."""

    def log_moment(self, order):
        BOTH.wait()
        return super().log_moment(order)


def test_moments_that_two_threads_add_at_once_are_those_of_their_orders():
    """A moment in the place of a higher order's would be too small, for good."""
    orders = range(2, 7)
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(Sampled(Met(0.5), 0.1).moments().log_moment, 6.0) for _ in range(2)]
        found = [run.result() for run in runs]
    wanted = {n: Sampled(LaplacePair(0.5), 0.1).moments().log_moment(float(n)) for n in orders}
    assert found == [wanted[6]] * 2
    # All are known now, so no thread waits for another.
    assert {n: Sampled(Met(0.5), 0.1).moments().log_moment(float(n)) for n in orders} == wanted
    assert wanted[6] > wanted[5] > 0.0


def test_an_accountant_stays_as_it_is_while_it_answers():
    """Room for laws that are off is not made in an object that others may be asking."""
    seen, spares = [], []

    class Watched(PldAccountant):
        def _epsilon(self, loss, delta):
            seen.append((account.spare, account.ceiling))
            spares.append(self.spare)
            return super()._epsilon(loss, delta)

    loss = fp.Gaussian(noise_multiplier=1.0).privacy_loss("zero_out")
    account = Watched().compose(replace(loss, tv_error=1e-25, witness=None))
    plain = PldAccountant().compose(loss).epsilon(1e-5)
    assert account.epsilon(1e-5).upper >= plain.upper
    assert set(seen) == {(0.0, math.inf)} and max(spares) > 0.0
