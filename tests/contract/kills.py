"""Kill a training run at random moments and look at what its ledger counted."""

import json
import os
import subprocess
import sys
from pathlib import Path

import fedprivacy


def kill_often(loop, folder, kills, seed):
    """Kill a run of a loop so often; check after each kill that no release was left uncounted.

    At most one round a kill may be counted too much, and the checkpoint lags by at most one. No
    release repeats another: a round that is run again draws its noise afresh. The audit holds what
    the ledger counts. The processes draw from the operating system. Four and more numbers in
    steps of 2^-20 std are alike in two releases with a chance below 1e-25, in two of a thousand
    releases with one below 1e-19. An audit doubts sound cohorts with one of 1e-9.
    """
    script = Path(__file__).with_name("killed_training.py")
    command = [sys.executable, str(script), loop, str(folder), str(kills), str(seed)]
    root = str(Path(fedprivacy.__file__).parent.parent)
    env = os.environ | {"PYTHONPATH": root}
    done = subprocess.run(command, capture_output=True, text=True, timeout=270, env=env)
    assert done.returncode == 0, done.stderr
    *reports, end = (json.loads(line) for line in done.stdout.splitlines())
    assert len(reports) == kills
    assert end["audit"] == "HOLDS", end
    assert 0 <= end["more"] <= kills and end["round"] == reports[-1]["checkpoint"] + 1
    for number, report in enumerate(reports, start=1):
        assert report["releases"] <= report["spent"] <= report["releases"] + number
        assert report["different"] == report["releases"]
        assert report["checkpoint"] <= report["releases"] <= report["checkpoint"] + number
    rounds = [report["checkpoint"] for report in reports]
    assert rounds == sorted(rounds) and rounds[-1] > 0
