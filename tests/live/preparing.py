"""Prepare a transaction across groups, say so, and wait to be killed.

Arguments: the address of a process, the topic to read, and the topics to put to.
"""

from __future__ import annotations

import asyncio
import sys

import oncecast
from oncecast.client.session.ring_transacting import Ending, RingTransactions


def stop(self: RingTransactions, ending: Ending) -> None:
    print("prepared", flush=True)


async def prepare(address: str, source: str, *outputs: str) -> None:
    async with oncecast.connect(address) as client:
        reader = await client.subscribe(source, "s", auto_ack=False)
        message = await reader.get()
        assert message is not None
        async with client.transaction("copier") as t:
            for topic in outputs:
                await t.put(topic, message.value)
            t.ack(message)


if __name__ == "__main__":
    RingTransactions._decide = stop  # type: ignore[method-assign]
    asyncio.run(prepare(*sys.argv[1:]))
