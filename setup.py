"""Installation of mxsame: the package's metadata. Tool settings are in pyproject.toml."""

import re
import runpy
import sys
from pathlib import Path

import setuptools
from setuptools import find_packages, setup

if sys.version_info < (3, 8):  # noqa: UP036 - pip would first download, and build, what is asked for
    sys.exit("mxsame needs Python 3.8 or newer; received Python {}.{}".format(*sys.version_info[:2]))

HERE = Path(__file__).parent


def version():
    """The ``__version__`` that mxsame/__init__.py states, read without importing it (MXNet may not be there yet)."""
    text = (HERE / "mxsame" / "__init__.py").read_text(encoding="utf-8")
    return re.search(r'^__version__ = "([^"]+)"', text, re.MULTILINE).group(1)


def description():
    """README.md for where only that page is shown: of links into the checkout the text, and of pictures nothing."""
    text = (HERE / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"^!\[[^]]*\]\((?!https?:)[^)]*\)\n\n", "", text, flags=re.MULTILINE)
    return re.sub(r"\[([^]]*)\]\((?!https?:|#)[^)]*\)", r"\1", text)


def on(python, *requirements):
    """Requirements that pip installs on these versions of Python only."""
    return [f"{requirement}; python_version {python}" for requirement in requirements]


# The wheels with CUDA's libraries, pinned, as they are also found and loaded; and what messages install.
REQUIREMENTS = runpy.run_path(str(HERE / "mxsame" / "installation" / "requirements.py"))


# The photograph of the demo is CC0. setuptools supports license expressions from version 77 on, which needs Python 3.9.
LICENCE = "Apache-2.0 AND CC0-1.0"
KNOWS_EXPRESSIONS = int(setuptools.__version__.split(".")[0]) >= 77

CLI = ["click>=8", "matplotlib>=3.7"]

setup(
    name="mxsame",
    version=version(),
    description='Keras models and Keras\'s padding="same", exact, on Apache MXNet and Gluon',
    long_description=description(),
    long_description_content_type="text/markdown",
    **{"license_expression" if KNOWS_EXPRESSIONS else "license": LICENCE},
    license_files=["LICENSE", "mxsame/data/LICENSE-photograph.txt"],
    keywords="mxnet gluon keras tensorflow padding same convolution pooling",
    classifiers=[
        "Development Status :: 4 - Beta",
        "Environment :: Console",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Natural Language :: English",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3 :: Only",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in range(8, 14)),
        "Programming Language :: Python :: Implementation :: CPython",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Software Development :: Libraries :: Python Modules",
        "Typing :: Typed",
    ],
    packages=find_packages(include=["mxsame", "mxsame.*"]),
    package_data={"mxsame": ["py.typed", "data/*"]},
    entry_points={"console_scripts": ["mxsame = mxsame.cli:main"]},
    python_requires=">=3.8",
    # What MXNet needs, but not MXNet: its wheels ask for numpy<2 and graphviz<0.9, so pip installs them with --no-deps.
    # Two of them, for CPU and for GPU, own the same folder.
    install_requires=["numpy>=1.17", "requests>=2.20", "graphviz>=0.8.1"],
    extras_require={
        "cli": CLI,
        "cu112": [*REQUIREMENTS["pins"](), *CLI],
        "keras": ["h5py>=3"],  # Keras's files, without Keras
        "test": ["pytest>=8", "pytest-xdist>=3.6", "hypothesis>=6.100", "h5py>=3", *REQUIREMENTS["ONNX"], *CLI],
        # The live oracle; TensorFlow 2.13.1, MXNet 1.9.1 and NumPy 1.23.5 are known to live together.
        "oracle": on("== '3.11'", "tensorflow-cpu==2.13.1", "numpy==1.23.5"),
        "onnx": [*REQUIREMENTS["ONNX"]],  # a file is compared with the net before it is written
        # Beside `oracle`: what the benchmarks of ONNX compare with; MXNet's exporter needs onnx < 1.18.
        "benchmarks": on("== '3.11'", "tf2onnx==1.17.0", "onnx==1.14.1", "onnxruntime==1.18.1"),
        # MXNet's nd.array looks for a name that SciPy says to drop in 2.0.
        "notebooks": [
            "jupyterlab>=4",
            "nbclient>=0.10",
            "ipykernel>=6.29",
            "scikit-learn>=1.3",
            "scipy<2",
            "h5py>=3",
            *CLI,
        ],
        # Pinned, since a warning fails the build of the site; they need Python 3.11.
        "docs": on(
            *(">= '3.11'", "sphinx==9.0.4", "furo==2025.12.19", "myst-parser==5.2.0", "myst-nb==1.4.0"),
            *("sphinx-click==6.2.0", "sphinx-copybutton==0.5.2"),
        ),
        # mypy 1.14 is the last that runs on Python 3.8.
        "dev": ["ruff==0.17.5", "mypy==1.14.1", "nox>=2024.3"],
    },
    zip_safe=False,
)
