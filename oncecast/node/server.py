"""A server that runs one replica of one group."""

from __future__ import annotations

import logging

from oncecast.errors import Diverged
from oncecast.network.incidents import line
from oncecast.network.login import Logins
from oncecast.node.assemble import Parts
from oncecast.node.config import Settings
from oncecast.node.derived import options_of, warn_of_batches, warn_of_join
from oncecast.node.http import Page
from oncecast.node.logins import AccessLogins
from oncecast.node.metrics import counters, page, replica_metrics
from oncecast.node.process import Process
from oncecast.node.replica import Replica

logger = logging.getLogger("oncecast.node")


class Server(Process):
    def __init__(self, settings: Settings, *, logins: Logins | None = None) -> None:
        """Open the directory and recover its state. `run` starts to accept clients."""
        super().__init__(settings)
        try:
            self.replica = Replica(
                settings,
                self.me,
                settings.data,
                self.joined,
                audit=self.audit,
                kafka=lambda: self.kafka_at,
            )
        except BaseException:
            super().close()
            raise
        self.runtime = self.replica.make_runtime(
            listen=self.listen,
            tls=self.tls,
            secret=self.secret,
            insecure=settings.insecure,
            logins=logins or AccessLogins(lambda: self.replica.access, self.audit.login),
            options=options_of(settings),
        )

    @property
    def parts(self) -> Parts:
        return self.replica.parts

    async def run(self) -> None:
        try:
            await super().run()
        except Diverged as error:
            logger.error(line("diverged", {"why": error}))
            raise

    def announce(self) -> None:
        self.replica.announce()
        if self.joined and self.replica.alone:
            warn_of_join(self.settings, "group")
        if self.replica.group.contacts or self.replica.group.others():
            warn_of_batches(self.settings)

    async def hand_over(self) -> None:
        await self.replica.hand_over()

    def close(self) -> None:
        super().close()
        self.replica.close()

    def metrics(self) -> Page:
        return page([*counters(self.runtime.stats), *replica_metrics(self.replica)])

    def facts(self) -> dict[str, object]:
        return self.replica.health()._asdict()
