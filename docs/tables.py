"""The tables of README.md, of docs and of the results' README.md, made from the files that were recorded when measured.

    python docs/tables.py            # writes what is between <!-- table: NAME --> and <!-- end -->
    python docs/tables.py --check    # writes nothing; 1 if a page differs from what would be written

Parity and applications come from tests/results (`python tests/parity.py --record`, and
`python tests/port/applications.py`), all else from benchmarks/results.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from operator import itemgetter
from pathlib import Path
from typing import Callable, Dict, Iterable, List, Sequence

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.names import NETWORKS, processor  # noqa: E402 - found from the root alone
from benchmarks.results import by_mode, geometric_mean, load, ratio  # noqa: E402

PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").glob("*/*.md")),
    *(ROOT / folder / "results" / "README.md" for folder in ("benchmarks", "tests")),
]
OPERATORS = {
    "conv": "conv",
    "depthwise_conv": "depthwise",
    "separable_conv": "separable",
    "conv_transpose": "transposed",
    "max_pool": "max pool",
    "avg_pool": "avg pool",
    "lp_pool": "Lp pool",
}


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose first column is text and whose others are figures.

    >>> print(markdown(["network", "ratio"], [["ResNet-50", "1.01"]]))
    | network | ratio |
    | --- | --: |
    | ResNet-50 | 1.01 |
    """
    lines = [list(head), ["---", *["--:"] * (len(head) - 1)], *map(list, rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def figure(value: float) -> str:
    """
    >>> figure(1.006), figure(6.214), figure(float("nan"))
    ('1.01', '6.21', '')
    """
    return "" if math.isnan(value) else f"{value:.2f}"


def benchmark(table: str) -> dict:
    return load(ROOT / "benchmarks" / "results" / f"{table}.json")


def rows_of(table: str, mode: str) -> List[dict]:
    return [row for row in benchmark(table)["rows"] if row["mode"] == mode]


def ratios(rows: Iterable[dict], variant: str, to: str = "") -> List[float]:
    """Those of the rows in which both ran."""
    return [value for value in (ratio(row, variant, to) for row in rows) if not math.isnan(value)]


def recorded(name: str) -> dict:
    return json.loads((ROOT / "tests" / "results" / f"{name}.json").read_text(encoding="utf-8"))


# -- parity


def parity_summary() -> str:
    records = {"a NumPy reference in float64": recorded("parity"), "TensorFlow 2.13.1": recorded("parity-tensorflow")}
    head = ["compared with", "cases", "ways to run them", "comparisons", "mismatches"]
    rows = []
    for name, record in records.items():
        counts = [sum(row[kind] for row in record["rows"]) for kind in ("comparisons", "mismatches")]
        ways = len({row["way"] for row in record["rows"] if row["comparisons"]})
        rows.append([name, str(record["cases"]), str(ways), *(f"{count:,}" for count in counts)])
    return markdown(head, rows)


def applications_summary() -> str:
    """How many of Keras's applications were read and compared, and the largest difference of them."""
    head = ["", "models", "comparisons", "largest difference"]
    lines = []
    for name, result in {".h5": "applications-keras2", ".keras": "applications-keras3"}.items():
        record = recorded(result)
        differences = [check["difference"] for model in record["models"].values() for check in model["checks"]]
        source = f"Keras {record['versions']['keras']}, `{name}`"
        lines.append([source, str(len(record["models"])), str(len(differences)), f"{max(differences):.1e}"])
        files = [check["onnx"] for model in record["models"].values() for check in model["checks"] if "onnx" in check]
        if files:
            largest = f"{max(file['difference'] for file in files):.1e}"
            lines.append([f"{source}, as ONNX files", "", str(len(files)), largest])
    return markdown(head, lines)


def parity_line() -> str:
    """The same as a sentence."""
    cases = recorded("parity")["cases"]
    counts = []
    for name in ("parity", "parity-tensorflow"):
        rows = recorded(name)["rows"]
        counts.append(tuple(sum(row[kind] for row in rows) for kind in ("mismatches", "comparisons")))
    (wrong, every), (wrong_tensorflow, every_tensorflow) = counts
    return (
        f"Outputs and gradients of {cases} cases were compared on the CPU: {wrong} of {every:,} comparisons with a "
        f"NumPy reference and\n{wrong_tensorflow} of {every_tensorflow:,} comparisons with TensorFlow 2.13.1 found a "
        "difference ([details](docs/results/parity.md))."
    )


def parity_by_way(name: str) -> str:
    """Mismatches / comparisons; nothing if a strategy does not apply to an operator."""
    result = recorded(name)
    lines: Dict[str, Dict[str, str]] = {}
    for row in result["rows"]:
        counts = f"{row['mismatches']} / {row['comparisons']:,}" if row["comparisons"] else ""
        lines.setdefault(row["way"], {})[row["op"]] = counts
    head = ["mismatches / comparisons", *OPERATORS.values()]
    rows = [[code(way), *(counts[operator] for operator in OPERATORS)] for way, counts in lines.items()]
    versions = ", ".join(f"{package} {version}" for package, version in result["versions"].items())
    return f"{markdown(head, [row for row in rows if any(row[1:])])}\n\nRecorded on {result['date']} with {versions}."


def code(way: str) -> str:
    """Names and calls in a way's description as code.

    >>> code("strategy 'concat', dynamic shape"), code("mxsame.hybridize(net)"), code("operator, float32")
    ('strategy `concat`, dynamic shape', '`mxsame.hybridize(net)`', 'operator, float32')
    """
    return re.sub(r"'(.+?)'", r"`\1`", re.sub(r"[\w.]+\([\w, ]*\)", r"`\g<0>`", way))


# -- layers

VARIANTS = {
    "mxsame, static shape": "mxsame, static shape (`mxsame.hybridize`)",
    "mxsame, dynamic shape": "mxsame, dynamic shape (`net.hybridize`)",
    "explicit pad": "explicit padding, then a VALID operator",
}


def layers_summary() -> str:
    modes = {"layers": "forward", "layers-train": "forward and backward"}
    tables = [benchmark(table)["rows"] for table in modes]
    head = [f"{len(tables[0])} layers", *modes.values()]
    lines = [[name, *(mean_and_worst(ratios(rows, key)) for rows in tables)] for key, name in VARIANTS.items()]
    return markdown(head, lines)


def mean_and_worst(values: Sequence[float]) -> str:
    """
    >>> mean_and_worst([0.5, 2.0])
    '1.00 (2.00)'
    """
    return f"{figure(geometric_mean(values))} ({figure(max(values))})"


def layers() -> str:
    """Every layer, forward, with the time of symmetric padding that the ratios refer to."""
    rows = benchmark("layers")["rows"]
    head = ["layer", "symmetric, ms", "static shape", "dynamic shape", "explicit padding"]
    lines = [
        [
            row["name"],
            f"{1e3 * row['figures']['symmetric']['median']:.2f}",
            *(figure(ratio(row, name)) for name in VARIANTS),
        ]
        for row in rows
    ]
    return markdown(head, lines) + "\n\n" + provenance("layers")


# -- networks


def by_batch(rows: List[dict], network: str, variant: str, to: str = "") -> str:
    """The ratios of one network, in the order of their batches."""
    batches = sorted((row for row in rows if row["network"] == network), key=lambda row: row["batch"])
    return ", ".join(figure(value) for value in ratios(batches, variant, to))


def measured(lines: Iterable[List[str]]) -> List[List[str]]:
    """Those that have a figure.

    >>> measured([["VGG16", "1.00"], ["U-Net", ""]])
    [['VGG16', '1.00']]
    """
    return [line for line in lines if any(line[1:])]


def with_figures(head: List[str], lines: List[List[str]]) -> str:
    """The table without rows and columns that have no figure yet."""
    lines = measured(lines)
    columns = [number for number in range(len(head)) if any(line[number] for line in lines)]
    return markdown([head[number] for number in columns], [[line[number] for number in columns] for line in lines])


def networks_summary() -> str:
    inference, training = rows_of("networks", "inference"), rows_of("networks-train", "training step")
    deployed = rows_of("networks", "inference, deployed")
    head = [
        "",
        "`mxsame.hybridize`, inference",
        "training step",
        "`mxsame.deploy`",
        "in bfloat16 / float32",
        "`net.hybridize`, inference",
        "explicit padding, inference",
    ]
    lines = [
        [
            name,
            by_batch(inference, network, "mxsame"),
            by_batch(training, network, "mxsame"),
            by_batch(deployed, network, "mxsame, deployed"),
            by_batch(deployed, network, "mxsame, deployed, bfloat16", "mxsame, deployed"),
            by_batch(inference, network, "mxsame, dynamic shape"),
            by_batch(inference, network, "explicit pad"),
        ]
        for network, name in NETWORKS.items()
    ]
    return with_figures(head, lines)


def speed_line() -> str:
    """The same as a sentence."""
    inference = rows_of("networks", "inference")
    ours, explicit = (ratios(inference, variant) for variant in ("mxsame", "explicit pad"))
    count = len({row["network"] for row in inference})
    compared = [ratios(rows, variant, "TensorFlow") for rows, variant in compared_with_tensorflow().values()]
    deployed, hybridized, training = (figure(geometric_mean(each)) for each in compared)
    return (
        f"On average (geometric mean of {count} networks, batches of 1 and 8), inference takes "
        f"{figure(geometric_mean(ours))} times as long as with symmetric\npadding, which computes different values. "
        f"With explicit padding, MXNet's pad operator before a layer, it takes {figure(geometric_mean(explicit))} "
        f"times as long.\nCompared with TensorFlow, inference takes {deployed} times as long with `mxsame.deploy` and "
        f"{hybridized} with `mxsame.hybridize`, a training\nstep {training} "
        "([details](docs/results/speed.md)). The chart shows batch 1."
    )


def networks_training() -> str:
    """A training step of every network by `mxsame.hybridize` with explicit padding, by `net.hybridize`, and the latter
    compared with the former for one padding."""
    rewritten, plain, every = (
        rows_of("networks-train", f"training step{kind}")
        for kind in ("", ", net.hybridize()", ", compared with TensorFlow")
    )
    head = [
        "training step",
        "explicit padding",
        "mxsame with `net.hybridize`",
        "symmetric padding, `mxsame.hybridize` / `net.hybridize`",
    ]
    lines = [
        [
            name,
            by_batch(rewritten, network, "explicit pad, rewritten"),
            by_batch(plain, network, "mxsame, dynamic shape"),
            by_batch(every, network, "symmetric, rewritten", "symmetric"),
        ]
        for network, name in NETWORKS.items()
    ]
    return with_figures(head, lines) + "\n\n" + provenance("networks-train")


def compared_with_tensorflow() -> Dict[str, tuple]:
    """Rows and variant by column."""
    inference = rows_of("networks", "inference, compared with TensorFlow")
    training = rows_of("networks-train", "training step, compared with TensorFlow")
    return {
        "`mxsame.deploy`, inference": (inference, "mxsame, deployed"),
        "`mxsame.hybridize`, inference": (inference, "mxsame"),
        "training step": (training, "mxsame"),
    }


def tensorflow() -> str:
    """Times in units of TensorFlow's, over all networks that were measured with it."""
    columns = compared_with_tensorflow()
    lines = []
    for batch in (1, 8):
        line = [f"batch {batch}"]
        for rows, variant in columns.values():
            values = ratios([row for row in rows if row["batch"] == batch], variant, "TensorFlow")
            line.append(mean_and_worst(values) if values else "")
        lines.append(line)
    return markdown(["compared with TensorFlow", *columns], lines)


def tensorflow_each() -> str:
    columns = compared_with_tensorflow()
    lines = [
        [name, *(by_batch(rows, network, variant, "TensorFlow") for rows, variant in columns.values())]
        for network, name in NETWORKS.items()
    ]
    return markdown(["", *columns], measured(lines)) + "\n\n" + provenance("networks")


def peers() -> str:
    """Times of deployed networks in units of those of today's runtimes."""
    rows, runtimes = rows_of("peers", "inference, deployed"), ("TensorFlow", "ONNX Runtime", "OpenVINO")
    lines = [
        [name, *(by_batch(rows, network, "mxsame, deployed", runtime) for runtime in runtimes)]
        for network, name in NETWORKS.items()
    ]
    means = (figure(geometric_mean(ratios(rows, "mxsame, deployed", runtime))) for runtime in runtimes)
    return markdown(["", *runtimes], [*measured(lines), ["geometric mean", *means]]) + "\n\n" + provenance("peers")


def onnx() -> str:
    """Times in units of those of MXNet's deployed net, and of the two files to each other."""
    rows = rows_of("onnx", "inference")
    ours, theirs = (f"ONNX Runtime, {writer}'s file" for writer in ("mxsame", "tf2onnx"))
    head = ["", "ONNX Runtime, mxsame's file", "ONNX Runtime, tf2onnx's file", "TensorFlow", "mxsame's / tf2onnx's"]
    pairs = [(ours, ""), (theirs, ""), ("TensorFlow", ""), (ours, theirs)]
    names = dict.fromkeys(row["network"] for row in rows)
    lines = [[NETWORKS.get(name, name), *(by_batch(rows, name, *pair) for pair in pairs)] for name in names]
    lines.append(["geometric mean", *(figure(geometric_mean(ratios(rows, *pair))) for pair in pairs)])
    made = benchmark("onnx")["provenance"]
    versions = ", ".join(f"{package} {made[package]}" for package in ("onnx", "onnxruntime", "tf2onnx"))
    return f"{markdown(head, lines)}\n\n{provenance('onnx')[:-1]}, {versions}."


def onnx_nodes() -> str:
    """mxsame's / tf2onnx's number of nodes, and of those that padding and the order of axes cause."""
    head = ["nodes, mxsame's / tf2onnx's", "all", "Pad", "Slice", "Transpose", "Reshape, Squeeze"]
    lines = []
    for row in rows_of("onnx", "nodes of the file"):
        ours, theirs = (row["operators"][f"ONNX Runtime, {writer}'s file"] for writer in ("mxsame", "tf2onnx"))
        kinds = [tuple({**ours, **theirs}), ("Pad",), ("Slice",), ("Transpose",), ("Reshape", "Squeeze", "Unsqueeze")]
        counts = [[sum(nodes.get(kind, 0) for kind in each) for nodes in (ours, theirs)] for each in kinds]
        name = NETWORKS.get(row["network"], row["network"])
        lines.append([name, *(f"{mine} / {other}" for mine, other in counts)])
    return markdown(head, lines)


def exporters() -> str:
    """How many nets each exporter writes, how many of the files are right, and the nodes of all of them."""
    from benchmarks.exporters import counts

    rows = benchmark("exporters")["rows"]
    head = ["networks, exporter", "networks", "written", "right", "nodes", "Pad, Slice", "BatchNormalization"]
    lines = []
    for source, exporter, *numbers in counts(rows):
        files = [row["exporters"][exporter].get("operators", {}) for row in rows if row["mode"] == source]
        kinds = [tuple(set().union(*files)), ("Pad", "Slice"), ("BatchNormalization",)]
        nodes = [sum(file.get(kind, 0) for file in files for kind in each) for each in kinds]
        lines.append([f"`{source}`, `{exporter}`", *map(str, [*numbers, *nodes])])
    return markdown(head, lines)


MOVING = ("Pad", "Slice", "Transpose")  # what moves data


def onnx_of_gluon() -> str:
    """Of Gluon's networks and the benchmarks': how far ONNX Runtime is from MXNet, and what is in a file."""
    head = ["network", "difference", "nodes", *MOVING]
    lines = []
    for row in benchmark("exporters")["rows"]:
        report = row["exporters"]["mxsame.export_onnx"]
        if row["mode"] != "keras.applications" and "operators" in report:
            counts = [sum(report["operators"].values()), *(report["operators"].get(kind, 0) for kind in MOVING)]
            lines.append([f"`{row['mode']}` {row['name']}", f"{report['difference']:.1e}", *map(str, counts)])
    return f"{markdown(head, lines)}\n\n{provenance('exporters')}"


def onnx_of_applications() -> str:
    """How far ONNX Runtime is from Keras at two sizes, and what is in the first file; in brackets the layers of Keras
    that pad and crop."""
    record = recorded("applications-keras2")
    head = ["model", "difference", "without the top", "nodes", "Pad (ZeroPadding2D)", "Slice (Cropping2D)", "Transpose"]
    lines, rest = [], []
    for model, result in record["models"].items():
        files = [check["onnx"] for check in result["checks"] if "onnx" in check]
        if len(files) < len(result["checks"]):
            rest.append(f"{model} ({result['parameters'] / 1e6:.0f} million parameters)")
            continue
        nodes, padding = files[0]["nodes"], result["padding"]
        kinds = [f"{nodes['Pad']} ({padding['ZeroPadding2D']})", f"{nodes['Slice']} ({padding['Cropping2D']})"]
        differences = [f"{file['difference']:.1e}" for file in files]
        lines.append([model, *differences, str(nodes["all"]), *kinds, str(nodes["Transpose"])])
    text = f"{markdown(head, lines)}\n\n{len(lines)} of {len(record['models'])} models"
    text += f"; not exported yet: {', '.join(rest)}." if rest else "."
    return f"{text} Recorded with {', '.join(f'{name} {version}' for name, version in record['versions'].items())}."


def memory() -> str:
    kinds = {"inference": "mxsame", "inference, deployed": "mxsame, deployed", "training step": "mxsame"}
    head = ["peak memory, compared with symmetric padding", "geometric mean", "worst"]
    lines = []
    for mode, variant in kinds.items():
        values = ratios(rows_of("memory", mode), variant)
        lines.append([mode, figure(geometric_mean(values)), figure(max(values))])
    return markdown(head, lines)


def sizes() -> str:
    """One network called with many sizes."""
    head = ["", "first calls, time", "in turn, time", "first calls, memory"]
    modes = ("first calls", "sizes in turn", "memory after first calls")
    by_mode = {mode: {row["name"]: row for row in rows_of("sizes", mode)} for mode in modes}
    lines = []
    for name in by_mode["first calls"]:
        figures = [figure(ratio(by_mode[mode][name], "mxsame")) if name in by_mode[mode] else "" for mode in modes]
        lines.append([name, *figures])
    return markdown(head, lines)


def start() -> str:
    """Of one network in a file: seconds and MiB, as they are."""
    rows = {row["mode"]: row["figures"] for row in benchmark("start")["rows"]}
    head = ["", "first output, s", "first call with another batch, ms", "memory at rest, MiB", "peak memory, MiB"]
    modes = {"first output": 1, "another batch": 1e3, "memory at rest": 1, "peak memory": 1}
    names = {"mxsame": "`mxsame.hybridize`", "mxsame, deployed": "`mxsame.deploy`"}
    lines = [
        [names.get(name, name), *(f"{rows[mode][name]['median'] * scale:.3g}" for mode, scale in modes.items())]
        for name in rows["first output"]
    ]
    return f"{markdown(head, lines)}\n\n{provenance('start')}"


def planner() -> str:
    """The time of the planner's choice, compared with the best of its plans."""
    head = ["planner's choice compared with the fastest exact plan", "layers", "geometric mean", "worst"]
    lines = []
    for mode, rows in by_mode(benchmark("planner")["rows"]).items():
        losses = [row["loss"] for row in rows]
        lines.append([mode, str(len(losses)), figure(geometric_mean(losses)), figure(max(losses))])
    return markdown(head, lines)


def gpu() -> str:
    """Of each GPU, by the recorded times of all plans: those that the planner chooses now, and others."""
    from benchmarks import gpu as records
    from benchmarks.variants import EXPLICIT

    texts = []
    for path in sorted((ROOT / "benchmarks" / "results").glob("gpu-*.json")):
        result = load(path)
        head = [
            "compared with symmetric padding",
            "layers",
            "the planner's plan",
            "explicit padding",
            "the planner's plan / the fastest exact plan",
        ]
        lines = []
        for mode, rows in by_mode(result["rows"]).items():
            columns = [
                [ratio(row, records.choice(row)) for row in rows],
                ratios(rows, EXPLICIT),
                list(map(records.loss, rows)),
            ]
            lines.append([mode, str(len(rows)), *map(mean_and_worst, columns)])
        made = result["provenance"]
        versions = f"driver {made['driver']}, cuDNN {made['cudnn']}, MXNet {made['mxnet']} ({made['commit']})"
        note = f" {result['settings']['note']}." if "note" in result["settings"] else ""
        texts.append(f"{markdown(head, lines)}\n\nMeasured on {made['date']}: {made['gpu']}, {versions}.{note}")
    return "\n\n".join(texts)


def sampled() -> str:
    """The planner's choice for layers drawn at random."""
    modes = by_mode([*benchmark("sampled")["rows"], *benchmark("sampled-train")["rows"]])
    head = [
        f"{max(map(len, modes.values()))} layers, compared with",
        "symmetric padding",
        "explicit padding",
        "the best exact way",
    ]
    lines = []
    for mode, rows in modes.items():
        columns = [
            [ratio(row, "planner", "symmetric") for row in rows],
            [ratio(row, "planner", "explicit pad") for row in rows],
            [row["loss"] for row in rows],
        ]
        lines.append([mode, *map(mean_and_worst, columns)])
    return markdown(head, lines)


def convert() -> str:
    """Seconds, in units of tf.keras's, and peak memory, in units of the weights."""
    times, memories = ({row["name"]: row for row in rows_of("convert", mode)} for mode in ("time", "peak memory"))
    head = ["", "weights, MiB", "time compared with tf.keras", "peak memory compared with the weights", "of tf.keras"]
    lines = [
        [
            name,
            f"{row['figures']['weights']['median']:.0f}",
            figure(ratio(times[name], "mxsame")),
            *(figure(ratio(row, reader)) for reader in ("mxsame", "tf.keras")),
        ]
        for name, row in memories.items()
    ]
    return markdown(head, lines)


# -- applications


def applications(name: str) -> str:
    """Every model, the seconds that its file takes, and at two sizes how far its outputs are from Keras's."""
    record = recorded(name)
    head = ["model", "parameters", "layers", "seconds", "difference", "size", "difference without the top", "size"]
    lines = []
    for model, result in record["models"].items():
        cells = [f"{result['parameters']:,}", str(result["layers"]), f"{result['checks'][0]['seconds']:.1f}"]
        for check in result["checks"]:
            cells += [f"{check['difference']:.1e}", "x".join(map(str, check["size"]))]
        lines.append([model, *cells])
    differences = [check["difference"] for result in record["models"].values() for check in result["checks"]]
    dates = sorted({result["date"] for result in record["models"].values()})
    versions = ", ".join(f"{package} {version}" for package, version in record["versions"].items())
    return (
        f"{markdown(head, lines)}\n\n{len(lines)} models; the largest difference is {max(differences):.1e}. "
        f"Recorded on {' to '.join(dict.fromkeys((dates[0], dates[-1])))} with {versions}."
    )


def provenance(*tables: str) -> str:
    """When, where and with what the tables were measured; if they differ in a fact, each of its values, and of commits
    where they are."""
    provenances = [benchmark(table)["provenance"] for table in tables]

    def every(fact: Callable[[dict], str]) -> List[str]:
        return list(dict.fromkeys(map(fact, provenances)))

    dates, commits = sorted(every(itemgetter("date"))), every(itemgetter("commit"))
    packages = {"Python": "python", "MXNet": "mxnet", "NumPy": "numpy", "TensorFlow": "tensorflow", "mxsame": "mxsame"}
    versions = [f"{name} {version}" for name, key in packages.items() for version in every(itemgetter(key))]
    return (
        f"Measured on {' to '.join(dict.fromkeys((dates[0], dates[-1])))}: "
        f"{', '.join(every(lambda made: processor(made['cpu'])))}, "
        f"{', '.join(every(lambda made: str(made['cores'])))} cores, {', '.join(versions)} "
        f"({commits[0] if len(commits) == 1 else 'the commits are in `benchmarks/results`'}); "
        f"{' or '.join(every(threads)).replace(' or threads: ', ' or ')}."
    )


def threads(made: dict) -> str:
    """Files from before mxsame set them hold a variable instead of their number: MXNet took half of the cores.

    >>> threads({"threads": 4}), threads({"threads": "as many as cores", "cores": 2})
    ('threads: 4 each', 'threads: MXNet 1, TensorFlow 2')
    """
    if made["threads"] == "as many as cores":
        return f"threads: MXNet {max(1, made['cores'] // 2)}, TensorFlow {made['cores']}"
    return "CPU time, one thread each" if made["threads"] == "1" else f"threads: {made['threads']} each"


TABLES: Dict[str, Callable[[], str]] = {
    "parity": parity_summary,
    "parity-reference": lambda: parity_by_way("parity"),
    "parity-tensorflow": lambda: parity_by_way("parity-tensorflow"),
    "layers": layers_summary,
    "layers-each": layers,
    "networks": networks_summary,
    "networks-training": networks_training,
    "tensorflow": tensorflow,
    "tensorflow-each": tensorflow_each,
    "peers": peers,
    "onnx": onnx,
    "onnx-nodes": onnx_nodes,
    "exporters": exporters,
    "onnx-gluon": onnx_of_gluon,
    "onnx-applications": onnx_of_applications,
    "memory": memory,
    "sizes": sizes,
    "start": start,
    "planner": planner,
    "sampled": sampled,
    "gpu": gpu,
    "convert": convert,
    "applications": applications_summary,
    "applications-keras2": lambda: applications("applications-keras2"),
    "applications-keras3": lambda: applications("applications-keras3"),
}
SENTENCES = {
    "parity-line": parity_line,
    "speed-line": speed_line,
    "speed-provenance": lambda: provenance(
        "layers",
        "layers-train",
        "sampled",
        "sampled-train",
        "networks",
        "networks-train",
        "memory",
        "sizes",
        "planner",
        "convert",
    ),
}
MARKED = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def filled(text: str) -> str:
    """The text with its tables made anew; `ValueError` for a name that no table has.

    >>> filled("no table")
    'no table'
    """

    def table(match: re.Match[str]) -> str:
        start, name, end = match.groups()
        made = {**TABLES, **SENTENCES}
        if name not in made:
            raise ValueError(f"a table must be one of {', '.join(made)}; received {name!r}")
        return f"{start}{made[name]()}\n{end}"

    return MARKED.sub(table, text)


def stale() -> Dict[Path, str]:
    """The pages whose tables are not those of the recorded figures, and what they should be."""
    texts = {page: page.read_text(encoding="utf-8") for page in PAGES}
    made = {page: filled(text) for page, text in texts.items() if MARKED.search(text)}
    return {page: text for page, text in made.items() if text != texts[page]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    outdated = stale()
    if parser.parse_args().check:
        print("\n".join(str(page.relative_to(ROOT)) for page in outdated))
        return int(bool(outdated))
    for page, text in outdated.items():
        page.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
