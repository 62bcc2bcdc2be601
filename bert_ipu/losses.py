"""The pre-training loss of a batch as a weighted sum, and the counts that make accuracies exact.

Shape letters: M prediction slots, C [CLS] slots, V vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F

from packing.shards import IGNORE_LABEL


class PretrainingLoss(NamedTuple):
    """Sums over the slots of one batch; adding them up over batches gives those of the whole.

    Every field is a 0-d tensor. Only `loss` carries a gradient.
    """

    loss: torch.Tensor  # mlm_loss + nsp_loss
    mlm_loss: torch.Tensor  # sum of weight x cross entropy (nats)
    nsp_loss: torch.Tensor
    mlm_correct: torch.Tensor  # slots whose largest logit is the label
    mlm_count: torch.Tensor  # slots that count: label not IGNORE_LABEL, weight > 0
    nsp_correct: torch.Tensor
    nsp_count: torch.Tensor


def pretraining_loss(
    mlm_logits_MV: torch.Tensor,
    mlm_labels_M: torch.Tensor,
    mlm_weights_M: torch.Tensor,
    nsp_logits_C2: torch.Tensor,
    nsp_labels_C: torch.Tensor,
    nsp_weights_C: torch.Tensor,
) -> PretrainingLoss:
    """Sums of weight x cross entropy of both tasks, in float32 (float64 logits stay float64).

    labels   integers: the token, or 1 = random next and 0 = actual next; IGNORE_LABEL = empty slot
    weights  float; made for the whole global batch where the batch is read, so nothing is averaged
             here
    Empty slots add exactly 0, and so does a batch without slots (M or C = 0).
    """
    mlm_loss = weighted_cross_entropy(mlm_logits_MV, mlm_labels_M, mlm_weights_M)
    nsp_loss = weighted_cross_entropy(nsp_logits_C2, nsp_labels_C, nsp_weights_C)
    return PretrainingLoss(
        mlm_loss + nsp_loss,
        mlm_loss.detach(),
        nsp_loss.detach(),
        *count_correct(mlm_logits_MV, mlm_labels_M, mlm_weights_M),
        *count_correct(nsp_logits_C2, nsp_labels_C, nsp_weights_C),
    )


def weighted_cross_entropy(
    logits_MV: torch.Tensor, labels_M: torch.Tensor, weights_M: torch.Tensor
) -> torch.Tensor:
    """Sum over slots of weight x cross entropy, 0-d; differentiable in the logits."""
    dtype = torch.float64 if logits_MV.dtype == torch.float64 else torch.float32
    entropy_M = F.cross_entropy(
        logits_MV.to(dtype), labels_M.long(), ignore_index=IGNORE_LABEL, reduction="none"
    )
    return (weights_M.to(dtype) * entropy_M).sum()


def count_correct(
    logits_MV: torch.Tensor, labels_M: torch.Tensor, weights_M: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Right predictions and slots that count, two 0-d int64 tensors without gradient."""
    counts_M = (labels_M != IGNORE_LABEL) & (weights_M > 0)
    correct_M = (logits_MV.detach().argmax(dim=-1) == labels_M) & counts_M
    return correct_M.sum(), counts_M.sum()
