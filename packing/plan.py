"""The packing plan: strategies with repeat counts that cover a histogram exactly.

Shape letters: S strategies, D sequences per pack, L tokens per pack.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterable, Optional, Tuple

import numpy as np
import numpy.typing as npt

from packing.assign import Assignment, assign
from packing.files import read_json, write_json
from packing.histogram import Counts

PLAN_FORMAT = "packing-plan"
PLAN_VERSION = 1


@dataclass(frozen=True, eq=False)
class PackingPlan:
    """Strategies (S, D) int32 tokens, 0-padded, longest first; repeats (S,) int64 packs.

    max_length     L, tokens per pack
    max_per_pack   the depth limit it was solved for, sequences; None = no limit
    algorithm      name of the solver
    notes          what a user should know of how it was found (a fallback, for instance)
    """

    strategies: npt.NDArray[np.int32]
    repeats: npt.NDArray[np.int64]
    max_length: int
    max_per_pack: Optional[int]
    algorithm: str
    notes: Tuple[str, ...] = ()

    @property
    def num_packs(self) -> int:
        return int(self.repeats.sum())

    @property
    def num_sequences(self) -> int:
        return int((self.strategies > 0).sum(axis=1) @ self.repeats)

    @property
    def num_tokens(self) -> int:
        return int(self.strategies.sum(axis=1, dtype=np.int64) @ self.repeats)

    @property
    def depth(self) -> int:
        """Sequences in the fullest pack; <= max_per_pack."""
        return self.strategies.shape[1]

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
        digest.update(np.ascontiguousarray(self.strategies, dtype="<i4").tobytes())
        digest.update(np.ascontiguousarray(self.repeats, dtype="<i8").tobytes())
        return digest.hexdigest()

    def histogram(self) -> Counts:
        """(L+1,) int64: how many sequences of each length the plan places."""
        counts = np.zeros(self.max_length + 1, dtype=np.int64)
        np.add.at(counts, self.strategies, self.repeats[:, None])
        counts[0] = 0
        return counts

    def check(self, counts: Counts) -> None:
        """Raises ValueError unless every sequence of `counts` is placed exactly once, within L and D."""
        over = np.flatnonzero(self.strategies.sum(axis=1, dtype=np.int64) > self.max_length)
        if over.size:
            raise ValueError(
                f"strategy {over[0]}: {self.strategies[over[0]].tolist()} is longer than "
                f"{self.max_length} tokens"
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

    def assign(self, lengths: Any, seed: int = 0) -> Assignment:
        """Applies the plan to real sequences: see `packing.assign.assign`."""
        return assign(self.strategies, self.repeats, lengths, self.max_length, seed)

    def to_json(self) -> Dict[str, Any]:
        """A plain dictionary, the contents of plan.json."""
        return {
            "format": PLAN_FORMAT,
            "version": PLAN_VERSION,
            "algorithm": self.algorithm,
            "max_length": self.max_length,
            "max_per_pack": self.max_per_pack,
            "notes": list(self.notes),
            "packs": self.num_packs,
            "fingerprint": self.fingerprint,
            "strategies": [[int(n) for n in row if n] for row in self.strategies],
            "repeats": self.repeats.tolist(),
        }

    def save(self, path: Path) -> None:
        write_json(path, self.to_json())

    @staticmethod
    def load(path: Path) -> PackingPlan:
        """Reads what `save` wrote. Raises ValueError naming the file when it is anything else."""
        stored = read_json(path)
        if not isinstance(stored, dict) or stored.get("format") != PLAN_FORMAT:
            raise ValueError(f"{path}: not a packing plan (no format {PLAN_FORMAT!r})")
        if stored.get("version") != PLAN_VERSION:
            raise ValueError(
                f"{path}: plan version {stored.get('version')!r}, expected {PLAN_VERSION}"
            )
        try:
            plan = plan_from_rows(
                zip((tuple(row) for row in stored["strategies"]), stored["repeats"]),
                max_length=stored["max_length"],
                max_per_pack=stored["max_per_pack"],
                algorithm=stored["algorithm"],
                notes=tuple(stored["notes"]),
            )
            expected = stored["fingerprint"]
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path}: a packing plan that lacks something ({error})") from None
        if plan.fingerprint != expected:
            raise ValueError(f"{path}: its contents do not match its fingerprint")
        return plan


def plan_from_rows(
    rows: Iterable[Tuple[Tuple[int, ...], int]],
    *,
    max_length: int,
    max_per_pack: Optional[int],
    algorithm: str,
    notes: Tuple[str, ...] = (),
) -> PackingPlan:
    """Builds a plan from (lengths of one pack, repeats); equal strategies are merged, order is fixed."""
    merged: Dict[Tuple[int, ...], int] = {}
    for lengths, repeats in rows:
        key = tuple(sorted((n for n in lengths if n), reverse=True))
        if repeats and key:
            merged[key] = merged.get(key, 0) + int(repeats)
    ordered = sorted(merged, reverse=True)
    depth = max((len(key) for key in ordered), default=1)
    strategies = np.zeros((len(ordered), depth), dtype=np.int32)
    for row, key in enumerate(ordered):
        strategies[row, : len(key)] = key
    repeats = np.array([merged[key] for key in ordered], dtype=np.int64)
    return PackingPlan(strategies, repeats, max_length, max_per_pack, algorithm, notes)
