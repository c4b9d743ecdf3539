"""Opacus 1.6, live: an accountant of ours inside its engine, and its steps in our ledger.

Opacus tells an accountant a noise multiplier and a rate, not how batches are drawn. So the data
loader is looked at: what it draws is priced as what it is, or refused. The only module that imports
opacus for more than its accountants' numbers.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

from ..bound import Bound
from ..errors import UnsupportedCombination, integer, member, needs, refuse, require
from ..ledger import Ledger
from ..mechanisms import Gaussian, Mechanism, Run
from ..questions.budget import Budget
from ..questions.epsilon import epsilon
from ..relations import Adjacency, Observer, Unit
from ..sampling import FixedSize, Poisson, Scheme, Shuffled, WithReplacement

with needs("fedprivacy.integrations.opacus", "'fedprivacy[train]' opacus", "torch", "opacus"):
    import torch
    from opacus.accountants import IAccountant, register_accountant
    from opacus.optimizers import DPOptimizer, DPPerLayerOptimizer
    from opacus.utils.uniform_sampler import UniformWithReplacementSampler
    from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Sampler, SequentialSampler

__all__ = ["NAME", "CertifiedAccountant", "StepBooks", "keep_books", "register", "scheme_of"]

NAME = "fedprivacy"
"""What ``PrivacyEngine(accountant=...)`` is told."""


# ---- what a loader draws


def scheme_of(loader: DataLoader[Any]) -> Scheme:
    """Return how a data loader draws the batches of its steps.

    Opacus's own loader draws by Poisson sampling. One that goes through its data in some order is
    ``Shuffled``: a record is in one step of a pass, nothing is amplified; ``partial`` where a pass
    leaves some out. Draws with replacement, and one batch of a few drawn without, are what they
    are.

    Raises:
        UnsupportedCombination: weights, a sampler that is not known, batches of several sizes where
            the size counts.
    """
    batches: Any = loader.batch_sampler
    size = _length(loader)
    # By exact type: a subclass may draw otherwise. In spite of its name this sampler draws each
    # record independently.
    if type(batches) in (UniformWithReplacementSampler, _PoissonBatches):
        # The rate is of another data set than the one that is drawn from.
        if batches.num_samples != size:
            _unpriced(f"a sampler of {batches.num_samples} records over a data set of {size}")
        return Poisson(batches.sample_rate)
    if type(batches) not in (BatchSampler, _OrderedBatches):
        _unpriced(f"batches drawn by {type(batches).__name__}")
    # A loader that was looked at has a counter around its sampler.
    drawn = getattr(batches.sampler, "sampler", batches.sampler)
    if isinstance(drawn, SequentialSampler):
        return Shuffled(len(loader), partial=_of_a_pass(batches, size) < size)
    if not isinstance(drawn, RandomSampler):
        _unpriced(f"records drawn by {type(drawn).__name__}")
    return _at_random(drawn, batches, size)


def _length(loader: DataLoader[Any]) -> int:
    try:
        return integer(1, records=len(loader.dataset))  # type: ignore[arg-type]
    except TypeError:
        _unpriced("a stream of records, whose number is not known")


def _at_random(drawn: RandomSampler, batches: BatchSampler, size: int) -> Scheme:
    each, total = int(batches.batch_size), int(drawn.num_samples)
    # A short last batch would be a scheme of its own.
    if drawn.replacement:
        if total % each and not batches.drop_last:
            _unpriced(f"{total} draws in batches of {each}, the last one smaller (pass drop_last)")
        return WithReplacement(each, population=size)
    if total > size:
        _unpriced(f"{total} draws without replacement from {size}, some of them twice")
    stepped = _of_a_pass(batches, total)
    # A few in one batch: a cohort of fixed size, afresh in every pass.
    if len(batches) == 1 and stepped < size:
        return FixedSize(stepped, population=size)
    return Shuffled(len(batches), partial=stepped < size)


def _of_a_pass(batches: BatchSampler, total: int) -> int:
    """Return how many of the records that a pass draws are in its batches."""
    each = int(batches.batch_size)
    return total - total % each if batches.drop_last else total


def _unpriced(what: str) -> NoReturn:
    raise UnsupportedCombination(
        f"the data loader has {what}: no theorem here prices its steps; let make_private draw by "
        "Poisson sampling (poisson_sampling=True), or pass a loader with shuffle=True"
    )


class _Passes(Sampler[int]):
    """Counts the passes over a data set; two at once would put a record into two steps of one."""

    def __init__(self, sampler: Any) -> None:
        self.sampler = sampler
        self.begun = 0

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[int]:
        self.begun += 1
        mine = self.begun
        for index in self.sampler:
            if self.begun != mine:
                refuse("passes over the data loader", "two", "be one at a time")
            yield index


class _Told(Sampler[list[int]]):
    """A sampler of batches that tells how many records each has, when it is drawn."""

    heard: list[Callable[[int], None]]

    def __iter__(self) -> Iterator[list[int]]:
        for batch in super().__iter__():
            for tell in self.heard:
                tell(len(batch))
            yield batch


class _PoissonBatches(_Told, UniformWithReplacementSampler):  # type: ignore[misc]
    pass


class _OrderedBatches(_Told, BatchSampler):
    pass


_TOLD = {UniformWithReplacementSampler: _PoissonBatches, BatchSampler: _OrderedBatches}


@dataclass
class _Loader:
    """A data loader that was looked at, and the batches that it drew and no step has used."""

    scheme: Scheme
    passes: _Passes | None = None
    _waiting: deque[int] = field(default_factory=deque)
    _pass: int = 0

    @classmethod
    def looked_at(cls, loader: DataLoader[Any]) -> _Loader:
        scheme = scheme_of(loader)
        batches: Any = loader.batch_sampler
        # A loader's sampler cannot be replaced, and others wrap this one: it is told apart by
        # its class, which is exactly one of the two.
        batches.__class__ = _TOLD.get(type(batches), type(batches))
        one = cls(scheme)
        vars(batches).setdefault("heard", []).append(one._drawn)
        if isinstance(scheme, Shuffled):
            # Looked at twice, the passes are still counted once.
            if not isinstance(batches.sampler, _Passes):
                batches.sampler = _Passes(batches.sampler)
            one.passes = batches.sampler
        return one

    def _drawn(self, records: int) -> None:
        # What an earlier pass left over is no part of this one's round.
        if self.passes is not None and self.passes.begun != self._pass:
            self._pass = self.passes.begun
            self._waiting.clear()
        self._waiting.append(records)

    def use(self, records: int, parts: int = 1, told: bool = False) -> None:
        """Take the batches of a step from those that were drawn; workers draw ahead of steps.

        Args:
            records: how many gradients the step sums.
            parts: in how many physical batches they came.
            told: every part was announced, as Opacus's BatchMemoryManager does.

        Raises:
            ParameterError: they cannot all be records of a batch that no step had before.
        """
        drawn, room = len(self._waiting), 0
        # A pass is one round, in which a step may sum several batches; a draw is a round.
        fits = told or parts <= (1 if self.passes is None else drawn)
        while fits and self._waiting:
            # Of an empty batch Opacus may make one that holds a random record.
            batch = max(1, self._waiting.popleft())
            room = batch if self.passes is None else room + batch
            if room >= records:
                return
        rule = "come from one batch that was drawn for it, each record once"
        if self.passes is not None:
            rule = "come from batches that were drawn for it in this pass, each record once"
        way_out = (
            f"{drawn} drawn batches were left; draw one for every step, from the loader that was "
            "looked at: stepped twice it is sampled once; BatchMemoryManager splits large ones"
        )
        refuse("a step's gradients", records, rule, way_out)


# ---- what a step sums


class _Sums:
    """What an optimizer has clipped and not yet released: of how many records, by which norm."""

    def __init__(self, optimizer: Any) -> None:
        _check_kind(optimizer)
        self.of = optimizer
        self._forget()
        optimizer.clip_and_accumulate = partial(self._gathered, optimizer.clip_and_accumulate)

    def _forget(self) -> None:
        self._records, self._parts, self._told, self._clip = 0, 0, True, 0.0

    def _gathered(self, clip: Callable[[], None]) -> None:
        """Count the records of a physical batch, then clip them."""
        self._records += len(self.of.grad_samples[0])
        self._parts += 1
        self._told = self._told and bool(self.of._step_skip_queue)
        # The norm may move between the parts of a step.
        self._clip = max(self._clip, _clipped_to(self.of))
        clip()

    def used(self, loader: _Loader) -> int:
        """Take what a step sums from what a loader drew for it, and return of how many records.

        Raises:
            ParameterError: it was not drawn for it, or is clipped to more than the noise hides.
        """
        records, parts, told, clip = self._records, self._parts, self._told, self._clip
        self._forget()
        _take(self.of, loader, records, parts, told)
        _check_norm(self.of, clip)
        return records


def _take(optimizer: Any, loader: _Loader, records: int, parts: int, told: bool) -> None:
    times = optimizer.accumulated_iterations
    if loader.passes is None and times != 1:
        refuse("batches of a step", times, "be one", "accumulate no gradients")
    loader.use(records, max(times, parts), told)


def _check_kind(optimizer: Any) -> None:
    if type(optimizer) not in (DPOptimizer, DPPerLayerOptimizer):
        kind = type(optimizer).__name__
        way_out = (
            "use clipping='flat' or 'per_layer' in one process: adaptive clipping releases how "
            "many it clipped, others add other noise or show no record's gradient"
        )
        refuse("optimizer", kind, "be DPOptimizer or DPPerLayerOptimizer", way_out)


def _clipped_to(optimizer: Any) -> float:
    """Return the norm that a record's gradients are clipped to now."""
    layers = getattr(optimizer, "max_grad_norms", None)
    return float(optimizer.max_grad_norm) if layers is None else math.hypot(*layers)


def _check_norm(optimizer: Any, clip: float) -> None:
    """Refuse noise of a smaller norm than gradients were clipped to."""
    # Opacus keeps the norm of several in single precision.
    if float(optimizer.max_grad_norm) < clip * (1.0 - 1e-6):
        rule = f"be at least {clip:g}, which gradients were clipped to: the noise is its multiple"
        way_out = "change it between whole steps only, and of layers all max_grad_norms with it"
        refuse("max_grad_norm", float(optimizer.max_grad_norm), rule, way_out)


def _check_scheme(drawn: Scheme, declared: Scheme | None, adjacency: object) -> None:
    """Refuse a rate, or a cohort, that may follow the number of records where that is hidden."""
    if declared is None and adjacency == Adjacency.ADD_REMOVE:
        rule = "be declared for add_remove: Opacus's rate and steps follow the number of records"
        way_out = (
            f"make a loader of public numbers and say which, such as scheme={drawn}, or account "
            "for zero_out"
        )
        refuse("scheme", None, rule, way_out)
    if declared not in (None, drawn):
        refuse("scheme", declared, f"be what the loader draws: {drawn}")


# ---- the accountant


class CertifiedAccountant(IAccountant):  # type: ignore[misc]
    """An accountant for ``PrivacyEngine``: certified intervals, for the loader that was looked at.

    Attributes:
        adjacency: how neighbouring data sets differ; set by ``register``.
        history: (noise multiplier, sample rate, steps) of steps that were alike, as Opacus has it.
    """

    adjacency: Adjacency | None = None

    def __init__(self) -> None:
        self.history: list[tuple[float, float, int]] = []
        self._loader: _Loader | None = None
        self._sums: _Sums | None = None
        self._divisor: int | None = None
        self._passes: dict[float, int] = {}
        self._pass = 0

    def look_at(
        self,
        loader: DataLoader[Any],
        optimizer: Any = None,
        *,
        scheme: Scheme | None = None,
        expected_batch_size: int | None = None,
    ) -> Scheme:
        """Learn how batches are drawn, from the loader that ``make_private`` returned.

        To be called before the first step.

        Args:
            loader: what the batches come from.
            optimizer: what ``make_private`` returned beside it; needed where a step sums several
                physical batches, as with BatchMemoryManager.
            scheme: what the loader draws, decided without a look at the records; needed for
                ``add_remove``, as Opacus's own rate and number of steps follow how many there are.
            expected_batch_size: a public number that sums are divided by, which the optimizer must
                have; needed for ``add_remove`` where the loss is a mean.

        Raises:
            ParameterError: steps were taken already, another optimizer, or undeclared numbers.
            UnsupportedCombination: see ``scheme_of``.
        """
        # Steps that were taken cannot be priced by what is seen only now.
        if self.history:
            refuse("look_at", f"after {len(self)} steps", "be called before the first step")
        _check_scheme(scheme_of(loader), scheme, self.adjacency)
        self._sums = None if optimizer is None else _Sums(optimizer)
        self._divisor = expected_batch_size
        self._loader = _Loader.looked_at(loader)
        return self._loader.scheme

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[Any], None]:
        """Return what Opacus calls before every step; see ``step``.

        The hook raises ParameterError with adaptive clipping: the number of clipped records, which
        it releases too, is a sum that no clip norm bounds as it is accounted. It also does where
        no batch was drawn for the step, from the loader that was looked at, or gradients were
        clipped to more than ``max_grad_norm``.
        """
        hook: Callable[[Any], None] = super().get_optimizer_hook_fn(sample_rate)

        def looked_at(optimizer: Any) -> None:
            _check_kind(optimizer)
            if self._loader is not None:
                self._take(optimizer, self._loader)
                _check_denominator(optimizer, self._divisor, self.adjacency)
                own = optimizer.expected_batch_size
                rule = f"be the optimizer's, {own}: sums are divided by it"
                require(self._divisor in (None, own), "expected_batch_size", self._divisor, rule)
            hook(optimizer)

        return looked_at

    def _take(self, optimizer: Any, loader: _Loader) -> None:
        if self._sums is not None:
            same = self._sums.of is optimizer
            require(same, "optimizer", "another one", "be the one that look_at was given")
            self._sums.used(loader)
            return
        # Of one physical batch what is seen now will do.
        if optimizer._is_last_step_skipped:
            rule = "be given to look_at where a step sums several physical batches"
            refuse("optimizer", None, rule, "call look_at(loader, optimizer)")
        _take(optimizer, loader, len(optimizer.grad_samples[0]), 1, told=False)
        _check_norm(optimizer, _clipped_to(optimizer))

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Count one step; Opacus calls it."""
        kind = (noise_multiplier, sample_rate)
        # Steps that are alike are one entry, as Opacus keeps its own history.
        steps = self.history.pop()[2] if self.history and self.history[-1][:2] == kind else 0
        self.history.append((*kind, steps + 1))
        passes = None if self._loader is None else self._loader.passes
        # A pass is one round; less noise within it makes it another.
        if passes is not None and (passes.begun != self._pass or noise_multiplier < self._quietest):
            self._passes[noise_multiplier] = self._passes.get(noise_multiplier, 0) + 1
            self._pass, self._quietest = passes.begun, noise_multiplier

    _quietest = math.inf

    def state_dict(self, destination: Any = None) -> Any:
        """Return the state in Opacus's form, with how batches were drawn and the passes begun."""
        found = super().state_dict(destination)
        found["scheme"] = None if self._loader is None else repr(self._loader.scheme)
        found["passes"] = sorted(self._passes.items())
        return found

    def load_state_dict(self, state_dict: Any) -> None:
        """Go on from a state; a pass under way counts as begun, the next one as another.

        Raises:
            ParameterError: the loader was not looked at, or the state is of another one.
            ValueError: Opacus refuses it.
        """
        loader = self._loader
        if loader is None:
            way_out = "call engine.accountant.look_at(data_loader) before the state is loaded"
            refuse("the data loader", None, "be looked at before steps are counted", way_out)
        drawn, known = repr(loader.scheme), dict(state_dict or {})
        super().load_state_dict(state_dict)
        if known.get("scheme") != drawn or "passes" not in known:
            self.history = []
            rule = f"be of steps that were drawn as the loader's are: {drawn}"
            way_out = "audit the earlier steps by themselves and add their account"
            refuse("state", known.get("scheme"), rule, way_out)
        self._passes = {float(noise): int(begun) for noise, begun in known["passes"]}
        self._pass, self._quietest = 0, math.inf

    def bound(self, delta: float, observer: Observer | str = Observer.AGGREGATE) -> Bound:
        """Return the certified epsilon of the steps so far.

        Args:
            delta: in [0, 1].
            observer: who looks.

        Raises:
            ParameterError: no step was taken, or the loader was not looked at.
            UnsupportedCombination: no theorem covers the run under these facts.
        """
        if self.adjacency is None:
            refuse("adjacency", None, "be given", "register(adjacency='zero_out'), for instance")
        return epsilon(self._run(), delta=delta, adjacency=self.adjacency, observer=observer)

    def _run(self) -> Mechanism:
        if not self.history:
            refuse("history", "empty", "hold a step", "no step was taken")
        loader = self._loader
        if loader is None:
            way_out = "call engine.accountant.look_at(data_loader) with what make_private returned"
            refuse("the data loader", None, "be looked at before the first step", way_out)
        counts = self._passes
        if loader.passes is None:
            rate = getattr(loader.scheme, "probability", None)
            counts = {}
            for noise, told, steps in self.history:
                # Opacus tells the rate of its own loader: another rate means another loader.
                if rate is not None and not math.isclose(told, rate, rel_tol=1e-6):
                    refuse("sample rate", told, f"equal the loader's, {rate}")
                counts[noise] = counts.get(noise, 0) + steps
        return Run(tuple((_step(z, loader.scheme), n) for z, n in counts.items()))

    def get_epsilon(self, delta: float, *args: Any, **kwargs: Any) -> float:
        """Return the certified upper end of epsilon; see ``bound``."""
        return self.bound(delta, *args, **kwargs).upper

    def __len__(self) -> int:
        return sum(steps for _, _, steps in self.history)

    @classmethod
    def mechanism(cls) -> str:
        """Return the name that it is registered by."""
        return NAME


def _step(noise_multiplier: float, scheme: Scheme) -> Mechanism:
    return Gaussian(noise_multiplier=noise_multiplier, unit=Unit.RECORD).sampled(scheme)


def register(*, adjacency: Adjacency | str) -> type[CertifiedAccountant]:
    """Make ``PrivacyEngine(accountant="fedprivacy")`` work; again replaces what was registered.

    Args:
        adjacency: how neighbouring data sets differ, for every accountant made from here on.

    Raises:
        ParameterError: not an adjacency.
    """

    class Registered(CertifiedAccountant):
        pass

    Registered.adjacency = member(Adjacency, adjacency=adjacency)
    register_accountant(NAME, Registered, force=True)
    return Registered


# ---- seeds

_CHOSEN = 2**32
"""Seeds below it are taken to be somebody's: torch's own have 53 bits and more."""

_UNSEEDED = torch.Generator().initial_seed()
"""What every new generator begins with that nobody seeds."""


class _Randomness:
    """The generators of an optimizer's noise and a loader's draws, and the seeds they began with.

    An order in passes amplifies nothing, so its draws need no secret.
    """

    def __init__(self, optimizer: Any, loader: DataLoader[Any]) -> None:
        self.optimizer = optimizer
        self.sampler: Any = None
        if not isinstance(scheme_of(loader), Shuffled):
            batches: Any = loader.batch_sampler
            self.sampler = batches if hasattr(batches, "generator") else batches.sampler
        self.begun = self._now()

    def _now(self) -> list[tuple[Any, int | None]]:
        found = [] if self.sampler is None else [self.sampler.generator or torch.default_generator]
        if self.optimizer.generator is not None:
            found.append(self.optimizer.generator)
        else:
            # In the order of the parameters, each device once.
            devices = dict.fromkeys(parameter.device for parameter in self.optimizer.params)
            found += [_generator_of(device) for device in devices]
        # Secure generators take no seed.
        secure = self.optimizer.secure_mode
        return [(one, None if secure else one.initial_seed()) for one in found]

    @property
    def chosen(self) -> bool:
        """Whether somebody seems to have chosen a seed, or none at all."""
        seeds = [seed for _, seed in self.begun if seed is not None]
        return any(seed < _CHOSEN or seed == _UNSEEDED for seed in seeds)

    def check(self) -> None:
        """Refuse a generator, or a seed, that was not there at the beginning.

        Raises:
            ParameterError: there is one.
        """
        if self._now() != self.begun:
            rule = "stay as keep_books saw them: the ledger says that no seed was chosen"
            way_out = "seed before keep_books, with a ledger of seed_policy='fixed', or not at all"
            refuse("torch's generators and seeds", "others", rule, way_out)


def _generator_of(device: torch.device) -> Any:
    if device.type != "cuda":
        return torch.default_generator
    return torch.cuda.default_generators[device.index]


# ---- the books


@dataclass
class StepBooks:
    """What stands between an optimizer of Opacus and its steps: a Budget, and a Ledger.

    Before a step is released the budget is asked and the intent is on disk; after it the round is
    confirmed. Under ``Shuffled`` a round is a whole pass. ``close`` ends the ledger.
    """

    optimizer: DPOptimizer
    loader: _Loader
    ledger: Ledger | None
    budget: Budget | None
    _random: _Randomness
    _sums: _Sums
    _steps: dict[float, Mechanism] = field(default_factory=dict)
    _number: int | None = None
    _pass: int = 0
    _quietest: float = math.inf
    _noise_std: float = 0.0
    _released: bool = False
    _stepped: int = 0
    _cohort: int = 0

    def before(self, then: Callable[[Any], None] | None, optimizer: Any) -> None:
        """Ask the budget and write the intent; Opacus calls it before every step.

        Raises:
            BudgetExhausted: the step does not fit; its gradients are forgotten, nothing released.
            ParameterError: no batch was drawn for it, its gradients were clipped to more than its
                noise hides, or torch was seeded since; as well.
        """
        try:
            self._stepped = self._sums.used(self.loader)
            if self.ledger is not None and not self.ledger.reproducible:
                self._random.check()
            self._begin()
        # Whatever stops the step, its gradients must not be left for a later one.
        except BaseException:
            for parameter in optimizer.params:
                parameter.grad = parameter.summed_grad = None
            raise
        if then is not None:
            then(optimizer)

    def _begin(self) -> None:
        passes, noise = self.loader.passes, float(self.optimizer.noise_multiplier)
        # A pass is one round: it is begun once, unless the noise falls within it.
        if passes is not None and passes.begun == self._pass and noise >= self._quietest:
            return
        self._confirm()
        step = self._steps.setdefault(noise, _step(noise, self.loader.scheme))
        if self.budget is not None:
            self.budget.spend(step)
        if self.ledger is not None:
            clip = float(self.optimizer.max_grad_norm)
            self._noise_std = noise * clip
            self._number = self.ledger.intent(step, clip_norm=clip, noise_std=self._noise_std)
            if self.budget is not None:
                self.budget.charges.setdefault(self.ledger.nonce, set()).add(self._number)
        self._pass, self._quietest = (0 if passes is None else passes.begun), noise

    def after(self, *_: object) -> None:
        """Confirm a step that was released; torch calls it after every step."""
        self._cohort, self._released = self._cohort + self._stepped, True
        if self.loader.passes is None:
            self._confirm()

    def _confirm(self) -> None:
        """Confirm the round under way if anything of it was released; else it stays begun."""
        if self.ledger is not None and self._number is not None and self._released:
            self.ledger.done(
                self._number,
                cohort=self._cohort,
                arrived=self._cohort,
                refused=0,
                noise_std=self._noise_std,
                denominator=_denominator(self.optimizer),
            )
        self._number, self._cohort, self._released = None, 0, False

    def close(self) -> None:
        """Confirm what is under way and end the ledger: the run is complete."""
        self._confirm()
        if self.ledger is not None:
            self.ledger.close()


def keep_books(
    optimizer: DPOptimizer,
    loader: DataLoader[Any],
    *,
    ledger: Ledger | None = None,
    budget: Budget | None = None,
    expected_batch_size: int | None = None,
    scheme: Scheme | None = None,
) -> StepBooks:
    """Let an optimizer of Opacus ask a budget and write a ledger at every step.

    To be called once, before the first batch is drawn, with what ``make_private`` returned. Every
    batch of the loader must be stepped once, an empty one too: a step that no batch was drawn for
    is refused, and released nothing.

    Args:
        optimizer: flat clipping or clipping by layer, in one process.
        loader: what its batches come from; see ``scheme_of``.
        ledger: of records; written until ``StepBooks.close``.
        budget: asked before every step; rounds that the ledger already holds are charged to it.
        expected_batch_size: a public number that sums are divided by, in place of Opacus's, which
            follows the number of records. Needed for ``add_remove``.
        scheme: what the loader draws, decided without a look at the records. Needed for
            ``add_remove``, as Opacus's own rate and number of steps follow how many there are.

    Raises:
        ParameterError: another optimizer, a ledger of clients, an undeclared denominator or
            scheme, or a fixed seed where the ledger says there is none.
        UnsupportedCombination: see ``scheme_of``.
        BudgetExhausted: what the ledger holds exceeds the budget already.
    """
    _check_kind(optimizer)
    if ledger is not None and ledger.facts.unit is not Unit.RECORD:
        refuse("ledger's unit", ledger.facts.unit, "be 'record'", "Opacus clips every record's own")
    for book in (ledger, budget):
        adjacency = getattr(getattr(book, "facts", book), "adjacency", None)
        _check_scheme(scheme_of(loader), scheme, adjacency)
        _check_denominator(optimizer, expected_batch_size, adjacency)
    random = _Randomness(optimizer, loader)
    if ledger is not None and not ledger.reproducible and random.chosen:
        way_out = "create the ledger with seed_policy='fixed', or seed no generator of torch"
        refuse("ledger's seed_policy", ledger.seed_policy, "be 'fixed': torch was seeded", way_out)
    if expected_batch_size is not None:
        optimizer.expected_batch_size = integer(1, expected_batch_size=expected_batch_size)
    drawn = _Loader.looked_at(loader)
    books = StepBooks(optimizer, drawn, ledger, budget, random, _Sums(optimizer))
    # Rounds of an earlier session are spent, too.
    for one in () if ledger is None or budget is None else ledger.rounds:
        if one.spent:
            budget.spend(one.mechanism)  # type: ignore[union-attr]
    # The hook that was there still runs, after ours.
    optimizer.attach_step_hook(partial(books.before, optimizer.step_hook))
    optimizer.original_optimizer.register_step_post_hook(books.after)
    return books


def _check_denominator(optimizer: Any, declared: int | None, adjacency: object) -> None:
    """Refuse, under add_remove, an average over a number that follows the number of records."""
    averages = optimizer.loss_reduction == "mean" and declared is None
    if averages and adjacency == Adjacency.ADD_REMOVE:
        rule = "be declared for add_remove: the number of records is then not public"
        way_out = "pass a public number near the batch size, or account for zero_out"
        refuse("expected_batch_size", None, rule, way_out)


def _denominator(optimizer: Any) -> float:
    if optimizer.loss_reduction == "sum":
        return 1.0
    return float(optimizer.expected_batch_size * optimizer.accumulated_iterations)
