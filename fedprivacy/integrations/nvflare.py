"""NVFlare 2.9: a controller with private rounds, and a DXO filter that clips at the client.

The rounds are those of ``FederatedAveraging`` and of the Flower strategy. The same ``Server`` draws
the cohort, clips, adds the noise, checks the budget and writes the ledger. NVFlare's own privacy
filters work at each client and know neither a cohort nor a budget. Its aggregators weight clients
by numbers that the clients send. A separate controller therefore computes the sum here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BudgetExhausted, integer, needs, positive, refuse
from ..ledger import Ledger
from ..mechanisms import AdaptiveClipping, Perturbation
from ..questions.budget import Budget
from ..sampling import Scheme
from ..systems.averaging.collect import Collected
from ..systems.averaging.server import Average, Server, StartedRound
from ..training.rounds import RoundBookkeeping, RoundInfo
from .flower.saved import Saved, SavedContent, opened
from .flower.wire import Arrays, clipped_update, flat, shaped

with needs("fedprivacy.integrations.nvflare", "'nvflare>=2.9,<2.10'", "nvflare"):
    import torch
    from nvflare.apis.controller_spec import Task
    from nvflare.apis.dxo import DXO, DataKind, from_shareable
    from nvflare.apis.dxo_filter import DXOFilter
    from nvflare.apis.fl_constant import ReturnCode
    from nvflare.apis.impl.controller import Controller
    from nvflare.apis.shareable import make_reply
    from nvflare.app_common.app_constant import AppConstants

__all__ = ["ClippedUpdate", "PrivateAveraging"]


class ClippedUpdate(DXOFilter):  # type: ignore[misc]
    """Lets only the update leave a client, clipped to one norm over all arrays.

    It must be a filter of the task's results, at every client, and the last filter. Everything else
    in the client's result (metrics, weights, numbers of examples, headers) stays at the client. The
    server does not trust this filter: it clips again.

    Args:
        clip_norm: of the server's perturbation. Another value does not reduce privacy, but updates
            are then smaller than necessary, or are clipped twice.
    """

    def __init__(self, clip_norm: float) -> None:
        super().__init__([DataKind.WEIGHT_DIFF], [DataKind.WEIGHT_DIFF])
        self.clip_norm = positive(clip_norm=clip_norm)

    def process(self, shareable: Any, fl_ctx: Any) -> Any:
        """Return the part that may leave: the clipped update, or only a return code.

        Raises:
            ParameterError: there is no update, or one that is not finite or not of single
                precision. NVFlare then sends an error without its text.
        """
        code = shareable.get_return_code()
        if code != ReturnCode.OK:
            return make_reply(code)
        return self.process_dxo(from_shareable(shareable), shareable, fl_ctx).to_shareable()

    def process_dxo(self, dxo: Any, shareable: Any, fl_ctx: Any) -> Any:
        """Return a new DXO with only the clipped update; see ``process``."""
        if dxo.data_kind != DataKind.WEIGHT_DIFF:
            way_out = "send the change of the model: transfer type DIFF of NVFlare's client API"
            refuse("the result's data kind", dxo.data_kind, f"be {DataKind.WEIGHT_DIFF!r}", way_out)
        update: Arrays = dxo.data
        zero = {name: np.zeros_like(array) for name, array in update.items()}
        clipped = clipped_update(update, zero, clip_norm=self.clip_norm)
        return DXO(DataKind.WEIGHT_DIFF, data=shaped(clipped, update))


class PrivateAveraging(Controller):  # type: ignore[misc]
    """A server's workflow of private rounds that stops at a budget and leaves a ledger.

    In every round ``scheme`` draws the cohort. Its clients get a task "train" with the model as
    weights. Their results are clipped again and summed, noise is added, and the round is recorded.
    NVFlare builds a workflow from names and plain values, so a job needs a subclass with the other
    objects: see the page on NVFlare. No file is opened before the job runs.

    Args:
        arrays: the first model, single precision.
        perturbation: clips and perturbs, unit "client"; with a fixed norm and all coordinates.
        scheme: draws the clients of a round.
        population: number of clients of the job. They are numbered in the order of their names.
        ledger: file of the ledger; resumed if it exists.
        model: file for the model (``fedprivacy.integrations.flower.saved``), written after every
            round; resumed if it exists.
        budget: checked before clients get a task, and again before noise is drawn.
        rounds: total number, including the rounds before a restart.
        deadline: seconds until a client without an answer counts as silent.
        expected_cohort: public denominator; see ``FederatedAveraging``.
        missing: largest number of silent clients in a cohort; see ``Server``. An error from a
            client is an answer: it counts as a zero update.
        seed: None for the operating system's randomness, which privacy requires.

    Raises:
        ParameterError: a value out of its range, or a perturbation that cannot run here.
        UnsupportedCombination: the perturbation's noise does not hold under the scheme.

    Attributes:
        history: the server's view of each round of this process; no epsilon covers it.
    """

    def __init__(
        self,
        *,
        arrays: Arrays,
        perturbation: Perturbation,
        scheme: Scheme,
        population: int,
        ledger: str | Path,
        model: str | Path,
        budget: Budget,
        rounds: int,
        deadline: int = 600,
        expected_cohort: int | None = None,
        missing: int = 0,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        if isinstance(perturbation, AdaptiveClipping) or perturbation.sparsification is not None:
            rule = "have one clip norm and all coordinates, since the filter supports no others"
            refuse(
                "perturbation",
                type(perturbation).__name__,
                rule,
                "use Flower or a loop of fedprivacy.training",
            )
        self.server = Server(
            scheme=scheme,
            perturbation=perturbation,
            population=population,
            expected_cohort=expected_cohort,
            missing=missing,
            seed=seed,
        )
        self.budget, self.history = budget, list[RoundInfo]()
        self._files = Path(ledger), Path(model)
        self._deadline, self._rounds = integer(1, deadline=deadline), integer(1, rounds=rounds)
        # Sorted by name, like the results.
        self._layout = dict(sorted(arrays.items()))
        self._first = flat(self._layout)
        self._names = list[str]()
        self.ledger: Ledger | None = None

    def start_controller(self, fl_ctx: Any) -> None:
        """Give the clients of the job numbers; end the job if they are not the population."""
        here = sorted(client.name for client in fl_ctx.get_engine().get_clients())
        if len(here) != self.server.population:
            text = f"population must be the job's {len(here)} clients, got {self.server.population}"
            self.system_panic(f"{text}; state the number of clients", fl_ctx)
            return
        self._names = here

    def stop_controller(self, fl_ctx: Any) -> None:
        """Keep the state: a started round stays started, and the file may be resumed."""

    def process_result_of_unknown_task(self, *given: Any, **named: Any) -> None:
        """Drop the result: its round is over."""

    def control_flow(self, abort_signal: Any, fl_ctx: Any) -> None:
        """Run rounds until all have run, the budget is spent or the job is stopped."""
        if not self._names:
            return
        try:
            self.ledger = opened(self._files[0], self.budget, self.server.seed, "NVFlare")
        except Exception as problem:
            self.system_panic(str(problem), fl_ctx)
            return
        try:
            self._run(self.ledger, abort_signal, fl_ctx)
        except BudgetExhausted as problem:
            self.log_warning(fl_ctx, f"Stopped: {problem}")
        except BaseException as problem:
            self.ledger.release()
            self.system_panic(str(problem), fl_ctx)
            return
        if abort_signal.triggered:
            self.ledger.release()
        else:
            self.budget.confirm(self.ledger)
            if self.budget.spending.void:
                text = f"The epsilons reported above do not hold: {self.budget.spending.void}"
                self.log_warning(fl_ctx, text)
            self.ledger.close()

    def _run(self, ledger: Ledger, abort_signal: Any, fl_ctx: Any) -> None:
        books = self.server.books(ledger, self.budget)
        self.budget.charge(ledger)
        saved = Saved(self._files[1], ledger)
        held = saved.read()
        if held is None:
            state = Average(0, torch.from_numpy(self._first))
        else:
            state = Average(held.rounds, torch.from_numpy(flat(held.arrays)))
        if held is None and ledger.rounds:
            self.log_warning(fl_ctx, f"{len(ledger.rounds)} rounds in the ledger count as spent")

        def save(state: Average) -> None:
            saved.write(SavedContent(self._arrays(state), state.round, None))

        while state.round < self._rounds:
            begun, running, came = self._asked(state, books, abort_signal, fl_ctx)
            if abort_signal.triggered:
                return
            # The model is on disk before the round is confirmed.
            state, info = self.server.step(state, running, came, begun, save)
            if info.aborted:
                save(state)
            self.history.append(info)
            spent = self.budget.spent()
            text = "aborted: too many clients did not answer, so no sum was released"
            if not info.aborted and spent is not None:
                text = f"epsilon {spent.upper:.4g} at delta {self.budget.delta:.3g}"
            answers = f"{info.arrived} of {info.cohort} updates, {info.refused} refused"
            answers += " (not covered by any epsilon)"
            self.log_info(fl_ctx, f"Round {state.round}: {text}; {answers}")

    def _asked(
        self, state: Average, books: RoundBookkeeping, abort_signal: Any, fl_ctx: Any
    ) -> tuple[StartedRound, Collected, list[tuple[int, object]]]:
        """Return the round, an empty sum, and the answers of the clients."""
        # On disk before the cohort is drawn. No client gets a task for a round that does not fit.
        begun = self.server.begin(state, books)
        running = self.server.collected(state, self.server.cohort(state.round), None)
        came = list[tuple[int, object]]()

        def receive(client_task: Any, fl_ctx: Any) -> None:
            client = self._names.index(client_task.client.name)
            came.append((client, self._update(client_task.result)))
            client_task.result = None

        content = DXO(DataKind.WEIGHTS, data=self._arrays(state)).to_shareable()
        content.set_header(AppConstants.CURRENT_ROUND, state.round)
        content.set_header(AppConstants.NUM_ROUNDS, self._rounds)
        task = Task("train", content, timeout=self._deadline, result_received_cb=receive)
        # For NVFlare, an empty list of targets means all clients.
        if targets := [self._names[client] for client in running.turns]:
            self.broadcast_and_wait(task, fl_ctx, targets, len(targets), 0, abort_signal)
        return begun, running, list(came)

    def _arrays(self, state: Average) -> Mapping[str, np.ndarray[Any, Any]]:
        return shaped(state.parameters.numpy(), self._layout)

    def _update(self, result: Any) -> torch.Tensor | None:
        """Return start minus result, shape (d,); None for any other, untrusted content."""
        try:
            if result.get_return_code() != ReturnCode.OK:
                return None
            sent = from_shareable(result)
            if sent.data_kind != DataKind.WEIGHT_DIFF or sent.data.keys() != self._layout.keys():
                return None
            parts = {name: sent.data[name] for name in self._layout}
            if any(parts[name].shape != like.shape for name, like in self._layout.items()):
                return None
            return -torch.from_numpy(flat(parts))
        # An error in one answer must not stop the round.
        except Exception:
            return None
