"""The questions of ``against.py``: each is a program that ends with ``report(value)``.

``turn`` is the number of the turn and varies the input. ``folder`` keeps files between the turns of
one side. Seconds count from ``start``, which ``ASKED`` sets again when the input is ready and the
modules of an account are loaded: now they load when they are first used, in the base at import.
"""

from __future__ import annotations

HEAD = """
import json, pathlib, resource, subprocess, sys, time
turn, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2])
start = time.process_time()
import fedprivacy as fp
def step(z, q=0.01):
    return fp.Gaussian(noise_multiplier=z, unit="client").sampled(fp.Poisson(q))
def different(n):
    from fedprivacy.mechanisms.base import Run
    return Run(tuple((step(0.8 + (i + 0.1 * turn) / n), 1) for i in range(n)))
def cohorts(z=None):
    scheme = fp.FixedSize(100, population=6000)
    return fp.Gaussian(noise_multiplier=z or 1.4 + 0.01 * turn).sampled(scheme) * 180
def replaced(draws=10, population=1000, z=None):
    scheme = fp.WithReplacement(draws, population=population)
    return fp.Gaussian(noise_multiplier=z or 1.0 + 0.01 * turn).sampled(scheme)
def warm():
    fp.epsilon(step(9.0) * 3, delta=0.1, adjacency="add_remove")
def report(value):
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps([value, time.process_time() - start, used.ru_maxrss / 1024]))
def command(*words):
    begun = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = used.ru_utime + used.ru_stime - begun.ru_utime - begun.ru_stime
    print(json.dumps([0.0, seconds, used.ru_maxrss / 1024]))
"""

EVERY_MODULE = "import compileall\ncompileall.compile_dir('fedprivacy', quiet=1)\nreport(0.0)"

ASKED = "\nwarm()\nstart = time.process_time()\n"

_LEDGER = """
import numpy as np, os
path = folder / "run.ledger"
def write(path, rounds):
    drawn = np.random.default_rng(turn)
    sizes = drawn.binomial(10_000, 0.01, rounds).tolist()
    each, os.fsync = step(50.0), lambda file: None
    facts = {"unit": "client", "adjacency": "zero_out", "claim": (8.0, 1e-6)}
    with fp.Ledger.create(path, **facts, plan=each * rounds) as ledger:
        for size in sizes:
            number = ledger.intent(each, clip_norm=1.0, noise_std=50.0)
            known = {"cohort": size, "arrived": size, "refused": 0}
            ledger.done(number, **known, noise_std=50.0, denominator=100.0)
        ledger.close()
"""

_WRITTEN = (
    _LEDGER
    + """
if "write" in sys.argv:
    write(path, 10**6)
    sys.exit()
if not path.exists():
    # Another process writes, because its memory should not count.
    subprocess.run([sys.executable, *sys.orig_argv[1:], "write"], check=True)
"""
    + ASKED
)

_CORRELATED = """
run = fp.CorrelatedNoise(
    noise_multiplier=32.0 + 0.1 * turn,
    factor=fp.factors.SquareRootToeplitz(),
    rounds=64,
    participation=fp.FixedEpochs(1),
).sampled(fp.Poisson(1 / 64))
"""

_CSV = """
path = folder / f"rounds-{turn}.csv"
rows = "".join(f"{i},{0.8 + (i * 7919 % 2000 + 0.1 * turn) / 2000}\\n" for i in range(2000))
path.write_text("round,noise_multiplier\\n" + rows)
first = folder / "first.csv"
first.write_text("round,noise_multiplier\\n1,9.0\\n2,9.5\\n")
fp.audit(first, claim=(3.0, 1e-5), adjacency="add_remove", sampling=fp.Poisson(0.01))
"""

_CERTIFIED = """
run = fp.Laplace(noise_multiplier=5.0 + 0.1 * turn).sampled(fp.Poisson(0.01)) * 1000
bound = fp.epsilon(run, delta=1e-5, adjacency="add_remove")
path = folder / f"certificate-{turn}.json"
path.write_text(json.dumps(bound.certificate()))
command("benchmarks/check_certificate.py", str(path))
"""


def _asked(run: str, call: str) -> str:
    """Return a program that makes ``run`` and then times a call that returns a Bound."""
    return f"run = {run}{ASKED}report({call}.upper)"


def _epsilon(run: str, adjacency: str, delta: str = "1e-5", more: str = "") -> str:
    return _asked(run, f'fp.epsilon(run, delta={delta}, adjacency="{adjacency}"{more})')


def _calibrated(run: str, adjacency: str, epsilon: float, more: str = "") -> str:
    """Return a program that calibrates the noise multiplier z of ``run``."""
    return (
        f"target = {epsilon} * (1 + 0.01 * turn){ASKED}"
        f"report(fp.calibrate(lambda z: {run}, epsilon=target, delta=1e-5, "
        f'adjacency="{adjacency}"{more}).value)'
    )


_ALLOCATED = "fp.Gaussian(noise_multiplier=1 + 0.01 * turn).sampled(fp.RandomAllocation(1000)) * 10"
_GAME = ', accountant="game", tolerance=1e-3'

QUESTIONS = {
    "import": "report(0.0)",
    "command fedprivacy epsilon": """
command("-m", "fedprivacy", "epsilon", "--noise-multiplier", str(1.4 + 0.01 * turn), "--cohort",
        "100", "--population", "6000", "--rounds", "180", "--adjacency", "zero_out",
        "--delta", "1e-5")
""",
    "command fedprivacy --help": 'command("-m", "fedprivacy", "--help")',
    "sum of 3,000 different rounds": "steps = [step(0.8 + (i + 0.1 * turn) / 3000) "
    f"for i in range(3000)]{ASKED}run = steps[0]\nfor one in steps[1:]:\n    run = run + one\n"
    "report(float(len(run.parts)))",
    **{
        f"epsilon of {n:,} different Poisson rounds": _epsilon(f"different({n})", "add_remove")
        for n in (1_000, 3_000, 10_000)
    },
    "rdp of 1,000 different Poisson rounds": _epsilon(
        "different(1000)", "add_remove", more=', accountant="rdp"'
    ),
    **{
        f"CSV audit of 2,000 {name} rounds": f"{_CSV}{ASKED}"
        f'found = fp.audit(path, claim=(3.0, 1e-5), adjacency="{adjacency}", sampling={scheme})\n'
        'report(float(str(found.verdict) == "HOLDS"))'
        for name, scheme, adjacency in (
            ("Poisson", "fp.Poisson(0.01)", "add_remove"),
            ("fixed-size", "fp.FixedSize(100, population=10_000)", "zero_out"),
        )
    },
    "ledger: append 10,000 rounds": f'{_LEDGER}\npath = folder / f"{{turn}}.ledger"'
    f'\nwrite(folder / f"{{turn}}-first.ledger", 10){ASKED}'
    "write(path, 10_000)\nreport(10_000.0)",
    "ledger of 10^6 rounds: open": f"{_WRITTEN}ledger = fp.Ledger.open(path)\nreport(0.0)",
    "ledger of 10^6 rounds: open, audit, report": f"{_WRITTEN}"
    'found = fp.audit(fp.Ledger.open(path))\nfp.report(found, folder / "report.html")\n'
    'report(float(str(found.verdict) == "HOLDS"))',
    "Poisson, 100 rounds": _epsilon("step(1.0 + 0.01 * turn) * 100", "add_remove"),
    "plain Gaussian, 100 times": "runs = [fp.Gaussian(noise_multiplier=1 + 0.01 * turn + 1e-4 * i) "
    f"for i in range(100)]{ASKED}"
    'report(max(fp.epsilon(r, delta=1e-5, adjacency="add_remove").upper for r in runs))',
    **{
        f"game, {adjacency}: epsilon": _epsilon("cohorts()", adjacency, "6000**-1.1", _GAME)
        for adjacency in ("replace_one", "zero_out")
    },
    "game, replace_one: delta": _asked(
        "cohorts()", f'fp.delta(run, epsilon=3.0, adjacency="replace_one"{_GAME})'
    ),
    "game, replace_one: calibrate": _calibrated("cohorts(z)", "replace_one", 3.0, _GAME),
    **{
        f"WithReplacement, {adjacency}, 100 rounds": _epsilon("replaced() * 100", adjacency)
        for adjacency in ("add_remove", "zero_out", "replace_one")
    },
    **{
        f"WithReplacement, {adjacency}: calibrate": _calibrated(
            "replaced(z=z) * 100", adjacency, 2.0
        )
        for adjacency in ("zero_out", "replace_one")
    },
    "WithReplacement, ten draws of every unit": _epsilon(
        "replaced(10_000, 1_000, 30.0 + 0.1 * turn) * 100", "zero_out"
    ),
    **{
        f"RandomAllocation(1000) x 10, {adjacency}": _epsilon(_ALLOCATED, adjacency)
        for adjacency in ("zero_out", "replace_one")
    },
    "Poisson x square root noise, delta 1e-15": _CORRELATED + _epsilon("run", "zero_out", "1e-15"),
    "certificate check, sampled Laplace x 1,000": _CERTIFIED,
}
"""Name -> program. All questions about real runs, without rounds of training."""
