"""Cost of a round with a simulated population, whose clients are made when they are drawn.

    python benchmarks/population.py

Each size of the population has a separate process. It runs DP-FedAvg on logistic regression, with
about 100 clients in a round, each with 10 artificial records of 784 numbers. "model" is the memory
of the parameters. "more" is the growth of the largest resident memory from before the first round
to after the last. "drawn" is the time of drawing one cohort, the best of many. ``--processes``
divides the largest population's rounds among processes and prints the speedup, which is valid on an
idle machine with as many cores. Linux only.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "population.json"
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
POPULATIONS = (10**3, 10**6)
COHORT, RECORDS, WIDTH, CLASSES = 100, 10, 784, 10


def peak_mb() -> float:
    """Return the process's largest resident memory until now."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def client(number):
    """Return a client's records, which depend only on its number."""
    import numpy as np
    import torch

    generator = np.random.default_rng(number)
    inputs = generator.normal(size=(RECORDS, WIDTH)).astype(np.float32)
    return torch.from_numpy(inputs), torch.from_numpy(generator.integers(CLASSES, size=RECORDS))


def measure(population: int, kind: str, rounds: int, processes: int, steps: int) -> dict:
    """Run rounds on a population; return seconds, megabytes and bytes."""
    import numpy as np
    import torch

    import fedprivacy as fp
    from fedprivacy.training import FederatedAveraging, LazyData, logistic, mlp

    schemes = {"poisson": fp.Poisson(COHORT / population)}
    scheme = schemes.get(kind) or fp.FixedSize(COHORT, population=population)
    model = logistic(WIDTH, CLASSES) if processes == 0 else mlp(WIDTH, CLASSES, (200, 200))
    loop = FederatedAveraging(
        model=model,
        scheme=scheme,
        perturbation=fp.Gaussian(noise_multiplier=1.0, clip_norm=0.1, unit="client"),
        local_steps=steps,
        processes=max(1, processes),
        device="cpu",
    )
    data = LazyData(
        client=client,
        population=population,
        test_features=torch.zeros(0, WIDTH),
        test_labels=torch.zeros(0, dtype=torch.int64),
        num_classes=CLASSES,
    )
    state, spent, lengths = loop.init(), [], []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl"
        with fp.Ledger.create(path, unit="client", adjacency="zero_out") as ledger:
            # Imports and other one-time costs do not belong to a population.
            state, _ = loop.step(state, data, ledger=ledger)
            before, lengths = peak_mb(), [path.stat().st_size]
            for _ in range(rounds):
                began = time.perf_counter()
                state, _ = loop.step(state, data, ledger=ledger)
                spent.append(time.perf_counter() - began)
                lengths.append(path.stat().st_size)
    generator, drawn = np.random.default_rng(0), []
    for _ in range(50):
        began = time.perf_counter()
        scheme.draw(population, generator)
        drawn.append(time.perf_counter() - began)
    return {
        "population": population,
        "scheme": kind,
        "processes": processes,
        "model_mb": loop.flat.dimension * 4 / 2**20,
        "peak_mb": peak_mb(),
        "more_mb": peak_mb() - before,
        "round_seconds": min(spent),
        "draw_seconds": min(drawn),
        "ledger_bytes_a_round": (lengths[-1] - lengths[0]) / rounds,
    }


def measured(*settings: int | str) -> dict:
    """Return the result of ``measure`` in a separate process."""
    call = f"import json, population as p; print(json.dumps(p.measure(*{settings!r})))"
    path = os.pathsep.join((str(HERE), str(HERE.parent)))
    kept = {name: "1" for name in ONE_THREAD} | {"PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", call],
        env={**os.environ, **kept},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--processes", type=int, nargs="*", default=[], help="such as 1 2 4")
    parser.add_argument("--write", action="store_true", help="replace the stored results")
    options = parser.parse_args()
    rows = [
        measured(population, kind, options.rounds, 0, 5)
        for kind in ("poisson", "fixed")
        for population in POPULATIONS
    ]
    print(
        f"{'clients':>9s} {'scheme':>8s} {'model MB':>9s} {'peak MB':>8s} {'more MB':>8s}", end=""
    )
    print(f" {'round s':>8s} {'drawn s':>9s} {'ledger B/round':>15s}")
    for row in rows:
        print(
            f"{row['population']:9d} {row['scheme']:>8s} {row['model_mb']:9.2f}"
            f" {row['peak_mb']:8.0f} {row['more_mb']:8.1f} {row['round_seconds']:8.3f}"
            f" {row['draw_seconds']:9.6f} {row['ledger_bytes_a_round']:15.0f}"
        )
    shared = [measured(10**6, "fixed", options.rounds, each, 200) for each in options.processes]
    for row in shared:
        gain = shared[0]["round_seconds"] / row["round_seconds"]
        print(
            f"{row['processes']} processes: {row['round_seconds']:.3f} s a round, {gain:.2f} times"
            f" as fast, efficiency {gain * shared[0]['processes'] / row['processes']:.2f}"
        )
    if options.write:
        content = {"python": platform.python_version(), "populations": rows, "processes": shared}
        RESULTS.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
