"""The examples are scripts beside each other: their folder must be where Python looks for modules."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
