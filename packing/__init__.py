"""Packs sequences of known lengths into rows of L tokens: histogram, solvers, plan, assignment, shards.

>>> from packing import pack, solve
>>> packed = pack([2, 4, 2, 2, 4, 2], max_length=6, max_per_pack=2)
>>> packed.num_packs, packed.report["gap"]
(3, 0)
>>> solve([0, 0, 4, 0, 2], max_length=6, max_per_pack=2).num_packs
3
"""

from packing.assign import Assignment
from packing.online import OnlinePacker
from packing.pack import pack
from packing.plan import PackingPlan
from packing.solve import SOLVERS, solve
from packing.version import __version__

__all__ = ["SOLVERS", "Assignment", "OnlinePacker", "PackingPlan", "__version__", "pack", "solve"]
