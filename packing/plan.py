"""The packing plan: strategies with repeat counts that cover a histogram exactly.

Shape letters: S strategies, T slots of all strategies together, D sequences per pack, L tokens per pack.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple, Union

import numpy as np
import numpy.typing as npt

from packing.assign import Assignment, assign
from packing.files import fingerprint, read_json, write_json
from packing.histogram import MAX_TOKENS, Counts, packs_bound

PLAN_FORMAT = "packing-plan"
PLAN_VERSION = 2

Runs = Tuple[Tuple[int, int], ...]  # (length, copies), longest first: what is in one pack


@dataclass(frozen=True, eq=False)
class PackingPlan:
    """Strategies with repeat counts, as rows of a CSR table; memory is that of the slots, at any depth.

    slots          (T,) int32 tokens: the lengths of all strategies, each strategy's longest first
    offsets        (S+1,) int64: strategy s is slots[offsets[s] : offsets[s + 1]]
    repeats        (S,) int64 packs
    max_length     L, tokens per pack
    max_per_pack   the depth limit it was solved for, sequences; None = no limit
    algorithm      name of the solver
    lower_bound    packs that no plan of this histogram, L and max_per_pack can go below
    notes          what a user should know of how it was found (a fallback, for instance)
    """

    slots: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int64]
    repeats: npt.NDArray[np.int64]
    max_length: int
    max_per_pack: Optional[int]
    algorithm: str
    lower_bound: int
    notes: Tuple[str, ...] = ()

    @cached_property
    def strategies(self) -> npt.NDArray[np.int32]:
        """(S, D) int32 tokens, 0-padded, longest first. Made when asked for: at large D, use `slots`."""
        rows = np.repeat(np.arange(self.repeats.size), self.sizes)
        table = np.zeros((self.repeats.size, self.depth), dtype=np.int32)
        table[rows, np.arange(self.slots.size) - self.offsets[rows]] = self.slots
        return table

    @cached_property
    def sizes(self) -> npt.NDArray[np.int64]:
        """(S,) int64: sequences in each strategy."""
        return np.diff(self.offsets)

    def __repr__(self) -> str:
        return (
            f"PackingPlan({self.algorithm}, L = {self.max_length}, D = {self.max_per_pack}: "
            f"{self.num_packs} packs, gap {self.gap}, efficiency {self.efficiency:.4%})"
        )

    @property
    def num_packs(self) -> int:
        return int(self.repeats.sum())

    @property
    def num_sequences(self) -> int:
        return int(self.sizes @ self.repeats)

    @property
    def num_tokens(self) -> int:
        return int(self.slots.astype(np.int64) @ np.repeat(self.repeats, self.sizes))

    @property
    def depth(self) -> int:
        """Sequences in the fullest pack; <= max_per_pack."""
        return int(self.sizes.max(initial=1))

    @property
    def gap(self) -> int:
        """Packs above the lower bound: at most so many could be saved by any other plan."""
        return self.num_packs - self.lower_bound

    @property
    def efficiency(self) -> float:
        """Real tokens / (packs x L), in [0, 1]."""
        return self.num_tokens / (self.num_packs * self.max_length)

    @property
    def packing_factor(self) -> float:
        """Sequences / packs, >= 1."""
        return self.num_sequences / self.num_packs

    @property
    def token_bound(self) -> int:
        """ceil(tokens / L): no plan can have fewer packs."""
        return -(-self.num_tokens // self.max_length)

    @property
    def fingerprint(self) -> str:
        """sha256 of what the plan says (not of how it was found), in hexadecimal."""
        digest = hashlib.sha256(f"{PLAN_FORMAT} {PLAN_VERSION} {self.max_length}".encode("ascii"))
        for array, dtype in ((self.slots, "<i4"), (self.offsets, "<i8"), (self.repeats, "<i8")):
            digest.update(np.ascontiguousarray(array, dtype=dtype).tobytes())
        return digest.hexdigest()

    def histogram(self) -> Counts:
        """(L+1,) int64: how many sequences of each length the plan places."""
        counts = np.zeros(self.max_length + 1, dtype=np.int64)
        np.add.at(counts, self.slots, np.repeat(self.repeats, self.sizes))
        return counts

    def summary(self) -> Dict[str, Any]:
        """What people ask of a plan, as plain JSON values; efficiency is a fraction in [0, 1]."""
        return {
            "algorithm": self.algorithm,
            "max_length": self.max_length,
            "max_per_pack": self.max_per_pack,
            "sequences": self.num_sequences,
            "tokens": self.num_tokens,
            "packs": self.num_packs,
            "efficiency": self.efficiency,
            "packing_factor": self.packing_factor,
            "token_bound": self.token_bound,
            "lower_bound": self.lower_bound,
            "gap": self.gap,
            "notes": list(self.notes),
        }

    def rows(self) -> List[Tuple[Tuple[int, ...], int]]:
        """(lengths of one pack, repeats) of each strategy, as `plan_from_rows` takes them."""
        values, ends = self.slots.tolist(), self.offsets.tolist()
        packs = (tuple(values[start:end]) for start, end in zip(ends, ends[1:]))
        return list(zip(packs, self.repeats.tolist()))

    def check(self, counts: Counts) -> None:
        """Raises ValueError unless every sequence of `counts` is placed exactly once, within L and D."""
        tokens = np.add.reduceat(self.slots, self.offsets[:-1], dtype=np.int64)
        over = np.flatnonzero(tokens > self.max_length)
        if over.size:
            raise ValueError(
                f"strategy {over[0]}: {tokens[over[0]]} tokens, longer than {self.max_length} tokens"
            )
        if self.max_per_pack is not None and self.depth > self.max_per_pack:
            raise ValueError(f"a pack holds {self.depth} sequences, limit {self.max_per_pack}")
        placed = self.histogram()
        wrong = np.flatnonzero(placed != counts) if placed.shape == counts.shape else [0]
        if len(wrong):
            length = int(wrong[0])
            expected = int(counts[length]) if length < counts.size else 0
            raise ValueError(
                f"length {length}: the plan places {placed[length]} sequences, expected {expected}"
            )
        if not self.token_bound <= self.lower_bound <= self.num_packs:
            raise ValueError(
                f"lower_bound: expected {self.token_bound}..{self.num_packs} packs, "
                f"found {self.lower_bound}"
            )

    def assign(self, lengths: Any, seed: int = 0) -> Assignment:
        """Applies the plan to real sequences: see `packing.assign.assign`."""
        return assign(self, lengths, seed)

    def to_json(self) -> Dict[str, Any]:
        """A plain dictionary, the contents of plan.json."""
        contents = {
            "format": PLAN_FORMAT,
            "version": PLAN_VERSION,
            "algorithm": self.algorithm,
            "max_length": self.max_length,
            "max_per_pack": self.max_per_pack,
            "notes": list(self.notes),
            "packs": self.num_packs,
            "lower_bound": self.lower_bound,
            "fingerprint": self.fingerprint,
            "strategies": [list(lengths) for lengths, _ in self.rows()],
            "repeats": self.repeats.tolist(),
        }
        return {**contents, "checksum": fingerprint(contents)}

    def save(self, path: Union[str, Path]) -> None:
        write_json(Path(path), self.to_json())

    @staticmethod
    def load(path: Union[str, Path]) -> PackingPlan:
        """Reads what `save` wrote. Raises ValueError naming the file when it is anything else."""
        stored = read_json(Path(path))
        if not isinstance(stored, dict) or stored.get("format") != PLAN_FORMAT:
            raise ValueError(f"{path}: not a packing plan (no format {PLAN_FORMAT!r})")
        if stored.get("version") != PLAN_VERSION:
            raise ValueError(
                f"{path}: plan version {stored.get('version')!r:.80}, expected {PLAN_VERSION}"
            )
        try:
            return _plan_from_json(stored)
        except KeyError as error:
            raise ValueError(f"{path}: a packing plan without {error}") from None
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None


def _plan_from_json(stored: Dict[str, Any]) -> PackingPlan:
    contents = {key: value for key, value in stored.items() if key != "checksum"}
    if fingerprint(contents) != stored["checksum"]:
        raise ValueError("its contents do not match its checksum")
    longest, depth = stored["max_length"], stored["max_per_pack"]
    rows, repeats = stored["strategies"], stored["repeats"]
    if not (
        _whole(longest, MAX_TOKENS)
        and (depth is None or _whole(depth))
        and isinstance(rows, list)
        and isinstance(repeats, list)
        and len(rows) == len(repeats) > 0
        and all(isinstance(row, list) and row for row in rows)
        and all(_whole(n, longest) for row in rows for n in row)
        and all(_whole(n, 2**62) for n in repeats)
        and _whole(stored["lower_bound"])
        and isinstance(stored["notes"], list)
        and all(isinstance(text, str) for text in [*stored["notes"], stored["algorithm"]])
    ):
        raise ValueError("a packing plan with values of other kinds than a plan has")
    plan = plan_from_rows(
        zip(rows, repeats),
        max_length=longest,
        max_per_pack=depth,
        algorithm=stored["algorithm"],
        lower_bound=stored["lower_bound"],
        notes=tuple(stored["notes"]),
    )
    if plan.fingerprint != stored["fingerprint"] or plan.num_packs != stored["packs"]:
        raise ValueError("its strategies do not match its fingerprint")
    plan.check(plan.histogram())
    return plan


def _whole(value: Any, most: int = 2**63 - 1) -> bool:
    """Whether a value of a JSON file is a whole number in 1..most."""
    return type(value) is int and 1 <= value <= most


def plan_from_rows(
    rows: Iterable[Tuple[Sequence[int], int]],
    *,
    max_length: int,
    max_per_pack: Optional[int],
    algorithm: str,
    lower_bound: Optional[int] = None,
    notes: Tuple[str, ...] = (),
) -> PackingPlan:
    """Builds a plan from (lengths of one pack, 0 = none; repeats), as `plan_from_runs` does."""
    return plan_from_runs(
        ((_runs_of(lengths), repeats) for lengths, repeats in rows),
        max_length=max_length,
        max_per_pack=max_per_pack,
        algorithm=algorithm,
        lower_bound=lower_bound,
        notes=notes,
    )


def _runs_of(lengths: Sequence[int]) -> Runs:
    ordered = sorted((n for n in lengths if n), reverse=True)
    return tuple((length, sum(1 for _ in group)) for length, group in groupby(ordered))


def plan_from_runs(
    rows: Iterable[Tuple[Runs, int]],
    *,
    max_length: int,
    max_per_pack: Optional[int],
    algorithm: str,
    lower_bound: Optional[int] = None,
    notes: Tuple[str, ...] = (),
) -> PackingPlan:
    """Builds a plan from (runs of one pack, repeats); equal strategies are merged, order is fixed.

    runs: (length, copies), longest length first; lower_bound: packs; None: that of `packs_bound`.
    """
    merged: Dict[Runs, int] = {}
    for runs, repeats in rows:
        if repeats and runs:
            merged[runs] = merged.get(runs, 0) + int(repeats)
    ordered = sorted(merged, reverse=True)
    repeats = np.array([merged[runs] for runs in ordered], dtype=np.int64)
    del merged
    flat = np.array([n for runs in ordered for run in runs for n in run], dtype=np.int64)
    lengths, copies = flat[::2], flat[1::2]
    ends = np.cumsum([len(runs) for runs in ordered])
    del ordered
    offsets = np.concatenate([[0], np.cumsum(copies)[ends - 1]])
    slots = np.repeat(lengths.astype(np.int32), copies)
    plan = PackingPlan(slots, offsets, repeats, max_length, max_per_pack, algorithm, 0, notes)
    if lower_bound is None:
        lower_bound = packs_bound(plan.histogram(), max_length, max_per_pack)
    return replace(plan, lower_bound=lower_bound)
