"""The policy-value set: the output of Algorithm 1 and the whole input of the test phase."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any, Self

from surefoot.policyset import storage
from surefoot.policyset.contents import Contents, Entry
from surefoot.signals.signals import OwnFunction

__all__ = ["Entry", "PolicyValueSet"]


class PolicyValueSet(Contents):
    __doc__ = Contents.__doc__

    def save(self, path: str | PathLike[str], *, force: bool = True) -> None:
        """Write the folder `path`, replacing a policy set there unless `force` is False; see `storage.save`."""
        storage.save(self, path, force=force)

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        *,
        controllers: Mapping[str, Any] | None = None,
        features: OwnFunction | None = None,
    ) -> Self:
        """Read the folder `path` without running any code it names; see `storage.load`.

        Args:
            controllers: those of one's own by name, which a set does not hold. They are checked against what the set
                knows of them. Without, they can be ordered by name and do not act here.
            features: the function of one's own that signals are made of, which a set does not hold either. It must have
                the values that the set knows of it. Without, signals can be told and not computed here.
        """
        return storage.load(path, cls, controllers, features)

    def digest(self) -> str:
        """SHA-256 of the content; the same before saving, after loading and in every later library version."""
        return storage.digest(self)
