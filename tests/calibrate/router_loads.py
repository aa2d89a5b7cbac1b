"""The router loads under which the sampled kernels were measured, by the collection's rules."""

from __future__ import annotations

import numpy as np


def balanced(tokens: int, n_experts: int, k: int) -> np.ndarray:
    """Tokens of each expert when picks walk the experts with a fixed stride."""
    stride = -(-n_experts // k)
    token, pick = np.arange(tokens)[:, None], np.arange(k)[None, :]
    first = token if tokens >= stride else token * stride / tokens
    chosen = ((first + pick * stride) % n_experts).astype(int)
    return np.bincount(chosen.ravel(), minlength=n_experts)


def uneven(
    tokens: int, n_experts: int, k: int, ep: int, alpha: float, rng: np.random.Generator
) -> np.ndarray:
    """Rounded draws of a truncated power law, the hottest group of experts first.

    Rounding is made up for rank by rank: the emptiest expert gains, the fullest loses.
    """
    low, high = (1.0, 0.8 * tokens) if tokens * k > n_experts else (0.01, 2.0)
    a = 1.0 - alpha
    shares = ((high**a - low**a) * rng.random(n_experts) + low**a) ** (1.0 / a)
    counts = np.minimum(np.round(shares / shares.sum() * tokens * k).astype(int), tokens)
    groups = counts.reshape(ep, -1)
    left = tokens * k - int(counts.sum())
    step = 1 if left > 0 else -1
    turn = 0
    while left:
        group = groups[turn % ep]
        expert = int(group.argmin() if step > 0 else group.argmax())
        if 0 <= group[expert] + step <= tokens:
            group[expert] += step
            left -= step
        turn += 1
    hottest = int(groups.sum(axis=1).argmax())
    groups[[0, hottest]] = groups[[hottest, 0]]
    return groups.ravel()
