"""The command group, and what several commands share: options and printing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from .. import __version__
from ..bound import Bound
from ..errors import refuse
from ..mechanisms import Gaussian, Mechanism
from ..sampling import Everyone, FixedSize, Poisson, Scheme, TruncatedPoisson

F = TypeVar("F", bound=Callable[..., Any])

ADJACENCIES = click.Choice(["add_remove", "zero_out", "replace_one"])
OBSERVERS = click.Choice(["aggregate", "server", "final"])
ACCOUNTANT_NAMES = click.Choice(["pld", "rdp", "advanced"])


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 96})
@click.version_option(__version__, prog_name="fedprivacy")
def cli() -> None:
    """Differential privacy for federated learning, with certified bounds.

    Calibrate noise from a budget, account for a run, train, and audit what was run. Start with
    "fedprivacy demo".
    """


def options(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    """Return one decorator that adds all the options, in the order given."""

    def apply(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return apply


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
threat_options = options(
    click.option(
        "--adjacency",
        type=ADJACENCIES,
        required=True,
        help="How neighbouring data sets differ: a unit is added or removed, zeroed out, or "
        "replaced. There is no default: it changes the answer.",
    ),
    click.option(
        "--observer",
        type=OBSERVERS,
        default="aggregate",
        show_default=True,
        help="Who looks: at every release (aggregate), at who took part too (server), or at the "
        "last release only (final).",
    ),
    click.option("--unit", type=click.Choice(["client", "record"]), help="Whose data is one unit."),
)
facts_options = options(
    threat_options,
    click.option(
        "--accountant",
        type=ACCOUNTANT_NAMES,
        default="pld",
        show_default=True,
        help="pld gives an interval; rdp and advanced give upper ends only.",
    ),
    click.option(
        "--tolerance",
        type=float,
        default=1e-3,
        show_default=True,
        help="Wanted width of the interval.",
    ),
)
deadline_option = click.option(
    "--deadline", type=float, help="Seconds after which no finer attempt is begun."
)
noise_option = click.option(
    "--noise-multiplier",
    type=float,
    help="Std of the noise on the sum, over the clip norm of one unit.",
)
run_options = options(
    click.option("--rounds", type=int, help="How many rounds are run.  [default: 1]"),
    click.option(
        "--sampling-probability",
        type=float,
        help="Each unit takes part in a round with this probability (Poisson sampling).",
    ),
    click.option("--cohort", type=int, help="This many units take part in every round ..."),
    click.option("--population", type=int, help="... drawn afresh from this many."),
    click.option(
        "--largest-cohort",
        type=int,
        help="Of more than this many drawn by Poisson sampling from the population, a random "
        "choice of this many takes part (truncated Poisson sampling).",
    ),
)


def _scheme(
    probability: float | None, cohort: int | None, population: int | None, largest: int | None
) -> Scheme:
    if largest is not None:
        return _truncated(probability, cohort, population, largest)
    if probability is not None:
        if cohort is not None or population is not None:
            rule = "stand alone, without --cohort and --population"
            refuse("--sampling-probability", probability, rule, "or give --largest-cohort")
        return Poisson(probability)
    if cohort is None and population is None:
        return Everyone()
    if cohort is None or population is None:
        refuse("--cohort and --population", (cohort, population), "be given together")
    return FixedSize(cohort, population=population)


def _truncated(
    probability: float | None, cohort: int | None, population: int | None, largest: int
) -> Scheme:
    if probability is None or population is None or cohort is not None:
        rule = "be given with --sampling-probability and --population, without --cohort"
        refuse("--largest-cohort", largest, rule)
    return TruncatedPoisson(probability, population=population, largest=largest)


def run_of(
    noise_multiplier: float | None,
    unit: str | None,
    rounds: int | None,
    sampling_probability: float | None,
    cohort: int | None,
    population: int | None,
    largest_cohort: int | None,
) -> Mechanism:
    """Return the run that the options describe.

    Raises:
        ParameterError: options that are missing, or that do not go together.
    """
    if noise_multiplier is None:
        refuse("--noise-multiplier", None, "be given")
    scheme = _scheme(sampling_probability, cohort, population, largest_cohort)
    one = Gaussian(noise_multiplier=noise_multiplier, unit=unit).sampled(scheme)
    return one * (1 if rounds is None else rounds)


def once_each(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """Return (name, value) pairs as a dict; a name that is given twice is refused."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            refuse("--set", name, "be given once", "several values go with commas, where they may")
        found[name] = value
    return found


def printable(text: object) -> str:
    """Return text in which every control character stands as its escape, but for line ends.

    Files are untrusted: a sequence in one of their strings could clear a screen and write another
    verdict on it.
    """
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode()
        for c in str(text)
    )


def say(text: object, *, err: bool = False) -> None:
    """Print text for a person; see ``printable``."""
    click.echo(printable(text), err=err)


def screen() -> Any:
    """Return a console of rich's that prints strings as ``say`` does."""
    from rich.console import Console

    class Screen(Console):
        """Escapes what it is given as text."""

        def print(self, *objects: Any, **options: Any) -> None:
            """Print; see ``Console.print``."""
            told = [printable(each) if isinstance(each, str) else each for each in objects]
            super().print(*told, **options)

    return Screen(highlight=False)


def show(data: dict[str, Any], as_json: bool, text: Callable[[], None]) -> None:
    """Print the data as JSON, or let ``text`` print for a person."""
    if as_json:
        click.echo(json.dumps(data, indent=2, allow_nan=False))
    else:
        text()


def show_bound(bound: Bound) -> None:
    """Print a bound and what it rests on."""
    say(str(bound))
    if bound.witness:
        say(f"  attained by: {bound.witness}")
    for theorem in bound.theorems:
        say(f"  rests on: {theorem}")
    for assumption in bound.assumptions:
        say(f"  assumes: {assumption}")
    if bound.reason:
        say(f"  wider than asked: {bound.reason}")
