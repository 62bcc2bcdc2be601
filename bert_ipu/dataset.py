"""Packed shards -> batches with exact loss weights, for our trainer and for anybody's own torch loop.

Shape letters: N packs in a split, B packs in a batch, L tokens, D sequences per pack, P prediction slots.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple, Union

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, Dataset

from bert_ipu.config import MaskingConfig
from bert_ipu.masking import mask_tokens, num_masked
from packing.folder import PackedSplit, read_manifest
from packing.shards import IGNORE_LABEL, derive

Batch = Dict[str, torch.Tensor]
SHUFFLE_STREAM = 7  # of the order of packs, beside the seed


@dataclass(frozen=True)
class Totals:
    """Counts over a whole global batch, from which the weight of every slot follows."""

    sequences: int
    masked_tokens: int
    labelled: int  # sequences with a next-sentence label


class PackedDataset(Dataset):
    """The packs of one split of a data folder, masked when they are read.

    `dataset[rows]` reads packs (a number or a sequence of numbers) as one batch of tensors:

    input_ids, sequence_ids, position_ids, token_type_ids   (B, L) int64
    cls_positions, nsp_labels (B, D) int64, nsp_weights (B, D) float32
    mlm_positions, mlm_labels (B, P) int64, mlm_weights (B, P) float32

    Tokens attend to tokens with the same sequence id. The loss is sum(mlm_weights * ce) +
    sum(nsp_weights * ce): with the weights as read it is the exact mean over the packs read together.
    Labels of slots not used are -100, their weights 0. Set `epoch` before an epoch for fresh masks.

        dataset = PackedDataset("out/sample_128")
        for batch in DataLoader(dataset, batch_size=None, sampler=BatchSampler(
                RandomSampler(dataset), batch_size=16, drop_last=False)):
            ...

    It can be pickled and read in workers however they are started.
    """

    def __init__(
        self,
        folder: Union[str, Path],
        split: str = "train",
        *,
        masking: Optional[MaskingConfig] = None,
        loss_normalization: str = "per_sequence",
        seed: int = 0,
        epoch: int = 0,
    ):
        """Opens and checks all shards. Raises ValueError naming file, found and expected."""
        self.packed = PackedSplit(Path(folder), split)
        self.masking = masking or MaskingConfig()
        self.loss_normalization = loss_normalization
        self.seed = seed
        self.epoch = epoch
        self.info = self.packed.info
        self.manifest = self.packed.manifest
        special_tokens = 3 if self.info.nsp else 2
        self.masked_per_slot = num_masked(
            self.packed.lengths, self.masking.mask_fraction, special_tokens
        )
        self.num_slots = prediction_slots(Path(folder), self.masking.mask_fraction, self.packed)

    def __len__(self) -> int:
        return len(self.packed)

    def __getitem__(self, rows: Union[int, Sequence[int]]) -> Batch:
        chosen = np.atleast_1d(np.asarray(rows, dtype=np.int64))
        return self.read(chosen, np.full(chosen.size, self.epoch), self.totals(chosen))

    def totals(self, rows: npt.NDArray[np.int64]) -> Totals:
        """Counts over the packs of a global batch; every process can tell them without reading packs."""
        sequences = int((self.packed.lengths[rows] > 0).sum())
        return Totals(
            sequences=sequences,
            masked_tokens=int(self.masked_per_slot[rows].sum()),
            labelled=sequences if self.info.nsp else 0,
        )

    def read(
        self, rows: npt.NDArray[np.int64], epochs: npt.NDArray[np.int64], totals: Totals
    ) -> Batch:
        """Reads packs (B,), masked for their epochs (B,), weighted for a global batch of `totals`."""
        arrays = self.packed.read(rows)
        derived = derive(arrays)
        static = self.masking.mode == "static"
        masked = mask_tokens(
            arrays,
            derived,
            epochs=np.zeros_like(epochs) if static else epochs,
            seed=self.seed,
            mask_fraction=self.masking.mask_fraction,
            num_slots=self.num_slots,
            token_kinds=self.packed.token_kinds,
            info=self.info,
        )
        labels = arrays["next_sentence_labels"].astype(np.int64)
        labelled = labels >= 0
        nsp_weights = labelled / max(1, totals.labelled)
        batch = {
            **derived,
            "input_ids": masked["input_ids"],
            "mlm_positions": masked["mlm_positions"],
            "mlm_labels": masked["mlm_labels"],
            "mlm_weights": self._mlm_weights(masked, derived["sequence_ids"], totals),
            "nsp_labels": np.where(labelled, labels, IGNORE_LABEL),
            "nsp_weights": nsp_weights.astype(np.float32),
        }
        return {name: torch.from_numpy(np.ascontiguousarray(a)) for name, a in batch.items()}

    def _mlm_weights(
        self, masked: Any, sequence_ids: npt.NDArray[np.int64], totals: Totals
    ) -> npt.NDArray[np.float32]:
        """(B, P): 1 / masked tokens of the global batch, or 1 / (sequences x masked of its sequence)."""
        used = masked["mlm_labels"] != IGNORE_LABEL
        if self.loss_normalization == "per_token":
            return (used / max(1, totals.masked_tokens)).astype(np.float32)
        sequence = np.take_along_axis(sequence_ids, masked["mlm_positions"], axis=1) - 1
        of_sequence = np.take_along_axis(masked["num_masked"], np.maximum(sequence, 0), axis=1)
        weights = used / (np.maximum(of_sequence, 1) * max(1, totals.sequences))
        return weights.astype(np.float32)


def prediction_slots(folder: Path, mask_fraction: float, known: PackedSplit) -> int:
    """P: the largest sum of k(length) over the packs of all splits of a data folder."""
    special_tokens = 3 if known.info.nsp else 2
    largest = 1
    for split in read_manifest(folder)["splits"]:
        packed = known if split == known.split else PackedSplit(folder, split)
        masked = num_masked(packed.lengths, mask_fraction, special_tokens)
        largest = max(largest, int(masked.sum(axis=1).max()))
    return largest


class Schedule:
    """Which packs make up which step: a pure function of (seed, step).

    Epoch after epoch, each a permutation of all packs, is one endless row of packs; step s takes those
    from s x B to (s + 1) x B. So every pack is read once per epoch, none is left out, and a step at the
    seam takes packs of two epochs, each masked for its own.
    """

    def __init__(self, num_packs: int, global_batch_size: int, seed: int):
        self.num_packs = num_packs
        self.global_batch_size = global_batch_size
        self.seed = seed
        self._orders: Dict[int, npt.NDArray[np.int64]] = {}

    def order(self, epoch: int) -> npt.NDArray[np.int64]:
        """The packs (N,) in the order of one epoch."""
        if epoch not in self._orders:
            self._orders = {e: o for e, o in self._orders.items() if e == epoch - 1}
            rng = np.random.default_rng([self.seed, SHUFFLE_STREAM, epoch])
            self._orders[epoch] = rng.permutation(self.num_packs)
        return self._orders[epoch]

    def step(self, step: int) -> Tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """(rows, epochs), each (B,), of one global batch."""
        places = step * self.global_batch_size + np.arange(self.global_batch_size)
        epochs = places // self.num_packs
        rows = np.empty_like(places)
        for epoch in np.unique(epochs).tolist():
            here = epochs == epoch
            rows[here] = self.order(epoch)[places[here] - epoch * self.num_packs]
        return rows, epochs


class MicroBatches(Dataset):
    """Every micro-batch of a run by number: step x accumulation + its place in the step."""

    def __init__(
        self, dataset: PackedDataset, schedule: Schedule, micro_batch_size: int, steps: int
    ):
        self.dataset = dataset
        self.schedule = schedule
        self.micro_batch_size = micro_batch_size
        self.steps = steps
        self.per_step = -(-schedule.global_batch_size // micro_batch_size)

    def __len__(self) -> int:
        return self.steps * self.per_step

    def __getitem__(self, number: int) -> Batch:
        step, place = divmod(number, self.per_step)
        rows, epochs = self.schedule.step(step)
        cut = slice(place * self.micro_batch_size, (place + 1) * self.micro_batch_size)
        return self.dataset.read(rows[cut], epochs[cut], self.dataset.totals(rows))


def steps_of_micro_batches(
    micro_batches: MicroBatches, start: int, workers: int
) -> Iterator[List[Batch]]:
    """The micro-batches of each step from `start` on; seeks, reads nothing of the steps before.

    workers  processes that read ahead; 0 reads in this one. Changes no batch.
    """
    numbers = range(start * micro_batches.per_step, len(micro_batches))
    stream: Iterator[Batch]
    if workers:
        stream = iter(
            DataLoader(
                micro_batches,
                batch_size=None,
                sampler=numbers,
                num_workers=workers,
                multiprocessing_context="spawn",
            )
        )
    else:
        stream = (micro_batches[number] for number in numbers)
    for _ in range(start, micro_batches.steps):
        yield [next(stream) for _ in range(micro_batches.per_step)]


def whole_split(dataset: PackedDataset, micro_batch_size: int) -> Iterator[Batch]:
    """All packs of a split in order, weighted so that the sums are exact means over the whole split."""
    rows = np.arange(len(dataset))
    totals = dataset.totals(rows)
    for start in range(0, rows.size, micro_batch_size):
        cut = rows[start : start + micro_batch_size]
        yield dataset.read(cut, np.full(cut.size, dataset.epoch), totals)
