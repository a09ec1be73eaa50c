"""The image and the manifest in examples/kubernetes fit each other, and the job in the docs."""

from __future__ import annotations

import re

import yaml

from tests.support.checkout import ROOT

FOLDER = ROOT / "examples/kubernetes"
IMAGE = (FOLDER / "Dockerfile").read_text()
SPEC = yaml.safe_load((FOLDER / "orders.yaml").read_text())["spec"]
(JOB,) = re.findall(
    r"```python\n# job\.py\n(.*?)```", (ROOT / "docs/deployment.md").read_text(), re.S
)


def test_the_driver_has_the_variables_and_paths_of_the_job():
    assert {one["name"] for one in SPEC["driver"]["env"]} == set(
        re.findall(r'os\.environ\["(\w+)"\]', JOB)
    )
    mounts = [one["mountPath"] for one in SPEC["driver"]["volumeMounts"]]
    paths = re.findall(r'"(/[\w./]+)"', JOB)
    assert len(paths) == 3
    assert all(any(path.startswith(mount) for mount in mounts) for path in paths)


def test_executors_have_the_volumes_of_the_driver():
    assert SPEC["executor"]["volumeMounts"] == SPEC["driver"]["volumeMounts"]
    named = {one["name"] for one in SPEC["volumes"]}
    assert {one["name"] for one in SPEC["driver"]["volumeMounts"]} == named


def test_the_image_has_the_job_and_the_release_of_the_manifest():
    assert f"COPY job.py {SPEC['mainApplicationFile'].removeprefix('local://')}\n" in IMAGE
    assert f"ARG SPARK={SPEC['sparkVersion']}\n" in IMAGE
    assert "eos_pulsar-*.whl" in IMAGE  # the name that make wheel gives it
