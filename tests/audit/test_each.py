"""Audits of several runs of one file."""

import pytest

import fedprivacy as fp

pytestmark = pytest.mark.usefixtures("narrowest")


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


def test_columns_state_a_fact_of_one_run(tmp_path):
    """The advice for runs that differ leads to a verdict for each."""
    path = tmp_path / "runs.csv"
    head = "noise_multiplier,clip_norm,batch_size,n_train,epochs,epsilon,delta"
    rows = ["1.1,1.0,100,10000,5,2.0,1e-5", "0.8,1.0,200,10000,5,2.0,1e-5"]
    path.write_text("\n".join([head, *rows]))
    ask = {"sampling": "poisson", "adjacency": "add_remove"}
    advice = "in a column each: stated_rounds, stated_sampling_probability"
    assert all(advice in one.refused for one in fp.audit.each(path, **ask))
    refused = fp.audit.each(path, **ask, rounds=500)
    assert all("add a field stated_rounds to each run" in one.refused for one in refused)
    stated = [f"{rows[0]},500,0.01", f"{rows[1]},250,0.02"]
    path.write_text("\n".join([f"{head},stated_rounds,stated_sampling_probability", *stated]))
    found = fp.audit.each(path, **ask)
    assert [one.audit.verdict for one in found] == ["HOLDS", "FAILS"]
    assert "sampling" in fp.audit.each(path, adjacency="add_remove")[0].refused
    path.write_text(
        "\n".join(
            [f"{head},stated_rounds,stated_noise_multiplier", f"{rows[0]},1,x", f"{rows[1]},1,"]
        )
    )
    assert "stated_noise_multiplier must be a number" in fp.audit.each(path, **ask)[0].refused


def test_a_folder_has_the_hidden_configuration_of_hydra(tmp_path):
    """The parts next to the whole configuration are no other runs."""
    hidden = tmp_path / "outputs" / ".hydra"
    hidden.mkdir(parents=True)
    whole = "dp: {noise_multiplier: 1.1, max_grad_norm: 1.0, sample_rate: 0.01, steps: 100}\n"
    (hidden / "config.yaml").write_text(whole)
    (hidden / "overrides.yaml").write_text("- dp.noise_multiplier=1.1\n")
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "config.yaml").write_text(whole)
    ask = {"sampling": "poisson", "adjacency": "add_remove", "claim": (5.0, 1e-5)}
    found = fp.audit.each(tmp_path, **ask)
    assert [one.name for one in found] == ["outputs/.hydra/config.yaml"]
    assert found[0].audit.verdict == "HOLDS"
