"""From a budget to an audited run: jobs, sweeps, the demonstration."""

from . import attack_targets as attack_targets
