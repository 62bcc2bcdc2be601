"""Packs sequences that stream past: each is seen once, a bounded number of packs is open at a time.

`packing.solve` needs fewer packs where all lengths are known; here none is known before it comes.
Shape letters: L tokens per pack, D sequences per pack, B packs open at a time.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, Iterator, Optional, Tuple, Union

import numpy as np

from packing.histogram import MAX_TOKENS, check_at_least_one
from packing.open_packs import HEAD, NUMBER, ROOM, ByAge, ByRoom, Newest, Pack

ONLINE_ALGORITHMS = ("next_fit", "first_fit", "best_fit")

WAIT = 10  # times B sequences; longer waiting hardly saves packs
MEMORY = 32  # packs closed unfilled that make up the mean waste "of late"


class OnlinePacker:
    """Packs a stream of sequences; each is in exactly one pack once `flush` has returned.

    max_length    L, tokens per pack
    max_per_pack  D, sequences per pack; None = no limit
    buffer        B, packs open at a time; when one more is needed, the oldest is closed as it is.
                  `next_fit` has one open pack, whatever is given here
    algorithm     who takes a sequence: `best_fit` the fullest open pack that has room, `first_fit`
                  the oldest that has room, `next_fit` the last pack or a new one, so that the order
                  of the stream is kept exactly
    max_wait      sequences; a pack is closed no later than by the add that comes `max_wait` adds
                  after the one that opened it. None: 10 B; for `next_fit` L, which no pack reaches

    With D, `best_fit` and `first_fit` give a pack's last slot only to a sequence that fills the pack
    well enough (the fullest such pack): a slot wasted on a short one is gone for good, while waiting
    costs something only where a pack is closed unfilled in the end. So the waste accepted at a last
    slot is the mean waste of the packs closed unfilled of late: 0 at first, nothing to be tuned.

    Raises ValueError naming the argument. Deterministic; can be pickled in mid-stream.
    Cost: 1 to 3 us per sequence, growing no faster than sqrt(L) and sqrt(B) on usual lengths; memory:
    the open packs and, over time, up to about 200 bytes x L.

    >>> packer = OnlinePacker(max_length=8, buffer=2)
    >>> packer.add("a", 5)
    ()
    >>> packer.add("b", 6)
    ()
    >>> packer.add("c", 2)
    (['b', 'c'],)
    >>> packer.flush()
    (['a'],)
    >>> list(packer.pack([(0, 5), (1, 6), (2, 2), (3, 3)]))
    [[1, 2], [0, 3]]
    """

    def __init__(
        self,
        max_length: int,
        max_per_pack: Optional[int] = None,
        buffer: int = 1000,
        algorithm: str = "best_fit",
        max_wait: Optional[int] = None,
    ):
        self.max_length = check_at_least_one("max_length", max_length)
        if self.max_length > MAX_TOKENS:
            raise ValueError(f"max_length: expected <= {MAX_TOKENS} tokens, found {max_length}")
        if max_per_pack is not None:
            max_per_pack = check_at_least_one("max_per_pack", max_per_pack)
        self.max_per_pack = max_per_pack
        self.buffer = check_at_least_one("buffer", buffer)
        if algorithm not in ONLINE_ALGORITHMS:
            expected = ", ".join(ONLINE_ALGORITHMS)
            raise ValueError(f"algorithm: expected one of {expected}, found {algorithm!r}")
        self.algorithm = algorithm
        self._in_order = algorithm == "next_fit"
        if self._in_order:
            self.buffer = 1
        if max_wait is None:
            max_wait = self.max_length if self._in_order else WAIT * self.buffer
        self.max_wait = check_at_least_one("max_wait", max_wait)
        # lengths of an open pack's list; 0 is never reached
        self._full_at = HEAD + max_per_pack if max_per_pack else 0
        self._last_at = 0 if self._in_order or (max_per_pack or 0) < 2 else self._full_at - 1
        self._num_added = 0
        self._start()

    def _start(self) -> None:
        leave_at = self._last_at or self._full_at
        self._open: Dict[int, Pack] = {}  # by number, the oldest first
        self._wide: Union[Newest, ByAge, ByRoom]
        if self._in_order:
            self._wide = Newest(leave_at)
        elif self.algorithm == "first_fit":
            self._wide = ByAge(self.buffer, leave_at)
        else:
            self._wide = ByRoom(self.max_length, leave_at, self.max_length)
        self._last: Optional[ByRoom] = None  # packs with one slot left
        if self._last_at:
            self._last = ByRoom(self.max_length, self._full_at, 0)
        self._oldest = self._num_added + 1  # no open pack has a smaller number
        self._deadline = self._oldest + self.max_wait

    @property
    def num_open(self) -> int:
        """Packs open now, at most `buffer`."""
        return len(self._open)

    def add(self, id: Any, length: int) -> Tuple[Pack, ...]:
        """Takes a sequence; returns the packs finished by that: none as a rule, three at most.

        id: any object, kept as it is. length: tokens, a whole number in 1..L.
        Raises ValueError naming length and id; nothing has changed then, the stream can go on.
        """
        if type(length) is not int or not 0 < length < self.max_length:
            return self._add_other(id, length)
        self._num_added = now = self._num_added + 1
        last = self._last
        pack = last.place(id, length) if last else None
        if pack is None:
            pack = self._wide.place(id, length)
        if pack is None:
            finished = self._add_new(id, length)
        elif not pack:
            finished = ()
        elif last and pack[ROOM] and len(pack) == self._last_at:
            last.put(pack)
            finished = ()
        else:
            del self._open[pack[NUMBER]], pack[:HEAD]
            finished = (pack,)
        if now >= self._deadline:
            finished += self._close_aged()
        return finished

    def flush(self) -> Tuple[Pack, ...]:
        """Ends the stream: returns all open packs, oldest first. What is added next starts anew."""
        finished = tuple(self._open.values())
        for pack in finished:
            del pack[:HEAD]
        self._start()
        return finished

    def pack(self, sequences: Iterable[Tuple[Any, int]]) -> Iterator[Pack]:
        """Adds every (id, length), then flushes; yields packs one by one as they are finished."""
        for id, length in sequences:
            yield from self.add(id, length)
        yield from self.flush()

    def _add_other(self, id: Any, length: Any) -> Tuple[Pack, ...]:
        """Adds what `add` need not look at every time: whole packs, numpy's integers, bad lengths."""
        if type(length) is not int or length != self.max_length:
            whole = isinstance(length, (int, np.integer)) and not isinstance(length, bool)
            if not whole or not 1 <= length <= self.max_length:
                found = f"{length!r:.80} (id {id!r:.80})"
                raise ValueError(f"length: expected 1..{self.max_length} tokens, found {found}")
            return self.add(id, int(length))
        self._num_added += 1
        finished = self._add_new(id, length)
        return finished + self._close_aged() if self._num_added >= self._deadline else finished

    def _add_new(self, id: Any, length: int) -> Tuple[Pack, ...]:
        """Opens a pack for a sequence that no pack takes, if need be in place of the oldest."""
        room, finished = self.max_length - length, ()
        stays = room and self._full_at != HEAD + 1
        if len(self._open) >= self.buffer and (stays or self._in_order):
            finished = (self._close_oldest(),)
        if not stays:
            return (*finished, [id])
        number = self._num_added
        self._open[number] = pack = [number, room, id]
        if self._last and self._last_at == HEAD + 1:
            self._last.put(pack)
        else:
            self._wide.put(pack)
        return finished

    def _close_oldest(self) -> Pack:
        packs, number, last = self._open, self._oldest, self._last
        while number not in packs:
            number += 1
        self._oldest = number + 1
        self._deadline = self._oldest + self.max_wait
        pack = packs.pop(number)
        if last:
            last.most += (pack[ROOM] - last.most) / MEMORY
        (last if last and len(pack) == self._last_at else self._wide).drop_oldest(pack)
        del pack[:HEAD]
        return pack

    def _close_aged(self) -> Tuple[Pack, ...]:
        """Closes the pack opened max_wait adds ago, if it is open: an add opens one at most."""
        packs, number, now = self._open, self._oldest, self._num_added
        while number <= now and number not in packs:
            number += 1
        self._oldest = number
        self._deadline = number + self.max_wait
        return (self._close_oldest(),) if now >= self._deadline else ()
