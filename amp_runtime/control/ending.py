"""When a run has trained enough, and why."""

from __future__ import annotations

from amp_runtime.control.settings import ControllerSettings
from amp_runtime.control.stages import Split, StageResult
from amp_runtime.errors import ConfigError, nearest


class Ending:
    """Says after each stage whether the run is over.

    Args:
        n_train, n_valid: examples of the splits.
        began: when training began.
    """

    def __init__(
        self, settings: ControllerSettings, n_train: int, n_valid: int, began: float
    ) -> None:
        self._settings = settings
        self._n_train, self._n_valid = n_train, n_valid
        self._began = began

    def reason(self, result: StageResult, n_trained: int, now: float) -> str:
        """Return why the run ends after a stage, in words; '' where it does not.

        Args:
            n_trained: examples trained on, over all epochs.
        Raises:
            ConfigError: the target's metric is none of the model's.
        """
        if self._settings.evaluate is not None:
            return "evaluated"
        if result.split is Split.TRAIN and self._n_valid:
            return ""
        target = self._settings.target
        if target is not None and result.complete and target.metric not in result.metrics:
            raise ConfigError(
                f"no metric {target.metric!r}{nearest(target.metric, result.metrics)}; this model "
                f"has {', '.join(sorted(result.metrics)) or 'none'}",
                where="training.target",
            )
        if target is not None and target.reached(result.metrics):
            return f"target reached: {target.metric} {result.metrics[target.metric]:.4f}"
        limit, n = self.limit_reached(n_trained, now), self._settings.max_epochs
        cut = limit and n_trained < n * self._n_train
        if result.epoch >= n and not cut:
            return f"{n} epoch{'s'[: n > 1]} done"
        return limit

    def seconds(self, now: float) -> float:
        """Return how long training has gone on."""
        return now - self._began

    def limit_reached(self, n_trained: int, now: float) -> str:
        """Return which limit has ended training, in words; '' while none has."""
        most = self._settings.max_examples
        if most is not None and n_trained >= most:
            return f"max_examples reached: {n_trained} examples"
        if self.time_is_up(now):
            return f"max_minutes reached: {self._settings.max_minutes:g} minutes"
        return ""

    def over(self, epoch: int, n_trained: int, now: float) -> str:
        """Return why there is nothing to train on, from the beginning of `epoch` on; '' if
        there is."""
        n = self._settings.max_epochs
        return f"{n} epoch{'s'[: n > 1]} done" * (epoch > n) or self.limit_reached(n_trained, now)

    def time_is_up(self, now: float) -> bool:
        """Whether training may inject no more; what is trained is validated all the same."""
        minutes = self._settings.max_minutes
        return minutes is not None and now - self._began >= 60 * minutes
