"""What the command can be asked for: each option is one field, from which its flag, its help and its check follow."""

from __future__ import annotations

import dataclasses
import getpass
import re
from typing import Any

from harness.errors import UsageError

NAME = re.compile(r"[a-z]([-a-z0-9]{0,47}[a-z0-9])?")
"""Names of TPUs: RFC 1035 labels; at most 49 letters, so that the number of a node fits behind it in 63."""

RUNTIMES = {
    "v2": "tpu-ubuntu2204-base",
    "v3": "tpu-ubuntu2204-base",
    "v4": "tpu-ubuntu2204-base",
    "v5litepod": "v2-alpha-tpuv5-lite",
    "v5p": "v2-alpha-tpuv5",
    "v6e": "v2-alpha-tpuv6e",
}
"""Runtime versions that the Cloud TPU documentation names for JAX, by the first word of the accelerator type."""


def option(default: Any, text: str, pattern: str = "", example: str = "") -> Any:
    """A field that is also a flag.

    Args:
      default: its value when it is not given; its type is the flag's type.
      text: help.
      pattern: regular expression that every given value must match as a whole.
      example: a value that would be right.
    """
    factory = {"default_factory": lambda: default} if isinstance(default, tuple) else {"default": default}
    return dataclasses.field(**factory, metadata={"help": text, "pattern": pattern, "example": example})


@dataclasses.dataclass(frozen=True)
class Options:
    """Options of one call. Seconds everywhere."""

    # which machine
    accelerator_type: str = option("", "TPU type and size", r"[a-z0-9]+-[1-9]\d*", "v5litepod-8")
    type: str = option("", "TPU type, with --topology instead of --accelerator_type", r"[a-z0-9]+", "v4")
    topology: str = option("", "chips in each direction, with --type", r"[1-9]\d*(x[1-9]\d*){1,2}", "2x2x2")
    zone: tuple[str, ...] = option(
        (),
        "zone; repeated, the next is tried when one is out of stock",
        r"[a-z]+-[a-z]+\d+-[a-z]",
        "us-east5-a",
    )
    project: str = option(
        "",
        "Google Cloud project (default: gcloud's own)",
        r"([a-z0-9.-]+:)?[a-z][-a-z0-9]{4,28}[a-z0-9]",
        "my-project",
    )
    runtime_version: str = option(
        "",
        "software of the TPU VM (default: the one documented for the type)",
        r"[a-z0-9][-a-z0-9.]*",
        "v2-alpha-tpuv6e",
    )
    spot: bool = option(False, "spot capacity, which may be preempted")
    reserved: bool = option(False, "capacity from a reservation")
    queued: bool = option(False, "ask by a queued resource rather than creating the TPU VM at once")
    node_count: int = option(1, "number of slices (more than one needs, and implies, --queued)")
    valid_until: str = option(
        "", "how long a queued request stays valid (implies --queued)", r"[1-9]\d*[smhd]", "6h"
    )
    network: str = option("", "VPC network", r"[a-z]([-a-z0-9]*[a-z0-9])?", "default")
    subnetwork: str = option("", "subnetwork", r"[a-z]([-a-z0-9]*[a-z0-9])?", "default")
    service_account: str = option(
        "", "service account of the TPU VM", r"[^@\s]+@[^@\s]+", "ci@my-project.iam.gserviceaccount.com"
    )
    internal_ip: bool = option(False, "connect to internal addresses, from a machine on the same network")
    tunnel_through_iap: bool = option(
        False, "connect through Identity-Aware Proxy (gcloud's alpha component)"
    )
    name: str = option(
        "", "name of the TPU (default: made from the run's id)", NAME.pattern, "axis-conformance-1"
    )
    owner: str = option(
        "",
        "who owns the run (default: this user); `sweep` touches only one owner's left-overs",
        r"[a-z0-9][-_a-z0-9]{0,62}",
        "nightly",
    )
    keep: bool = option(False, "leave the TPU running, which costs money until you delete it")

    # what is run there
    jax: str = option(
        "",
        "JAX to install: a release, `nightly`, a wheel, or `image` for what the image has (default: the newest release)",
        r"\S+",
        "0.12.0.1",
    )
    wheel: tuple[str, ...] = option(
        (), "further wheel to install on the workers, such as a plugin; repeatable"
    )
    python: str = option(
        "3.12", "Python on the workers where the image's is older than 3.11", r"3\.(1[1-9]|[2-9]\d)", "3.12"
    )
    worker_python: str = option(
        "",
        "interpreter on the workers that has everything, used as it is",
        r"[-\w./+]+",
        "/opt/venv/bin/python",
    )
    profile: tuple[str, ...] = option((), "profile to run (default: the suite's own); repeatable")
    case: tuple[str, ...] = option((), "case line to run instead of a profile; repeatable")
    expectations: str = option("", "your folder of expectation files (default: the suite's own)")
    backend: str = option("tpu", "backend of the suite", r"[a-z][-\w]*", "tpu")
    chips: int = option(0, "chips of a single host (default: counted there)")
    coordinator_port: int = option(
        0, "tell the processes each other's address rather than letting JAX find it"
    )
    source: str = option("", "git repository of the suite (default: this one)")
    commit: str = option(
        "HEAD", "commit to run; uncommitted changes are not copied", r"[-\w./^~@{}]+", "main"
    )

    # where results go
    results: str = option("", "results folder (default results/TIME)")
    resume: str = option("", "go on with the run of that results folder")

    # patience
    attempts: int = option(
        3, "tries of the whole run, after preemption and other trouble of the infrastructure"
    )
    backoff: float = option(
        30.0, "pause before a second try, doubled for each further one, up to ten minutes"
    )
    poll: float = option(15.0, "time between two looks at a state")
    wait_deadline: float = option(3600.0, "time to get a TPU that is ready, stock-outs included")
    setup_deadline: float = option(1800.0, "time for copying and installing")
    run_deadline: float = option(10800.0, "time for the suite")
    settle: float = option(20.0, "time in which a TPU may still appear whose request was not answered")
    delete_deadline: float = option(900.0, "time for deleting the TPU")
    silence: float = option(180.0, "a connection without a sign of life for so long is made anew")
    grace: float = option(120.0, "time the other workers get after the suite on one of them died")
    reconnects: int = option(5, "failed connections to a worker in a row before it counts as lost")
    parallel: int = option(16, "workers that are copied to at once")

    # how
    gcloud: str = option("gcloud", "the gcloud command")
    dry_run: bool = option(False, "print every command and run none")
    assume_workers: int = option(1, "workers a node has in a dry run, where nothing can be asked")

    @property
    def by_queue(self) -> bool:
        return self.queued or self.node_count > 1 or bool(self.valid_until)

    @property
    def runtime(self) -> str:
        """The runtime version; raises UsageError where none is documented for the type."""
        if self.runtime_version:
            return self.runtime_version
        family = self.accelerator_type.partition("-")[0] or self.type
        if family not in RUNTIMES:
            raise UsageError(
                f"--runtime_version: none is known for {family}; right would be e.g. {RUNTIMES['v6e']} "
                "(see the Cloud TPU documentation on software versions)"
            )
        return RUNTIMES[family]

    @property
    def who(self) -> str:
        """The owner as a label value."""
        return self.owner or re.sub(r"[^a-z0-9]+", "-", getpass.getuser().lower()).strip("-") or "unknown"


def fields() -> dict[str, dataclasses.Field]:
    return {field.name: field for field in dataclasses.fields(Options)}


def define(flag_values: Any) -> None:
    """Defines a flag of absl for each option."""
    from absl import flags

    for name, field in fields().items():
        default = getattr(Options, name, None) if field.default_factory is dataclasses.MISSING else ()
        text = field.metadata["help"]
        common = {"flag_values": flag_values, "module_name": "cloud_tpu_ci"}
        if isinstance(default, bool):
            flags.DEFINE_boolean(name, default, text, **common)
        elif isinstance(default, int):
            flags.DEFINE_integer(name, default, text, lower_bound=0, **common)
        elif isinstance(default, float):
            flags.DEFINE_float(name, default, text, lower_bound=0, **common)
        elif isinstance(default, tuple):
            flags.DEFINE_multi_string(name, [], text, **common)
        else:
            flags.DEFINE_string(name, default, text, **common)


def from_flags(flag_values: Any) -> Options:
    """The options as given; raises UsageError for the first that cannot be used."""
    values = {name: getattr(flag_values, name) for name in fields()}
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    options = Options(**values)
    _check_patterns(options)
    return options


def _check_patterns(options: Options) -> None:
    for name, field in fields().items():
        value = getattr(options, name)
        pattern = field.metadata["pattern"]
        for one in value if isinstance(value, tuple) else (value,):
            if pattern and one and not re.fullmatch(pattern, one):
                raise UsageError(
                    f"--{name}={one}: not usable; right would be e.g. {field.metadata['example']}"
                )


def check_place(options: Options) -> None:
    """What both `run` and `sweep` need."""
    if not options.zone:
        raise UsageError("--zone is needed; right would be e.g. --zone=us-east5-a")


def check_run(options: Options) -> None:
    """Refuses what a run cannot be made of, before anything is created."""
    check_place(options)
    if bool(options.accelerator_type) == bool(options.type or options.topology):
        raise UsageError(
            "one of --accelerator_type (such as v5litepod-8) and --type with --topology (such as v4, 2x2x2) is needed"
        )
    if bool(options.type) != bool(options.topology):
        raise UsageError("--type and --topology go together; right would be e.g. --type=v4 --topology=2x2x2")
    if options.spot and options.reserved:
        raise UsageError("--spot and --reserved exclude each other")
    if options.internal_ip and options.tunnel_through_iap:
        raise UsageError("--internal_ip and --tunnel_through_iap exclude each other")
    if options.results and options.resume:
        raise UsageError("--results and --resume exclude each other")
    if options.case and options.profile:
        raise UsageError("--case and --profile exclude each other")
    for name in ("attempts", "node_count", "parallel", "assume_workers"):
        if getattr(options, name) < 1:
            raise UsageError(f"--{name}={getattr(options, name)}: right would be 1 or more")
    if options.coordinator_port > 65535:
        raise UsageError(f"--coordinator_port={options.coordinator_port}: right would be 1024 to 65535")
    if options.jax == "image" and options.wheel and not options.worker_python:
        raise UsageError("--wheel needs an environment to install into; leave out --jax=image")
    if options.worker_python and (options.wheel or options.jax not in ("", "image")):
        raise UsageError("--worker_python is used as it is: --jax and --wheel cannot be installed into it")
    _ = options.runtime
