"""The artifact that training hands to deployment, and its form on disk."""

from surefoot.policyset.policy_value_set import Entry, PolicyValueSet

__all__ = ["Entry", "PolicyValueSet"]
