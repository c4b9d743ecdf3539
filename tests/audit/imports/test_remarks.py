"""Comments of a file and lines of a log, found and kept with their runs."""

from fedprivacy.audit.imports import remarks
from fedprivacy.audit.imports.sentences import Known, unclear_in

KNOWN = Known(frozenset({1.1, 1.0}), rounds=1000, epochs=10, epsilon=3.0)


def test_comments_keep_the_name_that_they_follow():
    text = (
        "# first\nnoise: 1.1 # 0.4 later\nurl: http://a/b\n// third\n<!-- fourth -->\n/* fifth */\n"
    )
    assert remarks.comments_in(text) == ["first", "noise: 0.4 later", "third", "fourth", "fifth"]


def test_long_lines_and_comments_over_several_lines_are_read_to_their_ends():
    long = "word " * 3000 + "without noise"
    for texts in (remarks.comments_in(f"<!-- {long}\n-->"), remarks.lines_in(long)):
        assert unclear_in(texts, KNOWN)
    assert remarks.comments_in(f"a: {long} # last") == ["a: last"]
    assert remarks.comments_in("/* " * 100_000) == []


def test_a_sentence_about_another_run_of_the_file_is_no_doubt():
    runs = [("run 1", {"noise_multiplier": 1.1}), ("run 2", {"noise_multiplier": 0.6})]
    assert remarks.with_remarks(runs, ["noise 0.6 and 1.1", "two runs"]) == runs
    found = dict(remarks.with_remarks(runs, ["noise 0.2 at the end"]))
    assert remarks.apart(found["run 1"]) == ({"noise_multiplier": 1.1}, ["noise 0.2 at the end"])
