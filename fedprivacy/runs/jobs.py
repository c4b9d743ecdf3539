"""Complete tasks for a budget: data, a loop, and the parameter that sets the privacy.

This covers every method of ``fedprivacy train``. The *knob* of a job is the calibrated parameter.
The *level* is its value. Every method's settings and job are in its file in ``methods``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from ..audit.canaries import AttackSettings, Planted
from ..errors import refuse
from ..factors.optimise import Progress
from ..mechanisms import Mechanism
from ..relations import Adjacency, Unit
from ..training.data import FederatedData
from ..training.rounds import Loop
from .methods import Method, method_named
from .methods.records import SamplingJob
from .own_data import posterior_at
from .sources import DATA, load_data, model_for


class Job(Protocol):
    """A task."""

    @property
    def method(self) -> Method:
        """The training method."""

    @property
    def knob(self) -> str | None:
        """The parameter that a budget sets; None if the job is not private."""

    @property
    def unit(self) -> Unit:
        """The protected unit."""

    @property
    def adjacency(self) -> Adjacency:
        """The default adjacency."""

    @property
    def rounds(self) -> int:
        """Number of rounds."""

    @property
    def data(self) -> Any:
        """The data argument of the loop's ``step``."""

    @property
    def source(self) -> FederatedData:
        """The clients and their records."""

    @property
    def settings(self) -> dict[str, Any]:
        """The settings by name, without the knob."""

    @property
    def units(self) -> int:
        """Number of units."""

    def declared_units(self, adjacency: Adjacency | str) -> float:
        """Return the number of units, or a declared number if the adjacency hides the count."""

    @property
    def upload_per_client(self) -> float | None:
        """Average upload of a client over all rounds, in MB; None if it is not counted."""

    @property
    def expected_bytes(self) -> int | None:
        """Planned upload of all clients over all rounds, if the actual upload is random."""

    def public(self, adjacency: Adjacency | str) -> dict[str, Any]:
        """Return the numbers that the release depends on and that must be public, by name.

        Raises:
            ParameterError: neighbouring data sets differ in one number.
        """

    def loop(self, level: float | None, seed: int | None) -> Loop[Any]:
        """Return the loop with the knob at a level."""

    def run(self, level: float) -> Mechanism:
        """Return all rounds as one mechanism."""

    def scores(self, loop: Any, state: Any) -> dict[str, float]:
        """Return the scores of a state on the test set: accuracy and others; {} without one."""

    def planted(self, level: float | None, attack: AttackSettings) -> Planted:
        """Return the job with canaries in it; a level of None is calibrated."""


def job(
    method: str,
    data: str | FederatedData = "digits",
    *,
    data_dir: str | Path | None = None,
    clients: int | None = None,
    classes_per_client: int | None = None,
    public_records: int | None = None,
    model: str | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Job:
    """Return a method's job on a data set. For own data the default settings may not work well.

    Args:
        method: one of ``methods.METHODS``.
        data: "digits" (of the package), "fashion-mnist", a file, or loaded data; see
            ``load_data``, also for the next three.
        data_dir: folder of Fashion-MNIST's files.
        clients: number of clients that share the records.
        classes_per_client: number of classes of a client.
        public_records: training records set aside as public, for top-k's mask.
        model: "logistic", "mlp", "cnn" or "FILE.py:NAME" (averaging and Fed-PLT); the
            "FILE.py:NAME" of a ``Posterior`` (samplers).
        progress: gets the finished share of an initial search, for the methods that need one:
            DP-FTRL searches for its factor.
        settings: the method's settings that differ from the defaults, by name; see ``methods``.
            None means the default.

    Raises:
        ParameterError: an unknown method, data set or model; a setting that the method does not
            have, or that breaks its rule.
    """
    chosen = method_named(method)
    given = {name: value for name, value in settings.items() if value is not None}
    # Checked before the data are loaded, because loading may be slow.
    chosen.of(given)
    kind = chosen.job
    if issubclass(kind, SamplingJob) and model is not None:
        if ":" not in model:
            rule = "be left out, since this method has its own model"
            refuse("model", model, rule, "pass a Posterior to a sampler: --posterior FILE.py:NAME")
        if (data, clients, classes_per_client, public_records) != ("digits", None, None, None):
            refuse(
                "data, clients",
                data,
                "be left out, since a posterior contains the records of its clients",
            )
        own: Job = kind.on(chosen, posterior_at(model), given)
        return own
    if clients is None and data in DATA:
        clients = kind.default_clients
    records = load_data(
        data,
        data_dir=data_dir,
        clients=clients,
        classes_per_client=classes_per_client,
        public_records=public_records,
    )
    task: Job = kind.of(chosen, records, model_for(model, records), given, progress)
    return task
