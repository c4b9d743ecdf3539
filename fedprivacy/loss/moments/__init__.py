"""Moments E e^{sL} on vertical lines of the complex plane, every error counted."""
