"""Sequence lengths: checked once, and made to fit a pack by a policy that counts what it touches.

Shape letters: n sequences, P pieces (parts of sequences that are packed as sequences), L tokens per pack.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Dict, Optional

import numpy as np
import numpy.typing as npt

MOST_PIECES = 2**31  # that sequences are split into
OVERLONG = ("error", "drop", "truncate", "split")
Lengths = npt.NDArray[np.integer]
SERIES = (list, tuple, np.ndarray)


def whole_number(text: str) -> Optional[int]:
    """The whole number that a text says, also as 12.0 or 1.2e+01 (numpy.savetxt); None if it says none."""
    if "_" in text:  # 1_000 is a number to Python
        return None
    try:
        return int(text)
    except ValueError:
        pass
    try:
        value = float(text)
    except ValueError:
        return None
    return int(value) if abs(value) < 2.0**53 and value.is_integer() else None


def shown(value: Any) -> str:
    """A value as an error message quotes it: one line, not too long."""
    return " ".join(repr(value).split())[:80]


def whole_numbers(name: str, numbers: Any) -> npt.NDArray[np.integer]:
    """`numbers` as a 1-D array that is not empty, of an integer type; it is kept where it was one.

    Raises ValueError naming the first position that holds something else, as `name[position]`.
    """
    if isinstance(numbers, (str, bytes, os.PathLike)):
        raise ValueError(
            f"{name}: expected a 1-D array of whole numbers, found {shown(numbers)}; read the file first, "
            "or use python -m packing"
        )
    if isinstance(numbers, (list, tuple)) and isinstance(next(iter(numbers), 0), SERIES):
        raise ValueError(
            f"{name}[0]: expected a whole number, found a {type(numbers[0]).__name__}; of lists of tokens, "
            "pass [len(tokens) for tokens in lists]"
        )
    try:
        values = np.asarray(numbers)
    except (
        ValueError,
        TypeError,
        RuntimeError,
        OverflowError,
    ) as error:  # rows of unequal length...
        reason = " ".join(str(error).split())[:120]
        raise ValueError(f"{name}: expected a 1-D array of whole numbers ({reason})") from None
    if values.ndim == 0:
        found = f"{type(numbers).__name__} {shown(numbers)}"
        raise ValueError(f"{name}: expected a 1-D array or a list of whole numbers, found {found}")
    if values.ndim != 1 or values.size == 0:
        found = f"shape {values.shape}" if values.size else "none"
        raise ValueError(f"{name}: expected a 1-D array that is not empty, found {found}")
    if isinstance(numbers, np.ma.MaskedArray) and np.ma.is_masked(numbers):
        place = int(np.flatnonzero(np.ma.getmaskarray(numbers))[0])
        raise ValueError(f"{name}[{place}]: expected a whole number, found none (masked)")
    kind = values.dtype.kind
    if kind == "f":
        values = values.astype(np.float64)
        bad = np.flatnonzero(~(np.abs(values) <= 2.0**53) | (values != np.floor(values)))
        if bad.size:
            found = float(values[bad[0]])
            raise ValueError(f"{name}[{bad[0]}]: expected a whole number, found {found}")
        return values.astype(np.int64)
    listed = isinstance(numbers, (list, tuple))
    if kind in "iu" and not (listed and {bool, np.bool_} & set(map(type, numbers))):
        return values
    if kind not in "iuObUS":
        raise ValueError(f"{name}: expected whole numbers, found {values.dtype}")
    for place, value in enumerate(numbers if listed else values.tolist()):
        if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
            raise ValueError(f"{name}[{place}]: expected a whole number, found {shown(value)}")
        if not -(2**63) <= int(value) < 2**63:
            raise ValueError(f"{name}[{place}]: expected a number below 2^63, found {shown(value)}")
    return values.astype(np.int64)


def check_lengths(lengths: Any, max_length: Optional[int] = None) -> Lengths:
    """Checks sequence lengths and returns them as an array: whole numbers >= 1, at most `max_length`.

    lengths (n,) any 1-D array or sequence; integer types are kept, but for uint64
    Raises ValueError naming the first offending position.
    """
    values = whole_numbers("lengths", lengths)
    longest = np.iinfo(np.int64).max if max_length is None else max_length
    if int(values.min()) < 1 or int(values.max()) > longest:
        bad = int(np.flatnonzero((values < 1) | (values > longest))[0])
        expected = "at least 1 token" if max_length is None else f"1..{max_length} tokens"
        raise ValueError(f"lengths[{bad}]: expected {expected}, found {values[bad]}")
    if values.dtype.kind == "u" and values.dtype.itemsize == 8:
        return values.astype(np.int64)  # numpy before 2 does not count unsigned 64-bit integers
    return values


@dataclass(frozen=True, eq=False)
class Fitted:
    """Lengths of which none is over L, and how they came about.

    lengths  (P,) tokens in 1..L, what is packed
    ids      (P,) int64: the sequence each piece belongs to; None: piece i is sequence i
    starts   (P,) int64, only with "split": first token of the piece within its sequence
    dropped  (k,) int64 ids of the sequences that were left out
    report   policy, and the sequences and tokens it touched
    """

    lengths: Lengths
    ids: Optional[npt.NDArray[np.int64]]
    starts: Optional[npt.NDArray[np.int64]]
    dropped: npt.NDArray[np.int64]
    report: Dict[str, Any]


def fit_lengths(lengths: Any, max_length: int, overlong: str = "error") -> Fitted:
    """Applies the policy for sequences longer than `max_length` L.

    overlong  "error": refuse; "drop": leave them out; "truncate": keep the first L tokens; "split":
              cut into pieces of L tokens and a rest
    Raises ValueError naming the first sequence that is too long, or when none is left.
    """
    if not isinstance(overlong, str) or overlong not in OVERLONG:
        raise ValueError(
            f"overlong: expected one of {', '.join(OVERLONG)}, found {shown(overlong)}"
        )
    values = check_lengths(lengths)
    none = np.zeros(0, dtype=np.int64)
    report = {"policy": overlong, "sequences": 0, "tokens": 0, "tokens_lost": 0, "pieces": 0}
    if int(values.max()) <= max_length:
        starts = np.zeros(values.size, dtype=np.int64) if overlong == "split" else None
        return Fitted(values, None, starts, none, report)
    over = np.flatnonzero(values > max_length)
    if overlong == "error":
        raise ValueError(
            f"lengths[{over[0]}]: expected 1..{max_length} tokens, found {values[over[0]]}; "
            "overlong='drop', 'truncate' or 'split' allows longer ones"
        )
    touched = [int(n) for n in values[over]]  # Python's integers: their sum may pass 64 bits
    report.update(sequences=over.size, tokens=sum(touched))
    if overlong == "drop":
        if over.size == values.size:
            raise ValueError(f"lengths: all {over.size} sequences are over {max_length} tokens")
        report.update(tokens_lost=sum(touched))
        kept = np.flatnonzero(values <= max_length)
        return Fitted(values[kept], kept, None, over, report)
    if overlong == "truncate":
        report.update(tokens_lost=sum(touched) - over.size * max_length)
        cut = np.minimum(values, np.array(max_length).astype(values.dtype))
        return Fitted(cut, None, None, none, report)
    whole = values.astype(np.int64)
    pieces = -(-whole // max_length)
    if float(pieces.sum(dtype=np.float64)) > MOST_PIECES:
        raise ValueError(
            f"overlong: expected at most {MOST_PIECES} pieces of {max_length} tokens, "
            f"splitting makes {pieces.sum(dtype=np.float64):.3g}"
        )
    report.update(pieces=int(pieces[over].sum()))
    ids = np.repeat(np.arange(values.size), pieces)
    first = np.cumsum(pieces) - pieces
    starts = (np.arange(ids.size) - first[ids]) * max_length
    return Fitted(np.minimum(whole[ids] - starts, max_length), ids, starts, none, report)
