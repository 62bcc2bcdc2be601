"""Sequence-length histograms: from lengths, from files, checked once.

Shape letters: L tokens (the longest length counted), S strategies, D sequences per pack.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional

import numpy as np
import numpy.typing as npt

from packing.files import whole_file
from packing.lengths import check_lengths, shown, whole_number, whole_numbers

Counts = npt.NDArray[np.int64]
MAX_TOKENS = 2**24  # in one sequence or pack; far above any context, and a table of it fits memory
MAX_COUNT = 2**53  # sequences of one length
COUNTED_AT_ONCE = 2**20  # lengths


def check_counts(counts: Any, max_length: Optional[int] = None) -> Counts:
    """Checks a histogram and returns it as (L+1,) int64: counts[n] sequences have n tokens.

    counts      1-D, whole numbers >= 0, index = length; counts[0] must be 0 (no empty sequences)
    max_length  L; shorter histograms are filled up with zeros. None: the longest length counted
    Raises ValueError naming the first offending position.
    """
    values = whole_numbers("counts", counts)
    bad = np.flatnonzero(values < 0)
    if bad.size:
        raise ValueError(f"counts[{bad[0]}]: expected a count >= 0, found {values[bad[0]]}")
    bad = np.flatnonzero(values > MAX_COUNT)
    if bad.size:
        raise ValueError(f"counts[{bad[0]}]: expected at most {MAX_COUNT}, found {values[bad[0]]}")
    if values.size > MAX_TOKENS + 1:
        raise ValueError(f"counts: expected at most {MAX_TOKENS} lengths, found {values.size - 1}")
    whole = values.astype(np.int64)
    if float(whole @ np.arange(whole.size, dtype=np.float64)) > 2**62:
        raise ValueError(f"counts: more than {2**62} tokens in all")
    if whole[0] != 0:
        raise ValueError(
            f"counts[0]: expected 0 (counts[n] sequences of n >= 1 tokens), found {whole[0]}; "
            "are these lengths? they are for `pack`"
        )
    present = np.flatnonzero(whole)
    if present.size == 0:
        raise ValueError("counts: the histogram is empty, expected at least one sequence")
    longest = int(present[-1])
    if max_length is None:
        max_length = longest
    check_max_length(max_length)
    if longest > max_length:
        first = int(present[np.searchsorted(present, max_length, side="right")])
        over = int(whole[max_length + 1 :].sum())
        raise ValueError(
            f"counts[{first}]: expected none over max_length {max_length}, found {over} sequences of up to "
            f"{longest} tokens"
        )
    full = np.zeros(max_length + 1, dtype=np.int64)
    full[: longest + 1] = whole[: longest + 1]
    return full


def check_at_least_one(name: str, value: Any) -> int:
    """Returns `value` as int when it is a whole number >= 1; raises ValueError naming it."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name}: expected a whole number >= 1, found {shown(value)}")
    return int(value)


def check_max_length(value: Any) -> int:
    """Returns L as int; raises ValueError when it is no whole number in 1..MAX_TOKENS."""
    if check_at_least_one("max_length", value) > MAX_TOKENS:
        raise ValueError(f"max_length: expected at most {MAX_TOKENS} tokens, found {shown(value)}")
    return int(value)


def count_lengths(lengths: Any, max_length: int) -> Counts:
    """Histogram (L+1,) int64 of sequence lengths in 1..max_length tokens."""
    values = check_lengths(lengths, max_length)
    counts = np.zeros(max_length + 1, dtype=np.int64)
    step = max(COUNTED_AT_ONCE, counts.size)  # numpy widens what it counts to 64 bits
    for start in range(0, values.size, step):
        counts += np.bincount(values[start : start + step], minlength=counts.size)
    return counts


def num_tokens(counts: Counts) -> int:
    """Tokens in all sequences of a histogram; exact for any size that fits int64."""
    return int(counts @ np.arange(counts.size, dtype=np.int64))


def token_bound(counts: Counts, max_length: int) -> int:
    """ceil(tokens / L): no packing can have fewer packs."""
    return -(-num_tokens(counts) // max_length)


def packs_bound(counts: Counts, max_length: int, max_per_pack: Optional[int]) -> int:
    """Packs that no packing of a histogram (L+1,) can do without, from sums over it; at once.

    The largest of three kinds of bounds: a pack holds L tokens, where sequences over L - a leave no
    room for those of a tokens or more and count as L (Martello and Toth's L2, for every a <= L/2); it
    holds at most k sequences over L/(k+1); it holds max_per_pack sequences.
    `packing.optimal` proves more at the price of a linear programme.
    """
    longer = np.append(np.cumsum(counts[::-1])[::-1], 0)[1:]  # than n tokens
    tokens = np.append(0, np.cumsum(counts * np.arange(counts.size, dtype=np.int64)))  # below n
    depth = max_length if max_per_pack is None else min(max_per_pack, max_length)
    a = np.arange(max_length // 2 + 1)
    k = np.arange(1, depth + 1)
    by_tokens = longer[max_length - a] - (tokens[a] - tokens[max_length - a + 1]) // max_length
    by_number = -(-longer[max_length // (k + 1)] // k)
    return max(int(by_tokens.max()), int(by_number.max()), -(-int(longer[0]) // depth))


def read_histogram(path: Path) -> Counts:
    """Reads `length,count` lines (.csv) or a .npy array of counts, index = length as in `check_counts`.

    A first line may name the two columns, in any order. Raises ValueError naming file and line.
    """
    if path.is_dir():
        raise ValueError(f"{path}: expected a histogram (.csv or .npy), found a folder")
    if not path.is_file():
        raise ValueError(f"{path}: no such file, expected a histogram (.csv or .npy)")
    if path.stat().st_size == 0:
        raise ValueError(f"{path}: empty file, expected lines `length,count`")
    if path.suffix == ".npy":
        try:
            with open(path, "rb") as stream:
                counts = np.lib.format.read_array(stream, allow_pickle=False)
        except Exception as error:  # numpy raises whatever the damage leads to
            raise ValueError(f"{path}: not a .npy array ({' '.join(str(error).split())})") from None
        try:
            return check_counts(counts)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
    if path.suffix not in (".csv", ".txt"):
        raise ValueError(f"{path}: expected a .csv or .npy histogram, found {path.suffix!r}")
    try:
        text = path.read_bytes().decode("utf-8-sig").replace("\r\n", "\n")
        rows = [line.split(",") if line.strip() else [] for line in text.split("\n")]
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 at byte {error.start}") from None
    names = [name.strip().strip('"').lower() for name in rows[0]]
    header = bool(names) and not any(c.isdigit() for c in "".join(names))
    if header and sorted(names) != ["count", "length"]:
        found = ",".join(rows[0])[:80]
        raise ValueError(f"{path}, line 1: expected the header `length,count`, found {found!r}")
    swapped = header and names[0] == "count"
    counted = {}
    for number, row in enumerate(rows[header:], start=1 + header):
        if not row:
            continue
        values = [
            n for n in (whole_number(cell.strip().strip('"')) for cell in row) if n is not None
        ]
        if len(row) != 2 or len(values) != 2:
            hint = "; lengths, one a line, go to `histogram` or `pack`" if len(row) == 1 else ""
            raise ValueError(
                f"{path}, line {number}: expected `length,count` as whole numbers, "
                f"found {','.join(row)[:80]!r}{hint}"
            )
        length, count = reversed(values) if swapped else values
        if not 0 <= length <= MAX_TOKENS or not 0 <= count <= MAX_COUNT or (length == 0 < count):
            raise ValueError(
                f"{path}, line {number}: expected a length in 1..{MAX_TOKENS} and a count in "
                f"0..{MAX_COUNT}, found {length},{count}"
            )
        if length in counted:
            raise ValueError(f"{path}, line {number}: length {length} is listed twice")
        counted[length] = count
    if not any(counted.values()):
        raise ValueError(f"{path}: the histogram is empty, expected at least one sequence")
    counts = np.zeros(max(counted) + 1, dtype=np.int64)
    counts[list(counted)] = list(counted.values())
    return check_counts(counts)


def write_histogram(path: Path, counts: Counts) -> None:
    """Writes `length,count` lines with a header, lengths 1..L."""
    lines = ["length,count"] + [f"{n},{counts[n]}" for n in range(1, counts.size)]
    with whole_file(path) as partial:
        partial.write_bytes(("\n".join(lines) + "\n").encode("ascii"))
