"""The objects of conf/kubernetes as `kubectl kustomize` makes them, and the pods that their StatefulSets describe."""
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.support.sources import ROOT

KUBERNETES = ROOT / "conf" / "kubernetes"
BASE, ONE_NODE = KUBERNETES / "base", KUBERNETES / "one-node"
PROGRAMS = ("mqnamesrv", "mqbroker", "mqcontroller", "mqadmin", "rmqha")
_VARIABLE = re.compile(r"\$\((\w+)\)")

Object = dict[str, Any]


def rendered(folder: Path = BASE) -> list[Object]:
    """Return the objects of the base, as kustomize renders them, but with ConfigMaps under their names without a hash.

    It knows only what the base uses: `test_kubectl_renders_the_same` compares the two.
    """
    plan = yaml.safe_load((folder / "kustomization.yaml").read_text("ascii"))
    assert set(plan) <= {"apiVersion", "kind", "namespace", "labels", "resources", "configMapGenerator", "images"}
    objects = [one for name in plan["resources"] for one in yaml.safe_load_all((folder / name).read_text("ascii"))]
    for generated in plan["configMapGenerator"]:
        data = {Path(name).name: (folder / name).read_text("ascii") for name in generated["files"]}
        objects.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": generated["name"]}, "data": data})
    [labels] = plan["labels"]
    assert labels.keys() == {"pairs", "includeTemplates"} and labels["includeTemplates"]
    images = {image["name"]: f"{image['newName']}:{image['newTag']}" for image in plan["images"]}
    for one in objects:
        if one["kind"] != "Namespace":
            one["metadata"]["namespace"] = plan["namespace"]
        one["metadata"]["labels"] = one["metadata"].get("labels", {}) | labels["pairs"]
        if one["kind"] == "StatefulSet":
            template = one["spec"]["template"]
            template["metadata"]["labels"] |= labels["pairs"]
            for claim in one["spec"].get("volumeClaimTemplates", ()):
                claim["metadata"]["labels"] = claim["metadata"].get("labels", {}) | labels["pairs"]
            for container in [*template["spec"]["containers"], *template["spec"].get("initContainers", ())]:
                container["image"] = images.get(container["image"], container["image"])
    return objects


def of_kind(objects: list[Object], kind: str) -> dict[str, Object]:
    """Return the objects of a kind, by name."""
    return {one["metadata"]["name"]: one for one in objects if one["kind"] == kind}


@dataclass
class Pod:
    """A pod of a StatefulSet with its container, as the kubelet would start it. Its address is in no field, so words of
    init containers, which use it, are not filled in."""

    name: str
    namespace: str
    service: str
    image: str
    command: list[str]
    args: list[str]
    user: int
    read_only: bool
    dropped: list[str]
    # port name -> number
    ports: dict[str, int]
    # (port name, path) of each probe with an HTTP request
    probes: dict[str, tuple[str, str]]
    # mount path -> ("config", a ConfigMap), ("claim", a claim's name), or ("empty", "")
    mounts: dict[str, tuple[str, str]]
    grace_s: int
    # the command that runs in the container before it is stopped
    pre_stop: list[str] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)

    @property
    def host_names(self) -> list[str]:
        """The names that the cluster's DNS has for the pod, without the cluster's own domain."""
        return [self.name, f"{self.name}.{self.service}", f"{self.name}.{self.service}.{self.namespace}",
                f"{self.name}.{self.service}.{self.namespace}.svc"]


def pods(stateful_set: Object) -> Iterator[Pod]:
    """Yield the pods of a StatefulSet, in their order."""
    spec = stateful_set["spec"]
    template, name = spec["template"], stateful_set["metadata"]["name"]
    [container] = template["spec"]["containers"]
    for number in range(spec["replicas"]):
        pod_name, namespace = f"{name}-{number}", stateful_set["metadata"]["namespace"]
        labels = template["metadata"]["labels"] | {"apps.kubernetes.io/pod-index": str(number),
                                                   "statefulset.kubernetes.io/pod-name": pod_name}
        fields = {"metadata.name": pod_name, "metadata.namespace": namespace} | {
            f"metadata.labels['{key}']": value for key, value in labels.items()}
        values: dict[str, str] = {}

        def filled(words: list[str], values: dict[str, str] = values) -> list[str]:
            return [_VARIABLE.sub(lambda match: values[match[1]], word) for word in words]

        for one in container.get("env", ()):
            if one.get("valueFrom") != {"fieldRef": {"fieldPath": "status.podIP"}}:
                values[one["name"]] = filled([one["value"]])[0] if "value" in one else \
                    fields[one["valueFrom"]["fieldRef"]["fieldPath"]]

        context = container["securityContext"]
        probes = {kind: (container[kind]["httpGet"]["port"], container[kind]["httpGet"]["path"])
                  for kind in ("startupProbe", "livenessProbe", "readinessProbe") if "httpGet" in container[kind]}
        yield Pod(name=pod_name, namespace=namespace, service=spec["serviceName"], image=container["image"],
                  command=filled(container.get("command", [])), args=filled(container["args"]),
                  user=template["spec"]["securityContext"]["runAsUser"], read_only=context["readOnlyRootFilesystem"],
                  dropped=context["capabilities"]["drop"],
                  ports={port["name"]: port["containerPort"] for port in container["ports"]}, probes=probes,
                  mounts=dict(_mounts(spec, container)),
                  grace_s=template["spec"]["terminationGracePeriodSeconds"], labels=labels,
                  pre_stop=container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", []))


def _mounts(spec: Object, container: Object) -> Iterator[tuple[str, tuple[str, str]]]:
    volumes = {volume["name"]: volume for volume in spec["template"]["spec"].get("volumes", ())}
    claims = {claim["metadata"]["name"] for claim in spec.get("volumeClaimTemplates", ())}
    for mount in container["volumeMounts"]:
        name = mount["name"]
        if name in claims:
            yield mount["mountPath"], ("claim", name)
        elif "configMap" in volumes[name]:
            yield mount["mountPath"], ("config", volumes[name]["configMap"]["name"])
        else:
            assert volumes[name]["emptyDir"] == {}
            yield mount["mountPath"], ("empty", "")
