"""A web application that enqueues jobs, and a pool of workers that do them.

python -m examples.web 127.0.0.1:8000     # the web application
python -m examples.web_pool               # a worker; start as many as you need

    POST /reports         put a job; answers 202 with the address of the result
    GET  /reports/7       the result, or 202 while the job waits

The application answers a POST after the job is on disk. Each job has one result, although workers
can be killed at any time. A POST that is repeated is a new job.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import oncecast
from examples.results import Results

TOPIC, SUBSCRIPTION = "reports", "pool"
SERVER = os.environ.get("SERVER", "127.0.0.1:7400")
DATABASE = os.environ.get("DATABASE", "reports.sqlite")


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    """Connect once, and share the connection between all requests."""
    async with oncecast.connect(SERVER) as client:
        # The subscription keeps jobs that are put before the first worker starts.
        await client.create_subscription(TOPIC, SUBSCRIPTION, shared=oncecast.Shared())
        app.state.client, app.state.results = client, Results(DATABASE)
        yield
        app.state.results.close()


async def enqueue(request: Request) -> Response:
    receipt = await request.app.state.client.put(TOPIC, await request.body())
    where = f"/reports/{receipt.offset}"
    return JSONResponse({"result": where}, status_code=202, headers={"location": where})


async def result(request: Request) -> Response:
    found = request.app.state.results.get(request.path_params["offset"])
    if found is None:
        return JSONResponse({"status": "waiting"}, status_code=202)
    return JSONResponse({"status": "done", "report": found})


app = Starlette(
    lifespan=lifespan,
    routes=[
        Route("/reports", enqueue, methods=["POST"]),
        Route("/reports/{offset:int}", result),
    ],
)

if __name__ == "__main__":
    import uvicorn

    host, _, port = sys.argv[1].rpartition(":")
    uvicorn.run(app, host=host, port=int(port))
