"""The open packs of `packing.online`: which of them takes a sequence, found in well under a microsecond.

Shape letters: L tokens per pack.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from math import isqrt
from typing import Any, DefaultDict, List, Optional, Tuple

Pack = List[Any]  # the ids of its sequences, in the order in which they were added

# While it is open, a pack is the list [number, room, id, id, ...]: of the sequence that opened it,
# counted from 1, and of the tokens left. It is handed out without these two. One list and no object
# of our own, because everything here is counted in tens of nanoseconds.
NUMBER, ROOM, HEAD = 0, 1, 2
STAYS: Pack = []  # what `place` returns for a pack that goes on waiting where it is


class Newest:
    """One open pack.

    As in the other two classes, `place` returns None where no pack has room, STAYS where one took the
    sequence and is still in here, and a pack that has left: it is full or has `leave_at` entries.
    """

    def __init__(self, leave_at: int):
        self.leave_at = leave_at
        self.pack: Optional[Pack] = None

    def place(self, id: Any, length: int) -> Optional[Pack]:
        pack = self.pack
        if pack is None or length > pack[ROOM]:
            return None
        pack.append(id)
        pack[ROOM] -= length
        if pack[ROOM] and len(pack) != self.leave_at:
            return STAYS
        self.pack = None
        return pack

    def put(self, pack: Pack) -> None:
        self.pack = pack

    def drop_oldest(self, pack: Pack) -> None:
        self.pack = None


class ByRoom:
    """Finds the fullest pack with enough room; of several, the one that has been so for longest.

    The rooms that occur are sorted in groups of about sqrt(L); a bit says which groups are not empty.
    most: tokens that a pack may have left after `place`
    """

    def __init__(self, max_length: int, leave_at: int, most: float):
        self.leave_at = leave_at
        self.most = most
        self.shift = (max_length.bit_length() + 1) // 2
        self.rooms: List[List[int]] = [[] for _ in range((max_length >> self.shift) + 1)]
        self.used = 0
        # by room; an emptied list stays, as making one anew costs more
        self.packs: DefaultDict[int, List[Pack]] = defaultdict(list)

    def place(self, id: Any, length: int) -> Optional[Pack]:
        group = length >> self.shift
        rooms = self.rooms[group]
        at = bisect_left(rooms, length)
        if at == len(rooms):
            above = self.used >> (group + 1)
            if not above:
                return None
            group += (above & -above).bit_length()
            rooms, at = self.rooms[group], 0
        room = rooms[at]
        left = room - length
        if left > self.most:
            return None
        same = self.packs[room]
        pack = same.pop(0)
        if not same:
            del rooms[at]
            if not rooms:
                self.used ^= 1 << group
        pack.append(id)
        pack[ROOM] = left
        if left and len(pack) != self.leave_at:  # as in `put`: a call less
            same = self.packs[left]
            if not same:
                group = left >> self.shift
                self.used |= 1 << group
                insort(self.rooms[group], left)
            same.append(pack)
            return STAYS
        return pack

    def put(self, pack: Pack) -> None:
        same = self.packs[pack[ROOM]]
        if not same:
            group = pack[ROOM] >> self.shift
            self.used |= 1 << group
            insort(self.rooms[group], pack[ROOM])
        same.append(pack)

    def drop_oldest(self, pack: Pack) -> None:
        room = pack[ROOM]
        same = self.packs[room]
        same.remove(pack)  # compares numbers at most, never ids
        if not same:
            group = room >> self.shift
            rooms = self.rooms[group]
            del rooms[bisect_left(rooms, room)]
            if not rooms:
                self.used ^= 1 << group


class ByAge:
    """Finds the oldest pack with enough room.

    Packs stand in blocks in the order they were opened. In a block, peaks[i] is the largest room in
    rooms[: i + 1], so that a binary search finds the first that is large enough; tops says the same of
    the blocks. A room that shrinks changes the peaks only as far as the next larger one.
    """

    def __init__(self, buffer: int, leave_at: int):
        self.leave_at = leave_at
        self.size = isqrt(buffer) + 1
        self.blocks: List[Tuple[List[int], List[int], List[Any]]] = []  # peaks, rooms, packs
        self.tops: List[int] = []

    def place(self, id: Any, length: int) -> Optional[Pack]:
        tops = self.tops
        block = bisect_left(tops, length)
        if block == len(tops):
            return None
        peaks, rooms, packs = self.blocks[block]
        at = bisect_left(peaks, length)
        pack = packs[at]
        pack.append(id)
        pack[ROOM] = left = rooms[at] - length
        leaves = not left or len(pack) == self.leave_at
        if leaves:
            left, packs[at] = 0, None
        rooms[at] = left
        top = peaks[at - 1] if at else 0
        for i in range(at, len(rooms)):
            if rooms[i] > top:
                top = rooms[i]
            if peaks[i] == top:
                break
            peaks[i] = top
        else:
            self._lower_top(block)
        return pack if leaves else STAYS

    def _lower_top(self, block: int) -> None:
        tops, (peaks, rooms, _) = self.tops, self.blocks[block]
        if not peaks[-1] and len(rooms) == self.size:
            del self.blocks[block], tops[block]
        top = tops[block - 1] if block else 0
        for i in range(block, len(tops)):
            peak = self.blocks[i][0][-1]
            if peak > top:
                top = peak
            if tops[i] == top:
                return
            tops[i] = top

    def put(self, pack: Pack) -> None:
        room, tops = pack[ROOM], self.tops
        if not tops or len(self.blocks[-1][0]) == self.size:
            self.blocks.append(([room], [room], [pack]))
            tops.append(max(room, tops[-1]) if tops else room)
            return
        peaks, rooms, packs = self.blocks[-1]
        peaks.append(room if room > peaks[-1] else peaks[-1])
        rooms.append(room)
        packs.append(pack)
        if room > tops[-1]:
            tops[-1] = room

    def drop_oldest(self, pack: Pack) -> None:
        block = bisect_left(self.tops, 1)
        peaks, rooms, packs = self.blocks[block]
        at = bisect_left(peaks, 1)
        rooms[at], packs[at] = 0, None
        top = 0
        for i in range(at, len(rooms)):  # as in `place`
            if rooms[i] > top:
                top = rooms[i]
            if peaks[i] == top:
                return
            peaks[i] = top
        self._lower_top(block)
