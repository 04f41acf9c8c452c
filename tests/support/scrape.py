"""Reading a metrics port as Prometheus does."""
import http.client
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from rmqha.common.metrics import Subject
from rmqha.remoting.http_port import MetricsPort


def http_get(port: int, path: str, method: str = "GET") -> tuple[int, bytes, dict[str, str]]:
    """Status, body and headers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read(), dict(answer.getheaders())
    finally:
        connection.close()


class Scrape:
    """The metrics of one answer."""

    def __init__(self, port: int) -> None:
        status, body, _headers = http_get(port, "/metrics")
        assert status == 200, body
        self.text = body.decode()
        self.families = {family.name: family for family in text_string_to_metric_families(self.text)}
        self.samples: list[Sample] = [sample for family in self.families.values() for sample in family.samples]

    def all(self, name: str, **labels: str) -> list[Sample]:
        """The samples of a name that have these labels."""
        return [sample for sample in self.samples
                if sample.name == name and labels.items() <= sample.labels.items()]

    def value(self, name: str, **labels: str) -> float:
        """The value of the one sample of a name that has these labels."""
        found = self.all(name, **labels)
        assert len(found) == 1, f"{name} {labels}: {found}"
        return found[0].value


@contextmanager
def metrics_port(subject: Subject) -> Iterator[int]:
    """A port that tells `subject`."""
    port = MetricsPort("127.0.0.1", 0, lambda: subject)
    port.start()
    try:
        yield port.local_port
    finally:
        port.shutdown()
