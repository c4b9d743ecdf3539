"""From a budget to an audited run: jobs, sweeps, the demonstration."""
