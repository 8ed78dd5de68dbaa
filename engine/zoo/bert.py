"""The encoder of BERT-base: from embeddings to hidden states, without a mask.

Source: Devlin et al. 2018 (arXiv:1810.04805).  The nodes are those of a PyTorch export: MatMul with
Add, Reshape and Transpose around the heads, the error-function GELU in five nodes.
"""

from __future__ import annotations

import math

from engine.zoo.builder import GraphBuilder

LAYERS = 12
HEADS = 12
INNER = 3072
EPSILON = 1e-12


def bert_encoder(b: GraphBuilder) -> str:
    """[batch, tokens, hidden] -> the same shape."""
    x = b.input
    for layer in range(LAYERS):
        with b.scope(f"layer{layer}"):
            x = b.layer_norm(b.add(_attention(b, x), x), EPSILON)
            x = b.layer_norm(b.add(_feed_forward(b, x), x), EPSILON)
    return x


def _attention(b: GraphBuilder, x: str) -> str:
    batch, tokens, hidden = b.shape(x)
    size = hidden // HEADS
    query, key, value = (b.linear(x, hidden) for _ in range(3))
    query = _heads(b, query, (0, 2, 1, 3))
    key = _heads(b, key, (0, 2, 3, 1))
    value = _heads(b, value, (0, 2, 1, 3))
    square = (batch, HEADS, tokens, tokens)
    scores = b.node("MatMul", [query, key], square)
    scores = b.node("Div", [scores, b.scalar("head_root", math.sqrt(size))], square)
    mixed = b.node("MatMul", [b.softmax(scores), value], (batch, HEADS, tokens, size))
    merged = b.reshape(b.transpose(mixed, (0, 2, 1, 3)), (batch, tokens, hidden))
    return b.linear(merged, hidden)


def _heads(b: GraphBuilder, x: str, order: tuple[int, ...]) -> str:
    batch, tokens, hidden = b.shape(x)
    return b.transpose(b.reshape(x, (batch, tokens, HEADS, hidden // HEADS)), order)


def _feed_forward(b: GraphBuilder, x: str) -> str:
    hidden = b.shape(x)[-1]
    return b.linear(_gelu(b, b.linear(x, INNER)), hidden)


def _gelu(b: GraphBuilder, x: str) -> str:
    """x * (1 + erf(x / sqrt(2))) * 0.5"""
    shape = b.shape(x)
    bent = b.node("Div", [x, b.scalar("root_two", math.sqrt(2.0))], shape)
    bent = b.node("Erf", [bent], shape)
    bent = b.node("Add", [bent, b.scalar("one", 1.0)], shape)
    return b.node("Mul", [b.node("Mul", [x, bent], shape), b.scalar("half", 0.5)], shape)
