"""The part that publishes slices, on the files of a node and beside a small API server."""

import threading
import time

from published_node import NODE, PublishedNode

from devherd.api_server import Api
from devherd.dra.slice_plan import content_of
from devherd.history import History
from devherd.kubernetes.problems import Problems
from devherd.kubernetes.slice_watch import SliceWatch
from devherd.kubernetes.slices import SlicePublisher
from devherd.settings import Settings
from devherd.waits import Waits

AMD, RDMA, SIMULATED = "gpu.amd.com", "rdma.devherd.io", "simulated.devherd.io"
WAITS = Waits(watch_again=0.05, watch_again_at_last=0.2)


class Publishing:
    """The part, on the files of a node, tended as the process does."""

    def __init__(self, directory, server, **node):
        self.server = server
        self.settings = Settings(run_dir=directory, waits=WAITS)
        self.node = PublishedNode(self.settings, **node)
        self.changed = threading.Event()
        self.api = Api(server.access)
        self.watch = SliceWatch(Api(server.access), NODE, self.changed, waits=WAITS)
        self.start()
        self.watch.start()

    def start(self, effect="NoSchedule"):
        """As a new process begins."""
        self.problems = Problems(self.settings, "slices", History(self.settings.history_directory, "kubernetes"))
        self.part = SlicePublisher(self.settings, self.problems, self.api, self.watch, node=NODE, effect=effect)

    def until(self, condition, what="it is so"):
        """Tend until it is so, and what then is."""
        deadline = time.monotonic() + 30
        while not (found := condition()):
            assert time.monotonic() < deadline, f"{what}: {self.problem}; {self.server.state()}"
            self.part.tend()
            self.changed.wait(0.01)
            self.changed.clear()
        return found

    @property
    def problem(self):
        """What is reported; empty if nothing is."""
        return self.problems._problem.error if self.problems._problem else ""

    def of(self, driver):
        with self.server.changed:
            return self.server.store.of(driver)

    def is_published(self, *drivers, wanted=None):
        """Whether the server has what is to be, and nothing else."""
        wanted = wanted or self.node.wanted(self.server.node_uid)
        for driver in drivers:
            there = self.of(driver)
            if [*map(content_of, there)] != [*map(content_of, wanted.get(driver, ()))]:
                return False
            uids = {owner["uid"] for each in there for owner in each["metadata"].get("ownerReferences", ({"uid": ""},))}
            if uids - {self.server.node_uid}:
                return False
        return True

    def until_published(self, *drivers):
        wanted = self.node.wanted(self.server.node_uid)
        self.until(lambda: self.is_published(*drivers, wanted=wanted), f"{drivers} are published")

    def settle(self):
        """Until nothing more is done."""
        self.until(lambda: all(each.due_at > time.monotonic() + 1 for each in self.part._drivers.values()), "it rests")

    def until_told(self, version):
        """Until the watch has told it."""
        deadline = time.monotonic() + 30
        while self.watch._version != version:
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def devices(self, driver):
        """By name, what the server has of each."""
        return {one["name"]: one for each in self.of(driver) for one in each["spec"].get("devices", ())}
