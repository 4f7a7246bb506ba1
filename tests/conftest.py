"""Settings shared by all tests; pytest puts this folder on the import path, so tests may `import random_tasks`."""

from __future__ import annotations

from hypothesis import settings

# Derandomised: a property test is the same test on every run. No deadline: shared machines stall.
settings.register_profile("surefoot", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("surefoot")
