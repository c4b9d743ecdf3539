"""What floating point may add: one unit for every count of roundings in the package.

A correctly rounded operation errs by at most half a spacing of its result, 2^-53 = 1.11e-16 of it;
so do +, -, *, / and sqrt. Logarithms, exponentials and the functions of ``scipy.special`` that are
used here err by a few such units, and are counted with at least four.

Where roundings are told apart they are counted in ``UNIT``. Where they are not, one of the others
stands for all of a computation's, named by how many units it holds; each is far below what any
answer's tolerance leaves room for (1e-6 at the least).
"""

SPACING = 2.0**-52
"""From 1 to the next number."""

HALF_SPACING = 2.0**-53
"""The unit round-off itself: for counts that leave room for the products of errors."""

UNIT = 1.2e-16
"""The unit round-off, rounded up: n factors 1 + 2^-53 stay below 1 + n units for n up to 1e15."""

FFT = 8 * UNIT
"""What a transform of length N errs by, over log2 N and the size of its inputs."""

FEW = 1e-15
"""Eight units: what a short expression may be off, where its roundings are not told apart."""

TENS = 1e-14
"""Eighty units: a line or two with a logarithm or an exponential of moderate size."""

HUNDREDS = 1e-13
"""Eight hundred: a sum of a few terms that each went through several functions."""

THOUSANDS = 1e-12
"""Eight thousand: whatever else a result of this package has been through, sums of thousands of
terms of one sign included; also what a value may exceed a limit by that it was computed to keep."""
