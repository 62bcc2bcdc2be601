"""The paper's two histogram heuristics [1], run on counts and not on single sequences.

Both take lengths from longest to shortest and put all sequences of one length at once. SPFHP adds to
the emptiest pack that has room, LPFHP to the fullest (best fit decreasing).
[1] Krell et al., arXiv:2107.02027, section 3.2 and appendix
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Any, Dict, List, Optional, Tuple

import numpy as np
import numpy.typing as npt

from packing.histogram import Counts
from packing.plan import PackingPlan, Runs, plan_from_runs

# What is in a pack: (what was there before, length, copies); None = nothing. Adding to it copies nothing.
Content = Optional[Tuple[Any, int, int]]
MUCH = 10_000  # sequences of one length, and MANY times as many as kinds of open packs: these are
MANY = 4  # added at once, since one by one takes longer
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

    def add_level(self, length: int, left: int) -> int:
        """Adds many sequences of one length at once, always to the emptiest pack; returns those left.

        One by one, they would lower the largest room again and again: those go in that are the `left`
        largest of all room - j x length. A level is found above which there are not more of these;
        what lies at the level itself is left to the caller. Does nothing where that would not pay.
        """
        first = bisect_left(self.rooms, length)
        if left < MUCH or left <= MANY * (len(self.rooms) - first) or first == len(self.rooms):
            return left
        rooms = self.rooms[first:]
        if left <= MANY * sum(len(self.by_room[room]) for room in rooms):
            return left
        taken = [(room, *self.take(room)) for room in rooms for _ in range(len(self.by_room[room]))]
        room = np.array([pack[0] for pack in taken])
        slots = np.array([self.max_per_pack - pack[2] for pack in taken])
        number = np.array(
            [pack[3] for pack in taken], dtype=np.float64
        )  # its sums may pass 64 bits

        def copies(level: int) -> npt.NDArray[np.int64]:
            return np.clip(-((level - room) // length), 0, slots)

        low, high = length - 1, int(room.max())  # at `high`, nothing is added
        while low < high:
            level = (low + high) // 2
            if copies(level) @ number <= left:
                high = level
            else:
                low = level + 1
        added = copies(high).tolist()
        while sum(more * pack[3] for pack, more in zip(taken, added)) > left:  # numbers over 2^53
            high += 1
            added = copies(high).tolist()
        for (space, content, depth, packs), more in zip(taken, added):
            left -= more * packs
            grown = (content, length, more) if more else content
            self.add(grown, depth + more, packs, space - more * length)
        return left

    def plan(self, max_length: int, max_per_pack: Optional[int], algorithm: str) -> PackingPlan:
        packs = self.closed + [pack for room in self.rooms for pack in self.by_room[room]]
        return plan_from_runs(
            ((_runs(content), number) for content, _, number in packs),
            max_length=max_length,
            max_per_pack=max_per_pack,
            algorithm=algorithm,
        )


def _runs(content: Content) -> Runs:
    """(length, copies) of what is in a pack, longest first."""
    runs: List[Tuple[int, int]] = []
    while content is not None:
        content, length, copies = content
        if runs and runs[-1][0] == length:
            copies += runs.pop()[1]
        runs.append((length, copies))
    return tuple(reversed(runs))


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
        left = packs.add_level(length, int(counts[length]))
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
    """LPFHP, unless that is above the bound and SPFHP needs fewer packs."""
    fullest = pack_lpfhp(counts, max_length=max_length, max_per_pack=max_per_pack)
    if not fullest.gap:
        return fullest
    shortest = pack_spfhp(counts, max_length=max_length, max_per_pack=max_per_pack)
    return shortest if shortest.num_packs < fullest.num_packs else fullest
