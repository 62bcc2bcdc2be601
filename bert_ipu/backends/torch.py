"""The backend for CPU and CUDA: accumulates gradients over micro-batches, heads on real slots only.

Shape letters: B packs, L tokens, D sequences per pack, P prediction slots, M slots in use, C sequences.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List

import torch

from bert_ipu.config import RunConfig
from bert_ipu.dataset import Batch
from bert_ipu.losses import PretrainingLoss, pretraining_loss
from bert_ipu.model import BertForPackedPreTraining
from bert_ipu.optim import make_optimizer
from packing.shards import IGNORE_LABEL, PADDING_SEQUENCE


def choose_device(name: str) -> torch.device:
    """cpu, cuda, or auto = cuda where there is one. Raises ValueError when cuda is asked for in vain."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("device: cuda is not available here, expected cpu or auto")
    return torch.device(name)


def packed_loss(model: BertForPackedPreTraining, batch: Batch) -> PretrainingLoss:
    """Loss of one micro-batch; slots without a label are left out before the heads, not after."""
    length = batch["input_ids"].shape[1]
    rows = torch.arange(len(batch["input_ids"]), device=batch["input_ids"].device)[:, None] * length
    predicted = batch["mlm_labels"] != IGNORE_LABEL
    labelled = batch["nsp_labels"] != IGNORE_LABEL
    mlm_logits_MV, nsp_logits_C2 = model(
        batch["input_ids"],
        batch["sequence_ids"],
        batch["position_ids"],
        batch["token_type_ids"],
        (batch["mlm_positions"] + rows)[predicted],
        (batch["cls_positions"] + rows)[labelled],
    )
    return pretraining_loss(
        mlm_logits_MV,
        batch["mlm_labels"][predicted],
        batch["mlm_weights"][predicted],
        nsp_logits_C2,
        batch["nsp_labels"][labelled],
        batch["nsp_weights"][labelled],
    )


class TorchBackend:
    """Model and optimizer on one CPU or CUDA device."""

    def __init__(self, config: RunConfig):
        self.device = choose_device(config.device)
        self.seed = config.seed
        self.max_grad_norm = config.optimizer.max_grad_norm
        self.model = BertForPackedPreTraining(
            config.model, attention=config.attention, seed=config.seed
        ).to(self.device)
        self.optimizer = make_optimizer(self.model, config.optimizer)

    def step(
        self, micro_batches: Iterable[Batch], *, step: int, learning_rate: float
    ) -> Dict[str, float]:
        self.model.train()
        # dropout depends on (seed, step) only, so a resumed run draws the same without stored state
        torch.manual_seed((self.seed * 1_000_003 + step) % 2**63)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.optimizer.zero_grad(set_to_none=True)
        total = _Sums()
        for batch in micro_batches:
            loss = packed_loss(self.model, self._to_device(batch))
            loss.loss.backward()
            total.add(loss, batch)
        if self.max_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.max_grad_norm)
        self.optimizer.step()
        return total.metrics()

    def evaluate(self, micro_batches: Iterable[Batch]) -> Dict[str, float]:
        self.model.eval()
        total = _Sums()
        with torch.no_grad():
            for batch in micro_batches:
                total.add(packed_loss(self.model, self._to_device(batch)), batch)
        return total.metrics()

    def _to_device(self, batch: Batch) -> Batch:
        return {name: tensor.to(self.device) for name, tensor in batch.items()}

    def model_state(self) -> Dict[str, Any]:
        state = self.model.state_dict()
        return {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}

    def optimizer_state(self) -> Dict[str, Any]:
        return self.optimizer.state_dict()

    def load_model_state(self, state: Dict[str, Any]) -> None:
        self.model.load_state_dict(state)

    def load_optimizer_state(self, state: Dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state)


class _Sums:
    """Adds up what the micro-batches of a global batch contribute."""

    def __init__(self) -> None:
        self.losses: List[PretrainingLoss] = []
        self.tokens = self.packs = self.sequences = 0

    def add(self, loss: PretrainingLoss, batch: Batch) -> None:
        self.losses.append(PretrainingLoss(*(value.detach() for value in loss)))
        self.tokens += int((batch["sequence_ids"] != PADDING_SEQUENCE).sum())
        self.packs += len(batch["input_ids"])
        self.sequences += int(batch["sequence_ids"].amax(dim=1).sum())

    def metrics(self) -> Dict[str, float]:
        names = PretrainingLoss._fields
        sums = {name: sum(getattr(loss, name).double() for loss in self.losses) for name in names}
        values = {name: float(value) for name, value in sums.items()}
        return {
            "loss": values["loss"],
            "mlm_loss": values["mlm_loss"],
            "nsp_loss": values["nsp_loss"],
            "mlm_accuracy": values["mlm_correct"] / max(1.0, values["mlm_count"]),
            "nsp_accuracy": values["nsp_correct"] / max(1.0, values["nsp_count"]),
            "tokens": float(self.tokens),
            "packs": float(self.packs),
            "sequences": float(self.sequences),
        }
