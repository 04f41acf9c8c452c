"""onRoleChange on Kubernetes: label the master's pod, so that the Service rmqha-broker-a-master leads to it.

    label-pod.py master|slave|none BROKER_NAME EPOCH

The label is rmqha.io/role. A new master also takes the label from the other pods of its StatefulSet, because a pod
whose node is gone cannot do that. The label rmqha.io/epoch has the master's epoch, and the higher one is newer: a
command that was delayed takes nothing from a newer master.

It asks the API server with the token of the pod's service account. RMQHA_REPLICAS is the number of replicas, by
default 3. It needs only the standard library: the image has no curl.
"""
import http.client
import json
import os
import ssl
import sys

ACCOUNT = os.environ.get("RMQHA_SERVICE_ACCOUNT", "/var/run/secrets/kubernetes.io/serviceaccount")
ROLE, EPOCH = "rmqha.io/role", "rmqha.io/epoch"
TIMEOUT_S = 2
NOT_FOUND = 404


class Api:
    """The API server, over one connection."""

    def __init__(self) -> None:
        with open(f"{ACCOUNT}/token", encoding="ascii") as file:
            self._token = file.read().strip()
        self._connection = http.client.HTTPSConnection(
            os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"]), timeout=TIMEOUT_S,
            context=ssl.create_default_context(cafile=f"{ACCOUNT}/ca.crt"))

    def labels(self, pod: str) -> "dict[str, str] | None":
        """Return the labels of a pod; None if it does not exist."""
        found = self._ask("GET", pod)
        return None if found is None else found["metadata"].get("labels", {})

    def label(self, pod: str, role: str, epoch: str) -> None:
        """Set the labels of a pod."""
        self._ask("PATCH", pod, {"metadata": {"labels": {ROLE: role, EPOCH: epoch}}})

    def _ask(self, method: str, pod: str, body: object = None) -> "dict | None":
        self._connection.request(
            method, f"/api/v1/namespaces/{os.environ['POD_NAMESPACE']}/pods/{pod}",
            None if body is None else json.dumps(body),
            {"Authorization": f"Bearer {self._token}", "Content-Type": "application/merge-patch+json"})
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status == NOT_FOUND:
            return None
        if answer.status >= 300:
            sys.exit(f"{method} {pod}: {answer.status} {text.decode('utf-8', 'replace')[:500]}")
        return json.loads(text)


def main() -> None:
    """Label this pod, and as a new master the others."""
    role, _broker_name, epoch = sys.argv[1:4]
    api, own = Api(), os.environ["POD_NAME"]
    api.label(own, role, epoch)
    if role != "master":
        return
    stateful_set = own.rpartition("-")[0]
    for number in range(int(os.environ.get("RMQHA_REPLICAS", "3"))):
        pod = f"{stateful_set}-{number}"
        labels = api.labels(pod) if pod != own else None
        if labels is not None and labels.get(ROLE) == "master" and int(labels.get(EPOCH, "0")) < int(epoch):
            api.label(pod, "none", epoch)


main()
