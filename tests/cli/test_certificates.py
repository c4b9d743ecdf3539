"""Tests of ``fedprivacy.cli.certificates``."""

import json

import pytest

from tests.cli.test_ask import RUNS
from tests.cli.test_explain import answered, refused

pytest.importorskip("torch")

import fedprivacy as fp
from tests.contract.test_command_line import command

ZERO = ["--adjacency", "zero_out"]
NOISE = ["--noise-multiplier", "2"]
STEP = fp.Gaussian(noise_multiplier=2.0)


def test_a_certificate_is_the_bounds_own(capsys, tmp_path):
    path, (words, run) = tmp_path / "one.json", RUNS["drawn"]
    answered(capsys, "epsilon", *words, *ZERO, "--delta", "1e-4", "--certificate", str(path))
    wanted = fp.epsilon(run, delta=1e-4, adjacency="zero_out").certificate()
    assert json.loads(path.read_text()) == json.loads(json.dumps(wanted))


def test_verify_tells_each_file_and_ends_with_the_worst(capsys, tmp_path):
    pytest.importorskip("flint")
    bound = fp.epsilon(STEP, delta=1e-4, adjacency="zero_out")
    right, wrong, none = (tmp_path / name for name in ("a.json", "b.json", "c.json"))
    right.write_text(json.dumps(bound.certificate()))
    changed = bound.certificate()
    changed["bound"]["upper"] *= 0.5
    wrong.write_text(json.dumps(changed))
    none.write_text("[]")
    code, out, _ = command(capsys, "verify", str(right))
    assert code == 0 and out.startswith(f"{right}: ")
    for files, worst in (([right, wrong], 2), ([none, right], 2), ([right, right], 0)):
        code, out, err = command(capsys, "verify", *map(str, files), "--json")
        found = json.loads(out)["certificates"]
        assert [each["file"] for each in found] == list(map(str, files)), err
        assert code == worst == max(each["exit_code"] for each in found)
    assert "digest" in found[0]["said"] or found[0]["exit_code"] == 0
    assert "nowhere.json" in refused(capsys, "verify", str(tmp_path / "nowhere.json"))
