"""Audits of several runs of one file."""

import pytest

import fedprivacy as fp


def test_one_answer_does_not_serve_runs_that_differ_in_it(tmp_path):
    """A stated multiplier would hide that each row has a sigma of its own."""
    path = tmp_path / "sweep.csv"
    path.write_text(
        "run,sigma,clip,rounds,delta,epsilon\na,0.8,1.0,100,1e-5,2.0\nb,1.5,1.0,100,1e-5,2.0\n"
    )
    ask = {"sampling": fp.Poisson(0.03), "adjacency": "add_remove"}
    found = fp.audit.each(path, noise_multiplier=1.5, **ask)
    assert [one.audit for one in found] == [None, None]
    assert all("the runs differ in sigma" in one.refused for one in found)
    # Runs that agree in it may share the answer.
    path.write_text(
        "run,sigma,clip,rounds,delta,epsilon\na,0.8,1.0,100,1e-5,9.0\nb,0.8,1.0,100,1e-5,1.0\n"
    )
    found = fp.audit.each(path, noise_multiplier=0.8, rounds=100, **ask)
    assert [one.audit.verdict for one in found] == ["HOLDS", "FAILS"]


def test_an_answer_is_no_better_than_the_worst_number_of_the_file(tmp_path):
    """Of two multipliers in one file, the larger one may belong to another run."""
    path = tmp_path / "run.yaml"
    path.write_text(
        "dp: {noise_multiplier: 1.1, max_grad_norm: 1.0}\nnoise_multiplier: 0.7\nrounds: 100\n"
    )
    ask = {"sampling": fp.Poisson(0.03), "adjacency": "add_remove", "claim": (9.0, 1e-5)}
    with pytest.raises(fp.ParameterError, match=r"noise_multiplier must be at most 0\.7"):
        fp.audit(path, noise_multiplier=1.1, **ask)


def test_one_answer_does_not_serve_files_that_differ_in_it(tmp_path):
    """The files of a folder, and of a list, have their own numbers of rounds."""
    for name, epochs, noise in (("a", 5, 1.1), ("b", 9, 1.1)):
        text = f"noise_multiplier: {noise}\nmax_grad_norm: 1.0\nepochs: {epochs}\n"
        (tmp_path / f"{name}.yaml").write_text(text)
    ask = {"sampling": fp.Poisson(0.03), "adjacency": "add_remove", "claim": (9.0, 1e-5)}
    files = [tmp_path / "a.yaml", tmp_path / "b.yaml"]
    for source in (tmp_path, files):
        found = fp.audit.each(source, rounds=50, **ask)
        assert all("rounds must be left out" in one.refused for one in found)
        assert all("differ in epochs" in one.refused for one in found)
    # Files that agree in it share the answer.
    (tmp_path / "b.yaml").write_text((tmp_path / "a.yaml").read_text())
    found = fp.audit.each(tmp_path, rounds=50, **ask)
    assert [one.audit.verdict for one in found] == ["HOLDS", "HOLDS"]


def test_a_row_without_noise_leaves_the_others_judged(tmp_path):
    path = tmp_path / "export.csv"
    path.write_text(
        "Name,State,_step,noise_multiplier,sample_rate,steps,delta,epsilon\n"
        "plain,finished,99,,0.01,100,1e-5,\n"
        "tulip,finished,99,1.1,0.01,100,1e-5,2.0\n"
    )
    found = fp.audit.each(path, sampling="poisson", adjacency="add_remove")
    assert [one.name for one in found] == ["row 1 (plain)", "row 2 (tulip)"]
    assert found[0].audit is None and "states the noise" in found[0].refused
    assert found[1].audit.verdict == "HOLDS"
