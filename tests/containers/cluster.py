"""The pods of conf/kubernetes as containers of podman: with their names, users, files, volumes and probes."""
import http.client
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.containers.engine import Podman
from tests.containers.manifests import Object, Pod, of_kind, pods, rendered
from tests.support.wait import wait_until

OK = 200


class Cluster:
    """Starts and ends pods as a kubelet does. Requests to pods come from this host, as a kubelet's do."""

    def __init__(self, podman: Podman, network: str, images: dict[str, str], folder: Path) -> None:
        self.podman, self.network, self.images, self.folder = podman, network, images, folder
        self.objects: list[Object] = rendered()
        self.pods: dict[str, Pod] = {pod.name: pod for one in of_kind(self.objects, "StatefulSet").values()
                                     for pod in pods(one)}
        for name, one in of_kind(self.objects, "ConfigMap").items():
            place = folder / name
            place.mkdir(mode=0o755)
            for file, text in one["data"].items():
                (place / file).write_text(text)

    def named(self, prefix: str) -> list[Pod]:
        """Return the pods of the set with this name."""
        return [pod for pod in self.pods.values() if pod.service == prefix]

    def start(self, pod: Pod) -> None:
        """Create the pod's container, and start it. Its claims keep what an earlier container wrote."""
        words = ["--network", self.network, "--hostname", pod.name, "--user", f"{pod.user}:{pod.user}",
                 "--security-opt=no-new-privileges", "--no-healthcheck",
                 *(f"--cap-drop={each}" for each in pod.dropped),
                 *(["--read-only", "--read-only-tmpfs=false"] if pod.read_only else [])]
        for name in pod.host_names:
            words += ["--network-alias", name]
        for path, (kind, name) in pod.mounts.items():
            if kind == "config":
                words += ["-v", f"{self.folder / name}:{path}:ro"]
            elif kind == "claim":
                words += ["-v", f"{self._claim(pod, name)}:{path}"]
            else:
                words += ["--mount", f"type=tmpfs,destination={path},tmpfs-mode=1777"]
        if pod.command:
            words += ["--entrypoint", pod.command[0]]
        self.podman.start(pod.name, *words, self.images[pod.image], *pod.command[1:], *pod.args)

    def _claim(self, pod: Pod, name: str) -> Path:
        """Return the folder of a claim, which belongs to the pod's group as fsGroup makes it."""
        folder = self.folder / f"{name}-{pod.name}"
        if not folder.exists():
            folder.mkdir(mode=0o775)
            os.chown(folder, 0, pod.user)
            folder.chmod(0o2775)
        return folder

    def probe(self, pod: Pod, kind: str) -> bool:
        """Return whether the pod's probe succeeds now."""
        port, path = pod.probes[kind]
        connection = http.client.HTTPConnection(self._address(pod), pod.ports[port], timeout=60)
        try:
            connection.request("GET", path)
            return connection.getresponse().status == OK
        except OSError:
            return False
        finally:
            connection.close()

    def _address(self, pod: Pod) -> str:
        form = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        # A container that has ended has no address.
        return self.podman.inspected(pod.name, form) or "127.0.0.1"

    def wait_until(self, kind: str, *wanted: Pod) -> None:
        """Wait until a probe of each of these pods succeeds."""
        for pod in wanted:
            if kind in pod.probes:
                wait_until(lambda pod=pod: self.probe(pod, kind),
                           what=f"{kind} of {pod.name} succeeds: {self.podman.logs(pod.name)[-3000:]}")

    def kill(self, pod: Pod) -> None:
        """End a pod without a chance to do anything, and forget its container: a node that is lost."""
        self.podman("rm", "-f", "-t", "0", pod.name)

    def evict(self, pod: Pod) -> int:
        """End a pod as `kubectl drain` does, and return the exit code of its server."""
        if pod.pre_stop:
            self.podman("exec", pod.name, *pod.pre_stop)
        self.podman("stop", "-t", str(pod.grace_s), pod.name)
        code = int(self.podman.inspected(pod.name, "{{.State.ExitCode}}"))
        self.podman("rm", "-f", pod.name)
        return code

    def run(self, *words: str, check: bool = True, text: str | None = None) -> str:
        """Run a tool in a container of the network, and return what it printed."""
        done = self.podman.run_tool(self.images["rmqha:latest"], *words, check=check, text=text,
                                    options=["--network", self.network])
        return done.stdout


@contextmanager
def started(podman: Podman, image: str, etcd_image: str, folder: Path) -> Iterator[Cluster]:
    """Yield a cluster in which all pods have been started, all at once and in no order."""
    with podman.network(podman.name) as network:
        cluster = Cluster(podman, network, {}, folder)
        etcd = cluster.named("rmqha-etcd")
        cluster.images |= {"rmqha:latest": image, etcd[0].image: etcd_image}
        for pod in cluster.pods.values():
            cluster.start(pod)
        yield cluster


def make_etcd_image(podman: Podman, folder: Path) -> str:
    """Return an image with this host's etcd, in place of the one that the manifests name."""
    shutil.copy(shutil.which("etcd") or "", folder / "etcd")
    (folder / "Dockerfile").write_text(f"FROM {podman.base}\nCOPY etcd /usr/local/bin/etcd\n")
    tag = f"localhost/{podman.name}-etcd"
    podman.build(podman.base, tag, folder / "Dockerfile", folder)
    return tag
