"""The policy-value set: the output of Algorithm 1 and the whole input of the test phase."""

from __future__ import annotations

from os import PathLike
from typing import Self

from surefoot.policyset import storage
from surefoot.policyset.contents import Contents, Entry

__all__ = ["Entry", "PolicyValueSet"]


class PolicyValueSet(Contents):
    __doc__ = Contents.__doc__

    def save(self, path: str | PathLike[str], *, force: bool = True) -> None:
        """Write the folder `path`, replacing a policy set there unless `force` is False; see `storage.save`."""
        storage.save(self, path, force=force)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read the folder `path` without running any code it names; see `storage.load`."""
        return storage.load(path, cls)

    def digest(self) -> str:
        """SHA-256 of the content; the same before saving, after loading and in every later library version."""
        return storage.digest(self)
