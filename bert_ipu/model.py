"""BERT for pre-training on packs: embeddings, encoder and the MLM and NSP heads, in plain torch.

Parameters are named as in transformers' BertForPreTraining. The MLM decoder has none of its own: it
multiplies by the word embeddings and adds `cls.predictions.bias`, so every parameter is in the
`state_dict` once and the two cannot come apart. Hugging Face ties its copies again on loading.

Shape letters: B packs, L tokens, H hidden, A heads, E head size, V vocabulary, M prediction slots,
C [CLS] slots, T = B*L tokens of all packs.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from bert_ipu.attention import ATTENTION_PATHS, block_diagonal_mask
from bert_ipu.config import ModelConfig

PADDING_ID = 0  # token of padding; its embedding starts at zero, as in transformers

ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
}


class Linear(nn.Linear):
    """A linear layer left empty: `initialise` draws all weights, from one generator of its own."""

    def reset_parameters(self) -> None:
        pass


class Embedding(nn.Embedding):
    """An embedding left empty, see Linear.

    No padding_idx: padding reaches no loss, so its gradient is zero without it.
    """

    def reset_parameters(self) -> None:
        pass


class Embeddings(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.word_embeddings = Embedding(config.vocab_size, config.hidden_size)
        self.position_embeddings = Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = Embedding(config.type_vocab_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(
        self,
        input_ids_BL: torch.Tensor,
        position_ids_BL: torch.Tensor,
        token_type_ids_BL: torch.Tensor,
    ) -> torch.Tensor:
        hidden_BLH = (
            self.word_embeddings(input_ids_BL)
            + self.token_type_embeddings(token_type_ids_BL)
            + self.position_embeddings(position_ids_BL)
        )
        return self.dropout(self.LayerNorm(hidden_BLH))


class SelfAttention(nn.Module):
    def __init__(self, config: ModelConfig, attention: str) -> None:
        super().__init__()
        self.num_heads, self.head_size = config.num_attention_heads, config.head_size
        self.dropout_prob = config.attention_probs_dropout_prob
        self.path = attention
        self.query = Linear(config.hidden_size, config.hidden_size)
        self.key = Linear(config.hidden_size, config.hidden_size)
        self.value = Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden_BLH: torch.Tensor, mask_B1LL: torch.Tensor) -> torch.Tensor:
        context_BALE = ATTENTION_PATHS[self.path](
            self.split_heads(self.query(hidden_BLH)),
            self.split_heads(self.key(hidden_BLH)),
            self.split_heads(self.value(hidden_BLH)),
            mask_B1LL,
            self.dropout_prob if self.training else 0.0,
        )
        return context_BALE.transpose(1, 2).reshape(hidden_BLH.shape)

    def split_heads(self, x_BLH: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x_BLH.shape
        return x_BLH.view(batch, length, self.num_heads, self.head_size).transpose(1, 2)


class ResidualOutput(nn.Module):
    """Back to H features, dropout, sum with the input of the block, LayerNorm."""

    def __init__(self, config: ModelConfig, in_features: int) -> None:
        super().__init__()
        self.dense = Linear(in_features, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, x: torch.Tensor, residual_BLH: torch.Tensor) -> torch.Tensor:
        return self.LayerNorm(self.dropout(self.dense(x)) + residual_BLH)


class Attention(nn.Module):
    def __init__(self, config: ModelConfig, attention: str) -> None:
        super().__init__()
        self.self = SelfAttention(config, attention)
        self.output = ResidualOutput(config, config.hidden_size)

    def forward(self, hidden_BLH: torch.Tensor, mask_B1LL: torch.Tensor) -> torch.Tensor:
        return self.output(self.self(hidden_BLH, mask_B1LL), hidden_BLH)


class DenseActivation(nn.Module):
    def __init__(self, config: ModelConfig, out_features: int) -> None:
        super().__init__()
        self.dense = Linear(config.hidden_size, out_features)
        self.activation = config.hidden_act

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ACTIVATIONS[self.activation](self.dense(x))


class Layer(nn.Module):
    def __init__(self, config: ModelConfig, attention: str) -> None:
        super().__init__()
        self.attention = Attention(config, attention)
        self.intermediate = DenseActivation(config, config.intermediate_size)
        self.output = ResidualOutput(config, config.intermediate_size)

    def forward(self, hidden_BLH: torch.Tensor, mask_B1LL: torch.Tensor) -> torch.Tensor:
        hidden_BLH = self.attention(hidden_BLH, mask_B1LL)
        return self.output(self.intermediate(hidden_BLH), hidden_BLH)


class Encoder(nn.Module):
    def __init__(self, config: ModelConfig, attention: str) -> None:
        super().__init__()
        self.layer = nn.ModuleList(
            Layer(config, attention) for _ in range(config.num_hidden_layers)
        )

    def forward(self, hidden_BLH: torch.Tensor, mask_B1LL: torch.Tensor) -> torch.Tensor:
        for layer in self.layer:
            hidden_BLH = layer(hidden_BLH, mask_B1LL)
        return hidden_BLH


class Pooler(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.dense = Linear(config.hidden_size, config.hidden_size)

    def forward(self, cls_CH: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.dense(cls_CH))


class Bert(nn.Module):
    """The encoder; its pooler is called by the model, on `[CLS]` slots only."""

    def __init__(self, config: ModelConfig, attention: str) -> None:
        super().__init__()
        self.embeddings = Embeddings(config)
        self.encoder = Encoder(config, attention)
        self.pooler = Pooler(config)

    def forward(
        self,
        input_ids_BL: torch.Tensor,
        sequence_ids_BL: torch.Tensor,
        position_ids_BL: torch.Tensor,
        token_type_ids_BL: torch.Tensor,
    ) -> torch.Tensor:
        hidden_BLH = self.embeddings(input_ids_BL, position_ids_BL, token_type_ids_BL)
        return self.encoder(hidden_BLH, block_diagonal_mask(sequence_ids_BL))


class PredictionTransform(DenseActivation):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.LayerNorm(super().forward(x))


class TiedDecoder(nn.Module):
    """Scores against the word embeddings; a module, so that a backend can replace it by its own."""

    def forward(
        self, hidden_MH: torch.Tensor, embeddings_VH: torch.Tensor, bias_V: torch.Tensor
    ) -> torch.Tensor:
        return F.linear(hidden_MH, embeddings_VH, bias_V)


class PredictionHead(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.transform = PredictionTransform(config)
        self.decoder = TiedDecoder()
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, hidden_MH: torch.Tensor, embeddings_VH: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.transform(hidden_MH), embeddings_VH, self.bias)


class PretrainingHeads(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.predictions = PredictionHead(config)
        self.seq_relationship = Linear(config.hidden_size, 2)


class BertForPackedPreTraining(nn.Module):
    """BERT whose tokens attend within their own sequence, with heads run on named tokens only.

    attention  "sdpa" or "eager", see bert_ipu.attention
    seed       of the fresh weights; the global random state is neither read nor changed
    """

    def __init__(self, config: ModelConfig, *, attention: str = "sdpa", seed: int = 0) -> None:
        super().__init__()
        if attention not in ATTENTION_PATHS:
            raise ValueError(
                f"attention must be one of {', '.join(ATTENTION_PATHS)}, got {attention!r}"
            )
        self.config = config
        self.bert = Bert(config, attention)
        self.cls = PretrainingHeads(config)
        initialise(self, config, torch.Generator().manual_seed(seed))

    def forward(
        self,
        input_ids_BL: torch.Tensor,
        sequence_ids_BL: torch.Tensor,
        position_ids_BL: torch.Tensor,
        token_type_ids_BL: torch.Tensor,
        mlm_index_M: torch.Tensor,
        cls_index_C: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits at the named tokens: mlm_logits_MV and nsp_logits_C2.

        The first four are integers as in design.md, section 5; position_ids restart at 0 in every
        sequence. mlm_index and cls_index count tokens through the whole batch, b*L + l, in
        [0, B*L); each may be empty or name a token twice. Column 1 of nsp_logits stands for a
        random next sentence.
        """
        hidden_BLH = self.encode(input_ids_BL, sequence_ids_BL, position_ids_BL, token_type_ids_BL)
        hidden_TH = hidden_BLH.flatten(0, 1)
        pooled_CH = self.bert.pooler(hidden_TH.index_select(0, cls_index_C))
        mlm_logits_MV = self.cls.predictions(
            hidden_TH.index_select(0, mlm_index_M), self.bert.embeddings.word_embeddings.weight
        )
        return mlm_logits_MV, self.cls.seq_relationship(pooled_CH)

    def encode(
        self,
        input_ids_BL: torch.Tensor,
        sequence_ids_BL: torch.Tensor,
        position_ids_BL: torch.Tensor,
        token_type_ids_BL: torch.Tensor,
    ) -> torch.Tensor:
        """hidden_BLH after the last layer, before any head."""
        return self.bert(input_ids_BL, sequence_ids_BL, position_ids_BL, token_type_ids_BL)


def initialise(
    model: BertForPackedPreTraining, config: ModelConfig, generator: torch.Generator
) -> None:
    """Draws fresh weights as BERT does: normal(0, initializer_range), padding's row and biases 0.

    LayerNorm's ones and zeros are there already. Drawn in float32 on the CPU, so a seed means the
    same weights on every device; on the meta device there is nothing to draw.
    """
    with torch.no_grad():
        for module in model.modules():
            if not isinstance(module, (Linear, Embedding)) or module.weight.is_meta:
                continue
            weight = torch.empty(module.weight.shape, dtype=torch.float32, device="cpu")
            weight.normal_(0.0, config.initializer_range, generator=generator)
            module.weight.copy_(weight)
            if isinstance(module, Linear):
                module.bias.zero_()
        model.bert.embeddings.word_embeddings.weight[PADDING_ID].zero_()
