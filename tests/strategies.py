"""hypothesis: legal cases drawn from the whole space of operators, ranks, kernels, strides, dilation and paddings."""

import oracle
from cases import OPS, Case
from hypothesis import assume, strategies as st

LIMITS = {1: (40, 8), 2: (16, 8), 3: (7, 5)}  # rank: largest size, largest kernel


@st.composite
def cases(draw, ops=OPS, ranks=(1, 2, 3), paddings=("same", "valid", "causal", "explicit")):
    """A legal case: n 1..40, k 1..8, s 1..5, d 1..3, smaller in 2-D and 3-D so that one example costs milliseconds."""
    op = draw(st.sampled_from(ops))
    rank = draw(st.sampled_from(ranks))
    pool, transposed = op in oracle.POOLS, op == "conv_transpose"
    kinds = [kind for kind in paddings if kind != "causal" or (rank == 1 and op in oracle.CONVOLUTIONS)]
    assume(kinds)
    kind = draw(st.sampled_from(kinds))
    largest, largest_kernel = LIMITS[rank]
    if transposed and rank > 1:
        largest, largest_kernel = {2: 9, 3: 4}[rank], {2: 6, 3: 4}[rank]
    with_output_padding = transposed and draw(st.booleans())
    axes = []
    for _ in range(rank):
        n, s = draw(st.integers(1, largest)), draw(st.integers(1, 5))
        d = 1 if pool else draw(st.integers(1, 3))
        fits = 1 + (n - 1) // d if kind == "valid" and not transposed else largest_kernel
        k = draw(st.integers(1, min(fits, largest_kernel)))
        extent = (k - 1) * d + 1
        first = 1 if with_output_padding and kind == "same" and extent % 2 == 0 else 0  # SAME, even: 0 is refused
        if with_output_padding and first >= s:
            with_output_padding = False
        output_padding = draw(st.integers(first, s - 1)) if with_output_padding else 0
        pair = None
        if kind == "explicit" and transposed:
            room = (n - 1) * s + extent + output_padding - 1  # at least one element is left
            low = draw(st.integers(0, min(room, extent + 2)))
            pair = (low, draw(st.integers(0, min(room - low, extent + 2))))
        elif kind == "explicit":
            most = k - 1 if pool else extent + 2  # a pooling window without an element has no value
            low = draw(st.integers(0, most))
            pair = (low, draw(st.integers(max(0, extent - n - low), most)))
        axes.append((n, k, s, d, output_padding, pair))
    size, kernel_size, strides, dilation, output_padding, pairs = zip(*axes)
    groups = draw(st.integers(1, 3)) if op in ("conv", "conv_transpose") else 1
    case = Case(
        op,
        size,
        kernel_size,
        strides,
        padding=pairs if kind == "explicit" else kind,
        dilation=dilation,
        groups=groups,
        in_channels=groups * draw(st.integers(1, 2)),
        channels=groups * draw(st.integers(1, 2)),
        depth_multiplier=draw(st.integers(1, 3)) if op in ("depthwise_conv", "separable_conv") else 1,
        use_bias=True if pool else draw(st.booleans()),
        output_padding=output_padding if with_output_padding else None,
        batch=draw(st.integers(1, 2)),
        count_include_pad=op == "avg_pool" and (kind == "keras-mxnet" or draw(st.booleans())),
        ceil_mode=pool and draw(st.booleans()),
        values=draw(st.sampled_from(("normal", "negative", "ties"))) if op == "max_pool" else "normal",
    )
    assume(oracle.is_legal(case))
    return case
