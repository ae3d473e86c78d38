"""The files that install a server: read with the reader of their own kind where there is one."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from millstream.cli.serve import serve

yaml = pytest.importorskip("yaml")
ROOT = Path(__file__).parents[2]
UNIT = ROOT / "deploy/systemd/millstream.service"
FLAGS = {flag for option in serve.params for flag in option.opts}


def manifests() -> list[dict[str, Any]]:
    text = (ROOT / "deploy/kubernetes/millstream.yaml").read_text()
    return [part for part in yaml.safe_load_all(text) if part]


def flags_in(arguments: list[str]) -> set[str]:
    return {argument for argument in arguments if argument.startswith("--")}


def test_the_unit_starts_the_server_with_flags_that_exist() -> None:
    [start] = re.findall(r"^ExecStart=(.*)$", UNIT.read_text(), re.MULTILINE)
    arguments = shlex.split(start)
    assert arguments[:2] == ["/opt/millstream/bin/millstream", "serve"]
    assert flags_in(arguments) <= FLAGS


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_finds_no_fault_in_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    command = shutil.which("true") or "/bin/true"
    unit.write_text(
        re.sub(r"^ExecStart=\S+", f"ExecStart={command}", UNIT.read_text(), flags=re.MULTILINE)
    )
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert UNIT.name not in done.stderr, done.stderr


def test_kubernetes_runs_one_broker_with_flags_that_exist() -> None:
    kinds = {part["kind"]: part for part in manifests()}
    assert set(kinds) == {"ConfigMap", "Service", "StatefulSet"}
    spec = kinds["StatefulSet"]["spec"]
    assert spec["replicas"] == 1
    [container] = spec["template"]["spec"]["containers"]
    assert container["args"][0] == "serve"
    assert flags_in(container["args"]) <= FLAGS
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    volumes = {volume["name"] for volume in spec["template"]["spec"]["volumes"]}
    assert mounted == volumes | {
        claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"]
    }


def test_the_configuration_in_the_config_map_is_one_that_the_server_reads(tmp_path: Path) -> None:
    from millstream.server.command_line.serve_options import load_serve

    [config] = [part for part in manifests() if part["kind"] == "ConfigMap"]
    file = tmp_path / "millstream.conf"
    file.write_text(config["data"]["millstream.conf"])
    loaded = load_serve(
        {"data_dir": tmp_path}, str(file), {"MILLSTREAM_NATS_TOKEN": "s3cret-token"}
    )
    assert loaded.options.credentials
    assert loaded.options.host == "0.0.0.0"


def test_the_image_copies_files_that_exist_and_runs_as_nobody_special() -> None:
    text = (ROOT / "Dockerfile").read_text()
    for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE):
        for name in shlex.split(line)[:-1]:
            assert (ROOT / name).exists(), name
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    kept = {line[1:] for line in ignored if line.startswith("!")}
    copied = {
        n for c in re.findall(r"^COPY (.*)$", text, re.MULTILINE) for n in shlex.split(c)[:-1]
    }
    assert copied == kept
    assert re.search(r"^USER 10001$", text, re.MULTILINE)
    assert re.search(r"^HEALTHCHECK", text, re.MULTILINE)


def test_the_workflow_runs_the_readme_s_test_command() -> None:
    flow = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())
    steps = [step.get("run") for step in flow["jobs"]["test"]["steps"]]
    assert "make test" in steps
