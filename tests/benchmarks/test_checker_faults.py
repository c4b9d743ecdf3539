"""The faults that are put into a copy of the accounting are in the text that they change."""

from tests.common import ROOT


def test_every_fault_changes_a_text_of_its_file(monkeypatch):
    """A run of all faults stopped at one whose text had changed."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from checker_faults import FAULTS

    assert len(FAULTS) > 40
    for what, name, text, wrong in FAULTS:
        source = (ROOT / "fedprivacy" / name).read_text(encoding="utf-8")
        assert text in source and text != wrong, what
