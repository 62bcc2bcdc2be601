"""The linear programme of cutting stock: how often each strategy is used. The only highspy import.

Shape letters: M distinct lengths, S strategies.
"""

from __future__ import annotations

import time
from typing import Any, List, Optional, Set, Tuple

import highspy
import numpy as np
import numpy.typing as npt

from packing.knapsack import OutOfTime, Packs

# The class below highspy.Highs: the constructor of Highs prints a banner in some versions.
_Solver: Any = highspy.Highs.__base__
_PRIMAL, _DUAL = 4, 1  # values of HiGHS's option simplex_strategy
MOST_NODES = 100  # of branch and bound


class Programme:
    """The linear programme over the strategies found so far; each run starts from the last one's end.

    Rows: slots of length i, less those handed to length i-1, plus those taken from length i+1, cover
    the demand of length i.
    """

    def __init__(self, demand: npt.NDArray[np.float64], deadline: float = float("inf")):
        """demand (M,) sequences, by ascending length; deadline: time.monotonic() at which `run` stops."""
        self.num_lengths = num_lengths = demand.size
        self.deadline = deadline
        self.offsets: List[npt.NDArray[np.int64]] = [np.zeros(1, dtype=np.int64)]
        self.items: List[npt.NDArray[np.int64]] = []
        self.seen: Set[bytes] = set()
        self.num_columns = 0
        self.solver: Any = _Solver()
        for option, value in (
            ("output_flag", False),
            ("parallel", "off"),  # not "threads": HiGHS shares them with all its users in a process
            ("presolve", "off"),
            ("solver", "simplex"),
            ("dual_feasibility_tolerance", 1e-9),
        ):
            self.solver.setOptionValue(option, value)
        empty = np.zeros(0)
        self.solver.addRows(
            num_lengths,
            demand,
            np.full(num_lengths, highspy.kHighsInf),
            0,
            np.zeros(num_lengths, dtype=np.int32),
            empty.astype(np.int32),
            empty,
        )
        longer = np.arange(1, num_lengths, dtype=np.int32)
        self._add_columns(
            np.zeros(longer.size),
            2 * np.arange(longer.size, dtype=np.int32),
            np.stack([longer - 1, longer], axis=1).ravel(),
            np.tile([1.0, -1.0], longer.size),
        )

    def _add_columns(self, costs: Any, starts: Any, rows: Any, values: Any) -> None:
        size = costs.size
        if size:
            upper = np.full(size, highspy.kHighsInf)
            self.solver.addCols(size, costs, np.zeros(size), upper, rows.size, starts, rows, values)

    def add(self, packs: Packs) -> int:
        """Adds the strategies that are not there yet; returns how many those were."""
        offsets, items = packs
        new = []
        for row in range(offsets.size - 1):
            key = items[offsets[row] : offsets[row + 1]].tobytes()
            if key not in self.seen:
                self.seen.add(key)
                new.append(row)
        if not new:
            return 0
        sizes = np.diff(offsets)[new]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        inside = np.arange(starts[-1]) - np.repeat(starts[:-1], sizes)
        chosen = items[np.repeat(offsets[new], sizes) + inside]
        column = np.repeat(np.arange(sizes.size), sizes)
        cell, copies = np.unique(column * self.num_lengths + chosen, return_counts=True)
        column, row = np.divmod(cell, self.num_lengths)
        self._add_columns(
            np.ones(sizes.size),
            np.searchsorted(column, np.arange(sizes.size)).astype(np.int32),
            row.astype(np.int32),
            copies.astype(np.float64),
        )
        self.offsets.append(self.offsets[-1][-1] + starts[1:])
        self.items.append(chosen)
        self.num_columns += sizes.size
        return int(sizes.size)

    def strategies(self) -> Packs:
        return np.concatenate(self.offsets), np.concatenate(self.items)

    def run(
        self, demand: Optional[npt.NDArray[np.float64]] = None
    ) -> Tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], float]:
        """Solves for the strategies added so far: use of each (S,), price of each length (M,), packs.

        demand: (M,) sequences that take the place of the demand so far. Raises OutOfTime at the deadline.
        """
        # the last basis stays feasible when columns enter, and its prices when demand changes
        self.solver.setOptionValue("simplex_strategy", _PRIMAL if demand is None else _DUAL)
        if demand is not None:
            self._set_demand(demand)
        self._solve()
        solution = self.solver.getSolution()
        mix = np.array(solution.col_value)[self.num_lengths - 1 :]
        prices = np.maximum(np.array(solution.row_dual), 0.0)
        return np.maximum(mix, 0.0), prices, self.solver.getObjectiveValue()

    def run_whole(self, demand: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The same in whole numbers, by branch and bound: use of each strategy (S,). For the last run.

        Raises OutOfTime at the deadline or after MOST_NODES nodes.
        """
        size = self.num_lengths - 1 + self.num_columns
        kinds = np.full(size, highspy.HighsVarType.kInteger)
        self.solver.changeColsIntegrality(size, np.arange(size, dtype=np.int32), kinds)
        for option, value in (
            ("solver", "choose"),
            ("presolve", "on"),
            ("mip_max_nodes", MOST_NODES),
        ):
            self.solver.setOptionValue(option, value)
        self._set_demand(demand.astype(np.float64))
        self._solve()
        mix = np.array(self.solver.getSolution().col_value)[self.num_lengths - 1 :]
        return np.rint(mix).astype(np.int64)

    def _set_demand(self, demand: npt.NDArray[np.float64]) -> None:
        rows = np.arange(self.num_lengths, dtype=np.int32)
        upper = np.full(self.num_lengths, highspy.kHighsInf)
        self.solver.changeRowsBounds(self.num_lengths, rows, demand, upper)

    def _solve(self) -> None:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise OutOfTime("the time limit")
        if np.isfinite(left):
            self.solver.setOptionValue("time_limit", self.solver.getRunTime() + left)
        self.solver.run()
        status = self.solver.getModelStatus()
        if status != highspy.HighsModelStatus.kOptimal:
            raise OutOfTime(f"HiGHS: {self.solver.modelStatusToString(status)}")
