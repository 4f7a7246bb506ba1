"""Settings shared by all tests; pytest puts this folder on the import path, so tests may `import random_tasks`."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# Derandomised: a property test is the same test on every run. No deadline: shared machines stall. More examples in the
# long run.
EXAMPLES = int(os.environ.get("SUREFOOT_EXAMPLES", "20"))
settings.register_profile("surefoot", derandomize=True, deadline=None, max_examples=EXAMPLES)
settings.load_profile("surefoot")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one file go to one process, which makes once what they share; those that compile with JAX all to the
    same one (`xdist_group` in their modules). Long ones go wherever there is time."""
    for item in items:
        if not (item.get_closest_marker("xdist_group") or item.get_closest_marker("long")):
            item.add_marker(pytest.mark.xdist_group(item.path.name))
