"""A worker of the pool that makes the reports of `examples.web`.

python -m examples.web_pool
"""

from __future__ import annotations

import oncecast
from examples.results import Results
from examples.web import DATABASE, SERVER, SUBSCRIPTION, TOPIC

results = Results(DATABASE)


# A plain function runs in a thread, so it may take long and block.
@oncecast.worker(TOPIC, SUBSCRIPTION, concurrency=4)
def make_report(job: oncecast.Job) -> None:
    results.store(job, f"report about {job.value.decode()}")


if __name__ == "__main__":
    make_report.run(SERVER)
