"""An append-only file that records the real rounds of a private run.

The file has one JSON object per line. It starts with a header (facts, claim, seed policy, versions,
plan). Every round has an ``intent`` before its noise is drawn, and a ``done`` (or ``abort``) after
it. A ``close`` ends the file. Each line ends in a SHA-256 of the checksum of the line before and
its own bytes. The chain detects damage, not forgery: an attacker who can rewrite the whole file can
also recompute it.

**The count is never too low.** ``intent`` returns only when its line is on disk (fsync). Hence
noise is drawn, and a value released, only for rounds with a complete line. A run killed after that
leaves a complete ``intent``. Without an ``abort`` it counts as spent, at most one round too many. A
run killed earlier may leave half a line, without its newline. Then ``intent`` had not returned, no
value was released, and the half line does not count. Half a ``done`` leaves its intent spent; half
a ``close`` leaves the ledger open. A *complete* line that breaks the chain is no torn write. It was
changed afterwards and may record a release, so it is refused at any position.

A ledger is untrusted data. Line types and record types are closed lists, and no code is imported or
executed by name. ``portalocker`` locks files while they
are written.
"""

from .joint import Joint
from .ledger import Ledger
from .lines import REGISTRY, Schedule, SeedPolicy
from .rounds import FinishedRound, LedgerRound, Trail

__all__ = [
    "REGISTRY",
    "FinishedRound",
    "Joint",
    "Ledger",
    "LedgerRound",
    "Schedule",
    "SeedPolicy",
    "Trail",
]
