"""A whole Flower federation on this machine: a SuperLink and one SuperNode for each site, each a
process of its own, for demos, tests and benchmarks. Whatever happens, nothing is left running.

Flower starts processes of its own, some of them in sessions of their own, and one whose parent was
killed stays. So every process carries a mark in its environment, and is found and ended by it."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import tomli_w

from fedmap.errors import FedmapError
from fedmap.flower.keys import Keys, check_site_name
from fedmap.signals import on_signals

MARK = "FEDMAP_LAB"  # in the environment of every process of a lab: the lab's id / the part's name
LINK, TOOL = "superlink", "flwr"  # names beside the sites', of the server and of its commands
GRACE = 4.0  # seconds between asking a process to end and ending it
START = 60.0  # seconds in which a process must be up
# A site that was killed is taken back when its heartbeats are missed: after about a minute.
START_AGAIN = 120.0
# The only waiting time that Flower lets one choose; it asks for new work every second otherwise.
POLL = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2"}

Value = str | int | float | bool
Say = Callable[[str], None]
Node = tuple[str, str]  # a node's id, and since when it is online


class Lab:
    """A federation that runs while the `with` block does. `sites` gives for each site's name its
    node configuration; `site` is added to it. Processes write to `logs/` in the folder.

    With `insecure` there are no keys and no encryption: for measuring, on this machine alone."""

    def __init__(
        self,
        folder: Path,
        sites: Mapping[str, Mapping[str, Value]],
        *,
        keys: Keys | None = None,
        insecure: bool = False,
        polls: Mapping[str, str] = POLL,
        say: Say = lambda line: None,
    ) -> None:
        for name in sites:
            check_site_name(name)
            if name in (LINK, TOOL):
                raise FedmapError(f"a site of a lab cannot be called {name}")
        self.folder = folder.absolute()
        self.sites = {name: dict(config) for name, config in sites.items()}
        self.keys = keys or Keys(self.folder / "keys")
        self.insecure = insecure
        self.polls = polls
        self.say = say
        self._ports = dict(zip([LINK, *sites], free_ports(1 + len(sites)), strict=True))
        self._database = self.folder / "superlink.db"
        self._id = uuid.uuid4().hex
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._seen: set[Node] = set()
        self._stack = ExitStack()

    @property
    def address(self) -> str:
        """Where the SuperLink listens."""
        return f"127.0.0.1:{self._ports[LINK]}"

    def __enter__(self) -> "Lab":
        with ExitStack() as stack:
            stack.enter_context(on_signals({signal.SIGTERM: leave}))
            stack.callback(self.close)
            self._start()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self) -> None:
        for name in ("logs", "homes"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        known = self._database.exists()  # the lab was here before
        new = [name for name in self.sites if not self.keys.site_key(name).exists()]
        if new and not self.insecure:
            self.keys.make(new)
        self.say("starting the SuperLink")
        self.start_link()
        if not self.insecure:
            self.register(*(new if known else self.sites))
        if known:
            self._seen = self._online()
        self.say(f"starting {len(self.sites)} sites")
        self.start_sites(*self.sites)
        self.say(f"{len(self.sites)} sites online")

    def close(self) -> None:
        """End every process of the lab; no signal comes between. The sites first, so that they can
        say goodbye: the SuperLink does not take one back at once that has not."""
        with on_signals({signal.SIGTERM: signal.SIG_IGN, signal.SIGINT: signal.SIG_IGN}):
            sites = [self._processes[name] for name in self.sites if name in self._processes]
            for process in sites:
                process.terminate()
            deadline = time.monotonic() + GRACE
            for process in sites:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(max(deadline - time.monotonic(), 0))
            self._end()

    # The SuperLink

    def start_link(self) -> None:
        """Start the SuperLink, or start it again: it keeps its port, nodes and runs."""
        keys = self.keys
        secure = ["--ssl-ca-certfile", keys.authority, "--ssl-certfile", keys.server]
        secure += ["--ssl-keyfile", keys.server_key, "--enable-supernode-auth"]
        self._launch(
            LINK,
            "flower-superlink",
            *(["--insecure"] if self.insecure else secure),
            *("--host", "127.0.0.1", "--port", self._ports[LINK]),
            *("--database", self._database),
            "--disable-runtime-dependency-installation",
        )
        self._write_connection()
        for _ in until(START, lambda: self._failure(LINK, "did not start")):
            if listens(self._ports[LINK]):
                return
            self._must_live(LINK)

    def stop_link(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End the SuperLink, with the run's server side if there is one."""
        self._end(LINK, how)

    def _write_connection(self) -> None:
        """How the `flwr` commands find the SuperLink: the connection `lab`."""
        trust: dict[str, Value] = {"root-certificates": str(self.keys.authority)}
        if self.insecure:
            trust = {"insecure": True}
        connection = {"superlink": {"lab": {"address": self.address} | trust}}
        home = self.folder / "homes" / TOOL
        home.mkdir(exist_ok=True)
        (home / "config.toml").write_text(tomli_w.dumps(connection))

    # The sites

    def register(self, *names: str) -> None:
        """Tell the SuperLink the sites' public keys; without it a site is refused."""

        def tell(name: str) -> None:
            public = self.keys.site_public(name)
            self.flwr("supernode", "register", str(public), "lab", "--name", name)

        with ThreadPoolExecutor() as pool:
            list(pool.map(tell, names))

    def start_sites(self, *names: str, within: float = START) -> None:
        """Start sites and wait until all are online."""
        before = self._seen  # a site that was killed is still said to be online for a while
        for name in names:
            self._launch_site(name)
        for _ in until(within, lambda: self._failure(names[0], "did not come online")):
            for name in names:
                self._must_live(name)
            # Asking the SuperLink costs a second of work, so first look who listens.
            if all(listens(self._ports[name]) for name in names):
                self._seen = before | self._online()
                if len(self._seen - before) >= len(names):
                    return

    def restart_site(self, name: str, within: float = START_AGAIN) -> None:
        """Start a site that was ended. One that was killed is refused at first and tries again."""
        deadline = time.monotonic() + within
        while True:
            try:
                return self.start_sites(name, within=deadline - time.monotonic())
            except EndedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(2)

    def end_site(self, name: str, how: signal.Signals = signal.SIGTERM) -> None:
        """End a site: SIGTERM lets it say goodbye, SIGKILL is a machine that loses its power."""
        self._end(name, how)

    def _launch_site(self, name: str) -> None:
        secure = ["--root-certificates", self.keys.authority]
        secure += ["--auth-supernode-private-key", self.keys.site_key(name)]
        port = self._ports.setdefault(name, free_ports(1)[0])
        config = self.folder / "homes" / f"{name}.toml"
        config.write_text(tomli_w.dumps({"site": name} | self.sites[name]))
        self._launch(
            name,
            "flower-supernode",
            *(["--insecure"] if self.insecure else secure),
            *("--superlink", self.address, "--host", "127.0.0.1", "--port", port),
            *("--node-config", config),
        )

    def _online(self) -> set[Node]:
        nodes = self.flwr("supernode", "ls", "lab")["nodes"]
        return {
            (node["node-id"], node["online-at"]) for node in nodes if node["status"] == "online"
        }

    # Runs

    def run_app(
        self,
        app: Path,
        *,
        within: float = 3600.0,
        on_wait: Callable[[], None] = lambda: None,
    ) -> str:
        """Carry an app folder out to its end and give the run's number. `on_wait` is called a few
        times a second. A run that fails is an error with the end of its log."""
        run: str = self.flwr("run", str(app), "lab")["run-id"]
        name = f"run-{run}"
        self._follow(name, run)
        for _ in until(within, lambda: self._stop_run(run, within)):
            on_wait()
            if self._processes[name].poll() is None:
                continue
            status = self._status(run)
            if status == "finished:completed":
                return run
            if status.startswith("finished"):
                raise self._failure(name, status)
            self._follow(name, run)  # the connection was lost
        raise AssertionError("waiting ends with a result or an error")

    def _follow(self, name: str, run: str) -> None:
        """Keep the run's log. This process ends with the run, which is cheaper than asking."""
        self._launch(name, TOOL, "log", run, "lab", "--stream")

    def _status(self, run: str) -> str:
        (found,) = self.flwr("ls", "lab", "--run-id", run)["runs"]
        status: str = found["status"]
        return status

    def _stop_run(self, run: str, within: float) -> FedmapError:
        self.flwr("stop", run, "lab")
        return FedmapError(f"run {run} is not finished after {within:g} s; it was stopped")

    # Commands and processes

    def flwr(self, *command: str) -> dict[str, Any]:
        """The answer of a `flwr` command; the name of the connection is `lab`."""
        try:
            done = subprocess.run(
                [bin_folder() / TOOL, *command, "--format", "json"],
                env=self._environment(TOOL, TOOL),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                start_new_session=True,
                timeout=START,
            )
            answer: dict[str, Any] = json.loads(done.stdout)
        except subprocess.TimeoutExpired:
            raise FedmapError(f"flwr {' '.join(command)}: no answer in {START:g} s") from None
        except json.JSONDecodeError:
            answer = {"error-message": (done.stdout + done.stderr).decode(errors="replace")}
        if not answer.get("success"):
            wrong = str(answer.get("error-message", answer)).strip()
            raise FedmapError(f"flwr {' '.join(command)} failed: {wrong}")
        return answer

    def _launch(self, name: str, program: str, *arguments: object) -> None:
        with open(self._log(name), "ab") as output:
            self._processes[name] = subprocess.Popen(
                [bin_folder() / program, *map(str, arguments)],
                env=self._environment(name, TOOL if program == TOOL else name),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _log(self, name: str) -> Path:
        return self.folder / "logs" / f"{name}.log"

    def _environment(self, name: str, home: str) -> dict[str, str]:
        """What a process is given: a home, the commands of this Python first in the path, nothing
        that sends news of itself."""
        quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
        own = {
            "PATH": f"{bin_folder()}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "FLWR_HOME": str(self.folder / "homes" / home),
            MARK: f"{self._id}/{name}",
        }
        return os.environ | dict(self.polls) | quiet | own

    def _must_live(self, name: str) -> None:
        if self._processes[name].poll() is not None:
            raise self._failure(name, "ended", EndedError)

    def _failure(self, name: str, what: str, kind: type[FedmapError] = FedmapError) -> FedmapError:
        return kind(
            f"{name} {what}; its log, {self._log(name)}, ends with\n{tail(self._log(name))}"
        )

    def _end(self, name: str = "", how: signal.Signals = signal.SIGTERM) -> None:
        """End all processes of one part, or of the lab: ask, and after a while do not ask."""
        children = [self._processes[name]] if name else list(self._processes.values())
        deadline = time.monotonic() + (GRACE if how == signal.SIGTERM else 0)
        asked: set[int] = set()
        while left := self._alive(name, children):
            insist = time.monotonic() > deadline
            for process in left if insist else left - asked:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL if insist else how)
            asked |= left
            if time.monotonic() > deadline + GRACE:
                raise FedmapError(f"processes {sorted(left)} of {name or 'the lab'} do not end")
            time.sleep(0.05)
        for child in children:
            child.wait(GRACE)

    def _alive(self, name: str, children: list[subprocess.Popen[bytes]]) -> set[int]:
        """The processes with the mark; where the system does not show it, our children."""
        running = {child.pid for child in children if child.poll() is None}
        mark = f"{MARK}={self._id}/{name}" + ("\0" if name else "")
        return running | marked(mark)


class EndedError(FedmapError):
    """A process ended that should run."""


def leave(number: int, frame: FrameType | None) -> NoReturn:
    """What SIGTERM does: an exception, so that everything is put in order on the way out."""
    sys.exit(128 + number)


def until(seconds: float, failure: Callable[[], FedmapError]) -> Iterator[None]:
    """Turns of a waiting loop; when the time is over, the failure is raised."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        yield
        time.sleep(0.2)
    raise failure()


def free_ports(count: int) -> list[int]:
    """Different ports of this machine that nobody listens on."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def listens(port: int) -> bool:
    """Does somebody listen on this port of this machine?"""
    with socket.socket() as one:
        one.settimeout(1)
        return one.connect_ex(("127.0.0.1", port)) == 0


def marked(mark: str) -> set[int]:
    """The processes whose environment holds this text, from the beginning of a variable on."""
    found = set()
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it ended meanwhile, or it is somebody else's
            if f"\0{mark}".encode() in b"\0" + environment.read_bytes():
                found.add(int(environment.parent.name))
    return found


def tail(log: Path, lines: int = 15) -> str:
    """The end of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def bin_folder() -> Path:
    """Where the commands of this Python are, also without an active environment."""
    return Path(sys.executable).parent
