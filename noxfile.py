"""The environments, each with its checks: ``nox`` runs those that CI runs, ``nox -s tests-3.9`` another one.

What takes too long for each run of CI is divided by days, which $MXSAME_DAY counts (.ci/run sets it): one more session,
some of the mutations, a part of the random networks and of the big grids. Without it, a session runs all of its tests.
"""

import os
import shutil
from pathlib import Path

import nox

nox.options.error_on_missing_interpreters = True
nox.options.sessions = [
    *("lint", "packaging", "docs", "notebooks", "cuda", "keras_mxnet", "keras3", "distributed"),
    *("processors", "oracle", "tests-3.8", "tests-3.13"),  # README's command has run the whole suite, on one Python
]
if "MXSAME_DAY" in os.environ:
    OTHERS = ("tests-3.12", "runtimes", "tests-3.10", "gluon", "tests-3.9")
    nox.options.sessions += ["mutations", OTHERS[int(os.environ["MXSAME_DAY"]) % len(OTHERS)]]
nox.options.reuse_existing_virtualenvs = False
nox.options.default_venv_backend = "venv"  # virtualenv no longer brings a pip for Python 3.8
EACH_PROCESSOR = (  # values, and choices of layouts, that depend on oneDNN's instruction sets
    *("tests/test_processor.py", "tests/test_amp.py", "tests/test_ways.py", "tests/test_deploy.py"),
    *("tests/test_rewrite.py", "tests/test_graph.py", "tests/test_pairs.py", "tests/test_planner.py"),
    *("tests/test_benchmarks.py", "tests/port/test_recorded.py"),
)
NOT_ONEDNN = "not (test_every_case and (float64 or symbol or inference or mx.np))"  # or run as another way
EACH_PYTHON = (  # what other versions of Python and NumPy may break: imports, every docstring's example, arrays, files
    *("mxsame", "tests/test_install.py", "tests/test_cli.py", "tests/test_doctor.py", "tests/test_threads.py"),
    *("tests/test_nn.py", "tests/test_keras_backend.py", "tests/port/test_recorded.py"),
)


def install(session, mxsame, mxnet="mxnet"):
    """As README does: MXNet's own requirements would bring NumPy 1."""
    session.install(mxsame)
    session.install("--no-deps", f"{mxnet}==1.9.1")


@nox.session(python=["3.8", "3.9", "3.10", "3.11", "3.12", "3.13"])
def tests(session):
    """What a user does on another Python: install, run tests, run the demo; ``-- tests mxsame`` for the whole suite."""
    install(session, ".[test]")
    session.run("python", "-m", "pytest", "-q", "-n", "auto", *(session.posargs or EACH_PYTHON))
    session.chdir(session.create_tmp())  # away from the source: what was installed has to be complete
    session.run("python", "-m", "mxsame", "--help", silent=True)
    session.run("python", "-m", "mxsame", "demo")
    session.run("mxsame", "doctor")


@nox.session(python="3.11")
def mutations(session):
    """The package with one line broken: a test has to fail; ``-- WORD`` for those whose name contains it."""
    install(session, ".[test]")
    session.run("python", "tests/mutations.py", *session.posargs)


@nox.session(python="3.11")
def processors(session):
    """Values on processors with AVX2 at most, and some of them on those without; oneDNN runs so by a variable."""
    install(session, ".[test]")
    for limit, files in (("AVX2", EACH_PROCESSOR), ("SSE41", EACH_PROCESSOR[3:6])):
        run = ("python", "-m", "pytest", "-q", "-n", "auto", "-k", NOT_ONEDNN, *(session.posargs or files))
        session.run(*run, env={"DNNL_MAX_CPU_ISA": limit})


@nox.session(python="3.11")
def oracle(session):
    """The big grids, the properties, and a live TensorFlow 2.13.1; ``-- -m ""`` for everything."""
    install(session, ".[test,oracle,benchmarks]")
    arguments = session.posargs or ["--dist", "worksteal", "-m", "heavy or oracle or keras or hypothesis"]
    session.run("python", "-m", "pytest", "-q", "-n", "auto", *arguments, env={"HYPOTHESIS_PROFILE": "ci"})


@nox.session(python="3.13")
def keras3(session):
    """What is written for Keras 3, and what it does otherwise than Keras 2, in a live one."""
    install(session, ".[test]")
    session.install("keras==3.15.1", "tensorflow-cpu==2.21.0")
    files = ("tests/test_to_keras.py", "tests/port/test_keras_3.py")
    session.run("python", "-m", "pytest", "-q", "-n", "auto", "-m", "keras", *files, *session.posargs)


@nox.session(python="3.8")
def keras_mxnet(session):
    """The plugin inside keras-mxnet 2.2.4.3."""
    session.install("-r", "tests/keras_mxnet/requirements.txt")
    session.run("python", "-m", "pytest", "-q", "-n", "auto", "tests/keras_mxnet", *session.posargs)


@nox.session(python="3.8")
def gluon(session):
    """Code that others wrote, with mxsame's layers: GluonCV's networks, and MXNet's own tests, which are fetched."""
    session.install("-r", "tests/gluon/requirements.txt")
    source = Path(os.environ.get("MXNET_SOURCE", Path(session.create_tmp(), "mxnet")))
    if not source.is_dir():
        clone = ("git", "clone", "--quiet", "--depth=1", "--branch=1.9.1", "https://github.com/apache/mxnet", source)
        session.run(*map(str, clone), external=True, success_codes=[0, 128])
    if not source.is_dir():
        session.log("Without a network, and without MXNET_SOURCE, MXNet's own tests are skipped")
    environment = {"MXNET_SOURCE": str(source)} if source.is_dir() else {}
    session.run("python", "-m", "pytest", "-q", "-n", "auto", "tests/gluon", *session.posargs, env=environment)


@nox.session(python="3.11")
def distributed(session):
    """The examples of training and scoring on several machines, with Ray: clusters of processes on this one."""
    readme = Path("examples", "distributed", "README.md").read_text(encoding="utf-8")
    _, commands = readme.split("```bash\n", 1)
    session.run("bash", "-ec", commands.split("```")[0], external=True)
    session.install("pytest>=8", "pytest-xdist>=3.6")
    session.run("python", "-m", "pytest", "-q", "-n", "auto", "tests/distributed", *session.posargs)


@nox.session(python="3.11")
def runtimes(session):
    """Files of the recorded networks in OpenVINO, OpenCV, ONNX's reference evaluator, onnx2torch and MXNet's C API.

    The wheels are 1 GB."""
    session.install("--no-deps", "mxnet==1.9.1", "onnx2torch==1.5.15")
    session.install("-r", "tests/runtimes/requirements.txt")
    session.run("python", "-m", "pytest", "-q", "tests/runtimes", *session.posargs)


@nox.session(python="3.11")
def cuda(session):
    """MXNet for CUDA with CUDA's libraries from their wheels, 2 GB; no GPU, and no driver, is needed."""
    install(session, ".[cu112,test]", "mxnet-cu112")
    session.run("python", "-m", "pytest", "-q", "-n", "auto", "tests/cuda", *session.posargs)


@nox.session(python="3.11")
def docs(session):
    """The site, in docs/_build/html; a warning, a broken link among them, is an error."""
    install(session, ".[docs,notebooks]")
    session.run("sphinx-build", "-W", "--keep-going", "-n", "docs", "docs/_build/html", *session.posargs)


@nox.session(python="3.12")
def notebooks(session):
    """The notebooks, in the environment that their own first command makes."""
    (line,) = (line for line in Path("notebooks", "README.md").read_text().splitlines() if " pip install " in line)
    *commands, start = line.split(" && ")
    for command in commands:
        session.run("bash", "-c", command, external=True)
    session.run("bash", "-c", start.replace(" lab notebooks", " lab --version"), external=True)
    session.run("python", "notebooks/run.py")


@nox.session(python="3.11")
def packaging(session):
    """The sdist and the wheel, in dist: built, checked, and the wheel run away from the source."""
    shutil.rmtree("dist", ignore_errors=True)
    session.install("build>=1.2", "twine>=6.1", "trove-classifiers")
    session.run("python", "-m", "build", "--outdir", "dist")
    (wheel,) = map(str, Path("dist").glob("*.whl"))
    session.run("twine", "check", "--strict", *map(str, Path("dist").iterdir()))
    install(session, f"{wheel}[test]")
    session.run("pytest", "tests/test_packaging.py", env={"MXSAME_DIST": "dist"})  # `python -m` would find the source
    session.chdir(session.create_tmp())
    session.run("mxsame", "demo")


@nox.session(python="3.11")
def lint(session):
    """ruff and mypy."""
    session.install(".[dev]")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.chdir("tests")  # away from the source: what is installed has types, too
    session.run("mypy", "--strict", "--cache-dir", os.devnull, "typed_calls.py")
