"""The files of an archive in a dict: for tests of what needs no Spark."""
from rmqha.pipeline.archive.archive_files import archive_path
from rmqha.pipeline.format_options import PipelineError


class MemoryFiles:
    """As `ArchiveFiles`; counts how many files were read."""

    def __init__(self) -> None:
        self.root = "memory:/archive"
        self.content: dict[str, bytes] = {}
        self.reads = 0

    def path(self, name):
        return archive_path(self.root, name)

    def listed(self, folder):
        start = folder + "/"
        return {name.removeprefix(start): len(data) for name, data in self.content.items() if name.startswith(start)}

    def read(self, names):
        self.reads += len(names)
        missing = [name for name in names if name not in self.content]
        if missing:
            raise PipelineError(f"{missing[0]} is missing")
        return {name: self.content[name] for name in names}

    def write(self, name, text):
        if name in self.content:
            raise PipelineError(f"{name} is there already")
        self.content[name] = text.encode()

    def remove(self, names):
        for name in list(names):
            self.path(name)
            for each in [each for each in self.content if each == name or each.startswith(name + "/")]:
                del self.content[each]

    def runs(self, folder, prefix):
        return sorted({name.partition("/")[0] for name in self.listed(folder) if name.startswith(prefix)})

    def sync(self, names):
        list(names)
