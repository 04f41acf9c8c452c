"""The default of a field that is there whenever somebody reads it."""
from typing import Any

LATER: Any = None  # set behind the constructor; or given by its sender, and looked for when it comes in
