"""Tests of ``fedprivacy.page.uploads``."""

import threading
from multiprocessing import Pipe

import pytest

from fedprivacy.errors import ParameterError
from fedprivacy.page.uploads import MAX_BYTES, MAX_FILES, SentFile, checked, plain_name, receive


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("run.jsonl", "run.jsonl"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\me\\run.json", "run.json"),
        ("..", "file"),
        ("", "file"),
        (".bashrc", "bashrc"),
        ("a\0b\nc<d>.csv", "a_b_c_d_.csv"),
        ("x" * 300 + ".csv", "x" * 96 + ".csv"),
    ],
)
def test_a_name_stays_in_its_folder(name, plain):
    assert plain_name(name) == plain


@pytest.mark.parametrize(
    "files",
    [
        None,
        {},
        ["name"],
        [{"name": "a"}],
        [{"name": "a", "size": -1}],
        [{"name": "a", "size": 1.5}],
        [{"name": 3, "size": 1}],
        [{"name": "a", "size": 1}, {"name": "b/a", "size": 1}],
        [{"name": "a", "size": MAX_BYTES + 1}],
        [{"name": str(i), "size": 0} for i in range(MAX_FILES + 1)],
    ],
)
def test_malformed_lists_of_files_are_refused(files):
    with pytest.raises(ParameterError):
        checked(files)


def test_files_come_back_whatever_the_pieces(tmp_path):
    ours, theirs = Pipe()
    contents = [b"first file", b"", b"third"]
    whole = b"".join(contents)

    def send():
        for start in range(0, len(whole), 4):
            ours.send_bytes(whole[start : start + 4])

    sender = threading.Thread(target=send)
    sender.start()
    uploads = [SentFile(f"{i}.txt", len(text)) for i, text in enumerate(contents)]
    paths = receive(theirs, uploads, tmp_path)
    sender.join()
    assert [path.read_bytes() for path in paths] == contents
    ours.close()
    theirs.close()


def test_a_sender_that_stops_is_noticed(tmp_path):
    ours, theirs = Pipe()
    ours.send_bytes(b"abc")
    ours.close()
    with pytest.raises(EOFError):
        receive(theirs, [SentFile("a", 10)], tmp_path)
    theirs.close()
