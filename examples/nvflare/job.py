"""Run two private rounds of four clients in NVFlare's simulator, and account for the ledger.

Run: python examples/nvflare/job.py FOLDER [SEED]    (where nvflare is installed)
"""

import sys
from pathlib import Path

from nvflare import FedJob, FilterType
from private_job import CLIENTS, CLIP_NORM, Train, Workflow

import fedprivacy as fp
from fedprivacy.integrations.nvflare import ClippedUpdate


def main() -> None:
    folder = Path(sys.argv[1]).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else None
    job = FedJob(name="private", min_clients=CLIENTS)
    job.to_server(Workflow(str(folder), seed=seed))
    job.to_clients(Train(), tasks=["train"])
    job.to_clients(ClippedUpdate(CLIP_NORM), tasks=["train"], filter_type=FilterType.TASK_RESULT)
    job.simulator_run(str(folder / "simulator"), n_clients=CLIENTS, threads=CLIENTS)
    print(fp.audit(folder / "run.jsonl").statement)


if __name__ == "__main__":
    main()
