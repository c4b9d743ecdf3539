"""Tests of ``fedprivacy.ledger.history``."""

import fedprivacy as fp
from fedprivacy.ledger import lines
from fedprivacy.ledger.history import read
from tests.ledger.test_joint import created

DELTA = 1e-5


def test_a_time_that_a_stranger_wrote_is_not_repeated(tmp_path):
    path = tmp_path / "run"
    created(path).release()
    history = read(path)
    line, _ = lines.line_of(lines.ResumeLine(token="0", when="\x1b[2J now"), history.check)
    with open(path, "ab") as file:
        file.write(line)
    told = fp.audit(path).facts_recorded["resumes"]
    assert told == "1 (an unreadable date)"
