"""Sums of mechanisms: parts listed when they are first read."""

import copy
import functools
import operator
import pickle
import random
import threading

import pytest

import fedprivacy as fp
from fedprivacy.mechanisms.base import Run
from fedprivacy.mechanisms.sums import together


def steps(count):
    """Return different sampled rounds."""
    return [
        fp.Gaussian(noise_multiplier=0.8 + i / count, unit="client").sampled(fp.Poisson(0.01))
        for i in range(count)
    ]


def test_a_sum_equals_the_run_of_its_parts():
    """The same value, hash, text, unit and loss, for sums nested in any way."""
    rng = random.Random(1)
    for _ in range(300):
        terms = [(one, rng.randint(1, 3)) for one in rng.choices(steps(4), k=rng.randint(2, 9))]
        runs = [one if count == 1 else one * count for one, count in terms]
        while len(runs) > 1:
            k = rng.randrange(len(runs) - 1)
            runs[k : k + 2] = [runs[k] + runs[k + 1]]
        found, wanted = runs[0], Run(together(terms))
        assert found == wanted and hash(found) == hash(wanted) and repr(found) == repr(wanted)
        assert found.protects is wanted.protects and found.traits == wanted.traits


def test_a_long_sum_lists_its_parts_once_and_without_recursion():
    """Five thousand terms on either side, copied and pickled before their parts are read."""
    many = steps(5_000)
    for add in (operator.add, lambda a, b: b + a):
        run = functools.reduce(add, many)
        # A sum that listed its parts at once would do so for every term.
        assert "parts" not in vars(run)
        for same in (pickle.loads(pickle.dumps(run)), copy.deepcopy(run), copy.copy(run)):
            assert same == run and same.protects is run.protects
        assert len(run.parts) == len(many)


def test_threads_that_list_one_sum_see_the_same_parts():
    """Every thread gets all parts."""
    run = functools.reduce(operator.add, steps(5000))
    found = []
    threads = [threading.Thread(target=lambda: found.append(run.parts)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and all(parts == found[0] for parts in found)
    assert len(found[0]) == 5000


def test_a_sum_is_refused_at_once():
    """Units that differ are refused by the sum, not when its parts are read."""
    client, record = (fp.Gaussian(noise_multiplier=1.0, unit=unit) for unit in ("client", "record"))
    with pytest.raises(fp.ParameterError, match="unit"):
        client + record
    with pytest.raises(fp.ParameterError, match="unit"):
        (client + client.sampled(fp.Poisson(0.1))) + (record * 3)
    with pytest.raises(TypeError):
        client + 3


def test_an_unknown_attribute_of_a_sum_is_an_attribute_error():
    """Listing parts does not hide misspelt names."""
    run = fp.Gaussian(noise_multiplier=1.0) + fp.Gaussian(noise_multiplier=2.0)
    with pytest.raises(AttributeError, match="rounds"):
        _ = run.rounds
