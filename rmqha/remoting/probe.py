"""Whether somebody listens at an address."""
import socket


def refusal(host: str, port: int, timeout_s: float) -> str | None:
    """Why no connection to host:port comes about within `timeout_s` seconds; None when one does. It is closed again."""
    try:
        socket.create_connection((host.strip("[]"), port), timeout_s).close()
    except TimeoutError:
        return f"no answer within {timeout_s:g} s"
    except OSError as error:
        return error.strerror or str(error)
    except OverflowError:
        return "this is no port"
    return None
