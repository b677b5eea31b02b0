"""Installation of mxsame: the package's metadata. Tool settings are in pyproject.toml."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent


def version():
    """The ``__version__`` that mxsame/__init__.py states, read without importing it (MXNet may not be there yet)."""
    text = (HERE / "mxsame" / "__init__.py").read_text(encoding="utf-8")
    return re.search(r'^__version__ = "([^"]+)"', text, re.MULTILINE).group(1)


CLI = ["click>=8", "rich>=13", "matplotlib>=3.7"]

setup(
    name="mxsame",
    version=version(),
    description="TensorFlow's SAME padding, exactly, on Apache MXNet",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    classifiers=[
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3.8",
        "Programming Language :: Python :: 3.9",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
    packages=find_packages(include=["mxsame", "mxsame.*"]),
    package_data={"mxsame": ["py.typed", "data/*"]},
    entry_points={"console_scripts": ["mxsame = mxsame.cli:main"]},
    python_requires=">=3.8,<3.13",
    # MXNet itself is an extra: two wheels, for CPU and for GPU, own the same folder, so none can be the default.
    install_requires=["numpy<2"],
    extras_require={
        "cpu": ["mxnet==1.9.1", *CLI],
        "cu112": ["mxnet-cu112==1.9.1", *CLI],
        "cli": CLI,
        "test": ["pytest>=8", "pytest-xdist>=3.6", "hypothesis>=6.100"],
        # The live oracle; TensorFlow 2.13.1, MXNet 1.9.1 and NumPy 1.23.5 are known to live together.
        "oracle": ["tensorflow-cpu==2.13.1; python_version == '3.11'", "numpy==1.23.5; python_version == '3.11'"],
        # MXNet's exporter needs onnx < 1.18.
        "onnx": ["onnx==1.14.1; python_version < '3.12'", "onnxruntime==1.18.1; python_version < '3.12'"],
        # MXNet's nd.array looks for a name that SciPy says to drop in 2.0.
        "notebooks": ["nbclient>=0.10", "ipykernel>=6.29", "scikit-learn>=1.3", "scipy<2", "matplotlib>=3.7"],
        # mypy 1.14 is the last that runs on Python 3.8.
        "dev": ["ruff==0.17.5", "mypy==1.14.1", "nox>=2024.3"],
    },
    zip_safe=False,
)
