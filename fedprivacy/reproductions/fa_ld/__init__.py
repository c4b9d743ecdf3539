"""The figures of FA-LD (Deng et al.)."""
