"""Batch norm on a GPU with what comes before and after it, in as few passes over the images as there can be.

An image's channels lie side by side: `x` is rows of channels, where a row is one pixel of one image. What is normed is
x, or x + bias, or that with its negative values cut off; then something may be added, and a (leaky) ReLU may follow.
Sums are taken in parts, always in the same order: the same numbers give the same bits. Needs Triton.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import torch
import triton
import triton.language as tl

ROWS: Final = 64
CHANNELS: Final = 64
"""Of a tile, which a program has in its registers."""
WARPS: Final = 4
"""Of a program. In its loops three tiles are on their way at a time, which hides how long a GPU's memory takes."""
MOST_PARTS: Final = 256
"""A power of 2. Kernels are compiled once for any number of parts and channels: that takes longer than they do."""
SUMMED: Final = 16
"""Channels whose parts one program sums."""


class Shape(NamedTuple):
    """Rows, channels, and the parts in which rows are summed: so many, of so many rows each."""

    rows: int
    channels: int
    parts: int
    per: int


class Form(NamedTuple):
    """What comes with a norm."""

    has_bias: bool
    cut: bool
    """Whether negative values are cut off before it."""
    has_added: bool
    slope: float | None
    """Of the ReLU after it for negative values; None: there is no ReLU."""


def shape_of(x: torch.Tensor) -> Shape:
    """The shape of images whose channels lie side by side."""
    rows, channels = x.numel() // x.shape[1], x.shape[1]
    tiles = triton.cdiv(rows, ROWS)
    per = ROWS * triton.cdiv(tiles, min(MOST_PARTS, triton.cdiv(tiles, 2)))
    return Shape(rows, channels, triton.cdiv(rows, per), per)


@triton.jit  # type: ignore[untyped-decorator]
def _read(x, bias, at, c, inside, C, BIAS: tl.constexpr, CUT: tl.constexpr):  # type: ignore[no-untyped-def]
    u = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    if BIAS:
        u += tl.load(bias + c, mask=c < C, other=0.0)[None, :]
    if CUT:
        u = tl.where(u < 0.0, 0.0, u)  # NaN stays what it is
    return u


@triton.jit  # type: ignore[untyped-decorator]
def _sum_values(  # type: ignore[no-untyped-def]
    x, bias, sums, middle, n, C, per,
    BIAS: tl.constexpr, CUT: tl.constexpr, R: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """Sums of a part's values and of their squares, as differences from the mean of the first rows.

    Squares of the values themselves would be large numbers with a small difference where the mean is far from 0.
    """
    part = tl.program_id(0)
    c = tl.program_id(1) * W + tl.arange(0, W)
    row = tl.arange(0, R)
    inside = (row < n)[:, None] & (c < C)[None, :]
    u = _read(x, bias, row[:, None] * C + c[None, :], c, inside, C, BIAS, CUT)
    first = (tl.sum(tl.where(inside, u, 0.0), 0) / tl.minimum(n, R))[None, :]
    if part == 0:
        tl.store(middle + c[None, :], first, mask=(c < C)[None, :])
    total = tl.zeros((R, W), dtype=tl.float32)
    squares = tl.zeros((R, W), dtype=tl.float32)
    for start in tl.range(0, per, R, num_stages=3):
        row = part * per + start + tl.arange(0, R)
        inside = (row < n)[:, None] & (c < C)[None, :]
        u = _read(x, bias, row[:, None].to(tl.int64) * C + c[None, :], c, inside, C, BIAS, CUT)
        u = tl.where(inside, u - first, 0.0)
        total += u
        squares += u * u
    place = sums + part * 2 * C + c
    tl.store(place, tl.sum(total, 0), mask=c < C)
    tl.store(place + C, tl.sum(squares, 0), mask=c < C)


@triton.jit  # type: ignore[untyped-decorator]
def _settle(  # type: ignore[no-untyped-def]
    sums, middle, found, running_mean, running_var, tracked, n, C, parts, momentum, eps,
    P: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """Mean and 1 / standard deviation of each channel, and what the norm keeps of them for later."""
    c = tl.program_id(0) * W + tl.arange(0, W)
    part = tl.arange(0, P)
    inside = (part < parts)[:, None] & (c < C)[None, :]
    at = sums + part[:, None] * 2 * C + c[None, :]
    mean = tl.sum(tl.load(at, mask=inside, other=0.0), 0) / n
    var = tl.maximum(tl.sum(tl.load(at + C, mask=inside, other=0.0), 0) / n - mean * mean, 0.0)
    mean += tl.load(middle + c, mask=c < C)
    tl.store(found + c, mean, mask=c < C)
    tl.store(found + C + c, tl.rsqrt(var + eps), mask=c < C)
    before = tl.load(running_mean + c, mask=c < C)
    tl.store(running_mean + c, before + momentum * (mean - before), mask=c < C)
    before = tl.load(running_var + c, mask=c < C)
    tl.store(running_var + c, before + momentum * (var * (n / (n - 1.0)) - before), mask=c < C)
    if tl.program_id(0) == 0:
        tl.store(tracked, tl.load(tracked) + 1)


@triton.jit  # type: ignore[untyped-decorator]
def _norm(  # type: ignore[no-untyped-def]
    x, bias, found, weight, shift, added, y, n, C, slope,
    BIAS: tl.constexpr, CUT: tl.constexpr, ADDED: tl.constexpr, RELU: tl.constexpr, R: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.program_id(1) * W + tl.arange(0, W)
    inside = (row < n)[:, None] & (c < C)[None, :]
    at = row[:, None].to(tl.int64) * C + c[None, :]
    u = _read(x, bias, at, c, inside, C, BIAS, CUT)
    mean = tl.load(found + c, mask=c < C)[None, :]
    scale = (tl.load(found + C + c, mask=c < C) * tl.load(weight + c, mask=c < C))[None, :]
    z = (u - mean) * scale + tl.load(shift + c, mask=c < C)[None, :]
    if ADDED:
        z += tl.load(added + at, mask=inside, other=0.0).to(tl.float32)
    if RELU:
        z = tl.where(z > 0, z, z * slope)
    tl.store(y + at, z.to(y.dtype.element_ty), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _before_relu(dy, u, mean, scale, shift, y, at, inside, slope, ADDED: tl.constexpr, RELU: tl.constexpr):  # type: ignore[no-untyped-def]
    """The gradient of what the ReLU was given: which side of 0 that was, its result says, or it is computed again."""
    dz = tl.load(dy + at, mask=inside, other=0.0).to(tl.float32)
    if RELU:
        z = tl.load(y + at, mask=inside, other=0.0).to(tl.float32) if ADDED else (u - mean) * scale + shift
        dz = tl.where(z > 0, dz, dz * slope)
    return dz


@triton.jit  # type: ignore[untyped-decorator]
def _sum_gradients(  # type: ignore[no-untyped-def]
    dy, x, bias, found, weight, shift, y, sums, n, C, per, slope,
    BIAS: tl.constexpr, CUT: tl.constexpr, ADDED: tl.constexpr, RELU: tl.constexpr, R: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    part = tl.program_id(0)
    c = tl.program_id(1) * W + tl.arange(0, W)
    mean = tl.load(found + c, mask=c < C)[None, :]
    spread = tl.load(found + C + c, mask=c < C)[None, :]
    scale = spread * tl.load(weight + c, mask=c < C)[None, :]
    moved = tl.load(shift + c, mask=c < C)[None, :]
    total = tl.zeros((R, W), dtype=tl.float32)
    products = tl.zeros((R, W), dtype=tl.float32)
    for start in tl.range(0, per, R, num_stages=3):
        row = part * per + start + tl.arange(0, R)
        inside = (row < n)[:, None] & (c < C)[None, :]
        at = row[:, None].to(tl.int64) * C + c[None, :]
        u = _read(x, bias, at, c, inside, C, BIAS, CUT)
        dz = _before_relu(dy, u, mean, scale, moved, y, at, inside, slope, ADDED, RELU)
        total += dz
        products += dz * ((u - mean) * spread)
    place = sums + part * 2 * C + c
    tl.store(place, tl.sum(total, 0), mask=c < C)
    tl.store(place + C, tl.sum(products, 0), mask=c < C)


@triton.jit  # type: ignore[untyped-decorator]
def _add_up(sums, result, n, parts, P: tl.constexpr, W: tl.constexpr):  # type: ignore[no-untyped-def]
    """The sum of all parts, of so many numbers each."""
    at = tl.program_id(0) * W + tl.arange(0, W)
    part = tl.arange(0, P)
    inside = (part < parts)[:, None] & (at < n)[None, :]
    values = tl.load(sums + part[:, None] * n + at[None, :], mask=inside, other=0.0)
    tl.store(result + at, tl.sum(values, 0), mask=at < n)


@triton.jit  # type: ignore[untyped-decorator]
def _gradient(  # type: ignore[no-untyped-def]
    dy, x, bias, found, weight, shift, y, totals, dx, d_added, sums, n, C, per, slope,
    BIAS: tl.constexpr, CUT: tl.constexpr, ADDED: tl.constexpr, RELU: tl.constexpr, R: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    part = tl.program_id(0)
    c = tl.program_id(1) * W + tl.arange(0, W)
    mean = tl.load(found + c, mask=c < C)[None, :]
    spread = tl.load(found + C + c, mask=c < C)[None, :]
    scale = spread * tl.load(weight + c, mask=c < C)[None, :]
    moved = tl.load(shift + c, mask=c < C)[None, :]
    mean_dz = tl.load(totals + c, mask=c < C)[None, :] / n
    mean_product = tl.load(totals + C + c, mask=c < C)[None, :] / n
    total = tl.zeros((R, W), dtype=tl.float32)
    for start in tl.range(0, per, R, num_stages=3):
        row = part * per + start + tl.arange(0, R)
        inside = (row < n)[:, None] & (c < C)[None, :]
        at = row[:, None].to(tl.int64) * C + c[None, :]
        u = _read(x, bias, at, c, inside, C, BIAS, CUT)
        dz = _before_relu(dy, u, mean, scale, moved, y, at, inside, slope, ADDED, RELU)
        if ADDED and RELU:
            tl.store(d_added + at, dz.to(d_added.dtype.element_ty), mask=inside)
        du = scale * (dz - mean_dz - (u - mean) * spread * mean_product)
        if CUT:
            du = tl.where(u > 0, du, 0.0)
        tl.store(dx + at, du.to(dx.dtype.element_ty), mask=inside)
        if BIAS:
            total += tl.where(inside, du, 0.0)
    if BIAS:
        tl.store(sums + part * C + c, tl.sum(total, 0), mask=c < C)


def forward(
    x: torch.Tensor, bias: torch.Tensor, affine: tuple[torch.Tensor, torch.Tensor], added: torch.Tensor, form: Form,
    kept: tuple[torch.Tensor, torch.Tensor, torch.Tensor], momentum: float, eps: float,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """The result, and what was found: the mean of each channel and 1 / its standard deviation.

    Where the form has no bias, or nothing added, any tensor may be given for it.
    """
    n, channels, parts, per = shape_of(x)
    sums = torch.empty((parts, 2, channels), dtype=torch.float32, device=x.device)
    middle = torch.empty(channels, dtype=torch.float32, device=x.device)
    found = torch.empty((2, channels), dtype=torch.float32, device=x.device)
    y = torch.empty_like(x)
    wide = triton.cdiv(channels, CHANNELS)
    before = {"BIAS": form.has_bias, "CUT": form.cut}
    tile = {"R": ROWS, "W": CHANNELS, "num_warps": WARPS}
    _sum_values[(parts, wide)](x, bias, sums, middle, n, channels, per, **before, **tile)
    together = {"P": MOST_PARTS, "W": SUMMED}
    _settle[(triton.cdiv(channels, SUMMED),)](sums, middle, found, *kept, n, channels, parts, momentum, eps, **together)
    after = _after(form)
    slope = form.slope or 0.0
    _norm[(triton.cdiv(n, ROWS), wide)](
        x, bias, found, *affine, added, y, n, channels, slope, **before, **after, **tile
    )
    return y, found


def backward(
    dy: torch.Tensor, x: torch.Tensor, bias: torch.Tensor, affine: tuple[torch.Tensor, torch.Tensor],
    found: torch.Tensor, y: torch.Tensor, form: Form,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor | None]:  # fmt: skip
    """The gradients: of x, of both numbers of each channel (shift and weight), of the bias, and of what was added."""
    n, channels, parts, per = shape_of(x)
    sums = torch.empty((parts, 2, channels), dtype=torch.float32, device=x.device)
    totals = torch.empty((2, channels), dtype=torch.float32, device=x.device)
    dx, d_added = torch.empty_like(x), torch.empty_like(x) if form.has_added and form.slope is not None else dy
    grid, slope = (parts, triton.cdiv(channels, CHANNELS)), form.slope or 0.0
    settings: dict[str, Any] = {"BIAS": form.has_bias, "CUT": form.cut, **_after(form), "R": ROWS, "W": CHANNELS}
    _sum_gradients[grid](dy, x, bias, found, *affine, y, sums, n, channels, per, slope, **settings, num_warps=WARPS)
    _sum_parts(sums, totals)
    _gradient[grid](
        dy, x, bias, found, *affine, y, totals, dx, d_added, sums, n, channels, per, slope, **settings, num_warps=WARPS
    )
    d_bias = None
    if form.has_bias:
        d_bias = torch.empty(channels, dtype=torch.float32, device=x.device)
        _sum_parts(sums.view(-1)[: parts * channels].view(parts, channels), d_bias)
    return dx, totals, d_bias, d_added if form.has_added else None


def _sum_parts(sums: torch.Tensor, result: torch.Tensor) -> None:
    parts, n = len(sums), result.numel()
    _add_up[(triton.cdiv(n, SUMMED),)](sums, result, n, parts, P=MOST_PARTS, W=SUMMED)


def _after(form: Form) -> dict[str, bool]:
    return {"ADDED": form.has_added, "RELU": form.slope is not None}


def try_out() -> None:
    """Compile one of them and run it."""
    if not hasattr(tl, "range"):
        raise ImportError("These kernels need Triton 3.")
    _sum_parts(torch.ones((1, 1), device="cuda"), torch.empty(1, device="cuda"))
