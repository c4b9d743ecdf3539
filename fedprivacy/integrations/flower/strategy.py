"""The server's side: a strategy that makes another one private."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from logging import INFO, WARNING, LogRecord, getLogger
from pathlib import Path
from typing import NoReturn

import numpy as np
import torch
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid
from flwr.serverapp.strategy import (
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedProx,
    FedYogi,
    Result,
    Strategy,
)
from flwr.serverapp.strategy.strategy_utils import aggregate_metricrecords
from flwr.supercore import log
from flwr.supercore.logger import LOGGER_NAME
from numpy.typing import NDArray

from ...errors import BudgetExhausted, refuse
from ...mechanisms import Perturbation
from ...questions.budget import Budget
from ...sampling import Scheme
from ...systems.averaging.collect import Collected
from ...systems.averaging.server import Average, Server, StartedRound
from ...training.rounds import RoundBookkeeping, RoundInfo
from .saved import Saved, SavedContent, opened
from .wire import ASKED, CLIP_NORM, FACTOR, MASK, UPDATE, Arrays, flat, may_hold, shaped, spread

EQUALLY = "fedprivacy-equally"
"""Required value of ``weighted_by_key``: every client has the same weight."""

_AVERAGES = (FedAvg, FedAvgM, FedProx, FedAdam, FedAdagrad, FedYogi)
"""Flower's strategies whose step depends only on the weighted average of the replies."""

_NEVER_CAME = (
    ErrorCode.MESSAGE_UNAVAILABLE,
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE,
    ErrorCode.NODE_UNAVAILABLE,
)
"""Errors of the engine for a client that did not answer."""


class PrivateStrategy(Strategy):
    """Makes an averaging strategy private: this class draws, clips, sums, noises; that one steps.

    In every round ``scheme`` draws the cohort. Each of its clients sends one clipped update (by
    ``private_mod``). The updates are clipped again and summed, noise is added, and the round is
    recorded. The core of ``FederatedAveraging`` does all of this. The wrapped strategy then gets
    one reply, start minus noisy average, as if a single client had answered. Its momentum and
    learning rates are post-processing. Client metrics never reach it. The price of a round is added
    to Flower's training metrics: "epsilon", "delta" and "noise-std".

    ``start`` resumes a run with an existing ledger. When the budget is spent, it stops, says so and
    returns the result. The ledger of a complete run is closed.

    Args:
        strategy: FedAvg, FedAvgM, FedProx, FedAdam, FedAdagrad, FedYogi or a subclass, with
            ``fraction_evaluate=0.0`` and ``weighted_by_key=EQUALLY``. Its own sampling is not used.
        perturbation: clips and perturbs, unit "client". It is ``Gaussian``; ``AdaptiveClipping``,
            whose next norm is also a metric ("next-clip-norm"); or ``SparsifiedPerturbation`` and
            similar ones, whose clients send only the kept coordinates.
        scheme: draws the clients of a round: ``Poisson``, ``FixedSize``, ``WithReplacement`` or
            ``Everyone``.
        population: number of nodes. The run waits for them, numbers them, and draws only from them.
            Nodes that connect later take no part.
        ledger: file of the ledger; resumed if it exists.
        budget: checked before clients get a message, and again before noise is drawn.
        expected_cohort: public denominator; see ``FederatedAveraging``.
        missing: largest number of silent clients in a cohort until the timeout. With more, the
            round is aborted: no result is released, and no loss is charged. Silence must depend
            neither on data nor on the other drawn clients. An error from a client is an answer: it
            counts as a zero update.
        public_training: gets the arrays, returns them after training on public data at the server.
            The difference gives top_k's mask. Required for top_k, and refused otherwise.
        checkpoint: file for the model, written after every round; None for no file. Without it a
            resumed run starts again from ``initial_arrays`` and the first clip norm, and the spent
            loss stays spent. The wrapped strategy's own memory, for example momentum, starts again.
        seed: None for the operating system's randomness. With a number, cohorts and noise are
            reproducible and therefore not private; the ledger says so.

    Raises:
        ParameterError: a value out of its range; a strategy that does not average, uses weights
            from clients or would release their metrics; or a ledger of another run.
        UnsupportedCombination: the perturbation's noise does not hold under the scheme.
        LedgerError: the ledger cannot be written, or its run is complete.

    Attributes:
        history: the server's view of each round of this process; no epsilon covers it.
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        perturbation: Perturbation,
        scheme: Scheme,
        population: int,
        ledger: str | Path,
        budget: Budget,
        expected_cohort: int | None = None,
        missing: int = 0,
        public_training: Callable[[ArrayRecord], ArrayRecord] | None = None,
        checkpoint: str | Path | None = None,
        seed: int | None = None,
    ) -> None:
        self.inner = _checked(strategy)
        self._public_training, self._layout = public_training, dict[str, NDArray[np.generic]]()
        self.server = Server(
            scheme=scheme,
            perturbation=perturbation,
            population=population,
            expected_cohort=expected_cohort,
            missing=missing,
            public_update=None if public_training is None else self._public_update,
            seed=seed,
        )
        self.budget, self.history = budget, list[RoundInfo]()
        self.ledger = opened(Path(ledger), budget, seed, "Flower")
        self._books: RoundBookkeeping = self.server.books(self.ledger, budget)
        budget.charge(self.ledger)
        self._saved = None if checkpoint is None else Saved(Path(checkpoint), self.ledger)
        self._behind, self._roster = 0, dict[int, int]()
        self._clip_norm: float | None = None
        self._under_way: tuple[Arrays, Average, Collected, StartedRound] | None = None
        self._result = Result()

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run rounds until ``num_rounds`` have run, or the budget is spent; see ``Strategy.start``.

        Args:
            grid: Flower's.
            initial_arrays: of single precision. A resumed run takes the checkpoint's arrays
                instead.
            num_rounds: total number, including the rounds before the checkpoint.
            timeout: seconds until a client without an answer counts as silent.
            train_config: sent to the clients.
            evaluate_config: not used: clients do not evaluate.
            evaluate_fn: evaluates the model at the server. Use public data: no epsilon covers its
                result.
        """
        arrays, self._behind = initial_arrays, 0
        if self._saved is not None and (found := self._saved.read()) is not None:
            arrays, self._behind = _record(found.arrays), found.rounds
            self._clip_norm = found.clip_norm
            log(INFO, "Resumed: the checkpoint has %d rounds", self._behind)
        elif self.ledger.rounds:
            log(WARNING, "%d rounds in the ledger count as spent", len(self.ledger.rounds))
        self._result = Result(arrays=arrays)
        try:
            super().start(
                grid,
                arrays,
                max(0, num_rounds - self._behind),
                timeout,
                train_config,
                evaluate_config,
                None if evaluate_fn is None else self._noted(evaluate_fn),
            )
        except BudgetExhausted as problem:
            log(WARNING, "Stopped after %d rounds: %s", self._rounds_run, problem)
        except BaseException:
            # A started round stays started, and the file may be resumed at once.
            self.ledger.release()
            raise
        self.budget.confirm(self.ledger)
        if self.budget.spending.void:
            log(WARNING, "The epsilons reported above do not hold: %s", self.budget.spending.void)
        self.ledger.close()
        return self._result

    @property
    def _rounds_run(self) -> int:
        return self._behind + len(self.history)

    def _noted(
        self, evaluate: Callable[[int, ArrayRecord], MetricRecord | None]
    ) -> Callable[[int, ArrayRecord], MetricRecord | None]:
        """Keep the server's measurements, because Flower returns no result of a stopped run."""

        def noted(number: int, arrays: ArrayRecord) -> MetricRecord | None:
            found = evaluate(self._behind + number, arrays)
            if found is not None:
                self._result.evaluate_metrics_serverapp[self._behind + number] = found
            return found

        return noted

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Draw the cohort and return its messages; none if the round does not fit the budget.

        The round's intent is on disk before its cohort is drawn. From then on the round is spent.

        Raises:
            BudgetExhausted: the next round does not fit.
            ParameterError: the cohort of the round before was dropped.
        """
        if self._under_way is not None:
            way_out = (
                "call aggregate_train with the answers of the drawn clients, even if there are none"
            )
            rule = (
                "follow aggregate_train, since dropping a cohort and drawing again selects the "
                "release"
            )
            refuse("configure_train", "a second one", rule, way_out)
        self._books.ask()
        nodes = self._nodes(grid)
        content = self._content(self._behind + server_round, arrays, config, grid)
        before = _plain(arrays)
        start = Average(self._rounds_run, torch.from_numpy(flat(before)), self._clip_norm)
        self._layout = before
        mask = self.server.mask(start)
        begun = self.server.begin(start, self._books)
        running = self.server.collected(start, self.server.cohort(start.round), mask)
        self._under_way = before, start, running, begun
        content[ASKED] = ConfigRecord(
            {
                # A learned norm is slightly above the threshold: an update beyond it stays beyond.
                CLIP_NORM: float(self.server.now(start).clip_norm),
                FACTOR: running.sparsification.factor,
            }
        )
        if mask is not None:
            content[MASK] = ArrayRecord({UPDATE: Array(mask.numpy())})
        drawn = f"{len(running.turns)} of {len(nodes)} nodes were drawn"
        log(INFO, "configure_train: %s (not covered by any epsilon)", drawn)
        # A client that was drawn twice gets one message.
        return [
            Message(content=content, message_type=MessageType.TRAIN, dst_node_id=nodes[client])
            for client in running.turns
        ]

    def _public_update(self, parameters: torch.Tensor) -> torch.Tensor:
        """Return the change by training on public data at the server, shape (d,)."""
        assert self._public_training is not None
        after = self._public_training(_record(shaped(parameters.numpy(), self._layout)))
        return parameters - torch.from_numpy(flat(_plain(after)))

    def _nodes(self, grid: Grid) -> list[int]:
        """Return the nodes by client number; the first call waits for all nodes."""
        population = self.server.population
        while not self._roster:
            here = sorted(grid.get_node_ids())
            if len(here) > population:
                way_out = (
                    "all connected nodes are drawn from; connect no others, or state their number"
                )
                refuse(
                    "population",
                    population,
                    f"be {len(here)}, the number of connected nodes",
                    way_out,
                )
            if len(here) == population:
                self._roster = {node: client for client, node in enumerate(here)}
            else:
                log(INFO, "Waiting for nodes: %d of %d", len(here), population)
                time.sleep(1.0)
        return list(self._roster)

    def _content(
        self, number: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> RecordDict:
        """Return the message of the wrapped strategy; its choice of clients does not matter."""
        with _unsaid():
            messages = list(self.inner.configure_train(number, arrays, config, grid))
        if not messages or any(message.content is not messages[0].content for message in messages):
            rule = "send one message to all clients of a round"
            way_out = (
                "leave fraction_train at 1, since separate messages would reveal information "
                "about clients"
            )
            refuse("strategy", type(self.inner).__name__, rule, way_out)
        return RecordDict(dict(messages[0].content.items()))

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Sum the updates, release the sum with noise, and let the wrapped strategy step.

        Returns:
            (None, None) for a round that was aborted.

        Raises:
            BudgetExhausted: the round does not fit; no result was released.
        """
        if self._under_way is None:
            refuse("aggregate_train", "a round", "follow configure_train of the same round")
        (before, start, running, begun), self._under_way = self._under_way, None
        updates = self._updates(replies, running)
        state, info = self.server.step(start, running, updates, begun)
        self.history.append(info)
        self._clip_norm = state.clip_norm
        text = "aggregate_train: %d of %d updates are in the sum, %d answers were refused"
        level = INFO if info.arrived == info.cohort else WARNING
        log(level, text, info.arrived, info.cohort, info.refused)
        if info.aborted:
            log(WARNING, "Round aborted: too many clients did not answer, so no sum was released")
            self._save(before, state.round)
            return None, None
        arrays = self._stepped(server_round, shaped(state.parameters.numpy(), before))
        self._save(_plain(arrays), state.round)
        metrics = self._spent(info)
        self._result.arrays = arrays
        self._result.train_metrics_clientapp[self._behind + server_round] = metrics
        return arrays, metrics

    def _stepped(self, server_round: int, average: Arrays) -> ArrayRecord:
        """Return the wrapped strategy's arrays after the noisy average as its only reply."""
        content = RecordDict({"arrays": _record(average), "metrics": MetricRecord({EQUALLY: 1.0})})
        reply = Message(content=content, message_type=MessageType.TRAIN, dst_node_id=0)
        with _unsaid():
            arrays, _ = self.inner.aggregate_train(self._behind + server_round, [reply])
        if arrays is None:
            refuse("strategy", type(self.inner).__name__, "return arrays for one reply")
        # FedOpt computes in double precision.
        return _record({name: array.numpy().astype(np.float32) for name, array in arrays.items()})

    def _updates(
        self, replies: Iterable[Message], running: Collected
    ) -> Iterator[tuple[int, object]]:
        """Yield every answer with its client; None for an answer without an update."""
        for reply in replies:
            # An unknown sender has no number: the sum refuses -1.
            client = self._roster.get(reply.metadata.src_node_id, -1)
            if not reply.has_error():
                yield client, _update(reply.content, running)
            elif reply.error.code not in _NEVER_CAME:
                log(WARNING, "A client answered with an error: %s", _reason(reply))
                yield client, None

    def _spent(self, info: RoundInfo) -> MetricRecord:
        spent = self.budget.spent()
        assert spent is not None
        text = {"epsilon": spent.upper, "delta": self.budget.delta, "noise-std": info.noise_std}
        if self._clip_norm is not None:
            text["next-clip-norm"] = self._clip_norm
        return MetricRecord(text)

    def _save(self, arrays: Arrays, rounds: int) -> None:
        if self._saved is not None:
            self._saved.write(SavedContent(arrays, rounds, self._clip_norm))

    def configure_fit(self, *_: object) -> NoReturn:
        """Refuse Flower's workflows of the older API, such as ``SecAggPlusWorkflow``.

        Raises:
            ParameterError: always.
        """
        rule = "be run by PrivateStrategy.start, since a workflow's sums get no noise"
        refuse("strategy", "a workflow of Flower's older API", rule, "see the page on Flower")

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return no messages: a measurement by clients would be released unaccounted."""
        return []

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Return None."""
        return None

    def summary(self) -> None:
        """Log the mechanism of a round, and the wrapped strategy's own summary."""
        log(INFO, "\t├──> Private rounds: %s", self.server.mechanism)
        log(INFO, "\t├──> Drawn from %d clients, instead of:", self.server.population)
        self.inner.summary()


def _checked(strategy: Strategy) -> FedAvg:
    """Return a strategy after refusing anything that would make the account wrong."""
    # The first class of Flower's own: additions of a subclass come after the one reply.
    owners = [kind for kind in type(strategy).__mro__ if "aggregate_train" in vars(kind)]
    own = next((kind for kind in owners if kind.__module__.startswith("flwr.")), None)
    if not isinstance(strategy, FedAvg) or own not in _AVERAGES:
        rule = "average its replies: FedAvg, FedAvgM, FedProx, FedAdam, FedAdagrad or FedYogi"
        refuse(
            "strategy", type(strategy).__name__, rule, "others need single updates without noise"
        )
    if strategy.weighted_by_key != EQUALLY:
        rule = (
            f"be {EQUALLY!r}, since a client with a larger weight changes the sum by more than "
            "the account allows"
        )
        way_out = "pass weighted_by_key=fedprivacy.integrations.flower.EQUALLY"
        refuse("strategy.weighted_by_key", strategy.weighted_by_key, rule, way_out)
    if strategy.fraction_evaluate != 0.0:
        rule = "be 0.0, since client metrics would be released without an account"
        way_out = "evaluate on the server with evaluate_fn and public data"
        refuse("strategy.fraction_evaluate", strategy.fraction_evaluate, rule, way_out)
    for name in ("train_metrics_aggr_fn", "evaluate_metrics_aggr_fn"):
        if getattr(strategy, name) is not aggregate_metricrecords:
            rule = "be left out, since client metrics would be released without an account"
            refuse(f"strategy.{name}", "a function", rule, "clients send no metrics")
    return strategy


@contextmanager
def _unsaid() -> Iterator[None]:
    """Hide log lines of the wrapped strategy about draws and replies that do not exist."""

    def is_true(record: LogRecord) -> bool:
        return not str(record.msg).startswith(("configure_train: Sampled", "%s: Received"))

    logger = getLogger(LOGGER_NAME)
    logger.addFilter(is_true)
    try:
        yield
    finally:
        logger.removeFilter(is_true)


def _update(content: RecordDict, running: Collected) -> object:
    """Return a client's update, shape (d,); None for any other, untrusted content."""
    travels = running.sparsification
    mask = None if running.mask is None else running.mask.numpy()
    try:
        array = content.array_records[UPDATE][UPDATE]
        # Checked before it is read: a header may claim any size.
        if not may_hold(array.data, travels.kept):
            return None
        vector = array.numpy()
        if vector.dtype != np.float32 or vector.shape != (travels.kept,):
            return None
        return torch.from_numpy(spread(vector, travels.dimension, mask))
    # An error in one answer must not stop the round.
    except Exception:
        return None


def _reason(reply: Message) -> str:
    """Return the first line of an error, shortened: the sender wrote it."""
    lines = str(reply.error.reason or "no reason").splitlines()
    return ascii(lines[0][:400]) if lines else "no reason"


def _plain(record: ArrayRecord) -> dict[str, NDArray[np.generic]]:
    return {name: array.numpy() for name, array in record.items()}


def _record(arrays: Arrays) -> ArrayRecord:
    return ArrayRecord({name: Array(np.ascontiguousarray(each)) for name, each in arrays.items()})
