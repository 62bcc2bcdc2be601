"""Parameter groups, AdamW, LAMB and the learning rate of a step.

[1] You et al., Large Batch Optimization for Deep Learning, arXiv:1904.00962
"""

from __future__ import annotations

from typing import Any, Callable, Iterable, Optional

import torch
from torch import nn

from bert_ipu.config import OptimizerConfig


def parameter_groups(
    model: nn.Module, weight_decay: float, max_weight_norm: Optional[float] = None
) -> list[dict[str, Any]]:
    """The model's trained parameters in up to three groups, each tied parameter once.

    Biases neither decay nor have a trust ratio in LAMB (max_weight_norm 0); other vectors, such as
    LayerNorm weights, do not decay; the rest does both. Empty groups are left out. Group keys:
    params, weight_decay, max_weight_norm.
    """
    biases: list[nn.Parameter] = []
    vectors: list[nn.Parameter] = []
    matrices: list[nn.Parameter] = []
    named: dict[str, nn.Parameter] = dict(model.named_parameters())
    for name, parameter in named.items():
        if not parameter.requires_grad:
            continue
        if name.split(".")[-1] == "bias":
            biases.append(parameter)
        else:
            (vectors if parameter.dim() <= 1 else matrices).append(parameter)
    groups = [
        {"params": biases, "weight_decay": 0.0, "max_weight_norm": 0.0},
        {"params": vectors, "weight_decay": 0.0, "max_weight_norm": max_weight_norm},
        {"params": matrices, "weight_decay": weight_decay, "max_weight_norm": max_weight_norm},
    ]
    return [group for group in groups if group["params"]]


def make_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """The optimizer named by config over `parameter_groups`, at the peak learning rate.

    The caller sets each group's "lr" from `learning_rate` before a step, and clips gradients to
    config.max_grad_norm: the norm is that of the whole gradient, which only the backend has.
    """
    groups = parameter_groups(model, config.weight_decay, config.max_weight_norm)
    if config.name == "lamb":
        return Lamb(
            groups,
            lr=config.learning_rate,
            betas=config.betas,
            eps=config.eps,
            bias_correction=config.bias_correction,
        )
    for group in groups:
        del group["max_weight_norm"]  # only LAMB has a trust ratio
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=config.betas, eps=config.eps)


class Lamb(torch.optim.Optimizer):
    """Adam's direction, with the length of each parameter's update set by the parameter's norm [1].

        m = b1*m + (1-b1)*g;  v = b2*v + (1-b2)*g^2;  t = t + 1
        mh, vh = m/(1-b1^t), v/(1-b2^t)   or, without bias_correction,   m, v
        x = mh / (sqrt(vh) + eps) + weight_decay*w
        r1 = min(||w||, max_weight_norm);  r2 = ||x||
        trust = r1/r2, or 1 if max_weight_norm, r1 or r2 is 0
        w = w - lr*trust*x

    max_weight_norm None means no limit. Norms are L2 over one parameter, in float32 or, for float64
    parameters, in float64. Gradients are taken as they are: no clipping here.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        bias_correction: bool = True,
        max_weight_norm: Optional[float] = None,
    ) -> None:
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "bias_correction": bias_correction,
            "max_weight_norm": max_weight_norm,
        }
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Optional[Callable[[], float]] = None) -> Optional[float]:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)
        return loss

    def _update(self, weight: torch.Tensor, group: dict[str, Any]) -> None:
        state = self.state[weight]
        if not state:
            state["step"] = 0
            state["exp_avg"] = torch.zeros_like(weight)
            state["exp_avg_sq"] = torch.zeros_like(weight)
        state["step"] += 1
        first, second = state["exp_avg"], state["exp_avg_sq"]
        beta1, beta2 = group["betas"]
        first.mul_(beta1).add_(weight.grad, alpha=1.0 - beta1)
        second.mul_(beta2).addcmul_(weight.grad, weight.grad, value=1.0 - beta2)
        correction1 = correction2 = 1.0
        if group["bias_correction"]:
            correction1 = 1.0 - beta1 ** state["step"]
            correction2 = 1.0 - beta2 ** state["step"]
        update = (first / correction1) / ((second / correction2).sqrt_().add_(group["eps"]))
        update.add_(weight, alpha=group["weight_decay"])
        trust = trust_ratio(weight, update, group["max_weight_norm"])
        weight.sub_(update.mul_(group["lr"] * trust))


def trust_ratio(
    weight: torch.Tensor, update: torch.Tensor, max_weight_norm: Optional[float]
) -> torch.Tensor:
    """LAMB's ratio of the norms, 0-d on the weight's device; never waits for that device."""
    dtype = torch.float64 if weight.dtype == torch.float64 else torch.float32
    weight_norm = torch.linalg.vector_norm(weight, dtype=dtype)
    update_norm = torch.linalg.vector_norm(update, dtype=dtype)
    if max_weight_norm is not None:
        weight_norm = weight_norm.clamp(max=max_weight_norm)
    usable = (weight_norm > 0) & (update_norm > 0)
    return torch.where(usable, weight_norm / update_norm, torch.ones_like(weight_norm))


def learning_rate(step: int, total_steps: int, config: OptimizerConfig) -> float:
    """The learning rate of one update.

    step         index of the update, 0 for the first
    total_steps  updates T of the whole run
    With W = round(warmup_fraction * T) and the peak config.learning_rate:

        step < W    peak * (step + 1) / W
        otherwise   peak * left,  left = (T - step) / (T - W)      linear
                    peak * left ** decay_power                     polynomial
                    peak                                           constant

    So the first update is at peak/W and never at 0, updates W-1 and W are at the peak, and a decay
    ends at peak/(T - W): it would reach 0 one step after the last.
    """
    if not 0 <= step < total_steps:
        raise ValueError(f"step must be in [0, total_steps={total_steps}), got {step}")
    warmup_steps = round(config.warmup_fraction * total_steps)
    if step < warmup_steps:
        return config.learning_rate * ((step + 1) / warmup_steps)
    if config.schedule == "constant":
        return config.learning_rate
    left = (total_steps - step) / (total_steps - warmup_steps)
    power = 1.0 if config.decay_power is None else config.decay_power
    return config.learning_rate * left**power
