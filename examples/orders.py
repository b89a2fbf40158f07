"""An order pipeline with three services, each in a process of its own.

    shop ──▶ {shop}.orders ──▶ billing ──▶ {shop}.bills ──▶ shipping ──▶ {shop}.parcels

python -m examples.orders billing
python -m examples.orders shipping
python -m examples.orders shop ann:2 bob:0 cat:5

Billing and shipping acknowledge a job and put its result in one transaction. So each order has one
bill and one parcel, although services and nodes can fail at any time. Orders of the same customer
are billed one at a time and in order. An order that cannot be billed becomes a dead letter.

The tag in braces keeps all topics in one replica group, because a transaction needs that.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal

import oncecast

ORDERS, BILLS, PARCELS = "{shop}.orders", "{shop}.bills", "{shop}.parcels"
PRICE = 3
SETTINGS = oncecast.Shared(lease=10, deliveries_max=5, backoff_min=0.1, by_key=True)


async def prepare(client: oncecast.Client) -> None:
    """Create the queues, so that they keep messages while a service is not running."""
    await client.create_subscription(ORDERS, "billing", shared=SETTINGS)
    await client.create_subscription(BILLS, "shipping", shared=SETTINGS)
    await client.create_topic(PARCELS, oncecast.Policy(keep_all=True))


async def shop(client: oncecast.Client, orders: list[str]) -> None:
    """Take orders such as `ann:2`: two pieces for Ann."""
    for order in orders:
        customer, _, pieces = order.partition(":")
        value = json.dumps({"customer": customer, "pieces": int(pieces)}).encode()
        await client.put(ORDERS, value, key=customer.encode())


def bill_of(order: dict[str, object]) -> dict[str, object]:
    pieces = order["pieces"]
    if not isinstance(pieces, int) or pieces < 1:
        raise ValueError(f"cannot bill {pieces} pieces")
    return order | {"amount": pieces * PRICE}


async def billing(client: oncecast.Client, jobs: oncecast.SharedSubscription) -> None:
    async def bill(job: oncecast.Job) -> None:
        try:
            found = bill_of(json.loads(job.value))
        except ValueError as error:
            job.reject(str(error))  # another delivery cannot help
            return
        async with client.transaction() as t:
            await t.put(BILLS, json.dumps(found).encode(), key=job.key)
            t.ack(job)

    await jobs.run(bill, concurrency=8)


async def shipping(client: oncecast.Client, jobs: oncecast.SharedSubscription) -> None:
    async def ship(job: oncecast.Job) -> None:
        bill = json.loads(job.value)
        async with client.transaction() as t:
            await t.put(PARCELS, f"{bill['pieces']} for {bill['customer']}".encode(), key=job.key)
            t.ack(job)

    await jobs.run(ship, concurrency=8)


async def serve(client: oncecast.Client, service: str) -> None:
    """Run a service until SIGTERM. It finishes the jobs that it has started."""
    topic, work = (ORDERS, billing) if service == "billing" else (BILLS, shipping)
    jobs = await client.work(topic, service)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, jobs.stop)
    await work(client, jobs)
    await jobs.drain()


async def main() -> None:
    parser = argparse.ArgumentParser(description="An order pipeline with three services.")
    parser.add_argument("service", choices=("shop", "billing", "shipping"))
    parser.add_argument("orders", nargs="*", help="orders such as ann:2, for the shop")
    parser.add_argument("--server", default="127.0.0.1:7400")
    options = parser.parse_intermixed_args()
    async with oncecast.connect(options.server) as client:
        await prepare(client)
        if options.service == "shop":
            await shop(client, options.orders)
        else:
            await serve(client, options.service)


if __name__ == "__main__":
    asyncio.run(main())
