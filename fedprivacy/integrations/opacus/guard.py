"""A guard: the recorders of steps must have started every step that moves parameters."""

from __future__ import annotations

from typing import Any, NoReturn, Protocol

from ...errors import refuse


class Bookkeeper(Protocol):
    """A recorder of an optimizer's steps: it starts each one by ``Guard.begin``."""

    def void(self, reason: str) -> None:
        """Make the record void for good: it misses a release."""

    def stepped(self) -> None:
        """Handle a started step that has moved the parameters."""


class Guard:
    """Checks the steps of the optimizer that an Opacus optimizer wraps.

    Opacus has one step hook that can be replaced, and its wrapped optimizer can be stepped
    directly. So every real step is checked. Before parameters move, a step that a bookkeeper did
    not start is refused, and the record of that bookkeeper is void. Changes of the parameters
    without this optimizer are not seen: by a second optimizer of the same parameters, or after its
    hooks were removed.

    Args:
        optimizer: Opacus's.
    """

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer
        self._original = optimizer.original_optimizer
        self._keepers: list[Bookkeeper] = []
        self._begun: list[Bookkeeper] = []
        self._noisy: list[tuple[Any, int]] | None = None
        self._pre_step = optimizer.pre_step
        optimizer.pre_step = self._with_noise
        self._original.register_step_pre_hook(self._check)
        # Checked again after the step, in case the first hook was removed.
        self._original.register_step_post_hook(self._stepped)

    @classmethod
    def of(cls, optimizer: Any, *, stepping: bool = False) -> Guard:
        """Return the guard of an optimizer.

        Args:
            optimizer: Opacus's.
            stepping: a step is in progress, and its gradients have their noise.
        """
        found: Guard | None = vars(optimizer).get("guard")
        if found is None:
            found = optimizer.guard = cls(optimizer)
            found._noisy = found._gradients() if stepping else None
        return found

    def add(self, bookkeeper: Bookkeeper) -> None:
        """Require that a bookkeeper starts every step from now on."""
        if bookkeeper not in self._keepers:
            self._keepers.append(bookkeeper)

    @property
    def keepers(self) -> tuple[Bookkeeper, ...]:
        """The bookkeepers that must start every step."""
        return tuple(self._keepers)

    def remove(self, bookkeeper: Bookkeeper) -> None:
        """No longer require that a bookkeeper starts the steps."""
        self._keepers.remove(bookkeeper)

    def begin(self, bookkeeper: Bookkeeper) -> None:
        """Let a bookkeeper start the current step.

        Raises:
            ParameterError: another optimizer replaced the inspected one.
        """
        self.check_original()
        if bookkeeper not in self._begun:
            self._begun.append(bookkeeper)

    def check_original(self) -> None:
        """Refuse another optimizer instead of the one whose steps are checked.

        Raises:
            ParameterError: it is another one.
        """
        if self._optimizer.original_optimizer is not self._original:
            way_out = "make another optimizer private, and call keep_books and look_at with it"
            refuse("original_optimizer", "another one", "stay unchanged after look_at", way_out)

    def _with_noise(self, *given: Any, **named: Any) -> Any:
        """Note which gradients have their noise."""
        self._noisy = None
        found = self._pre_step(*given, **named)
        if found:
            self._noisy = self._gradients()
        return found

    def _gradients(self) -> list[tuple[Any, int]]:
        grads = (parameter.grad for parameter in self._optimizer.params)
        return [(grad, 0 if grad is None else grad._version) for grad in grads]

    def _check(self, *_: object) -> None:
        """Refuse a step that a bookkeeper did not start, or without the noise of its start."""
        self._check_begun()
        if self._noisy is not None and _alike(self._noisy, self._gradients()):
            return
        self._refuse(
            self._keepers,
            "a step used other gradients than the noisy ones",
            "call optimizer.step(), and change gradients in a step hook that was attached before "
            "keep_books and look_at",
        )

    def _check_begun(self) -> None:
        missing = [one for one in self._keepers if one not in self._begun]
        if missing:
            self._refuse(
                missing,
                "a step was taken that was not recorded",
                "another step hook replaced the recorder, or original_optimizer was stepped; "
                "attach hooks before keep_books and look_at, or let them call the step_hook "
                "that they replace, and step the private optimizer",
            )

    def _refuse(self, keepers: list[Bookkeeper], reason: str, way_out: str) -> NoReturn:
        self._begun = []
        for bookkeeper in keepers:
            bookkeeper.void(reason)
        way_out += "; this record is void; create a new one, and charge its budget with this one"
        refuse(
            "a step", reason, "be recorded by keep_books or look_at, and keep its noise", way_out
        )

    def _stepped(self, *_: object) -> None:
        self._check_begun()
        begun, self._begun, self._noisy = self._begun, [], None
        for bookkeeper in begun:
            bookkeeper.stepped()


def _alike(before: list[tuple[Any, int]], now: list[tuple[Any, int]]) -> bool:
    """Return whether gradients are the same tensors, and were not written to."""
    pairs = zip(before, now, strict=True)
    return all(one is other and version == later for (one, version), (other, later) in pairs)
