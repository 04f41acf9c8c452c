"""What the command line of a broker makes of the TLS settings."""
import pytest

from rmqha.broker import broker_startup
from rmqha.remoting.tls_system_config import TlsMode


@pytest.mark.parametrize("options, line, expected", [
    ("", "", False),
    ("-Dtls.server.mode=enforcing", "", True),  # a name server that takes TLS only is to be expected
    ("-Dtls.server.mode=enforcing -Dtls.enable=false", "", False),
    ("-Dtls.enable=true", "", True),
    ("-Dtls.enable=true", "useTLS=false", False),
    ("-Dtls.server.mode=disabled", "useTLS=true", True),
])
def test_outgoing_connections_use_tls_as_told(options, line, expected, tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_OPT", options)
    monkeypatch.setattr(broker_startup, "_set_up_logging", lambda *_: None)
    file = tmp_path / "broker.conf"
    file.write_text(f"listenPort=0\nstorePathRootDir={tmp_path}/store\n{line}\n")
    controller = broker_startup.create_broker_controller(broker_startup.parse_command_line(["-c", str(file)]))
    try:
        client = controller.broker_outer_api.remoting_client
        assert (client.config.useTLS, client._ssl_context is not None) == (expected, expected)
        mode = TlsMode.ENFORCING if "enforcing" in options else TlsMode.DISABLED if "disabled" in options else \
            TlsMode.PERMISSIVE
        assert controller.remoting_server.tls.tls_mode is controller.fast_remoting_server.tls.tls_mode is mode
    finally:
        controller.shutdown()
