"""Makes ``truth`` and ``common`` importable from every folder of tests; what torch is kept to."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def one_thread():
    """Keep torch to one thread, so that sums round alike on every machine."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
