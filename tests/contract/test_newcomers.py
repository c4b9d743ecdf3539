"""The six changes that CONTRIBUTING.md lists, each made in a copy of the package, and used."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

import fedprivacy

PACKAGE = Path(fedprivacy.__file__).parent

MECHANISM = '''
"""The exponential mechanism: one answer of a list, likelier the better it is."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import positive
from ..loss import stated_pair
from ..privacy_loss import PrivacyLoss
from ..registry import registered
from ..relations import Facts
from .base import Mechanism


@registered
@dataclass(frozen=True, kw_only=True)
class Exponential(Mechanism):
    """An answer drawn with probability proportional to exp(loss score / (2 sensitivity))."""

    loss: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "loss", positive(loss=self.loss))

    @property
    def protects(self) -> None:
        """Whatever the scores are of."""
        return None

    def loss_under(self, facts: Facts) -> PrivacyLoss:
        curve = stated_pair(((self.loss, 0.0),))
        return PrivacyLoss(curve, facts, None, ("exponential mechanism: pure DP",), ())
'''

SCHEME = '''
"""Volunteers: whoever wants to takes part, and everybody may know who did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ..registry import registered
from .everyone import Everyone


@registered
@dataclass(frozen=True)
class Volunteers(Everyone):
    """No chance is involved, so that nothing is amplified."""

    name: ClassVar[str] = "Volunteers"
    assumption: ClassVar[str] = "a unit may take part in every round"
'''

IMPORTER = '''
"""Logs of another program: ``{"program": "theirs", "z": 1.0, "q": 0.01, "T": 100}``."""

from __future__ import annotations

from typing import Any

from .trace import Origin, Rounds, Sampling, Trace

KIND = "their log"


def recognises(data: Any) -> bool:
    """Return whether plain values are such a log."""
    return isinstance(data, dict) and data.get("program") == "theirs"


def read(data: Any, origin: Origin) -> Trace:
    """Return the trace of a log."""
    rounds = Rounds(float(data["z"]), Sampling.POISSON, float(data["q"]))
    return Trace(origin, ((rounds, int(data["T"])),))
'''

LOOP = '''
"""A noisy sum of everybody's numbers, round after round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from ...mechanisms import Gaussian
from ...training.rounds import RoundBookkeeping, RoundInfo, run_round


@dataclass(frozen=True)
class Sum:
    """What was released so far, shape (rounds,)."""

    round: int
    released: torch.Tensor


@dataclass(frozen=True)
class NoisySums:
    """A loop as ``training.train`` runs it."""

    round_mechanism: Gaussian
    device: str = "cpu"

    def init(self) -> Sum:
        """Return the state before the first round."""
        return Sum(0, torch.zeros(0))

    def step(self, state, data, *, ledger=None, budget=None, dropout=None, on_release=None):
        """Run one round."""
        noise = self.round_mechanism
        books = RoundBookkeeping(
            mechanism=noise,
            ledger=ledger,
            budget=budget,
            clip_norm=noise.clip_norm,
            noise_std=noise.full_noise_std,
        )

        def release(total: torch.Tensor) -> Any:
            told = torch.as_tensor(noise.release(total)).reshape(1)
            after = Sum(state.round + 1, torch.cat([state.released, told]))
            n = len(data)
            info = RoundInfo(
                round=state.round,
                cohort=n,
                arrived=n,
                refused=0,
                aborted=False,
                upload_bytes=4 * n,
                noise_std=noise.full_noise_std,
            )
            return after, info

        def collect() -> torch.Tensor:
            return data.clamp(-noise.clip_norm, noise.clip_norm).sum().reshape(1)

        return run_round(books, collect=collect, release=release, on_release=on_release)
'''

QUESTION = '''
"""How many rounds a budget lasts."""

from __future__ import annotations

from typing import Any

from .epsilon import epsilon


def lasts(step: Any, *, budget: float, delta: float, adjacency: str) -> int:
    """Return the most rounds whose epsilon is certified to stay within a budget."""
    most = 0
    while epsilon(step * (most + 1), delta=delta, adjacency=adjacency).upper <= budget:
        most += 1
    return most
'''

METHOD = '''
"""DP-FedProx: DP-FedAvg whose clients are pulled towards the round's start."""

from __future__ import annotations

from dataclasses import dataclass

from ...relations import Unit
from ...systems.settings import POSITIVE, setting
from .averaging import NOISE_KNOB, AveragingJob, AveragingSettings, Noisy
from .base import Method, register


@dataclass(frozen=True, kw_only=True)
class Proximal(Noisy, AveragingSettings):
    """DP-FedProx."""

    proximal: float = setting(POSITIVE, "mu of FedProx", default=0.1)


register(
    Method("dp-fedprox", "DP-FedProx", Proximal, NOISE_KNOB, Unit.CLIENT, AveragingJob),
    declares=(Proximal,),
)
'''

CHANGES = {
    "mechanism": (
        ("mechanisms/exponential.py", MECHANISM),
        (
            "mechanisms/__init__.py",
            "from .gaussian import",
            "from .exponential import Exponential",
            '    "FederatedHamiltonian",',
            '    "Exponential",',
        ),
        """
        run = fp.Exponential(loss=0.5) * 3
        assert abs(fp.epsilon(run, delta=0.0, adjacency="zero_out").upper - 1.5) < 1e-9
        for accountant in ("rdp", "advanced"):
            assert fp.epsilon(run, delta=1e-5, adjacency="zero_out", accountant=accountant)
        asked = {"epsilon": 3.0, "delta": 0.0, "adjacency": "zero_out"}
        found = fp.calibrate(lambda x: fp.Exponential(loss=x) * 3, **asked)
        assert 0.99 < found.value <= 1.0
        with fp.Ledger.create("run.ledger", unit="client", adjacency="zero_out") as ledger:
            number = ledger.intent(fp.Exponential(loss=0.5), clip_norm=1.0, noise_std=1.0)
            ledger.done(number, cohort=2, arrived=2, refused=0, noise_std=1.0)
        kept = fp.Ledger.open("run.ledger").rounds[0].mechanism
        assert kept == fp.Exponential(loss=0.5)
        """,
    ),
    "scheme": (
        ("sampling/volunteers.py", SCHEME),
        (
            "sampling/__init__.py",
            "from .truncated",
            "from .volunteers import Volunteers",
            '    "WithReplacement",',
            '    "Volunteers",',
        ),
        """
        run = fp.Gaussian(noise_multiplier=1.0).sampled(fp.Volunteers())
        plain = fp.epsilon(fp.Gaussian(noise_multiplier=1.0), delta=1e-5, adjacency="zero_out")
        assert fp.epsilon(run, delta=1e-5, adjacency="zero_out").upper == plain.upper
        """,
    ),
    "importer": (
        ("audit/imports/theirs.py", IMPORTER),
        (
            "audit/imports/__init__.py",
            "    (statement.recognises",
            "    (theirs.recognises, theirs.KIND, theirs.read),",
            "from . import (\n    doubts,",
            "from . import theirs",
        ),
        """
        from pathlib import Path
        Path("log.json").write_text('{"program": "theirs", "z": 1.0, "q": 0.01, "T": 100}')
        said = {"adjacency": "add_remove", "claim": (9.0, 1e-5)}
        assert fp.audit("log.json", **said).verdict == "HOLDS"
        """,
    ),
    "loop": (
        ("systems/sums/loop.py", LOOP),
        (
            "training/__init__.py",
            '    "averaging.collect"',
            '    "sums.loop": ("NoisySums",),',
        ),
        """
        import torch
        from fedprivacy.training import NoisySums, train
        loop = NoisySums(fp.Gaussian(noise_multiplier=2.0, clip_norm=1.0, unit="client"))
        with fp.Ledger.create("run.ledger", unit="client", adjacency="zero_out") as ledger:
            found = train(loop, torch.ones(4), rounds=3, ledger=ledger)
            ledger.close()
        assert len(found.state.released) == 3
        assert fp.audit("run.ledger", claim=(9.0, 1e-5)).verdict == "HOLDS"
        """,
    ),
    "method": (
        ("runs/methods/dp_fedprox.py", METHOD),
        (
            "runs/methods/__init__.py",
            "from .base import",
            "from . import dp_fedprox",
            '    "dp_ftrl",',
            '    "dp_fedprox",',
        ),
        """
        from pathlib import Path
        from fedprivacy.runs.attack_targets import BY_NAME
        from fedprivacy.runs.experiment import Experiment
        from fedprivacy.runs.jobs import job
        from fedprivacy.runs.methods import settings_in_words
        task = job("dp-fedprox", rounds=2, cohort=20)
        assert task.loop(1.0, None).proximal == 0.1
        assert "dp-fedprox" in BY_NAME and "dp-fedprox" in settings_in_words()
        Experiment(job=task, epsilon=8.0, delta=1e-3).run(ledger_path=Path("run.ledger"))
        assert fp.audit("run.ledger").verdict == "HOLDS"
        """,
    ),
    "question": (
        ("questions/lasts.py", QUESTION),
        ("public.py", "from .relations import", "from .questions.lasts import lasts"),
        """
        step = fp.Gaussian(noise_multiplier=2.0)
        most = fp.lasts(step, budget=5.0, delta=1e-5, adjacency="zero_out")
        assert fp.epsilon(step * most, delta=1e-5, adjacency="zero_out").upper <= 5.0
        """,
    ),
}


def changed(root, new, edit):
    """Write one new file and put lines into another before those that are named."""
    path, text = new
    (root / path).parent.mkdir(exist_ok=True)
    (root / path).write_text(text.lstrip(), encoding="utf-8")
    path, *lines = edit
    old = (root / path).read_text(encoding="utf-8")
    for before, line in zip(lines[::2], lines[1::2], strict=True):
        assert before in old
        old = old.replace(before, f"{line}\n{before}", 1)
    (root / path).write_text(old, encoding="utf-8")


# Each in a separate folder; the name of a failing part comes first.
PROGRAM = """
import json, os, sys, traceback
import fedprivacy as fp
wrong = {}
for change, use in json.load(sys.stdin).items():
    os.mkdir(change)
    os.chdir(change)
    try:
        exec(use, {"fp": fp})
    except BaseException:
        wrong[change] = traceback.format_exc()
    os.chdir("..")
print(json.dumps(wrong))
"""


@pytest.fixture(scope="module")
def wrong(tmp_path_factory):
    """The failures if all six changes are made in one copy of the package, by change."""
    place = tmp_path_factory.mktemp("copy")
    # With its bytecode, which stays valid: only changed files are compiled again.
    shutil.copytree(PACKAGE, place / "fedprivacy")
    for new, edit, _ in CHANGES.values():
        changed(place / "fedprivacy", new, edit)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps({change: dedent(use) for change, (_, _, use) in CHANGES.items()}),
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(place)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("change", CHANGES)
def test_a_newcomers_change_takes_two_files(wrong, change):
    if change in ("loop", "method"):
        pytest.importorskip("torch")
    assert change not in wrong, wrong[change]
