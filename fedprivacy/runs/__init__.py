"""From a budget to an audited run: jobs, sweeps, the demonstration."""

from . import attackable as attackable
