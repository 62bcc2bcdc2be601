"""The one place that knows what device runs: a protocol, and backends that keep it."""

from __future__ import annotations

from typing import Any, Dict, Iterable, Protocol

from bert_ipu.config import RunConfig
from bert_ipu.dataset import Batch


class Backend(Protocol):
    """Holds model and optimizer on some device; everything that goes in and out is on the host."""

    def step(
        self, micro_batches: Iterable[Batch], *, step: int, learning_rate: float
    ) -> Dict[str, float]:
        """One weight update from the micro-batches of one global batch; returns its exact metrics.

        Keys: loss, mlm_loss, nsp_loss, mlm_accuracy, nsp_accuracy, tokens, packs, sequences.
        """
        ...

    def evaluate(self, micro_batches: Iterable[Batch]) -> Dict[str, float]:
        """The same metrics without an update and without dropout."""
        ...

    def model_state(self) -> Dict[str, Any]:
        """The model's parameters by Hugging Face name, on the host."""
        ...

    def optimizer_state(self) -> Dict[str, Any]:
        """Plain tensors and numbers that `load_optimizer_state` takes back."""
        ...

    def load_model_state(self, state: Dict[str, Any]) -> None: ...

    def load_optimizer_state(self, state: Dict[str, Any]) -> None: ...


def make_backend(config: RunConfig) -> Backend:
    """The backend that `device` names. Raises ValueError when it is not there."""
    from bert_ipu.backends.torch import TorchBackend

    return TorchBackend(config)
