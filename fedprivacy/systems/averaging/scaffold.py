"""SCAFFOLD: every client corrects its steps by control variates, which cost no second release.

Karimireddy et al. (2020), Algorithm 1 with its second choice: a client steps along its gradient
plus c - c_i, sends its update u_i and sets c_i to c_i - c + u_i / (K eta). The server moves c by
the mean change of all c_i. If all clients make the same number K of steps, that change is u_i / (K
eta) - c, so the sum of the changes follows from the sum of the updates, which is released anyway.
DP-SCAFFOLD (Noble, Bellet and Dieuleveut 2022) releases it a second time, with separate noise. Here
the server computes it from the noisy sum of the clipped updates. That is post-processing, which
costs no privacy.

A client stores c_i, and thereby the rounds of its participation. See T15 of
docs/theory/theorems.md: if clients are drawn independently of each other and of the past
(``Poisson``, ``Everyone``), the table's pair of one round still dominates every round. With
``FixedSize`` or ``WithReplacement`` one client's draw gives information about the draws of others,
and their stored c_i would reveal it in later rounds. No theorem covers this case, so it is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...errors import UnsupportedCombination, refuse, require
from ...ledger import Ledger
from ...mechanisms import Gaussian
from ...relations import Adjacency, is_add_remove
from ...sampling import Everyone, Poisson, WithReplacement
from ...training.rounds import (
    Aborted,
    Dropout,
    Indices,
    RoundBudget,
    RoundInfo,
    check_given,
    check_tensor,
)
from .clients import RoundStart
from .collect import Collected
from .loop import Clients, FederatedAveraging
from .server import check_data
from .state import State


@dataclass(frozen=True, eq=False)
class ScaffoldState(State):
    """State of a run of SCAFFOLD. It and its checkpoints are secret: they hold clients' memories.

    Args:
        control: c of the server, shape (d,); a function of released values.
        controls: all c_i in one vector, shape (clients * d,); shape (0,) before the first round,
            when all are zero.
    """

    control: Tensor
    controls: Tensor


@dataclass(frozen=True, kw_only=True)
class Scaffold(FederatedAveraging):
    """SCAFFOLD, private with ``Gaussian``: a round costs the same as a round of DP-FedAvg.

    The settings are ``FederatedAveraging``'s; ``local_steps`` is K. Memory is O(clients * d).

    Raises:
        ParameterError: passes over the records instead of steps, momentum, a proximal term, masks,
            several processes, or a perturbation that is not ``Gaussian``. On ``step`` also
            add_remove: c needs the share of clients in a round, which would reveal their number.
        UnsupportedCombination: privacy with a scheme whose draws depend on each other.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        rule = (
            "be given, since different numbers of steps would change c by more than the "
            "account allows"
        )
        given = self.local_steps is not None
        require(given, "local_steps", None, rule, "leave out local_epochs")
        plain = {"momentum": 0.0, "proximal": 0.0, "sparsification": None, "processes": 1}
        for name, usual in plain.items():
            value = getattr(self, name)
            require(value == usual, name, value, f"be {usual} in SCAFFOLD")
        if isinstance(self.scheme, WithReplacement):
            refuse("scheme", self.scheme.name, "draw no client twice in SCAFFOLD", "use FixedSize")
        if self.perturbation is None:
            return
        kind, rule = type(self.perturbation), "be Gaussian or None in SCAFFOLD"
        require(kind is Gaussian, "perturbation", kind.__name__, rule)
        if not isinstance(self.scheme, Poisson | Everyone):
            raise UnsupportedCombination(
                f"SCAFFOLD with {type(self.scheme).__name__}: clients store the rounds of "
                "their participation, and their draws are dependent; use Poisson or Everyone"
            )

    def init(self) -> ScaffoldState:
        """Return the state before the first round: all control variates are zero."""
        start = super().init()
        parameters = start.parameters
        empty = parameters.new_zeros(0)
        control = torch.zeros_like(parameters)
        return ScaffoldState(0, parameters, start.learning_rate, control, empty)

    def check_adjacency(self, adjacency: Adjacency | str) -> None:
        """Refuse add_remove, for every denominator.

        Raises:
            ParameterError: it is add_remove.
        """
        _check_zero_out(adjacency)

    def step(
        self,
        state: State,
        data: Clients,
        *,
        ledger: Ledger | None = None,
        budget: RoundBudget | None = None,
        dropout: Dropout | None = None,
        on_release: Callable[[State], None] | None = None,
    ) -> tuple[State, RoundInfo]:
        """Run one round; see ``FederatedAveraging.step``."""
        check_given(ScaffoldState, state, ledger, budget, dropout, on_release)
        assert isinstance(state, ScaffoldState)
        check_data(data)
        for book in (ledger, budget):
            _check_zero_out(book)
        if not len(state.controls):
            zeros = state.parameters.new_zeros(data.population * len(state.parameters))
            state = replace(state, controls=zeros)
        size = self.flat.dimension
        check_tensor("state.control", state.control, (size,), torch.float32)
        # A state belongs to its clients: other clients have no c_i in it.
        check_tensor("state.controls", state.controls, (data.population * size,), torch.float32)
        return super().step(
            state, data, ledger=ledger, budget=budget, dropout=dropout, on_release=on_release
        )

    def _collect(
        self,
        state: State,
        data: Clients,
        dropout: Dropout | None,
        chosen: tuple[Indices, Tensor | None] | None = None,
        parts: dict[int, Tensor] | None = None,
    ) -> Collected | Aborted[State]:
        # Each client's contribution to the sum: the client updates its own c_i with it.
        return super()._collect(state, data, dropout, chosen, {})

    def _work(self, state: State) -> RoundStart:
        assert isinstance(state, ScaffoldState)
        own = state.controls.view(-1, len(state.parameters))
        return super()._work(state)._replace(control=state.control, controls=own)

    def _release(
        self, state: State, collected: Collected, population: int
    ) -> tuple[State, RoundInfo]:
        """Release the noisy sum; then update c of the server and c_i of each client."""
        assert isinstance(state, ScaffoldState) and collected.parts is not None
        following, info = super()._release(state, collected, population)
        assert isinstance(following, ScaffoldState) and self.local_steps is not None
        if self.perturbation is None and not collected.arrived:
            return following, info
        size = self._denominator(collected, population)
        rate, path = self._server_rate(state.round), self.local_steps * state.learning_rate
        # The noisy average, computed from the released parameters.
        average = (state.parameters - following.parameters) / rate
        share = min(1.0, size / population)
        control = state.control + share * (average / path - state.control)
        own = state.controls.view(population, -1).clone()
        for client, part in collected.parts.items():
            own[client] += part / path - state.control
        return replace(following, control=control, controls=own.view(-1)), info


def _check_zero_out(book: object) -> None:
    """Refuse a ledger, a budget or an adjacency that is add_remove; accept None."""
    rule = "not be add_remove, since c changes by a share of all clients, whose number is private"
    require(not is_add_remove(book), "adjacency", "add_remove", rule, "account for zero_out")
