"""An account of the tokens that an asynchronous run generates."""

from __future__ import annotations

from dataclasses import dataclass

from coding_model_project.errors import TrainingError


@dataclass(slots=True, kw_only=True)
class TokenAccount:
    """Token counts of an attempt since it began.

    generated + restored = trained + evicted + validated + left out + in flight. All but the last term are
    counted where they arise; "in flight" is the rest. It includes the queued samples, which are also
    counted, and answers that are being generated or judged.
    """

    restored: int = 0
    """Tokens of queued samples in the checkpoint that the attempt started from."""
    trained: int = 0
    evicted: int = 0
    """Tokens of judged samples that became too old, or whose group has equal rewards."""

    def metrics(
        self, *, generated: int | None, queued: int, validated: int, left_out: int
    ) -> dict[str, float]:
        """Return the account as metrics.

        Args:
            generated: tokens by the rollout servers' own counters, read after all others; None if they do
                not count.
            queued: tokens of samples in the queue.
            validated: tokens of validation samples.
            left_out: tokens of failed sessions, and of answers that an agent's loop did not hand over.

        Raises:
            TrainingError: the account does not balance.
        """
        known = {
            "rollout/trained_tokens_total": self.trained,
            "rollout/evicted_tokens_total": self.evicted,
            "rollout/validated_tokens_total": validated,
            "rollout/left_out_tokens_total": left_out,
        }
        if generated is None:
            return {**known, "rollout/queued_tokens": queued}
        in_flight = generated + self.restored - sum(known.values())
        if in_flight < queued:
            raise TrainingError(
                f"{sum(known.values())} tokens were trained on, evicted, validated or left out and "
                f"{queued} are queued, but the rollout servers generated {generated} "
                f"({self.restored} restored): some were counted twice; this is a bug, please report it"
            )
        return {
            **known,
            "rollout/generated_tokens_total": generated,
            "rollout/restored_tokens": self.restored,
            "rollout/in_flight_tokens": in_flight,
            "rollout/queued_tokens": queued,
        }
