"""The pytest plugin, in a separate pytest."""

import os
import subprocess
import sys

from fedprivacy.vectors import cases
from tests.common import ROOT
from tests.vectors.adapters import answering


def test_wrong_answers_fail_and_refusals_are_skipped(tmp_path):
    path = answering(tmp_path, "100.0 if case['id'].endswith('001') else 0.001")
    command = [sys.executable, "-m", "pytest", "-p", "fedprivacy.vectors.plugin", "-q"]
    options = ["--privacy-vectors", path, "--privacy-vectors-tenth"]
    done = subprocess.run(
        [
            *command,
            *options,
            "--privacy-vectors-family",
            "plain-gaussian",
            "-p",
            "no:cacheprovider",
        ],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    asked = len(cases(["plain-gaussian"], 10))
    assert f"1 failed, 1 passed, {asked - 2} skipped" in done.stdout, done.stdout + done.stderr
    assert "plain-gaussian-031" in done.stdout
