"""The model: a small llama whose seven projections per layer are ternary.

BitNet b1.58 training: the optimiser moves ordinary ("master") weights, the
forward pass sees them rounded to {-1, 0, 1} times one scale per matrix, and
inputs rounded to int8 with one scale per token.  Gradients pass both roundings
as if they were not there (straight-through estimator).
"""
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    """Shape of the model; every matrix input is a multiple of 256 wide."""
    n_vocab: int = 2048
    n_embd: int = 256
    n_layer: int = 8
    n_head: int = 4
    n_head_kv: int = 2
    n_ff: int = 1024
    n_ctx: int = 512
    rope_base: float = 10000.0
    eps: float = 1e-5

    @property
    def head_dim(self):
        """Width of one attention head."""
        return self.n_embd // self.n_head

    @property
    def kv_dim(self):
        """Width of all key (or value) heads together."""
        return self.head_dim * self.n_head_kv


def straight_through(exact, rounded):
    """Value of `rounded`, gradient of `exact`."""
    return exact + (rounded - exact).detach()


def ternary(weight):
    """Split weight [out, in] into codes -1, 0, 1 and their scale.

    The scale is mean |w|, rounded to half precision because the file stores it
    so; dividing by the rounded scale makes the stored codes the trained ones.
    """
    scale = weight.detach().float().abs().mean().clamp(min=1e-5)
    scale = scale.half().to(weight.dtype)
    exact = weight / scale
    return straight_through(exact, exact.round().clamp(-1, 1)), scale


def int8_per_token(x):
    """Split x [..., n] into whole numbers -128..127 and their factor [..., 1]."""
    factor = 127 / x.detach().abs().amax(-1, keepdim=True).clamp(min=1e-5)
    exact = x * factor
    return straight_through(exact, exact.round().clamp(-128, 127)), factor


class BitLinear(nn.Module):
    """One or more ternary matrices that read the same input.

    Small integers and ternary codes are exact in bfloat16, so a bfloat16
    product loses nothing but the rounding of its result.
    """

    def __init__(self, n_in, outs, gain=1.0):
        super().__init__()
        self.outs = outs
        self.weights = nn.ParameterList(
            nn.Parameter(torch.randn(n_out, n_in) * gain / math.sqrt(n_in))
            for n_out in outs)
        self.low_precision = True     # bfloat16 products while training
        self.round_inputs = True      # False: as a runtime with f32 inputs

    def forward(self, x):
        """x [..., in] -> tuple of [..., out]."""
        codes, scales = zip(*map(ternary, self.weights))
        codes = torch.cat(codes)
        scale = torch.cat([s.expand(n) for s, n in zip(scales, self.outs)])
        if self.round_inputs:
            x, factor = int8_per_token(x)
            if self.low_precision:
                y = F.linear(x.bfloat16(), codes.bfloat16()).to(scale.dtype)
            else:
                y = F.linear(x, codes)
            y = y * (scale / factor)
        else:
            y = F.linear(x, codes) * scale
        return y.split(self.outs, -1)


class RMSNorm(nn.Module):
    """x / sqrt(mean x^2 + eps) * weight."""

    def __init__(self, n, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(n))
        self.eps = eps

    def forward(self, x):
        """x [..., n] -> same shape."""
        inverse = torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)
        return x * inverse * self.weight


def rope_table(config):
    """Return cos and sin [n_ctx, head_dim / 2], computed in double."""
    pair = torch.arange(0, config.head_dim, 2, dtype=torch.float64)
    frequency = config.rope_base ** (-pair / config.head_dim)
    angle = torch.arange(config.n_ctx, dtype=torch.float64)[:, None] * frequency
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):
    """Turn the adjacent pairs (2j, 2j+1) of x [batch, time, head, head_dim]."""
    a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
    cos, sin = cos[:x.shape[1], None], sin[:x.shape[1], None]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)


def causal_attention(q, k, v, mask):
    """q [batch, time, head, d], k and v [batch, time, kv head, d] -> q's shape.

    Query head h reads kv head h / (heads per kv head).  The query heads of one
    kv head are laid one after the other in time, so keys are not copied.  On a
    CPU this is much faster in training than PyTorch's fused attention.
    """
    batch, time, n_head, dim = q.shape
    n_kv = k.shape[2]
    q = (q * dim ** -0.5).reshape(batch, time, n_kv, n_head // n_kv, dim)
    q = q.permute(0, 2, 3, 1, 4).reshape(batch, n_kv, -1, dim)
    scores = q @ k.permute(0, 2, 3, 1)
    scores = scores.view(batch, n_kv, -1, time, time)
    if q.dtype == torch.bfloat16:
        scores = scores.float()
    weights = (scores + mask[:time, :time]).softmax(-1).to(v.dtype)
    y = weights.view(batch, n_kv, -1, time) @ v.transpose(1, 2)
    y = y.view(batch, n_kv, -1, time, dim).permute(0, 3, 1, 2, 4)
    return y.reshape(batch, time, n_head, dim)


class Block(nn.Module):
    """One layer: attention, then SwiGLU, each behind a norm and added."""

    def __init__(self, config, dropout):
        super().__init__()
        c, small = config, (2 * config.n_layer) ** -0.5
        self.config, self.dropout = c, dropout
        self.attn_norm = RMSNorm(c.n_embd, c.eps)
        self.qkv = BitLinear(c.n_embd, [c.n_embd, c.kv_dim, c.kv_dim])
        self.attn_output = BitLinear(c.n_embd, [c.n_embd], small)
        self.ffn_norm = RMSNorm(c.n_embd, c.eps)
        self.gate_up = BitLinear(c.n_embd, [c.n_ff, c.n_ff])
        self.ffn_down = BitLinear(c.n_ff, [c.n_embd], small)

    def attend(self, x, cos, sin, mask):
        """x [batch, time, n_embd] -> same shape."""
        heads = (-1, self.config.head_dim)
        q, k, v = (y.unflatten(-1, heads) for y in self.qkv(x))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if self.qkv.low_precision:
            q, k, v = q.bfloat16(), k.bfloat16(), v.bfloat16()
        y = causal_attention(q, k, v, mask)
        return self.attn_output(y.flatten(-2).to(x.dtype))[0]

    def forward(self, x, cos, sin, mask):
        """x [batch, time, n_embd] -> same shape."""
        y = self.attend(self.attn_norm(x), cos, sin, mask)
        x = x + F.dropout(y, self.dropout, self.training)
        gate, up = self.gate_up(self.ffn_norm(x))
        y = self.ffn_down(F.silu(gate) * up)[0]
        return x + F.dropout(y, self.dropout, self.training)


class Model(nn.Module):
    """Token ids in, logits out; the output matrix is the embedding."""

    def __init__(self, config, dropout=0.0):
        super().__init__()
        self.config = config
        self.token_embd = nn.Parameter(
            torch.randn(config.n_vocab, config.n_embd) * 0.02)
        self.blocks = nn.ModuleList(
            Block(config, dropout) for _ in range(config.n_layer))
        self.output_norm = RMSNorm(config.n_embd, config.eps)
        cos, sin = rope_table(config)
        self.register_buffer("cos", cos.float(), persistent=False)
        self.register_buffer("sin", sin.float(), persistent=False)
        future = torch.full((config.n_ctx, config.n_ctx), -math.inf).triu(1)
        self.register_buffer("mask", future, persistent=False)

    def forward(self, ids):
        """ids [batch, time] -> logits [batch, time, n_vocab]."""
        x = F.embedding(ids, self.token_embd)
        for block in self.blocks:
            x = block(x, self.cos, self.sin, self.mask)
        x = self.output_norm(x)
        if self.blocks[0].qkv.low_precision:
            return F.linear(x.bfloat16(), self.token_embd.bfloat16()).float()
        return F.linear(x, self.token_embd)

    def precision(self, low_precision, round_inputs=True):
        """Choose bfloat16 products and int8 inputs for every projection."""
        for module in self.modules():
            if isinstance(module, BitLinear):
                module.low_precision = low_precision
                module.round_inputs = round_inputs
        return self

    def double_precision(self):
        """Turn to float64, with the rotation table as exact as it can be."""
        self.double()
        self.cos, self.sin = rope_table(self.config)
        return self
