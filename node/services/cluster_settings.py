"""The part of OperatorService that shows and changes the cluster's settings."""

from __future__ import annotations

from tarry.node.assembly import Core
from tarry.node.defaults import whole
from tarry.node.edge.leader_calls import Answer
from tarry.node.services.policy_faults import policy_fault
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_operator_pb2 as pb
from tarry.proto.reasons import Reason
from tarry.proto.tarry_message_pb2 import DURABILITY_ASYNC
from tarry.replication.state_machine import cluster_settings
from tarry.replication.state_machine.command_costs import cost_us
from tarry.replication.state_machine.refusal import Refusal


class ClusterCalls:
    """Answers operators about the cluster's settings, on the leader."""

    def __init__(self, core: Core) -> None:
        self._machine, self._driver, self._time = core.machine, core.driver, core.time
        self._config, self._journal = core.config, core.journal

    async def set(self, request: pb.SetClusterRequest) -> Answer:
        """Change the settings, and answer as ``describe``."""
        text = cluster_settings.fault(request.settings, request.unset)
        if text := text or policy_fault(self._config, request.settings.group_policy):
            return Refusal(Reason.SETTING_INVALID, text)
        if request.settings.durability == DURABILITY_ASYNC and not self._journal.may_defer:
            return Refusal(
                Reason.SETTING_INVALID,
                f"{self._config.boot_id_file} tells {self._config.node} no boot id, so it would not notice "
                "that its machine lost its power: keep durability sync, or have each start of the machine "
                "write another text there (boot_id_file)",
            )
        command = log_pb.ClusterSettingsCommand(
            settings=request.settings, unset=request.unset, now_ms=self._time.now_ms()
        )
        # Flushed: who goes back to sync is answered once no loss of power takes anything back.
        done = await self._driver.propose(self._machine.encode(command), cost_us(command), flushed=True)
        return done if isinstance(done, Refusal) else self._described()

    async def describe(self, _: pb.DescribeClusterRequest) -> Answer:
        """Answer with the settings as they count, as they are set, and who sets each."""
        await self._driver.read_barrier()
        return self._described()

    def _described(self) -> bytes:
        defaults = self._machine.queues.defaults
        settings, set_by = whole(defaults, self._config)
        answer = pb.DescribeClusterResponse(settings=settings, own=defaults.settings, set_by=set_by)
        return answer.SerializeToString()
