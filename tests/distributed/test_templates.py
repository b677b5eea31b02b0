"""The templates of docs/how-to/distributed.md: Slurm's runs here, with programs of the names of Slurm's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import launch
import yaml

import clusters

PAGE = (clusters.ROOT / "docs" / "how-to" / "distributed.md").read_text(encoding="utf-8")
# As srun --kill-on-bad-exit: the tasks at once, and none remains when one has failed.
SRUN = """#!/bin/bash
while [[ $1 == -* ]]; do shift; done
for ((task = 0; task < TASKS; task++)); do SLURM_PROCID=$task "$@" & done
for ((task = 0; task < TASKS; task++)); do wait -n || { kill $(jobs -p); exit 1; }; done
"""
SCONTROL = """#!/bin/bash
[[ "$*" == "show hostnames nodes[1-4]" ]] && echo localhost && echo another
"""


def block(language: str, word: str) -> str:
    (found,) = (text for text in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL) if word in text)
    return found


def test_the_script_for_slurm_trains(tmp_path):
    script = block("bash", "SBATCH")
    assert "--ntasks=9\n" in script
    assert "servers=4 workers=4\n" in script
    (port,) = launch.free_ports(1)
    script = script.replace("servers=4 workers=4", "servers=1 workers=2").replace(":9092", f":{port}")
    script = script.replace("--out run", "--out run --epochs 1 --patience 60")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL), ("script", script)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (tmp_path / "examples").symlink_to(clusters.ROOT / "examples")
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "SLURM_JOB_NODELIST": "nodes[1-4]",
        "TASKS": "4",
        "DMLC_NODE_HOST": "127.0.0.1",  # there may be no other network here
    }
    with (tmp_path / "log").open("w") as log:  # no pipe: what outlived the script would keep it open
        done = subprocess.run(
            [programs / "script"], cwd=tmp_path, env=environment, stdout=log, stderr=log, timeout=clusters.LIMIT
        )
    output = (tmp_path / "log").read_text()
    assert done.returncode == 0, output
    assert "2 workers, 16 steps, from step 0" in output
    assert (tmp_path / "run" / "network-symbol.json").is_file()


def test_the_manifest_for_kubernetes_fits_together():
    service, job = yaml.safe_load_all(block("yaml", "kind: Job"))
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    command = " ".join(container["args"])
    servers, workers = (int(re.search(rf"--{name} (\d+)", command).group(1)) for name in ("servers", "workers"))
    assert spec["completions"] == spec["parallelism"] == 1 + servers + workers
    assert spec["completionMode"] == "Indexed"
    host, port = re.search(r"--root (\S+):(\d+)", command).groups()
    assert host == f"{job['metadata']['name']}-0.{pod['subdomain']}"
    assert pod["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    ours = command.replace('"$JOB_COMPLETION_INDEX"', "8").split()
    options = launch.parsed(ours[ours.index("examples/distributed/launch.py") + 1 :])
    assert (options.process, options.root) == (8, f"{host}:{port}")
    assert options.command[:2] == ["python", "examples/distributed/train.py"]
    assert [mount["name"] for mount in container["volumeMounts"]] == [volume["name"] for volume in pod["volumes"]]


def test_the_page_pins_what_is_tested():
    pinned = {line for line in (clusters.HERE / "requirements.txt").read_text().splitlines() if "==" in line}
    named = set(re.findall(r'"([a-z\[\]]+==[\d.]+)"', block("bash", "pip install")))
    assert named
    assert named <= pinned
