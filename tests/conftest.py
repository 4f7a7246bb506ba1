"""Settings shared by all tests; pytest puts this folder on the import path, so tests may `import random_tasks`."""

from __future__ import annotations

import os

from hypothesis import settings

# Derandomised: a property test is the same test on every run. No deadline: shared machines stall. More examples in the
# long run.
EXAMPLES = int(os.environ.get("SUREFOOT_EXAMPLES", "20"))
settings.register_profile("surefoot", derandomize=True, deadline=None, max_examples=EXAMPLES)
settings.load_profile("surefoot")
