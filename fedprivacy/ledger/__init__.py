"""An append-only file of what a private run really did.

One JSON object a line: a header (facts, claim, seed policy, versions, plan), then for every round
an ``intent`` before its noise is drawn and a ``done`` (or ``abort``) after, at the end ``close``.
Each line ends in the SHA-256 of the line before's checksum and its own bytes. The chain finds
damage, not forgery: whoever can rewrite the whole file can also recompute it.

**Never too little is counted.** ``intent`` returns only when its line is on disk (fsync), so
noise is drawn, and something released, only for rounds whose line is whole. A run killed later
leaves a whole ``intent``, and without an ``abort`` that counts as spent, at most one round too
much. A run killed earlier may leave half a line, without its newline: then ``intent`` had not
returned, nothing was released, and the half line does not count. Half a ``done`` leaves its
intent spent; half a ``close`` leaves the ledger open. A *whole* line that breaks the chain is no
torn write, it was changed afterwards and may stand for a release: that is refused, wherever it is.

A ledger is untrusted data: line kinds and record types are closed lists, and nothing is imported
or executed by name. Files are locked while they are written, by ``portalocker``.
"""

from .joint import Joint
from .ledger import Ledger
from .lines import REGISTRY, Schedule, SeedPolicy
from .rounds import Done, Round, Trail

__all__ = ["REGISTRY", "Done", "Joint", "Ledger", "Round", "Schedule", "SeedPolicy", "Trail"]
