"""The real gcloud against a TPU service on loopback: what it asks for, and that we understand what it answers."""

from __future__ import annotations

import sys
import time

import pytest
from fake_cloud.api import Service
from fake_cloud.real import needs_gcloud
from fake_cloud.world import HERE, World

from harness.cloud.gcloud import Gcloud
from harness.cloud.log import Log
from harness.cloud.options import Options
from harness.cloud.resource import Resource
from harness.cloud.sweep import sweep
from harness.cloud.troubles import Trouble

pytestmark = needs_gcloud
ZONE = "us-east5-a"
LABELS = {"axis-conformance": "r", "axis-conformance-owner": "me", "axis-conformance-until": "1"}


@pytest.fixture
def service(tmp_path, monkeypatch):
    made = Service()
    for name, value in made.environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    yield made
    made.close()


def resource(tmp_path, name: str = "axis-1", **more) -> Resource:
    options = Options(
        accelerator_type="v6e-16", zone=(ZONE,), backoff=0.01, wait_deadline=0, delete_deadline=20, **more
    )
    log = Log(tmp_path / "log")
    return Resource(options, name, (ZONE,), LABELS, Gcloud("gcloud", log), log)


def test_a_tpu_vm_from_request_to_proven_absence(tmp_path, service):
    tpu = resource(tmp_path, spot=True, network="net")
    workers = tpu.get()
    assert [(worker.node, worker.index, worker.address) for worker in workers] == [
        ("axis-1", 0, "10.0.0.2"),
        ("axis-1", 1, "10.0.0.3"),
    ]
    tpu.check()
    method, path, body = service.requests[0]
    assert (method, path) == ("POST", f"/v2/projects/my-project/locations/{ZONE}/nodes")
    assert body["acceleratorType"] == "v6e-16" and body["runtimeVersion"] == "v2-alpha-tpuv6e"
    assert body["labels"] == LABELS and body["schedulingConfig"]["spot"] is True
    assert body["networkConfig"]["network"] == "net"
    assert tpu.delete() == [] and service.kinds == {"nodes": {}, "queuedResources": {}}
    with pytest.raises(Trouble, match="is gone"):
        tpu.check()


@pytest.mark.long
def test_slices_of_a_queued_resource(tmp_path, service):
    tpu = resource(tmp_path, node_count=2, valid_until="6h", project="other-project")
    assert [worker.node for worker in tpu.get()] == ["axis-1-0", "axis-1-0", "axis-1-1", "axis-1-1"]
    method, path, body = service.requests[0]
    assert (method, path) == ("POST", f"/v2/projects/other-project/locations/{ZONE}/queuedResources")
    assert body["queueingPolicy"] == {"validUntilDuration": "21600s"}
    [spec] = body["tpu"]["nodeSpec"]
    assert spec["multisliceParams"] == {"nodeCount": 2, "nodeIdPrefix": "axis-1"}
    assert spec["node"]["labels"] == LABELS
    assert tpu.delete() == [] and service.kinds == {"nodes": {}, "queuedResources": {}}


@pytest.mark.parametrize(
    "refusal, kind",
    [
        ((429, "RESOURCE_EXHAUSTED", 'There is no more capacity in the zone "us-east5-a"'), "stock-out"),
        ((429, "RESOURCE_EXHAUSTED", "Quota limit 'TPUV6E' has been exceeded. Limit: 0"), "quota"),
        ((403, "PERMISSION_DENIED", "Permission 'tpu.nodes.create' denied"), "access denied"),
        (
            (400, "INVALID_ARGUMENT", "Cloud TPU received a bad request. unknown accelerator type"),
            "invalid request",
        ),
        ((409, "ALREADY_EXISTS", "Resource already exists"), "exists"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_gcloud_says_of_a_refusal_is_understood(tmp_path, service, refusal, kind):
    service.refuse = [refusal]
    with pytest.raises(Trouble) as caught:
        resource(tmp_path).get()
    assert caught.value.kind.name == kind and refusal[2].split('"')[0] in caught.value.message


@pytest.mark.long
def test_sweep_reads_the_labels_that_gcloud_shows(tmp_path, service):
    resource(tmp_path).get()
    resource(tmp_path, "axis-2", queued=True).get()
    screen = tmp_path / "screen"
    with screen.open("w") as file:
        options = Options(zone=(ZONE,), owner="me", dry_run=True)
        assert sweep(options, Gcloud("gcloud", Log(None, file)), Log(None, file)) == 0
    assert sorted(line.split()[3] for line in screen.read_text().splitlines()) == ["axis-1", "axis-2"]
    service.kinds["nodes"]["axis-1"]["labels"]["axis-conformance-until"] = str(int(time.time()) + 1000)
    options = Options(zone=(ZONE,), owner="me", delete_deadline=20)
    log = Log(tmp_path / "log")
    assert sweep(options, Gcloud("gcloud", log), log) == 0
    assert not service.kinds["queuedResources"] and list(service.kinds["nodes"]) == ["axis-1"]


def test_a_whole_run_by_the_real_gcloud(tmp_path, service, monkeypatch):
    """Only the service, ssh and the suite are stand-ins: gcloud registers its key, connects and copies by itself."""
    world = World(tmp_path / "world", workers=2)
    (tmp_path / "world" / "bin" / "gcloud").unlink()
    for name in ("ssh", "scp"):
        program = tmp_path / "world" / "bin" / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S -E "{HERE / "ssh.py"}" {name} "$@"\n')
        program.chmod(0o755)
    monkeypatch.setenv("FAKE_WORKERS", str(tmp_path / "world" / "cloud" / "workers"))
    monkeypatch.setenv("HOME", str(tmp_path))  # where gcloud keeps its ssh key
    done = world.run(seconds=400)
    assert done.code == 0, done.said
    assert set(done.verdicts().values()) == {"pass"} and len(done.verdicts()) == 4
    assert len(list(done.results.glob("cloud/gathered/cluster/ranks/*.jsonl"))) == 2
    assert service.kinds == {"nodes": {}, "queuedResources": {}} and not world.processes()
    registered = [path for method, path, _ in service.requests if method == "PATCH"]
    assert len(registered) == 1, "two first connections would overwrite each other's key"
