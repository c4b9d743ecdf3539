"""Moments E e^{sL} on vertical lines of the complex plane, with a bound on every error."""
