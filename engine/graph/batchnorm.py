"""Batch normalisation at inference, as a Mul and an Add.

In: a BatchNormalization call.  Out: `y = x * s + t` with s = scale / sqrt(var + epsilon) and
t = bias - mean * s, both constant vectors along channels where the statistics are constants.
`engine.graph.scale` then moves s into the weights of neighbours.
"""

from __future__ import annotations

from engine.graph.builder import Builder, Call, Result, Unsupported


def batch_norm(b: Builder, c: Call) -> Result:
    """x*s + t; raises Unsupported for a node that would update its statistics."""
    if c.attr("training_mode", 0) or any(c.uses(i) for i in range(1, 5)):
        raise Unsupported("training mode is not supported")
    x, scale, bias, mean, var = c.inputs[:5]
    rank = b.rank(x)
    # operator sets 7 and 8: spatial=0 normalises every element by its own statistics
    shape = b.shape(x)[1:] if not c.attr("spatial", 1) else (b.shape(x)[1], *(1,) * (rank - 2))
    epsilon = b.like(var, c.attr("epsilon", 1e-5))
    s = b.emit("Div", scale, b.emit("Sqrt", b.emit("Add", var, epsilon)))
    t = b.emit("Sub", bias, b.emit("Mul", mean, s))
    scaled = b.emit("Mul", x, b.reshape(s, shape))
    return b.emit("Add", scaled, b.reshape(t, shape))
