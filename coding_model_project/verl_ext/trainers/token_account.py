"""Where the tokens went that an asynchronous run generated."""

from __future__ import annotations

from dataclasses import dataclass

from coding_model_project.errors import TrainingError


@dataclass(slots=True, kw_only=True)
class TokenAccount:
    """Tokens of an attempt, added up since it began.

    generated + restored = trained + evicted + validated + left out + in flight. All but the last are
    counted where they arise; "in flight" is the rest. It holds at least the queued samples, which are
    counted as well; the remainder are answers that are being generated or judged.
    """

    restored: int = 0
    """Of queued samples in the checkpoint that the attempt started from."""
    trained: int = 0
    evicted: int = 0
    """Of samples that were judged and then too old, or of a group that agreed."""

    def metrics(
        self, *, generated: int | None, queued: int, validated: int, left_out: int
    ) -> dict[str, float]:
        """Return the account as metrics.

        Args:
            generated: by the rollout servers' own counters, read after all others; None where they do not
                count.
            queued: of samples that wait to be trained on.
            validated: of validation samples.
            left_out: of sessions that failed, and of answers that an agent's loop did not hand over.

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
                f"{queued} wait, but the rollout servers generated {generated} (and {self.restored} were "
                "restored): some were counted twice; this is a bug, please report it"
            )
        return {
            **known,
            "rollout/generated_tokens_total": generated,
            "rollout/restored_tokens": self.restored,
            "rollout/in_flight_tokens": in_flight,
            "rollout/queued_tokens": queued,
        }
