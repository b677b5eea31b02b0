"""The command line: help everywhere, wrong options answered with exit code 2, broken machines, and `mxsame pads`."""

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

import mxsame
from mxsame import cli


def run(*arguments, columns=80):
    return CliRunner().invoke(cli.main, list(map(str, arguments)), prog_name="mxsame", env={"COLUMNS": str(columns)})


def python(*arguments, env=None):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60, env=env)


# ---- every command ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [None, *cli.main.commands])
def test_help(command):
    result = run(*([command] if command else []), "-h")
    assert result.exit_code == 0
    assert result.output.startswith(f"Usage: mxsame {command or '[OPTIONS]'}")
    described = cli.main.commands[command] if command else cli.main
    assert described.help
    assert all(parameter.help for parameter in described.params if parameter.param_type_name == "option")


def test_alone_the_program_prints_its_help():
    result = run()
    assert (result.exit_code, result.stdout) == (0, run("--help").output)


def test_version():
    result = run("--version")
    assert (result.exit_code, result.output) == (0, f"mxsame {mxsame.__version__}\n")


def test_python_dash_m():
    result = python("-m", "mxsame", "pads", "--size", "8")
    assert result.returncode == 2
    assert result.stderr.startswith("Usage: mxsame pads"), "the program is called mxsame, not __main__.py"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("nothing", "No such command 'nothing'"),
        ("pads --size eight --kernel 3", "'eight' must be an integer, or integers with commas"),
        ("convert sample:letters", "'sample:letters' must be sample:digits"),
        ("pads --size 0 --kernel 3", "--size must be an integer >= 1; received --size=0"),
        ("pads --size 8 --kernel 0", "Error: --kernel must be an integer >= 1; received --kernel=0"),
        ("pads --size 8,9,7 --kernel 3 --stride 1,2", "--stride has 2 values, but --size has 3"),
        ("pads --size 28,28 --kernel 3 --padding causal", "is for 1-D convolutions only; received --padding='causal'"),
        ("pads --size 8 --kernel 3 --padding full", "'full' must be one of same, valid, causal, keras-mxnet, an int"),
        ("pads --size 8 --kernel 3 --padding=-1,0", "must be an integer >= 0; received"),
        ("pads --size 8 --kernel 3 --padding 1,1 --padding 0,1", "--padding must have one entry per spatial axis"),
        ("pads --size 8,8 --kernel 3 --padding same --padding 1", "must be one string for all axes, or an int"),
        ("pads --size 28 --kernel 1 --stride 4 --padding keras-mxnet", "keras-mxnet cannot run"),
        ("pads --size 8 --kernel 3 --output-padding 1", "--output-padding needs --transposed"),
    ],
)
def test_wrong_options(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run(*arguments.split(), columns=200)
    assert result.exit_code == 2, result.output
    assert message in result.output
    assert "Usage: mxsame" in result.output and "Traceback" not in result.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_full_disk_is_one_line():
    with open("/dev/full", "w") as full:
        arguments = [sys.executable, "-m", "mxsame", *["pads", "--size", "8", "--kernel", "3"]]
        done = subprocess.run(arguments, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, "Error: [Errno 28] No space left on device\n")


def test_a_closed_output_is_no_error():
    command = f"{sys.executable} -m mxsame pads --size 8 --kernel 3 >&-"
    done = subprocess.run(command, shell=True, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("package", "arguments", "what", "installed"),
    [
        ("click", "--help", "the command line", "click h5py"),
        ("h5py", "convert {file} -o x", "mxsame convert", "h5py"),
        ("onnx", "convert {file} -o x.onnx", "mxsame convert -o NAME.onnx", "'onnx>=1.14' 'onnxruntime>=1.16'"),
    ],
)
def test_a_missing_package_is_one_line_with_the_command_that_installs_it(package, arguments, what, installed):
    code = f"import runpy, sys\nsys.modules[{package!r}] = None\nsys.argv[0] = 'mxsame'\n"
    given = arguments.format(file=mxsame.sample("digits")).split()
    done = python("-c", f"{code}runpy.run_module('mxsame', run_name='__main__')", *given)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    fix = f"fix it with: {sys.executable} -m pip"
    assert line.startswith(f"Error: {what} needs {package}, which is not installed; {fix}")
    assert line.endswith(f" install {installed}")


# ---- where MXNet is not wanted ---------------------------------------------------------------------------------------

WHO = "import sys; print(sorted({'mxnet', 'numpy', 'matplotlib'} & set(sys.modules)))"


def imported_by(*arguments, **options):
    """What of the heavy packages a process has imported when it ends."""
    code = f"import atexit, runpy, sys\natexit.register(lambda: exec({WHO!r}))\nsys.argv = {['mxsame', *arguments]}\n"
    return python("-c", f"{code}runpy.run_module('mxsame', run_name='__main__')").stdout.splitlines()[-1]


@pytest.mark.parametrize("arguments", [["--help"], ["audit", "--help"], ["pads", "--size", "8", "--kernel", "3"]])
def test_the_command_line_imports_nothing_it_does_not_need(arguments):
    assert imported_by(*arguments) == "[]"


# ---- pads ------------------------------------------------------------------------------------------------------------

OF_5_2_2_3 = """\
pads (1, 2), output size 3
            o 0 1 2 3 4 o o
  output 0  o . . #
  output 1      # . . #
  output 2          # . . o
  each line: the elements one output reads; # data, o padding, . skipped by dilation

"""


def test_pads_draws_windows_over_elements():
    """With dilation; a page has one without, which test_documents.py compares."""
    result = run("pads", "--size", 5, "--kernel", 2, "--stride", 2, "--dilation", 3)
    assert (result.exit_code, result.output) == (0, OF_5_2_2_3)


def test_pads_as_data():
    axes = [
        {"size": n, "output_size": 5, "kernel_size": 3, "stride": 2, "dilation": 1, "pads": [n % 2, 1]} for n in (9, 10)
    ]
    given = ("pads", "--size", "9,10", "--kernel", 3, "--stride", 2, "--json")
    forward, up = json.loads(run(*given).output), json.loads(run(*given, "--transposed").output)
    assert not forward["transposed"] and forward["axes"] == axes and up["transposed"]
    read = [(axis["size"], axis["output_size"], axis["pads"]) for axis in up["axes"]]
    assert read == [(9, 18, [0, 1]), (10, 20, [0, 1])]


@pytest.mark.parametrize(
    ("arguments", "headings"),
    [
        ("10 --kernel 3 --padding valid", ["pads (0, 0), output size 8"]),
        ("10 --kernel 3 --padding CAUSAL --dilation 2", ["pads (4, 0), output size 10"]),
        ("10 --kernel 3 --padding 0,3 --stride 3", ["pads (0, 3), output size 4"]),
        ("10 --kernel 3 --stride 2 --transposed", ["crop (0, 1), output size 20"]),
        ("10 --kernel 3 --stride 2 --transposed --output-padding 0", ["crop (1, 1), output size 19"]),
        ("10 --kernel 2 --stride 3 --transposed", ["crop (0, -1), output size 30"]),
        ("10 --kernel 4 --padding keras-mxnet", ["pads (2, 1), output size 10"]),
        ("10 --kernel 4 --padding Keras-MXNet --stride 2 --transposed", ["crop (1, 1), output size 20"]),
        ("28,224 --kernel 3,7 --stride 2", ["pads (0, 1), output size 14", "pads (2, 3), output size 112"]),
        ("8,8 --kernel 3 --padding 1 --padding 2,0", ["pads (1, 1), output size 8", "pads (2, 0), output size 8"]),
        # keras-mxnet pools to one output more
        ("4,5,6 --kernel 2 --padding keras-mxnet", [f"pads (1, {n // 7}), output size {n}" for n in (4, 5, 7)]),
    ],
)
def test_pads_numbers(arguments, headings):
    result = run("pads", "--size", *arguments.split())
    assert result.exit_code == 0
    wanted = [f"axis {number}: {text}" for number, text in enumerate(headings)] if len(headings) > 1 else headings
    assert [line for line in result.output.splitlines() if "output size" in line] == wanted


def test_windows_too_wide_to_draw_have_numbers():
    result = run("pads", "--size", 900, "--kernel", 3, "--dilation", 20)
    assert result.output == "pads (20, 20), output size 900\n  (wider than the terminal)\n\n"


def test_of_many_windows_both_ends_are_drawn():
    lines = run("pads", "--size", 224, "--kernel", 7, "--stride", 2).output.splitlines()
    drawn = [int(line.split()[1]) for line in lines if line.startswith("  output")]
    assert drawn == [0, 1, 2, 109, 110, 111]
    assert max(map(len, lines[1:-2])) <= 80
