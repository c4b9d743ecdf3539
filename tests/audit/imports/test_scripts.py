"""Lines of a shell script around the command of a run."""

import pytest

import fedprivacy as fp
from fedprivacy.audit.imports import scripts

RUN = "python train.py --noise-multiplier 1.1 --max-grad-norm 1.0 --sample-rate 0.01 --steps 1000"
FACTS = {"sampling": "poisson", "adjacency": "add_remove", "claim": (3.0, 1e-5)}
pytestmark = pytest.mark.usefixtures("narrowest")


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        (f"for s in 1 2 3; do {RUN}; done", "trials"),
        (f"for seed in $(seq 5)\ndo\n  {RUN}\ndone", "trials"),
        (f"while true; do {RUN}; done", "trials"),
        (f"until false; do {RUN}; done", "trials"),
        (f"seq 10 | xargs -n1 {RUN}", "trials"),
        (f"parallel -j4 {RUN} --seed {{}} ::: 1 2 3", "trials"),
        (f"run() {{ {RUN} --seed $1; }}\nrun 1; run 2", "trials"),
        (f"0 3 * * * {RUN}", "trials"),
        (f"watch -n 3600 {RUN}", "trials"),
        (f"{RUN}\n{RUN}", "trials"),
        (f"{RUN}\npython train.py --epochs 5 --lr 0.1", "trials"),
        (f"#SBATCH --array=0-3\n{RUN}", "trials"),
        (f"mpirun -np 8 {RUN}", "sampling_probability"),
        (f"srun -n 8 {RUN}", "sampling_probability"),
        (f'{RUN} "$@"', "noise_multiplier"),
        (f"{RUN} ${{EXTRA_ARGS}}", "noise_multiplier"),
        (f"{RUN} @more.txt", "noise_multiplier"),
    ],
)
def test_a_line_puts_a_fact_in_doubt(text, fact, tmp_path):
    assert [doubt.fact for doubt in scripts.doubts_in(text)][:1] == [fact]
    path = tmp_path / "run.sh"
    path.write_text(f"#!/bin/bash\n{text}\n")
    with pytest.raises(fp.ParameterError, match=f"not settled: {fact.replace('_', ' ')}"):
        fp.audit(path, **FACTS)


@pytest.mark.parametrize(
    "line",
    [
        "./run.sh",
        "make train",
        "export SIGMA=0",
        "eval $COMMAND",
        "bash sweep.sh",
        "sbatch again.slurm",
        "if [ -f last.ckpt ]; then RESUME=--resume; fi",
    ],
)
def test_a_line_that_is_not_known_must_be_looked_at(line, tmp_path):
    path = tmp_path / "run.sh"
    path.write_text(f"#!/bin/bash\n{line}\n{RUN}\n")
    with pytest.raises(fp.ParameterError, match="not understood: ") as asked:
        fp.audit(path, **FACTS)
    (code,) = [one.code for one in asked.value.questions if one.code]
    found = fp.audit(path, **FACTS, reviewed=code)
    assert found.verdict == "HOLDS" and found.stated["reviewed"] == code


@pytest.mark.parametrize(
    "line",
    ["export DISABLE_DP=1", "set DP=0", "export OPACUS_DISABLE=1", "set -e\nDISABLE_NOISE=1 true"],
)
def test_a_variable_that_turns_privacy_off(line, tmp_path):
    path = tmp_path / "run.sh"
    path.write_text(f"#!/bin/bash\n{line}\n{RUN}\n")
    with pytest.raises(fp.errors.ConversionError, match="turns its noise off"):
        fp.audit(path, **FACTS)


@pytest.mark.parametrize(
    "line",
    [
        "set -e\nsource env/bin/activate",
        "pip install -r requirements.txt",
        "python -m venv env",
        "python preprocess.py --out data",
        "export CUDA_VISIBLE_DEVICES=0\nexport DISABLE_DP=0",
        "#SBATCH --time=1:00:00\n#SBATCH --ntasks=1",
        "mkdir -p out && echo started",
        "# train the small model",
    ],
)
def test_harmless_lines_leave_it_certified(line, tmp_path):
    path = tmp_path / "run.sh"
    path.write_text(f"#!/bin/bash\n{line}\n{RUN} --seed $SEED\n")
    assert fp.audit(path, **FACTS).verdict == "HOLDS"


def test_a_command_in_a_manifest_is_read_in_the_same_way(tmp_path):
    path = tmp_path / "job.yaml"
    for command, fact in ((f"for s in 1 2; do {RUN}; done", "trials"), (f"{RUN} $MORE", "noise")):
        path.write_text(f"jobs:\n  train:\n    command: {command}\n")
        with pytest.raises(fp.ParameterError, match=f"not settled: {fact}"):
            fp.audit(path, **FACTS)
    path.write_text(
        f"services:\n  a:\n    command: {RUN}\n  b:\n    command: python x.py --no-dp\n"
    )
    with pytest.raises(fp.ParameterError, match="no-dp"):
        fp.audit(path, **FACTS)
