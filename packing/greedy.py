"""The paper's two histogram heuristics [1], run on counts and not on single sequences.

Both take lengths from longest to shortest and put all sequences of one length at once. SPFHP adds to
the emptiest pack that has room, LPFHP to the fullest (best fit decreasing).
[1] Krell et al., arXiv:2107.02027, section 3.2 and appendix
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from packing.histogram import Counts
from packing.plan import PackingPlan, plan_from_rows

# What is in a pack: (what was there before, length, copies); None = nothing. Adding to it copies nothing.
Content = Optional[Tuple[Any, int, int]]
Open = Tuple[Content, int, int]  # content, sequences in it, and how many packs are like it


class _OpenPacks:
    """Packs that can still take a sequence, grouped by the tokens of room left in them."""

    def __init__(self, max_per_pack: int):
        self.max_per_pack = max_per_pack
        self.rooms: List[int] = []  # sorted; the keys of by_room
        self.by_room: Dict[int, List[Open]] = {}
        self.closed: List[Open] = []

    def add(self, content: Content, depth: int, number: int, room: int) -> None:
        if room == 0 or depth == self.max_per_pack:
            self.closed.append((content, depth, number))
            return
        if room not in self.by_room:
            insort(self.rooms, room)
            self.by_room[room] = []
        self.by_room[room].append((content, depth, number))

    def take(self, room: int) -> Open:
        group = self.by_room[room]
        taken = group.pop()
        if not group:
            del self.by_room[room]
            self.rooms.pop(bisect_left(self.rooms, room))
        return taken

    def plan(self, max_length: int, max_per_pack: Optional[int], algorithm: str) -> PackingPlan:
        packs = self.closed + [pack for room in self.rooms for pack in self.by_room[room]]
        return plan_from_rows(
            ((_lengths(content), number) for content, _, number in packs),
            max_length=max_length,
            max_per_pack=max_per_pack,
            algorithm=algorithm,
        )


def _lengths(content: Content) -> Tuple[int, ...]:
    lengths: List[int] = []
    while content is not None:
        content, length, copies = content
        lengths += [length] * copies
    return tuple(lengths)


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
                room = max_length - copies * length
                packs.add((None, length, copies), copies, left // copies, room)
                left %= copies
                continue
            room = packs.rooms[-1]
            content, depth, number = packs.take(room)
            used = min(number, left)
            if number > used:
                packs.add(content, depth, number - used, room)
            packs.add((content, length, 1), depth + 1, used, room - length)
            left -= used
    return packs.plan(max_length, max_per_pack, "spfhp")


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
                content, depth, number = packs.take(room)
            else:
                room, content, depth, number = max_length, None, 0, left
            copies = min(room // length, limit - depth, left)
            used = min(number, left // copies)
            if number > used and depth:
                packs.add(content, depth, number - used, room)
            packs.add((content, length, copies), depth + copies, used, room - copies * length)
            left -= used * copies
    return packs.plan(max_length, max_per_pack, "lpfhp")


def pack_greedy(counts: Counts, *, max_length: int, max_per_pack: Optional[int]) -> PackingPlan:
    """LPFHP, unless that is above the token bound and SPFHP needs fewer packs."""
    fullest = pack_lpfhp(counts, max_length=max_length, max_per_pack=max_per_pack)
    if not fullest.gap:
        return fullest
    shortest = pack_spfhp(counts, max_length=max_length, max_per_pack=max_per_pack)
    return shortest if shortest.num_packs < fullest.num_packs else fullest
