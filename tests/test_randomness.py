"""Repeatable tests: known bytes, a separate clock, the same examples."""

import hashlib
import importlib
import os
import random
import secrets
import ssl
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedprivacy as fp
from fedprivacy.loss import clock
from fedprivacy.mechanisms.exact_normals import SMALL
from tests.repeat import WORKERS, busy_in, command, counted

torch = pytest.importorskip("torch")

OWN = np.random.default_rng(7)
"""A generator that a module keeps."""


@pytest.fixture
def stream():
    """What draws in the place of the operating system."""
    return sys.modules["tests.conftest"].STREAM


def draws():
    """Return a digest of something from every source that a test may draw from."""
    step = fp.Gaussian(noise_multiplier=1.0)
    found = [
        os.urandom(8),
        secrets.token_bytes(8),
        ssl.RAND_bytes(8),
        np.random.default_rng().bytes(8),
        np.random.bytes(8),
        random.randbytes(8),
        torch.rand(2).numpy().tobytes(),
        step.release(np.zeros(4)).tobytes(),
        # Enough numbers that OpenSSL is used.
        step.release(np.zeros(SMALL)).tobytes(),
        fp.Poisson(0.5).draw(99, np.random.default_rng()).tobytes(),
    ]
    torch.seed()
    found.append(torch.rand(2).numpy().tobytes())
    return [hashlib.sha256(part).hexdigest() for part in found]


@pytest.fixture(scope="module")
def shared():
    """What a fixture draws that several tests share."""
    return draws()


def test_every_source_draws_the_same_for_the_same_name_and_seed(stream):
    found = {}
    for seed, name in ((0, "a"), (0, "b"), (1, "a"), (0, "a")):
        with stream.scope(seed, name):
            again = draws()
        assert found.setdefault((seed, name), again) == again
    every = [part for parts in found.values() for part in parts]
    assert len(set(every)) == len(every) == 33


def test_what_is_drawn_inside_does_not_move_what_is_drawn_after_it(stream):
    with stream.scope(0, "a"):
        plain = draws()
    with stream.scope(0, "a"):
        with stream.scope(5, "b"):
            draws()
        assert draws() == plain


def test_a_fixture_that_is_shared_has_a_stream_of_its_own(shared, stream, request):
    seed = request.config.option.randomness
    with stream.scope(seed, f"{request.path.relative_to(request.config.rootpath)}::shared[0]"):
        assert draws() == shared


@pytest.mark.parametrize("turn", [1, 2])
def test_a_generator_that_a_module_keeps_begins_anew(turn):
    assert OWN.bytes(8) == np.random.default_rng(7).bytes(8)


@pytest.mark.system_randomness
def test_a_test_may_ask_for_the_operating_system(stream):
    assert stream.source is None
    # Alike with a chance of 2^-128.
    assert os.urandom(16) != os.urandom(16)


def test_a_forked_child_draws_from_the_operating_system(stream):
    """Else two processes of a test would draw the same noise, and so the same nonces."""
    reading, writing = os.pipe()
    state = stream.source.getstate()
    expected = os.urandom(16)
    stream.source.setstate(state)
    child = os.fork()
    if child == 0:
        os.write(writing, os.urandom(16))
        os._exit(0)
    os.waitpid(child, 0)
    # Alike with a chance of 2^-128.
    assert os.read(reading, 16) != expected
    assert os.urandom(16) == expected
    os.close(reading)
    os.close(writing)


def test_the_clock_advances_with_each_look_and_not_with_the_load():
    first, second = clock.now(), clock.now()
    assert second - first == pytest.approx(clock.now() - second, rel=1e-9)


def test_examples_do_not_depend_on_what_was_imported_before(tmp_path, monkeypatch):
    """Hypothesis draws constants of local modules; a longer run has imported more modules."""

    def examples():
        found = []

        @settings(max_examples=300)
        @given(st.integers(), st.text())
        def keep(number, text):
            found.append((number, text))

        keep()
        return found

    before = examples()
    lines = [f"A{k} = {10**9 + 7919 * k}, 'constant {k}'\n" for k in range(500)]
    (tmp_path / "constants_of_a_module.py").write_text("".join(lines))
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("constants_of_a_module")
    try:
        assert examples() == before
    finally:
        del sys.modules["constants_of_a_module"]


def test_thirty_runs_have_every_number_of_workers_with_load_and_without():
    words = [command(number, [], vary=False) for number in range(30)]
    assert len({tuple(one) for one in words}) == 30
    met = {(one[one.index("-n") + 1], busy_in(k)) for k, one in enumerate(words)}
    assert met == {(str(workers), busy) for workers in WORKERS for busy in (0, 4)}


@pytest.mark.parametrize(
    ("end", "passed", "failed"),
    [
        ("95 passed in 3.30s", 95, 0),
        ("2 failed, 93 passed, 1 skipped in 3.30s", 93, 2),
        ("1 failed, 9 passed, 2 errors in 1.00s", 9, 3),
        ("no tests ran in 0.01s", 0, 0),
    ],
)
def test_a_run_is_counted_by_its_last_line(end, passed, failed):
    assert counted(f"7 failed\n=== {end} ===\n") == (passed, failed)
