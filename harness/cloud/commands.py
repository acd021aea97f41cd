"""Every gcloud command this project issues, as argument lists. Nothing here runs anything.

The flags differ between the two surfaces: `tpu-vm create` says `--version`, `queued-resources create` says
`--runtime-version`. Once its nodes exist, a queued resource is worked with through them, as TPU VMs, so that `ssh` and
`scp` are needed for one surface only. Each call names one worker: with `--worker=all` gcloud tells neither which worker
failed nor, for several nodes, every exit code, and `--output-directory` of gcloud 528 writes into a folder `None`.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence

from harness.cloud.options import Options

VM = ("compute", "tpus", "tpu-vm")
QUEUE = ("compute", "tpus", "queued-resources")
Command = list[str]


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a resource is.

    Attributes:
      zone: its zone.
      project: its project, or "" for gcloud's own.
    """

    zone: str
    project: str = ""

    @property
    def flags(self) -> Command:
        project = [f"--project={self.project}"] if self.project else []
        return [f"--zone={self.zone}", *project, "--quiet"]


@dataclasses.dataclass(frozen=True)
class Worker:
    """One host of a TPU.

    Attributes:
      node: the TPU VM it belongs to.
      index: its number within the node.
      address: its internal address.
    """

    node: str
    index: int
    address: str = ""

    def __str__(self) -> str:
        return f"{self.node} worker {self.index}"


def create(options: Options, name: str, place: Place, labels: Mapping[str, str]) -> Command:
    """Asks for a TPU VM, or for a queued resource where the options want one."""
    size = (
        [f"--accelerator-type={options.accelerator_type}"]
        if options.accelerator_type
        else [f"--type={options.type}", f"--topology={options.topology}"]
    )
    common = [*size, *place.flags, f"--labels={','.join(f'{k}={v}' for k, v in labels.items())}"]
    common += [f"--{flag}" for flag in ("spot", "reserved") if getattr(options, flag)]
    for flag in ("network", "subnetwork", "service_account"):
        if getattr(options, flag):
            common.append(f"--{flag.replace('_', '-')}={getattr(options, flag)}")
    if options.internal_ip or options.tunnel_through_iap:
        common.append("--internal-ips")
    if not options.by_queue:
        return [*VM, "create", name, f"--version={options.runtime}", *common]
    nodes = (
        [f"--node-count={options.node_count}", f"--node-prefix={name}"]
        if options.node_count > 1
        else [f"--node-id={name}"]
    )
    until = [f"--valid-until-duration={options.valid_until}"] if options.valid_until else []
    return [
        *QUEUE,
        "create",
        name,
        f"--runtime-version={options.runtime}",
        *nodes,
        *until,
        "--async",
        *common,
    ]


def describe(name: str, place: Place, queued: bool = False) -> Command:
    return [*(QUEUE if queued else VM), "describe", name, *place.flags, "--format=json"]


def listing(place: Place, queued: bool = False) -> Command:
    return [*(QUEUE if queued else VM), "list", *place.flags, "--format=json"]


def delete(name: str, place: Place, queued: bool = False) -> Command:
    """Deletes a resource; a queued one together with its nodes, without which gcloud refuses."""
    return [*(QUEUE if queued else VM), "delete", name, *place.flags, *(["--force"] if queued else [])]


def ssh(options: Options, worker: Worker, place: Place, remote: Sequence[str]) -> Command:
    """Runs a command on one worker; its words are quoted for the shell that the worker starts it with."""
    return [
        *_connect(options),
        "ssh",
        worker.node,
        *_to(options, worker, place),
        f"--command={shlex.join(remote)}",
    ]


def scp_to(options: Options, worker: Worker, place: Place, files: Sequence[str], folder: str) -> Command:
    """Copies local files into an existing folder of a worker."""
    return [*_connect(options), "scp", *files, f"{worker.node}:{folder}/", *_to(options, worker, place)]


def scp_from(options: Options, worker: Worker, place: Place, path: str, target: str) -> Command:
    """Copies one file of a worker to a local path."""
    return [*_connect(options), "scp", f"{worker.node}:{path}", target, *_to(options, worker, place)]


def _connect(options: Options) -> Command:
    """The surface for connections: the tunnel is in gcloud's alpha component only."""
    return ["alpha", *VM] if options.tunnel_through_iap else [*VM]


def _to(options: Options, worker: Worker, place: Place) -> Command:
    flags = [f"--worker={worker.index}", *place.flags, "--strict-host-key-checking=no"]
    flags += ["--internal-ip"] if options.internal_ip else []
    return flags + (["--tunnel-through-iap"] if options.tunnel_through_iap else [])
