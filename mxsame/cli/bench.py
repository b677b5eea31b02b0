"""`mxsame bench`."""

from __future__ import annotations

from typing import Any

from mxsame.cli._shared import as_json, check_axes, click, integers, need, need_mxnet, print_json, spread

KINDS = ("conv", "depthwise", "transposed", "max", "avg")


class Device(click.ParamType):
    """`cpu`, `gpu` or `gpu:1`."""

    name = "device"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        kind, _, number = value.lower().partition(":")
        if kind not in ("cpu", "gpu") or not (number or "0").isdecimal():
            self.fail(f"{value!r} must be cpu, gpu, or gpu:1 and so on", param, ctx)
        return kind, int(number or 0)


@click.command("bench")
@click.option("--operator", type=click.Choice(KINDS), help="What to measure; without it, six layers of known networks.")
@integers("--size", help="Input size: one for all axes, or one each, as 56,64.")
@click.option("--axes", type=click.IntRange(1, 3), help="Spatial axes: 1, 2 or 3; as many as --size has, or else 2.")
@integers("--kernel", help="Kernel or pool size; one for all axes, or one each.")
@integers("--stride", help="Stride; 1 by default.")
@integers("--dilation", help="Dilation; 1 by default, and always for pooling layers.")
@click.option("--in-channels", type=click.IntRange(min=1), help="Channels of the data; 64 by default.")
@click.option("--channels", type=click.IntRange(min=1), help="Channels of the output; those of the data by default.")
@click.option("--batch", type=click.IntRange(min=1), help="Images at once; 1 by default.")
@click.option("--training", is_flag=True, help="Time a forward and backward pass instead of a forward one.")
@click.option(
    "--device", type=Device(), metavar="cpu|gpu|gpu:N", default="cpu", show_default=True, help="Where to run."
)
@click.option("--rounds", default=15, show_default=True, type=click.IntRange(1, 1000), help="Interleaved rounds.")
@as_json
def command(
    operator: str | None, training: bool, device: tuple[str, int], rounds: int, as_json: bool, **described: Any
) -> None:
    """What SAME costs here, compared with MXNet's symmetric padding.

    \b
    mxsame bench
    mxsame bench --operator conv --size 224 --kernel 3 --stride 2 --in-channels 3 --channels 32
    mxsame bench --operator max --size 112,96 --kernel 3 --stride 2 --training
    mxsame bench --operator conv --axes 1 --size 16000 --kernel 10 --stride 5 --in-channels 1

    All are measured in turns in one process, and given as ratios of medians to MXNet's own operator with symmetric
    padding, which computes something else: mxsame with a static shape (`mxsame.hybridize`), by every exact plan, with a
    dynamic shape (`net.hybridize`), and explicit padding followed by VALID. The layer is by itself, like the first of a
    net; what its neighbours in a net add to a plan is measured by `mxsame.autotune`.

    Exit codes: 0 when it was measured, 1 when it cannot run here, 2 for wrong options.

    --json prints {"mxsame", "device", "provenance", "rows"}, each row {"name", "kind", "mode", "shape", "channels",
    "kernel_size", "stride", "dilation", "odd", "planned", "plans", "reference", "unit", "figures"}, and each
    variant's figures {"ratio", "median", "quartiles", "rounds"}, in seconds per call.
    """
    given = {name: value for name, value in described.items() if value is not None}
    if operator is None and given:
        raise click.UsageError(f"--{next(iter(given)).replace('_', '-')} needs --operator.")
    layer = None if operator is None else described_layer(operator, **given)
    if not as_json:
        need("rich", "`mxsame bench` without --json")
    need_mxnet()
    from mxsame import bench

    chosen = bench.LAYERS if layer is None else [bench.Layer(**layer)]
    try:
        if as_json:
            rows = [bench.measure(each, training, device, rounds=rounds) for each in chosen]
            print_json(bench.as_data(rows, device))
        else:
            from rich.console import Console

            from mxsame.bench import show

            show.run(Console(), chosen, training, device, rounds)
    except bench.CannotRun as error:
        raise click.ClickException(str(error)) from error
    except (ValueError, TypeError) as error:
        raise click.UsageError(str(error)) from error


def described_layer(
    operator: str,
    size: tuple[int, ...] | None = None,
    axes: int | None = None,
    kernel: tuple[int, ...] | None = None,
    stride: tuple[int, ...] = (1,),
    dilation: tuple[int, ...] = (1,),
    in_channels: int = 64,
    channels: int | None = None,
    batch: int = 1,
) -> dict[str, Any]:
    """The arguments of a `Layer`; what is wrong about them alone is a usage error."""
    if size is None or kernel is None:
        raise click.UsageError(f"--operator needs {'--size' if size is None else '--kernel'}.")
    check_axes(size)
    axes = axes or (2 if len(size) == 1 else len(size))
    if operator in ("max", "avg") and set(dilation) != {1}:
        raise click.UsageError("--dilation is for convolutions.")
    if channels is not None and operator in ("max", "avg", "depthwise") and channels != in_channels:
        raise click.UsageError(f"--channels of {operator} are those of the data; give --in-channels.")
    size, kernel, stride, dilation = spread(axes, size=size, kernel=kernel, stride=stride, dilation=dilation)
    channels = in_channels if channels is None else channels
    name = f"{operator} {in_channels}-{channels} {short(size)} k{short(kernel)} s{short(stride)}"
    return {
        "name": name if set(dilation) == {1} else f"{name} d{short(dilation)}",
        "kind": operator,
        "in_channels": in_channels,
        "size": size,
        "channels": channels,
        "kernel_size": kernel,
        "stride": stride,
        "batch": batch,
        "dilation": dilation,
    }


def short(values: tuple[int, ...]) -> str:
    """`3` of (3, 3), `1x7` of (1, 7)."""
    return str(values[0]) if len(set(values)) == 1 else "x".join(map(str, values))
