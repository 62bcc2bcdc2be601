"""Attention within the sequences of a pack: the block-diagonal mask and two ways to apply it.

Shape letters: B packs, L tokens, A heads, E head size.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F


def block_diagonal_mask(sequence_ids_BL: torch.Tensor) -> torch.Tensor:
    """Which token may attend to which: those of its own sequence, and no others.

    sequence_ids_BL  integers; 1..D in order of the sequences, 0 for padding
    Returns mask_B1LL, bool: True at [b, 0, i, j] where token i attends to token j. Padding attends
    to padding, so every row has at least its own token and softmax never meets an empty row.
    """
    return (sequence_ids_BL.unsqueeze(2) == sequence_ids_BL.unsqueeze(1)).unsqueeze(1)


def attend_eager(
    query_BALE: torch.Tensor,
    key_BALE: torch.Tensor,
    value_BALE: torch.Tensor,
    mask_B1LL: torch.Tensor,
    dropout: float,
) -> torch.Tensor:
    """Softmax attention, written out; `dropout` is the share of attention weights set to 0.

    Scores of other sequences are replaced, not lowered: their softmax is exactly 0 whatever those
    sequences hold. The smallest finite number does that as well as -inf and keeps devices that trap
    on infinities happy. The query is scaled before the product, which keeps float16 in range.
    """
    scale = query_BALE.shape[-1] ** -0.5
    scores_BALL = torch.matmul(query_BALE * scale, key_BALE.transpose(-1, -2))
    scores_BALL = scores_BALL.masked_fill(~mask_B1LL, torch.finfo(scores_BALL.dtype).min)
    weights_BALL = F.dropout(scores_BALL.softmax(dim=-1), p=dropout, training=dropout > 0.0)
    return torch.matmul(weights_BALL, value_BALE)


def attend_sdpa(
    query_BALE: torch.Tensor,
    key_BALE: torch.Tensor,
    value_BALE: torch.Tensor,
    mask_B1LL: torch.Tensor,
    dropout: float,
) -> torch.Tensor:
    """The same through torch's fused attention, which picks a kernel by device and version.

    The mask goes in as bool, which torch turns into 0 and -inf: isolation then does not hang on the
    size of the scores, as it would with -10000. Both kernels met on a CPU keep sequences apart bit
    by bit, forward and backward: the unfused one (torch 2.0.1; later versions with dropout) and the
    flash one (later versions without), which also meets whole blocks of masked keys.
    tests/bert_ipu/test_attention.py holds every version to it.
    """
    return F.scaled_dot_product_attention(
        query_BALE, key_BALE, value_BALE, attn_mask=mask_B1LL, dropout_p=dropout
    )


ATTENTION_PATHS = {"sdpa": attend_sdpa, "eager": attend_eager}
