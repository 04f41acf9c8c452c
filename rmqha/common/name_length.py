"""How long a name may be that somebody who was not asked who he is tells a name server or a controller."""

MAX_NAME_LENGTH = 255  # of brokers, clusters, topics and addresses


def too_long(*names: str | None) -> str | None:
    """What is wrong with the first one that is too long; None when none is."""
    for name in names:
        if name is not None and len(name) > MAX_NAME_LENGTH:
            return f"{name[:40]}... has {len(name)} characters, {MAX_NAME_LENGTH} are allowed"
    return None
