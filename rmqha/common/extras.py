"""How the libraries that only some need are installed. rmqha is on no package index: pip is told where it lies."""

WHERE = "PATH-OR-URL"
"""Stands in hints for a checkout, a wheel, or an address of either. Were rmqha on an index, this would be its name."""


def how_to_install(extra: str) -> str:
    """The command that adds an extra of setup.cfg."""
    return f"pip install '{WHERE}[{extra}]'"
