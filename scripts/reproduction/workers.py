"""How the runner was started: by itself on one machine, or once a GPU or node by torchrun or SLURM."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from fairseq_tn.errors import UserError

_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
# what fairseq or torch would take for an invitation to join a group of processes
_FOREIGN = ("TORCHELASTIC_", "SLURM_", "GROUP_", "ROLE_", "LOCAL_RANK", "LOCAL_WORLD_SIZE", *_TORCHRUN)
_FIRST_PORT = 20000


@dataclass(frozen=True)
class Launch:
    """One of the processes that were started together.

    Attributes:
        kind: ``alone``, ``torchrun`` or ``slurm``.
        rank: the first one (0) does all the work that takes one process.
        processes: how many were started.
        nodes: of SLURM.
        name: the same in all processes of one start, another one in the next.
    """

    kind: str = "alone"
    rank: int = 0
    processes: int = 1
    nodes: int = 1
    name: str = ""

    def world_size(self, gpus: int) -> int:
        """Processes that train, with ``gpus`` in this machine."""
        if self.kind == "slurm" and self.processes == self.nodes:
            return self.nodes * gpus  # fairseq starts one a GPU
        return gpus if self.kind == "alone" else self.processes

    def check(self, gpus: int) -> None:
        """End where fairseq would start a run in each process, all of them writing to one folder.

        Raises:
            UserError: several processes and no GPU
        """
        if self.kind != "alone" and gpus == 0:
            raise UserError(
                f"{self.kind} started {self.processes} processes, and this machine has no GPU (or --gpus 0 was "
                "given): fairseq trains on several CPUs only by hand; start scripts/reproduce.sh by itself"
            )

    def alone_environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """The environment of a command that one process runs."""
        return {key: value for key, value in environment.items() if not key.startswith(_FOREIGN)}

    def training_environment(self, environment: Mapping[str, str], number: int) -> dict[str, str]:
        """The environment of a training command that all processes run together, the ``number``-th of the plan.

        Each gets a port of its own: the store of one group of processes holds what the next must not read.
        """
        if self.kind == "alone":
            return self.alone_environment(environment)
        changed = {key: value for key, value in environment.items() if not key.startswith("TORCHELASTIC_")}
        if self.kind == "torchrun":
            changed["MASTER_PORT"] = str(_port(int(environment["MASTER_PORT"]), number))
        return changed

    def port(self, number: int) -> int | None:
        """``distributed_port`` of the ``number``-th command: SLURM's processes find each other by it."""
        if self.kind != "slurm":
            return None
        digits = "".join(filter(str.isdigit, self.name)) or "0"
        return _port(_FIRST_PORT + int(digits) % 10000, number)


def _port(base: int, number: int) -> int:
    port = base + 1 + number
    return port if port < 65536 else port - 40000


def launch(environment: Mapping[str, str] = os.environ) -> Launch:
    """What the environment says about the start."""
    if all(key in environment for key in _TORCHRUN) and int(environment["WORLD_SIZE"]) > 1:
        name = [environment.get(f"TORCHELASTIC_{key}", "") for key in ("RUN_ID", "RESTART_COUNT")]
        name.append(environment["MASTER_PORT"])
        return Launch(
            "torchrun", int(environment["RANK"]), int(environment["WORLD_SIZE"]), name="-".join(name)
        )
    # of srun; the batch script itself is one process, whatever SLURM_NTASKS says
    tasks = int(environment.get("SLURM_STEP_NUM_TASKS") or 1)
    if tasks > 1 and "SLURM_PROCID" in environment:
        nodes = int(environment.get("SLURM_STEP_NUM_NODES") or environment.get("SLURM_NNODES") or 1)
        name = [environment.get(f"SLURM_{key}", "0") for key in ("JOB_ID", "STEP_ID", "RESTART_COUNT")]
        return Launch("slurm", int(environment["SLURM_PROCID"]), tasks, nodes, "-".join(name))
    return Launch()
