"""An importer of your own, for the log of some program.

It returns a ``Trace``, which holds only *recorded* facts. This log does not say how batches were
drawn, so the caller of the audit must say it. ``as_type`` refuses values of another type, ``true``
for a number among them.

A demonstration: the log is made up.

Prints::

    poisson HOLDS
    shuffled FAILS
    rounds must be ... -2350
"""

from typing import Annotated

import msgspec

import fedprivacy as fp
from fedprivacy.audit.imports import Origin, Rounds, Trace
from fedprivacy.audit.imports.content import as_type
from fedprivacy.relations import Unit

Count = Annotated[int, msgspec.Meta(ge=1)]


class Log(msgspec.Struct):
    sigma: float
    batch: Count
    n: Count
    iterations: int


def recognises(data):
    return isinstance(data, dict) and {"sigma", "iterations"} <= data.keys()


def read(data, origin):
    log = as_type(data, Log, origin.name)
    rounds = Rounds(log.sigma, rate=log.batch / log.n, per_epoch=-(-log.n // log.batch))
    return Trace(origin, ((rounds, log.iterations),), unit=Unit.RECORD)


log = {"sigma": 1.1, "batch": 256, "n": 60_000, "iterations": 2350}
assert recognises(log)
record = read(log, Origin.imported("a log of theirs", by="me"))
for sampling, adjacency in (("poisson", "add_remove"), ("shuffled", "zero_out")):
    found = fp.audit(record, claim=(2.0, 1e-5), sampling=sampling, adjacency=adjacency)
    print(sampling, found.verdict)
try:
    read(log | {"iterations": -2350}, Origin.imported("a log of theirs", by="me"))
except fp.ParameterError as refusal:
    print(refusal)
