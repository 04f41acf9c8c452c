"""New certificates without a restart: connections made from then on get them, those that stand keep theirs."""
import logging
from collections.abc import Sequence

from rmqha.common.file_watch_service import FileWatchService
from rmqha.remoting.remoting_server import RemotingServer
from rmqha.remoting.tls_system_config import TlsMode

log = logging.getLogger("RocketmqRemoting")


class CertificateWatch:
    """Reloads the certificates of servers with the same TLS settings when their files change.

    Java: org.apache.rocketmq.broker.BrokerController#initialize (4.9.8)
    """

    def __init__(self, servers: Sequence[RemotingServer]) -> None:
        self._servers = servers
        self._service: FileWatchService | None = None  # made by start, when there are files to watch
        # Of the service's thread:
        self._trusted: str | None = None
        self._pair: frozenset[str] = frozenset()  # certificate and key: one without the other is of no use
        self._changed: set[str] = set()  # those of the pair that are new, and not yet loaded

    def start(self) -> None:
        """Watch the files that the settings name. Raises ConfigError when the settings can't be read."""
        tls = self._servers[0].tls
        if tls.tls_mode is TlsMode.DISABLED or self._service is not None:
            return
        settings = tls.with_config_file()
        if settings.tls_test_mode_enable:  # no file is used
            return
        self._trusted = settings.tls_server_trust_cert_path
        pair = settings.tls_server_cert_path, settings.tls_server_key_path
        self._pair = frozenset(path for path in pair if path)
        self._service = FileWatchService((*pair, self._trusted), self._on_changed)
        self._service.start()

    def shutdown(self) -> None:
        """Stop. Idempotent."""
        if self._service is not None:
            self._service.shutdown()

    def _on_changed(self, path: str) -> None:
        if path == self._trusted:
            log.info("The trust certificate changed, reload the ssl context")
            self._reload()
        if path in self._pair:
            self._changed.add(path)
            if self._changed == self._pair:
                log.info("The certificate and private key changed, reload the ssl context")
                self._reload()  # when it fails, the next change of either tries again
                self._changed.clear()

    def _reload(self) -> None:
        for server in self._servers:
            server.load_ssl_context()
