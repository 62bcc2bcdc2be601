"""Packs sequences of known lengths into rows of L tokens: histogram, solvers, plan, assignment, shards.

>>> from packing import solve
>>> plan = solve([0, 0, 4, 0, 2], max_length=6, max_per_pack=2, algorithm="lpfhp")
>>> assignment = plan.assign([2, 4, 2, 2, 4, 2], seed=0)
>>> assignment.num_packs
3
"""

from packing.assign import Assignment
from packing.plan import PackingPlan
from packing.solve import SOLVERS, solve
from packing.version import __version__

__all__ = ["SOLVERS", "Assignment", "PackingPlan", "__version__", "solve"]
