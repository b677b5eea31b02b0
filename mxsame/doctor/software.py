"""What is installed: Python, NumPy, MXNet and its companions. Versions are read from folders' names; only children
import anything."""

from __future__ import annotations

import os
import re
import sys
from contextlib import closing
from dataclasses import dataclass
from importlib.machinery import PathFinder
from typing import Any, Dict, Iterator, List, Optional, Tuple

from mxsame.doctor import child
from mxsame.doctor.check import MXNET_VERSION, Check, listed, pip, reinstall

GROUP = "software"
OWNERS = r"mxnet(-(cu\d+|mkl|native))?"  # wheels that own the folder mxnet
SHOWN = ("CUDA", "CUDNN", "NCCL", "MKLDNN", "OPENMP", "BLAS_OPEN", "LAPACK", "OPENCV", "INT64_TENSOR_SIZE")
EXTRAS = ("click", "rich", "matplotlib", "onnx", "onnxruntime", "hypothesis", "pytest", "scikit-learn", "nbclient")


def installed() -> Dict[str, str]:
    """Versions by package, of all that Python's folders hold: what pip wrote may be damaged, so only names count."""
    found: Dict[str, str] = {}
    for folder in sys.path:
        try:
            names = sorted(os.listdir(folder or "."))
        except OSError:
            continue
        for name in names:
            match = re.fullmatch(r"(.+?)-(\d[^-]*)(-py[\d.]+)?\.(dist|egg)-info", name)
            if match:
                found.setdefault(re.sub(r"[-_.]+", "-", match.group(1)).lower(), match.group(2))
    return found


def folder_of(package: str) -> Optional[str]:
    """The folder from which Python would import a package."""
    spec = PathFinder.find_spec(package)
    places = list(spec.submodule_search_locations or []) if spec else []
    return str(places[0]) if places else None


def versions(found: Dict[str, str]) -> Iterator[Check]:
    """Python's and NumPy's; whether MXNet goes with them is what its import says."""
    python = ".".join(map(str, sys.version_info[:3]))
    yield Check(GROUP, "Python", "note", f"{python}, {sys.executable}", facts=_facts(python, sys.executable))
    version, folder = found.get("numpy"), folder_of("numpy")
    text = f"{version or 'version unknown'}, {folder}" if folder else "not installed"
    yield Check(GROUP, "NumPy", "note", text, facts=_facts(version if folder else None, folder))


def _facts(version: Optional[str], path: Optional[str]) -> Dict[str, Any]:
    return {"version": version, "path": path}


@dataclass(frozen=True)
class Mxnet:
    """The installed MXNet: wheels by name, its folder, and what became of importing and asking it."""

    wheels: Dict[str, str]
    folder: Optional[str]
    results: Dict[str, child.Result]

    @property
    def works(self) -> bool:
        """Whether it can be imported."""
        return self.results["import"].error is None

    @property
    def is_for_cuda(self) -> bool:
        features = self.results["build"].found.get("features", {})
        return bool(features.get("CUDA", any("-cu" in wheel for wheel in self.wheels)))

    @property
    def has_onednn(self) -> bool:
        return bool(self.results["build"].found.get("features", {}).get("MKLDNN"))

    @property
    def gpus(self) -> int:
        return int(self.results["GPUs"].found.get("count", 0))

    @property
    def uncounted(self) -> str:
        """Why MXNet cannot say how many GPUs there are, if it cannot."""
        return child.shortened(self.results["GPUs"].error) if self.results["GPUs"].error else ""

    @property
    def library(self) -> Optional[str]:
        """The path of libmxnet.so, whether it can be loaded or not."""
        path = os.path.join(self.folder, "libmxnet.so") if self.folder else ""
        return self.results["build"].found.get("library", path if os.path.exists(path) else None)

    def reinstalled(self, wheel: Optional[str] = None) -> str:
        """The command that brings a whole MXNet: the wheel that is installed, or another."""
        return reinstall(wheel or next(iter(self.wheels), "mxnet"), list(self.wheels))

    def checks(self) -> Iterator[Check]:
        """What is installed of it, whether it can be imported, and what was built into it."""
        imported = self.results["import"]
        wheels = [" ".join(item) for item in self.wheels.items()] or ["no wheel"]
        facts = {"wheels": self.wheels, "path": self.folder, "version": None, "seconds": None, **imported.found}
        if imported.error is not None:
            text, mend = explanation(imported, self.reinstalled())
            found = f" ({listed(wheels)}, {self.folder})" if self.folder else ""
            yield Check(GROUP, "MXNet", "problem", f"{text.rstrip('.')}{found}.", mend, facts)
            return
        text = f"{listed(wheels)}, {facts['path']}, imported in {facts['seconds']} s"
        if facts["version"] != MXNET_VERSION:
            text += f"; it calls itself {facts['version']}, and mxsame is made for {MXNET_VERSION}"
        yield Check(GROUP, "MXNet", "ok", text, facts=facts)
        built = self.results["build"]
        if built.error is None:
            features = built.found["features"]
            text = "built with " + listed([name for name in SHOWN if features.get(name)], most=len(SHOWN))
            missing = [name for name in SHOWN if not features.get(name)]
            yield Check(GROUP, "build", "note", f"{text}; without {listed(missing, len(SHOWN))}", facts=built.found)
        else:
            yield Check(GROUP, "build", "problem", f"cannot be asked: {built.error}.", self.reinstalled(), built.found)


def mxnet(found: Dict[str, str]) -> Mxnet:
    """What a child finds out; it is not asked more, once a step has failed."""
    steps = ("import", "build", "GPUs")
    answers = {step: child.Result(step, {}, "not asked") for step in steps}
    with closing(child.results("mxnet", steps)) as results:
        for result in results:
            answers[result.step] = result
            if result.error:
                break
    wheels = {name: version for name, version in found.items() if re.fullmatch(OWNERS, name)}
    return Mxnet(wheels, folder_of("mxnet"), answers)


def explanation(result: child.Result, otherwise: str) -> Tuple[str, str]:
    """(problem, command) of an import of MXNet that failed: in mxsame's words, where mxsame could say any."""
    if result.kind != "ImportError":
        said = {"crash": "crashes while it is imported", "hang": "does not come back from being imported"}
        return f"{said.get(result.kind, 'cannot be imported')}: {result.error}.", otherwise
    problem, _, rest = (result.error or "").partition("\n")
    commands = re.findall(r"^ *mend it with: (.*)$", rest, re.MULTILINE)
    return problem, commands[0] if commands else otherwise


def companions(found: Dict[str, str]) -> Iterator[Check]:
    """Packages that live with MXNet in one process, and those of mxsame's extras."""
    facts: Dict[str, Any] = {}
    texts: List[str] = []
    for package, version, known, text in _known(found):
        facts[package] = {"version": version, "known": known}
        texts.append(f"{package} {version}: {text}")
    text = "; ".join(texts) + "." if texts else "neither SciPy nor TensorFlow nor keras-mxnet is installed."
    yield Check(GROUP, "companions", "note", text, facts=facts)
    if found.get("scipy", "1").split(".")[0] != "1":
        text = "MXNet looks for names that SciPy 2 has dropped."
        yield Check(GROUP, "SciPy", "problem", text, pip("install 'scipy<2'"), {"version": found["scipy"]})
    have = {name: found[name] for name in EXTRAS if name in found}
    absent = [name for name in EXTRAS[:3] if name not in found]
    text = listed([" ".join(item) for item in have.items()], most=len(EXTRAS)) or "none"
    mend = pip(f"install {' '.join(absent)}") if absent else None
    yield Check(GROUP, "extras", "note", text + (f"; without {listed(absent)}" if absent else ""), mend, have)


def _known(found: Dict[str, str]) -> Iterator[Tuple[str, str, Optional[bool], str]]:
    """(package, version, whether it is known to work beside mxsame, in words); None where nobody has tried."""
    python, numpy = sys.version_info[:2], found.get("numpy", "")
    if "scipy" in found:
        fits = found["scipy"].startswith("1.")
        yield "scipy", found["scipy"], fits, "works" if fits else "does not work"
    for package in ("tensorflow", "tensorflow-cpu"):
        if package in found:
            tried = found[package].startswith("2.13.") and python == (3, 11) and numpy == "1.23.5"
            text = "known to work" if tried else "not tried; 2.13.1 with NumPy 1.23.5 on Python 3.11 is known to work"
            yield package, found[package], tried or None, f"{text}, imported after mxsame"
            break
    if "keras-mxnet" in found:
        tried = found["keras-mxnet"] == "2.2.4.3" and python == (3, 8)
        text = "known to work" if tried else "not tried; 2.2.4.3 on Python 3.8 is known to work"
        yield "keras-mxnet", found["keras-mxnet"], tried or None, f"{text}, exact after mxsame.keras.install()"
    if "onnx" in found:
        major, minor = (int(part) for part in re.findall(r"\d+", found["onnx"] + ".0")[:2])
        fits = (major, minor) < (1, 18)
        yield "onnx", found["onnx"], fits, "MXNet's exporter " + ("takes it" if fits else "needs onnx < 1.18")
