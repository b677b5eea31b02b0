"""`mxsame audit`."""

from __future__ import annotations

import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mxsame.cli._shared import Target, as_json, click, need_mxnet, print_json, refusals, shape_option


@click.command("audit", short_help="List the layers whose padding is not SAME.")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE-symbol.json")
@shape_option("Shape of the input, with the batch. Repeat it with names for several inputs.", required=True)
@click.option(
    "--fix",
    type=Target(),
    metavar="OUT",
    help="Write OUT-symbol.json with exact SAME instead of the wrong layers, and the parameter files next to it.",
)
@as_json
@click.pass_context
def command(context: click.Context, file: Path, shapes: tuple, fix: Path | None, as_json: bool) -> None:
    """List the layers of a network that pad symmetrically where Keras's SAME does not.

    FILE-symbol.json is a file of MXNet, with its .params file next to it. For each convolution and pooling operator
    whose output differs from SAME's, this prints by how many elements its windows start before SAME's, and the sum of
    these shifts so far, in pixels of the input.

    \b
    mxsame audit net-symbol.json --shape 1,3,224,224
    mxsame audit net-symbol.json --shape 1,3,224,224 --fix exact

    Exit codes: 0 if no compared layer differs, or --fix has replaced all that do, 1 if a layer differs or the file
    cannot be read, 2 for wrong options and missing files.
    """
    if fix is not None and Path(f"{fix}-symbol.json").resolve() == file.resolve():
        raise click.BadParameter(f"{str(fix)!r} must not be the name of the network itself.", param_hint="--fix")
    names = [name for name, _ in shapes]
    if len(shapes) > 1 and (None in names or len(set(names)) < len(names)):
        raise click.UsageError("--shape must have a different NAME= for each of several inputs.")
    need_mxnet()
    from mxsame.auditing import ADVICE, audit

    with refusals():
        report = audit(file, dict(shapes) if names[0] is not None else shapes[0][1])
        written = None if fix is None else write_fixed(report.fixed_symbol(), file, fix)
    remaining = [layer for layer in report.differing if written is None or layer not in report.wrong]
    if as_json:
        layers = [asdict(layer) for layer in report.layers]
        names_of = {key: [layer.name for layer in getattr(report, key)] for key in ("wrong", "differing")}
        results = {**names_of, "outputs": report.outputs, "fixed": written, "layers": layers}
        print_json({"file": str(file), "shapes": report.shapes, **results})
    else:
        click.echo(str(report) if written is None else str(report).replace(f"\n{ADVICE}", ""))
        if written is not None:
            others = "".join(f"; {layer.name} ({layer.status}) was left unchanged" for layer in remaining)
            click.echo(f"fixed {len(report.wrong)} of {len(report.differing)} layers{others}")
        for path in written or ():
            click.echo(f"written: {path}")
    context.exit(1 if remaining else 0)


def write_fixed(symbol: Any, file: Path, out: Path) -> list[str]:
    """Writes the fixed network and copies of the parameter files of `file` under the name `out`; returns all paths."""
    from mxsame.graphs.files import drafts_for

    prefix = file.name.replace("-symbol.json", "")
    sources = sorted(file.parent.glob(f"{prefix}-[0-9][0-9][0-9][0-9].params"))
    copies = {f"{out}{source.name[len(prefix) :]}": source for source in sources}
    missing = {copy: source for copy, source in copies.items() if Path(copy).resolve() != source.resolve()}
    with drafts_for(f"{out}-symbol.json", *missing) as (graph, *drafts):
        Path(graph).write_text(symbol.tojson(), encoding="utf-8")
        for source, draft in zip(missing.values(), drafts):
            shutil.copyfile(source, draft)
    return [f"{out}-symbol.json", *copies]
