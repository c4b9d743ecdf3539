"""dp-accounting in both directions: runs as events, events as runs, and its interface.

A ``DpEvent`` describes the actions of a mechanism. The neighbouring relation belongs to the
accountant. A run in this package has the same division, so the two are converted without changing a
number. A feature that only one side can express raises ``ConversionError``.

The accountants and the privacy-loss distributions have dp-accounting's names, arguments and
defaults. Their answers are the certified upper ends of this package. ``certified()`` puts them in
the place of dp-accounting's own for an unchanged program, and so does the command::

    python -m fedprivacy.integrations.dp_accounting SCRIPT [ARGUMENT ...]

Only the ``dp_`` modules of this folder import ``dp_accounting``.
"""

from __future__ import annotations

from .dp_accountants import CertifiedAccountant, InvalidEventError, PLDAccountant, RdpAccountant
from .dp_answers import Answers, ServedAnswer
from .dp_certified import certified, main
from .dp_constructors import (
    from_discrete_gaussian_mechanism,
    from_discrete_laplace_mechanism,
    from_gaussian_mechanism,
    from_laplace_mechanism,
    from_mixture_gaussian_mechanism,
    from_privacy_parameters,
    from_randomized_response,
    from_truncated_subsampled_gaussian_mechanism,
    identity,
)
from .dp_events import from_event
from .dp_losses import PrivacyLossDistribution, UnsupportedLossError
from .dp_runs import adjacency_of, relation_of, to_event

__all__ = [
    "Answers",
    "CertifiedAccountant",
    "InvalidEventError",
    "PLDAccountant",
    "PrivacyLossDistribution",
    "RdpAccountant",
    "ServedAnswer",
    "UnsupportedLossError",
    "adjacency_of",
    "certified",
    "from_discrete_gaussian_mechanism",
    "from_discrete_laplace_mechanism",
    "from_event",
    "from_gaussian_mechanism",
    "from_laplace_mechanism",
    "from_mixture_gaussian_mechanism",
    "from_privacy_parameters",
    "from_randomized_response",
    "from_truncated_subsampled_gaussian_mechanism",
    "identity",
    "relation_of",
    "to_event",
]

if __name__ == "__main__":
    main()
