"""Runs fairseq's commands in forked children of one process that has imported fairseq, which takes seconds.

``python fork_server.py`` reads a line of JSON with a list of jobs, runs them side by side, and answers with the
list of their exit codes. Each child goes through the command's own entry and ends as the interpreter ends it.
The plugin itself is not imported here, so that ``--user-dir`` does it in the child.
"""

import importlib
import json
import os
import sys

from hydra.core.override_parser.overrides_parser import OverridesParser

ENTRIES = {
    "fairseq-train": "fairseq_cli.train",
    "fairseq-hydra-train": "fairseq_cli.hydra_train",
    "fairseq-preprocess": "fairseq_cli.preprocess",
    "fairseq-validate": "fairseq_cli.validate",
}
# what a run imports on the way: torch's optimisers and fairseq's reading of its options
SLOW_IMPORTS = ("torch._dynamo", "tensorboardX", "hydra.experimental")


def start(job: dict) -> int:
    """Fork; the child returns 0, the parent the child's id."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(log, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(job["cwd"])
        sys.argv = [job["command"], *job["arguments"]]
    return child


def main() -> None:
    """Serve until the input ends; in a child, run its job."""
    for module in (*ENTRIES.values(), *SLOW_IMPORTS):
        importlib.import_module(module)
    OverridesParser.create().parse_overrides(["warm=up"])  # builds hydra's grammar
    for line in sys.stdin:
        children = []
        for job in json.loads(line):
            child = start(job)
            if child == 0:
                if job["registered"]:
                    importlib.import_module("fairseq_tn").register()
                importlib.import_module(ENTRIES[job["command"]]).cli_main()
                return
            children.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        print(json.dumps(codes), flush=True)


if __name__ == "__main__":
    main()
