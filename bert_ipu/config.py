"""What a run can be told: frozen dataclasses whose field names are the keys of the YAML files."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Callable, Optional, Tuple

HIDDEN_ACTIVATIONS = ("gelu", "gelu_new", "relu")
OPTIMIZERS = ("adamw", "lamb")
SCHEDULES = ("linear", "constant", "polynomial")
LOSS_NORMALIZATIONS = ("per_sequence", "per_token")
MASKING_MODES = ("dynamic", "static")
ATTENTIONS = ("sdpa", "eager")
DEVICES = ("auto", "cpu", "cuda")


def _check_int(name: str, value: object, minimum: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise ValueError(f"{name} must be a whole number >= {minimum}, got {value!r}")


def _check_float(name: str, value: object, wanted: str, accept: Callable[[float], bool]) -> None:
    """`wanted` says in words what `accept` tests; only finite numbers are put to that test."""
    if not isinstance(value, bool) and isinstance(value, (int, float)):
        if math.isfinite(value) and accept(value):
            return
    raise ValueError(f"{name} must be a number {wanted}, got {value!r}")


def _check_choice(name: str, value: object, choices: Tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def _in_unit(value: float) -> bool:
    return 0.0 <= value < 1.0


def _positive(value: float) -> bool:
    return value > 0.0


def _not_negative(value: float) -> bool:
    return value >= 0.0


@dataclass(frozen=True)
class ModelConfig:
    """Size and regularisation of the encoder; names and defaults as in transformers' BertConfig.

    Args:
        vocab_size: entries V of the vocabulary, the same as the data's
        hidden_size: width H, a multiple of num_attention_heads
        num_hidden_layers: layers of the encoder
        num_attention_heads: attention heads A
        intermediate_size: width of the feed-forward part of a layer
        max_position_embeddings: tokens of the longest sequence (not of the pack)
        type_vocab_size: segments: A and B
        hidden_act: gelu (erf), gelu_new (tanh approximation) or relu
        hidden_dropout_prob: in [0, 1)
        attention_probs_dropout_prob: in [0, 1)
        initializer_range: standard deviation of fresh weights
        layer_norm_eps: added to the variance in LayerNorm
    """

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12

    def __post_init__(self) -> None:
        for name in (
            "vocab_size",
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
            "max_position_embeddings",
            "type_vocab_size",
        ):
            _check_int(name, getattr(self, name), 1)
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size must be a multiple of num_attention_heads "
                f"{self.num_attention_heads}, got {self.hidden_size}"
            )
        _check_choice("hidden_act", self.hidden_act, HIDDEN_ACTIVATIONS)
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
            _check_float(name, getattr(self, name), "in [0, 1)", _in_unit)
        _check_float("initializer_range", self.initializer_range, ">= 0", _not_negative)
        _check_float("layer_norm_eps", self.layer_norm_eps, "> 0", _positive)

    @property
    def head_size(self) -> int:
        """Width E of one attention head."""
        return self.hidden_size // self.num_attention_heads


@dataclass(frozen=True)
class OptimizerConfig:
    """The update rule and its learning rate over a run; `bert_ipu.optim` has the formulas.

    Args:
        name: adamw or lamb
        learning_rate: at the peak of the schedule
        betas: decay of the two moments, each in [0, 1)
        eps: added to the root of the second moment
        weight_decay: decoupled; never on biases and LayerNorm weights
        bias_correction: false only with lamb, as the reference trains
        max_weight_norm: lamb: weight norms above this count as this
        max_grad_norm: clip the norm of the whole gradient to this
        warmup_fraction: of all steps of the run, in [0, 1]
        schedule: after the warm-up: linear, constant or polynomial
        decay_power: exponent of schedule: polynomial, 0.5 in the LAMB recipe
    """

    name: str = "adamw"
    learning_rate: float = 1e-4
    betas: Tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-6
    weight_decay: float = 0.01
    bias_correction: bool = True
    max_weight_norm: Optional[float] = None
    max_grad_norm: Optional[float] = None
    warmup_fraction: float = 0.1
    schedule: str = "linear"
    decay_power: Optional[float] = None

    def __post_init__(self) -> None:
        _check_choice("name", self.name, OPTIMIZERS)
        _check_float("learning_rate", self.learning_rate, "> 0", _positive)
        if not isinstance(self.betas, (tuple, list)) or len(self.betas) != 2:
            raise ValueError(f"betas must be two numbers, got {self.betas!r}")
        for beta in self.betas:
            _check_float("betas", beta, "in [0, 1)", _in_unit)
        _check_float("eps", self.eps, "> 0", _positive)
        _check_float("weight_decay", self.weight_decay, ">= 0", _not_negative)
        if self.max_weight_norm is not None:
            _check_float("max_weight_norm", self.max_weight_norm, ">= 0", _not_negative)
        if self.max_grad_norm is not None:
            _check_float("max_grad_norm", self.max_grad_norm, "> 0", _positive)
        _check_float(
            "warmup_fraction", self.warmup_fraction, "in [0, 1]", lambda value: 0 <= value <= 1
        )
        _check_choice("schedule", self.schedule, SCHEDULES)
        self._check_nothing_is_ignored()

    def _check_nothing_is_ignored(self) -> None:
        if self.name != "lamb" and not self.bias_correction:
            raise ValueError(f"bias_correction: false needs name: lamb, got {self.name}")
        if self.name != "lamb" and self.max_weight_norm is not None:
            raise ValueError(f"max_weight_norm needs name: lamb, got {self.name}")
        if self.schedule == "polynomial":
            if self.decay_power is None:
                raise ValueError("schedule: polynomial needs decay_power, got none")
            _check_float("decay_power", self.decay_power, "> 0", _positive)
        elif self.decay_power is not None:
            raise ValueError(f"decay_power needs schedule: polynomial, got {self.schedule}")


@dataclass(frozen=True)
class MaskingConfig:
    """Which tokens are hidden; `bert_ipu.masking` draws them.

    Args:
        mode: dynamic: new masks in every epoch; static: the same in all
        mask_fraction: of the tokens of a sequence that are not special
    """

    mode: str = "dynamic"
    mask_fraction: float = 0.15

    def __post_init__(self) -> None:
        _check_choice("masking.mode", self.mode, MASKING_MODES)
        _check_float(
            "masking.mask_fraction", self.mask_fraction, "in (0, 1)", lambda value: 0 < value < 1
        )


@dataclass(frozen=True)
class RunConfig:
    """One training run: what is trained, on what, for how long.

    Args:
        data_dir: data folder with packed shards
        output_dir: folder of this run: checkpoints, metrics, config
        init: start from these weights: a run, checkpoint or Hugging Face folder
        loss_normalization: per_sequence (mean of each sequence's mean) or per_token
        attention: sdpa (torch's fused attention) or eager, the reference
        device: cpu, cuda, or auto: cuda where there is one
        steps: weight updates in all
        global_batch_size: packs per step
        micro_batch_size: packs computed at once; bounds memory, changes no result
        seed: of fresh weights, order of packs, masks and dropout
        workers: processes that read ahead; 0: read in the training process
        log_every: steps between lines of metrics
        save_every: steps between checkpoints
        keep_checkpoints: how many of the newest checkpoints stay
    """

    data_dir: str
    output_dir: str
    model: ModelConfig = field(default_factory=ModelConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    masking: MaskingConfig = field(default_factory=MaskingConfig)
    init: Optional[str] = None
    loss_normalization: str = "per_sequence"
    attention: str = "sdpa"
    device: str = "auto"
    steps: int = 1000
    global_batch_size: int = 64
    micro_batch_size: int = 16
    seed: int = 42
    workers: int = 0
    log_every: int = 10
    save_every: int = 500
    keep_checkpoints: int = 2

    def __post_init__(self) -> None:
        for name in ("data_dir", "output_dir"):
            if not getattr(self, name):
                raise ValueError(f"{name} must be a folder, got nothing")
        _check_choice("loss_normalization", self.loss_normalization, LOSS_NORMALIZATIONS)
        _check_choice("attention", self.attention, ATTENTIONS)
        _check_choice("device", self.device, DEVICES)
        for name in (
            "steps",
            "global_batch_size",
            "micro_batch_size",
            "log_every",
            "save_every",
            "keep_checkpoints",
        ):
            _check_int(name, getattr(self, name), 1)
        for name in ("seed", "workers"):
            _check_int(name, getattr(self, name), 0)
