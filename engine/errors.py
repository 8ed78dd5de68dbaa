"""Errors that a user can act on: what happened, where, why, and what to do."""

from __future__ import annotations


class NoctuneError(Exception):
    """Bad input or a broken environment; the command line prints it and exits with code 2."""

    def __init__(self, what: str, *, where: str = "", why: str = "", fix: str = "") -> None:
        self.what, self.where, self.why, self.fix = what, where, why, fix
        super().__init__(str(self))

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.what, self.where, self.why, self.fix))

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        if self.why:
            text += f" ({self.why})"
        return f"{text}. {self.fix}" if self.fix else text


def _rebuild(cls: type[NoctuneError], what: str, where: str, why: str, fix: str) -> NoctuneError:
    return cls(what, where=where, why=why, fix=fix)


class ModelError(NoctuneError):
    """The model file cannot be read or holds something that cannot run."""


class InputError(NoctuneError):
    """An array given to a network has the wrong name, shape or type."""


class TargetError(NoctuneError):
    """The machine cannot run code for this target."""


class StoreError(NoctuneError):
    """The database cannot be reached, read or written."""
