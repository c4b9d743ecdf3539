"""The list of figures and tables: names, cells, numbers of the papers."""

import json

import pytest

import fedprivacy as fp
from fedprivacy.reproductions.catalogue import FIGURES, figure

pytest.importorskip("torch")


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_is_whole(name):
    one = FIGURES[name]
    paper, _, part = name.partition("/")
    assert one.name == name and paper and part.partition("-")[0] in ("figure", "table")
    assert len({cell.name for cell in one.cells}) == len(one.cells) > 0
    assert one.megabytes > 0 and one.shows and one.quick
    assert callable(one.work_of())
    for cell in one.cells:
        assert 0.0 < cell.quick_seconds <= cell.seconds
        # They are part of a file's name, and a comma separates them on the command line.
        assert not set(cell.name) & set(",/ \\")
        assert json.loads(json.dumps(dict(cell.settings))) == cell.settings


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(fp.ParameterError, match="'fa-ld/figure-1a'") as caught:
        figure("fa-ld/figure-9")
    assert "fed-plt" not in str(caught.value)
    with pytest.raises(fp.ParameterError, match=r"'fed-smp/\.\.\.'"):
        figure("fedsmp/table-1")
