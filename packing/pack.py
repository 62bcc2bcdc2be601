"""Lengths in, packs out: the whole way in one call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Optional

from packing.assign import Assignment, assign_counted, check_seed
from packing.histogram import check_max_length, count_lengths
from packing.lengths import fit_lengths
from packing.solve import TIME_LIMIT, check_solver, solve


def pack(
    lengths: Any,
    max_length: int,
    max_per_pack: Optional[int] = None,
    algorithm: str = "auto",
    seed: int = 0,
    overlong: str = "error",
    time_limit: float = TIME_LIMIT,
) -> Assignment:
    """Packs sequences of known lengths into as few rows of `max_length` tokens as it can.

    lengths       (n,) tokens of each sequence, >= 1: any 1-D integer array or sequence
    max_length    L, tokens per pack
    max_per_pack  D, sequences per pack; None: no limit
    algorithm     "auto" | "optimal" | "lpfhp" | "spfhp" | "nnlshp", see `packing.solve`
    seed          of the order of packs and of who shares one; the same seed gives the same packs
    overlong      what to do with sequences over L: "error" | "drop" | "truncate" | "split"
    time_limit    seconds for "auto" and "optimal"
    Returns offsets (N+1,) int64 and ids (n,) int64: pack p holds ids[offsets[p]:offsets[p + 1]], with the
    plan and a report. Packs come in an order without trend. Raises ValueError on bad input.
    Cost: the solver's, which depends on the different lengths, and a few passes over n integers.

    >>> from packing import pack
    >>> packed = pack([300, 200, 212, 100], max_length=512)
    >>> packed.num_packs, packed.report["gap"]
    (2, 0)
    >>> sorted(sorted(packed.pack(p).tolist()) for p in range(2))
    [[0, 2], [1, 3]]
    """
    max_length = check_max_length(max_length)
    check_seed(seed)
    check_solver(max_per_pack, algorithm, time_limit)
    fitted = fit_lengths(lengths, max_length, overlong)
    counts = count_lengths(fitted.lengths, max_length)
    plan = solve(counts, max_length, max_per_pack, algorithm, time_limit)
    assigned = assign_counted(plan, fitted.lengths, counts, seed)
    report = {**assigned.report, "overlong": fitted.report}
    ids, starts, piece_lengths = assigned.ids, None, None
    if fitted.starts is not None:
        starts, piece_lengths = fitted.starts[ids], fitted.lengths[ids]
    if fitted.ids is not None:
        ids = fitted.ids[ids]
    return replace(
        assigned,
        ids=ids,
        report=report,
        dropped=fitted.dropped,
        starts=starts,
        lengths=piece_lengths,
    )
