"""A Gaussian process on one task's own records: quick, and it knows what it does not know.

In: features and residuals (log measured / log expected) of the task's records, at most hundreds.
Out: mean and standard deviation of the residual anywhere.  It needs no minimum of rows: with none
it answers zero with the prior deviation.  Kernel: Matern 5/2 on standardised features; length and
noise by maximum marginal likelihood on a small grid (Rasmussen and Williams 2006, chapter 2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.search.protocol import Features, Floats

_LENGTHS = (0.35, 0.7, 1.4, 2.8)
_NOISES = (0.01, 0.1, 0.4)
_MIN_DEVIATION = 0.02


@dataclass(frozen=True, slots=True, eq=False)
class LocalModel:
    """Fitted process; `centre` and `scale` standardise the features, `points` are the rows."""

    centre: Floats
    scale: Floats
    points: Floats
    weights: Floats
    root: Floats
    mean: float
    deviation: float
    length: float

    def predict(self, features: Features) -> tuple[Floats, Floats]:
        """(mean, standard deviation) of the residual, float64[n] each."""
        n = len(features)
        if not len(self.points):
            return np.full(n, self.mean), np.full(n, self.deviation)
        kernel = _matern((features - self.centre) * self.scale, self.points, self.length)
        mean = self.mean + kernel @ self.weights
        spread = self.root @ kernel.T
        variance = np.maximum(1.0 - np.einsum("ij,ij->j", spread, spread), 0.0)
        return mean, self.deviation * np.sqrt(variance)


def fit_local(features: Features, residual: Floats, scale_by: Features, width: float) -> LocalModel:
    """Fits residual[n] at features[n, F].

    `scale_by` (any candidates of the task) says how far each feature can vary; `width` is the
    residual's standard deviation expected before any row is seen.
    """
    wide = np.asarray(scale_by if len(scale_by) else features, np.float64)
    if not len(wide) or not len(features):
        none = np.zeros((0, features.shape[1]))
        flat = np.zeros(features.shape[1])
        return LocalModel(flat, flat, none, np.zeros(0), np.zeros((0, 0)), 0.0, width, 1.0)
    centre, spread = wide.mean(0), wide.std(0)
    moves = spread > 1e-9 * (1.0 + np.abs(centre))
    scale = np.where(moves, 1.0 / np.where(moves, spread, 1.0), 0.0) / np.sqrt(max(1, moves.sum()))
    points = (np.asarray(features, np.float64) - centre) * scale
    n = len(points)
    mean = float(residual.mean()) * n / (n + 0.5)
    rest = residual - mean
    deviation = max(float(np.sqrt((rest @ rest + 2 * width**2) / (n + 2))), _MIN_DEVIATION)
    length, weights, root = _best_fit(points, rest / deviation)
    return LocalModel(centre, scale, points, weights * deviation, root, mean, deviation, length)


def _best_fit(points: Floats, target: Floats) -> tuple[float, Floats, Floats]:
    """(length, K^-1 target, inverse of K's Cholesky factor) of the likeliest setting."""
    best: tuple[float, float, Floats] = (np.inf, 1.0, points)
    for length in _LENGTHS:
        kernel = _matern(points, points, length)
        for noise in _NOISES:
            noisy = kernel + (noise**2 + 1e-8) * np.eye(len(points))
            factor = np.asarray(np.linalg.cholesky(noisy), np.float64)
            alpha = np.linalg.solve(factor, target)
            misfit = 0.5 * float(alpha @ alpha) + float(np.log(np.diag(factor)).sum())
            if misfit < best[0]:
                best = (misfit, length, factor)
    root = np.asarray(np.linalg.inv(best[2]), np.float64)
    return best[1], root.T @ (root @ target), root


def _matern(left: Floats, right: Floats, length: float) -> Floats:
    square = (left**2).sum(1)[:, None] + (right**2).sum(1)[None, :] - 2.0 * left @ right.T
    distance = np.sqrt(5.0 * np.maximum(square, 0.0)) / length
    return np.asarray((1.0 + distance + distance**2 / 3.0) * np.exp(-distance))
