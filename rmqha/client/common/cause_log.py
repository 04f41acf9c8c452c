"""Saying once what goes wrong in the user's code again and again."""
import logging
import threading

_MAX_CAUSES = 1000  # kept apart; all others count as one


class CauseLog:
    """What listeners, hooks, selectors and callbacks do wrong: a WARNING the first time of each cause, then a count.

    A cause is an exception's type and the line that raised it, or the type of a value other than those asked for.
    Any thread may tell of one. Differs: 4.9.8 logs each time, with all messages, which drowns the log.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._log = logger
        self._lock = threading.Lock()
        self.counts: dict[str, int] = {}  # by cause; written under _lock

    def raised(self, error: BaseException, text: str, *args: object) -> None:
        """The user's code has raised `error`; `text % args` says which and at what."""
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = f" in {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else ""
        if self._is_new(f"{type(error).__name__}{place}"):
            self._log.warning(text + " (others of this cause are counted only)", *args, exc_info=error)

    def returned(self, value: object, text: str, *args: object) -> None:
        """The user's code has returned `value`, which it must not."""
        if self._is_new(f"returned {type(value).__name__}"):
            self._log.warning(text + " (others of this cause are counted only)", *args)

    def happened(self, cause: str, text: str, *args: object) -> None:
        """Something else that is worth one line."""
        if self._is_new(cause):
            self._log.warning(text + " (others of this cause are counted only)", *args)

    def log_counts(self, whose: str) -> None:
        """At the end: how often each cause came that came more than once."""
        for cause, count in sorted(self.counts.items()):
            if count > 1:
                self._log.info("%s: %s, %d times in all", whose, cause, count)

    def _is_new(self, cause: str) -> bool:
        with self._lock:
            if cause not in self.counts and len(self.counts) >= _MAX_CAUSES:
                cause = "others"
            count = self.counts[cause] = self.counts.get(cause, 0) + 1
        return count == 1
