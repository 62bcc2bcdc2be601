"""The paper's two histogram heuristics [1], run on counts and not on single sequences.

Both take lengths from longest to shortest and put all sequences of one length at once. SPFHP adds to
the emptiest pack that has room, LPFHP to the fullest (best fit decreasing).
[1] Krell et al., arXiv:2107.02027, section 3.2 and appendix
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Dict, List, Optional, Tuple

import numpy as np

from packing.histogram import Counts
from packing.plan import PackingPlan, plan_from_rows

Open = Tuple[Tuple[int, ...], int]  # the lengths in a pack so far, and how many packs are like it


class _OpenPacks:
    """Packs that can still take a sequence, grouped by the tokens of room left in them."""

    def __init__(self, max_per_pack: int):
        self.max_per_pack = max_per_pack
        self.rooms: List[int] = []  # sorted; the keys of by_room
        self.by_room: Dict[int, List[Open]] = {}
        self.closed: List[Open] = []

    def add(self, lengths: Tuple[int, ...], number: int, room: int) -> None:
        if room == 0 or len(lengths) == self.max_per_pack:
            self.closed.append((lengths, number))
            return
        if room not in self.by_room:
            insort(self.rooms, room)
            self.by_room[room] = []
        self.by_room[room].append((lengths, number))

    def take(self, room: int) -> Open:
        group = self.by_room[room]
        taken = group.pop()
        if not group:
            del self.by_room[room]
            self.rooms.pop(bisect_left(self.rooms, room))
        return taken

    def all(self) -> List[Open]:
        return self.closed + [pack for room in self.rooms for pack in self.by_room[room]]


def pack_spfhp(counts: Counts, *, max_length: int, max_per_pack: Optional[int]) -> PackingPlan:
    """Shortest-pack-first histogram packing: each sequence joins the emptiest pack that has room [1].

    As for single sequences, the emptiest pack may be one just opened by another of this length; the
    paper's code opens a pack for each instead, and needs more packs.

    counts (L+1,) int64, checked; max_per_pack D sequences, None = no limit.
    Cost: depends on L and the number of different packs, not on the number of sequences.
    """
    limit = max_length if max_per_pack is None else max_per_pack
    packs = _OpenPacks(limit)
    for length in np.flatnonzero(counts)[::-1].tolist():
        left = int(counts[length])
        while left:
            if not packs.rooms or packs.rooms[-1] < length:
                copies = min(max_length // length, limit, left)
                packs.add((length,) * copies, left // copies, max_length - copies * length)
                left %= copies
                continue
            room = packs.rooms[-1]
            lengths, number = packs.take(room)
            used = min(number, left)
            if number > used:
                packs.add(lengths, number - used, room)
            packs.add((*lengths, length), used, room - length)
            left -= used
    return _finish(packs, max_length, max_per_pack, "spfhp")


def pack_lpfhp(counts: Counts, *, max_length: int, max_per_pack: Optional[int]) -> PackingPlan:
    """Longest-pack-first histogram packing: each sequence joins the fullest pack that has room [1].

    As many sequences of one length as fit go into a pack at once, as in the paper's code.
    counts (L+1,) int64, checked; max_per_pack D sequences, None = no limit.
    Cost: depends on L and the number of different packs, not on the number of sequences.
    """
    limit = max_length if max_per_pack is None else max_per_pack
    packs = _OpenPacks(limit)
    for length in np.flatnonzero(counts)[::-1].tolist():
        left = int(counts[length])
        while left:
            at = bisect_left(packs.rooms, length)
            if at < len(packs.rooms):
                room = packs.rooms[at]
                lengths, number = packs.take(room)
            else:
                room, lengths, number = max_length, (), left
            copies = min(room // length, limit - len(lengths), left)
            used = min(number, left // copies)
            if number > used and lengths:
                packs.add(lengths, number - used, room)
            packs.add(lengths + (length,) * copies, used, room - copies * length)
            left -= used * copies
    return _finish(packs, max_length, max_per_pack, "lpfhp")


def pack_greedy(counts: Counts, *, max_length: int, max_per_pack: Optional[int]) -> PackingPlan:
    """The better of the two: LPFHP, unless SPFHP needs fewer packs."""
    plans = (
        pack(counts, max_length=max_length, max_per_pack=max_per_pack)
        for pack in (pack_lpfhp, pack_spfhp)
    )
    return min(plans, key=lambda plan: plan.num_packs)


def _finish(
    packs: _OpenPacks, max_length: int, max_per_pack: Optional[int], algorithm: str
) -> PackingPlan:
    return plan_from_rows(
        packs.all(), max_length=max_length, max_per_pack=max_per_pack, algorithm=algorithm
    )
