"""Our accountant in Opacus's engine."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from opacus.accountants import IAccountant, register_accountant
from torch.utils.data import DataLoader

from ...bound import Bound
from ...errors import member, refuse, require
from ...mechanisms import Mechanism, Run
from ...questions.budget import seeded
from ...questions.epsilon import epsilon
from ...relations import Adjacency, Observer
from ...sampling import Scheme, Shuffled
from ..opacus_state import steps_in_no_pass
from .draws import WAY_OUT
from .guard import Guard
from .loaders import Loader, scheme_of
from .randomness import Randomness
from .sums import (
    Sums,
    check_denominator,
    check_kind,
    check_norm,
    check_scheme,
    clipped_to,
    forget_gradients,
    step_of,
    take_batch,
)

NAME = "fedprivacy"
"""The name for ``PrivacyEngine(accountant=...)``."""


class CertifiedAccountant(IAccountant):  # type: ignore[misc]
    """An accountant for ``PrivacyEngine``: certified intervals for an inspected loader.

    Attributes:
        adjacency: how neighbouring data sets differ; set by ``register``.
        history: (noise multiplier, sample rate, steps) of equal steps, in Opacus's form.
    """

    adjacency: Adjacency | None = None

    def __init__(self) -> None:
        self.history: list[tuple[float, float, int]] = []
        self._loader: Loader | None = None
        self._sums: Sums | None = None
        self._divisor: int | None = None
        self._passes: dict[float, int] = {}
        self._guard: Guard | None = None
        self._random: Randomness | None = None
        self._void = ""

    def look_at(
        self,
        loader: DataLoader[Any],
        optimizer: Any = None,
        *,
        scheme: Scheme | None = None,
        expected_batch_size: int | None = None,
    ) -> Scheme:
        """Inspect how the loader from ``make_private`` draws batches, and return the scheme.

        Call it before the first step.

        Args:
            loader: the source of the batches.
            optimizer: the optimizer from ``make_private``; needed if a step sums several physical
                batches, for example with BatchMemoryManager, and to inspect the generators of its
                noise: used states are refused, and a number says if a seed was chosen.
            scheme: the loader's scheme, chosen without a look at the records. Needed for
                ``add_remove``, because Opacus's own rate and number of steps follow the number of
                records.
            expected_batch_size: a public denominator of the sums, which the optimizer must have.
                Needed for ``add_remove`` if the loss is a mean.

        Raises:
            ParameterError: after the first step, another optimizer, or undeclared numbers.
            UnsupportedCombination: see ``scheme_of``.
        """
        # Earlier steps cannot be priced by a later inspection.
        if self.history:
            refuse("look_at", f"after {len(self)} steps", "be called before the first step")
        check_scheme(scheme_of(loader), scheme, self.adjacency)
        self._divisor = expected_batch_size
        self._loader = Loader.looked_at(loader)
        self._loader.unstepped = self._unstepped
        self._sums = None if optimizer is None else Sums(optimizer, self._loader)
        self._guard = None if optimizer is None else self._guarded(optimizer, stepping=False)
        if optimizer is not None:
            self._random = Randomness(optimizer, loader)
            self._random.watch(self._loader.draws)
            optimizer.add_noise = partial(self._add_noise, self._random, optimizer.add_noise)
        return self._loader.scheme

    def _guarded(self, optimizer: Any, *, stepping: bool) -> Guard:
        """Require that every step of an optimizer is counted."""
        found = Guard.of(optimizer, stepping=stepping)
        found.add(self)
        return found

    def _add_noise(self, random: Randomness, add: Callable[[], None]) -> None:
        try:
            random.noise(add)
        except BaseException:
            # Its batch waits for another step, of which this one must be no part.
            forget_gradients(random.optimizer)
            for sums in vars(random.optimizer)["sums"]:
                sums.stop()
            raise

    def void(self, reason: str) -> None:
        """Refuse every number from now on: a release was not counted.

        Args:
            reason: the cause, in words.
        """
        self._void = self._void or reason

    def stepped(self) -> None:
        """Handle a step that moved the parameters: it is already counted."""

    def _unstepped(self) -> None:
        # Without the optimizer, another hook may have stepped the batch.
        if self._guard is None:
            self.void("a batch was drawn, but its step was not counted")

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[Any], None]:
        """Return the function that Opacus calls before every step; see ``step``.

        The hook raises ParameterError with adaptive clipping: that also releases the number of
        clipped records, and no clip norm of the account bounds this sum. The hook also raises
        ParameterError if no batch was drawn for the step from the inspected loader, or if gradients
        were clipped to more than ``max_grad_norm``.
        """
        hook: Callable[[Any], None] = super().get_optimizer_hook_fn(sample_rate)

        def looked_at(optimizer: Any) -> None:
            check_kind(optimizer)
            if self._loader is not None:
                # The optimizer is known from the first step on, even if look_at did not get it.
                guard = self._guard = self._guard or self._guarded(optimizer, stepping=True)
                self._take(optimizer, self._loader)
                check_denominator(optimizer, self._divisor, self.adjacency)
                own = optimizer.expected_batch_size
                rule = f"be that of the optimizer, {own}, the divisor of its sums"
                require(self._divisor in (None, own), "expected_batch_size", self._divisor, rule)
                guard.begin(self)
                self._loader.settle()
            hook(optimizer)

        return looked_at

    def _take(self, optimizer: Any, loader: Loader) -> None:
        if self._sums is not None:
            same = self._sums.of is optimizer
            require(same, "optimizer", "another one", "be the one that look_at received")
            self._sums.used()
            return
        # For a single physical batch, the current state is enough.
        if optimizer._is_last_step_skipped:
            rule = "be passed to look_at if a step sums several physical batches"
            refuse("optimizer", None, rule, "call look_at(loader, optimizer)")
        check_norm(optimizer, clipped_to(optimizer))
        take_batch(optimizer, loader, len(optimizer.grad_samples[0]), 1, announced=False)

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Count one step; Opacus calls it."""
        kind = (noise_multiplier, sample_rate)
        # Equal consecutive steps share one entry, as in Opacus's own history.
        steps = self.history.pop()[2] if self.history and self.history[-1][:2] == kind else 0
        self.history.append((*kind, steps + 1))
        loader = self._loader
        if loader is None or loader.passes is None or loader.in_round(noise_multiplier):
            return
        self._passes[noise_multiplier] = self._passes.get(noise_multiplier, 0) + 1
        loader.begin_round(noise_multiplier)

    def state_dict(self, destination: Any = None) -> Any:
        """Return the state in Opacus's form, with the batches' scheme and the started passes."""
        found = super().state_dict(destination)
        found["scheme"] = None if self._loader is None else repr(self._loader.scheme)
        found["passes"] = sorted(self._passes.items())
        if void := self._why_void():
            found["void"] = void
        if self._loader is not None and self._loader.waits:
            found["unstepped"] = os.getpid()
        return found

    def load_state_dict(self, state_dict: Any) -> None:
        """Continue from a state. A pass in progress counts as started, the next one as another.

        Raises:
            ParameterError: the loader was not inspected, the state has another scheme, or steps
                were taken already. Returning to an earlier model does not undo them.
            ValueError: Opacus refuses it.
        """
        loader = self._loader
        if loader is None:
            way_out = "call engine.accountant.look_at(data_loader) before the state is loaded"
            refuse(
                "the data loader", None, "be passed to look_at before steps are counted", way_out
            )
        if self.history:
            way_out = "released steps stay spent; load only the state dict of the model"
            refuse("state", f"after {len(self)} steps", "be loaded before the first step", way_out)
        drawn, known = repr(loader.scheme), dict(state_dict or {})
        if known.get("history") and (known.get("scheme") != drawn or "passes" not in known):
            rule = f"be of steps with the sampling of the loader: {drawn}"
            way_out = "audit the earlier steps separately and add their account"
            refuse("state", known.get("scheme"), rule, way_out)
        begun = {float(noise): int(times) for noise, times in known.get("passes") or ()}
        if isinstance(loader.scheme, Shuffled):
            _check_passes(known, begun, loader.scheme)
        super().load_state_dict(state_dict)
        self._passes = begun
        self._void = str(known.get("void") or "")
        # A process that draws again what it drew before chooses what is released.
        if known.get("unstepped") == os.getpid():
            self.void("a batch was drawn, its step did not follow, and an earlier state was loaded")
        loader.end_round()

    def bound(self, delta: float, observer: Observer | str = Observer.AGGREGATE) -> Bound:
        """Return the certified epsilon of all steps.

        Args:
            delta: in [0, 1].
            observer: who sees the outputs.

        Raises:
            ParameterError: no step was taken, or the loader was not inspected.
            UnsupportedCombination: no theorem covers the run under these facts.
        """
        if self.adjacency is None:
            refuse("adjacency", None, "be given", "register(adjacency='zero_out'), for example")
        found = epsilon(self._run(), delta=delta, adjacency=self.adjacency, observer=observer)
        return seeded(found) if self._random is not None and self._random.chosen else found

    def _why_void(self) -> str:
        missed = self._loader is not None and self._loader.missed
        return self._void or ("another optimizer stepped a drawn batch" if missed else "")

    def _run(self) -> Mechanism:
        if not self.history:
            refuse("history", "empty", "contain a step", "no step was taken")
        loader = self._loader
        if loader is None:
            way_out = (
                "call engine.accountant.look_at(data_loader) with the loader from make_private"
            )
            refuse("the data loader", None, "be passed to look_at before the first step", way_out)
        if found := self._why_void():
            way_out = "no epsilon is known; use a new accountant, and add its account"
            refuse("the steps", f"void: {found}", "all be counted", way_out)
        if loader.waits:
            rule = (
                "be stepped before epsilon is computed, since dropping a batch selects the release"
            )
            refuse("the last drawn batch", "not stepped", rule, WAY_OUT)
        counts = self._passes
        if loader.passes is None:
            rate = getattr(loader.scheme, "probability", None)
            counts = {}
            for noise, recorded, steps in self.history:
                # Opacus passes the rate of its loader: another rate means another loader.
                if rate is not None and not math.isclose(recorded, rate, rel_tol=1e-6):
                    refuse("sample rate", recorded, f"equal the loader's, {rate}")
                counts[noise] = counts.get(noise, 0) + steps
        return Run(tuple((step_of(z, loader.scheme), n) for z, n in counts.items()))

    def get_epsilon(self, delta: float, *args: Any, **kwargs: Any) -> float:
        """Return the certified upper end of epsilon; see ``bound``."""
        return self.bound(delta, *args, **kwargs).upper

    def __len__(self) -> int:
        return sum(steps for _, _, steps in self.history)

    @classmethod
    def mechanism(cls) -> str:
        """Return the registered name."""
        return NAME


def _check_passes(state: dict[str, Any], begun: dict[float, int], scheme: Shuffled) -> None:
    """Refuse a state with a step outside the passes that were begun."""
    counted = state.get("history") or ()
    free = steps_in_no_pass(counted, begun.items(), scheme.rounds_per_epoch)
    rule = "have every step in a pass, since whole passes are accounted"
    require(free is None, "state", free, rule)


def register(*, adjacency: Adjacency | str) -> type[CertifiedAccountant]:
    """Make ``PrivacyEngine(accountant="fedprivacy")`` work; a second call replaces the first.

    Args:
        adjacency: how neighbouring data sets differ, for every accountant made from now on.

    Raises:
        ParameterError: not an adjacency.
    """

    class Registered(CertifiedAccountant):
        pass

    Registered.adjacency = member(Adjacency, adjacency=adjacency)
    register_accountant(NAME, Registered, force=True)
    return Registered
