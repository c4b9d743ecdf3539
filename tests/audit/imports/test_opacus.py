"""Tests of ``fedprivacy.audit.imports.opacus``."""

import math
import zipfile

import pytest

import fedprivacy as fp
from fedprivacy.errors import ConversionError
from tests.common import RECORDS

pytestmark = pytest.mark.usefixtures("narrowest")

TINY = 1 / 48000


def test_a_shuffled_pass_accounted_as_poisson_is_named(tmp_path):
    """An MNIST example of DP-SGD: 468 batches an epoch, z = 1.1, five epochs."""
    path = tmp_path / "log.csv"
    lines = ["round,noise_multiplier,sampling,rounds_per_epoch"]
    path.write_text("\n".join([*lines, *(f"{i},1.1,shuffled,468" for i in range(5 * 468))]))
    seen = {"adjacency": "zero_out", "observer": "server"}
    found = fp.audit(path, claim=(0.4315, 1e-5), **seen)
    assert found.verdict == "FAILS" and found.bound.lower > 10.19
    assert fp.audit(path, claim=(10.2, 1e-5), **seen).verdict == "HOLDS"
    secret = fp.audit(path, claim=(0.4315, 1e-5), adjacency="zero_out")  # the order is not known
    assert secret.verdict == "FAILS" and 3.40 < secret.bound.lower < 3.41
    assert "would be the epsilon of Poisson sampling at the same rate" in secret.reasons[1]


def test_the_gaussian_limit_of_a_published_thread():
    facts = {"adjacency": "add_remove", "sampling": "poisson"}
    found = fp.audit(RECORDS / "opacus_gdp.json", claim=(1.83, TINY), **facts)
    assert found.verdict == "FAILS" and 1.9608 < found.bound.lower <= found.bound.upper < 1.9609
    assert "central limit theorem" in found.reasons[1]


@pytest.mark.parametrize(
    ("adjacency", "verdict"), [("zero_out", "HOLDS"), ("replace_one", "FAILS")]
)
def test_at_most_ten(adjacency, verdict):
    found = fp.audit(fp.Gaussian(noise_multiplier=2.4) * 20, claim=(10, 1e-5), adjacency=adjacency)
    assert found.verdict == verdict
    if verdict == "FAILS":
        assert found.bound.lower > 22.17 and "zero_out (9.16598)" in found.reasons[1]
    else:
        assert found.bound.upper < 9.166


def test_a_sensitivity_that_is_not_the_clip_norm(tmp_path):
    """A filter that clips to 1 and calibrates its noise for a sensitivity of 1e-4."""
    path = tmp_path / "filter.toml"
    std = 1e-4 * math.sqrt(2 * math.log(1.25 / 1e-5)) / 10
    text = f"noise_std = {std!r}\nclip_norm = 1\nrounds = 1\nsampling = 'everyone'\n"
    path.write_text(
        text + "sensitivity = 1e-4\nadjacency = 'zero_out'\nepsilon = 10\ndelta = 1e-5\n"
    )
    found = fp.audit(path)
    assert found.verdict == "FAILS" and found.bound.lower >= 1e7
    assert "a sensitivity of 0.0001 clip norms" in found.reasons[1]
    right = text.replace(repr(std), "0.7")
    path.write_text(right + "adjacency = 'zero_out'\nepsilon = 10\ndelta = 1e-5\n")
    assert fp.audit(path).verdict == "HOLDS"


def test_a_checkpoint_holds_its_accountants_history():
    pytest.importorskip("torch")
    facts = {"claim": (9.0, 1e-5), "adjacency": "add_remove", "sampling": "poisson"}
    found = fp.audit(RECORDS / "opacus.pt", **facts)
    run = fp.Gaussian(noise_multiplier=3.0, unit="record").sampled(fp.Poisson(0.2)) * 5
    assert found.run == run and found.rounds == 5


def test_pickles_and_packed_archives_are_refused(tmp_path):
    import pickle

    (tmp_path / "a.pkl").write_bytes(pickle.dumps({"history": [(1.0, 0.1, 1)]}))
    with pytest.raises(ConversionError, match="pickle"):
        fp.audit(tmp_path / "a.pkl")
    with zipfile.ZipFile(tmp_path / "b.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("b/data.pkl", b"0" * 2**20)
    with pytest.raises(ConversionError, match="compressed"):
        fp.audit(tmp_path / "b.pt")


def test_a_checkpoint_that_runs_a_program_is_refused(tmp_path):
    torch = pytest.importorskip("torch")

    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "made"), "w"))

    torch.save({"history": [(1.0, 0.1, 1)], "mechanism": Evil()}, tmp_path / "evil.pt")
    with pytest.raises(ConversionError):
        fp.audit(tmp_path / "evil.pt", claim=(1.0, 1e-5), adjacency="zero_out")
    assert not (tmp_path / "made").exists()
