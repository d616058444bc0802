"""A tiny ACP agent for tests of the runner: what it does is the first word of the prompt.

Standard library only, and nothing of onetake: it stands for any agent. It keeps a plain session log where
`ONETAKE_RUN` says, writes its model calls to the requests file, and misbehaves on demand.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid

with open(os.environ["ONETAKE_RUN"]) as run_file:
    RUN = json.load(run_file)
OUT = threading.Lock()
REWRITE = json.loads(os.environ.get("FAKE_REWRITE", "[]"))
"""A text in every frame and what stands there instead."""


def emit(frame):
    line = json.dumps({"jsonrpc": "2.0", **frame})
    with OUT:
        sys.stdout.write((line.replace(*REWRITE) if REWRITE else line) + "\n")
        sys.stdout.flush()


def say(session, text):
    content = {"type": "text", "text": text}
    update = {"sessionUpdate": "agent_message_chunk", "content": content}
    emit({"method": "session/update", "params": {"sessionId": session, "update": update}})


class Log:
    def __init__(self, session, parent=None):
        self.session = session
        folder = os.path.join(RUN["sessionsRoot"], "project", session)
        os.makedirs(folder, exist_ok=True)
        self.path = os.path.join(folder, "session.jsonl")
        self.turn = 0
        if not os.path.exists(self.path):
            header = {"type": "session", "version": 0, "id": session, "createdAt": int(time.time() * 1000)}
            if parent:
                header |= {"parentSession": parent, "delegationDepth": 1}
            else:
                header["delegationDepth"] = 0
            self.lines = 0
            self.write(header)
        else:
            with open(self.path) as file:
                self.lines = len(file.readlines()) - 1

    def write(self, record):
        with open(self.path, "a") as file:
            file.write(json.dumps(record, separators=(",", ":")) + "\n")

    def event(self, kind, data):
        self.write({"type": kind, "seq": self.lines, "time": 0, "data": data})
        self.lines += 1

    def start(self):
        self.turn += 1
        self.event("turn/start", {"turn": self.turn})

    def mend(self):
        """Close the turn that another process has left open."""
        with open(self.path) as file:
            kinds = [json.loads(line)["type"] for line in file]
        if "turn/start" in kinds and "turn/end" not in kinds:
            self.event("turn/end", {"turn": 1, "reason": {"kind": "interrupted"}})

    def end(self):
        self.event("turn/end", {"turn": self.turn, "reason": {"kind": "completed"}})


class Agent:
    def __init__(self):
        self.logs = {}
        self.calls = 0
        self.leaving = False
        self.asked = {}
        self.cancelled = threading.Event()

    def serve(self):
        for line in sys.stdin:
            frame = json.loads(line)
            if "method" not in frame:
                self.asked.pop(frame["id"])(frame)
            elif frame["method"] == "session/cancel":
                self.cancelled.set()
            else:
                self.handle(frame["id"], frame["method"], frame["params"])
        if os.environ.get("FAKE") == "ignores-eof":
            time.sleep(60)
        if os.environ.get("FAKE") == "bad-exit":
            print("something broke late", file=sys.stderr)
            sys.exit(7)
        if os.environ.get("FAKE") == "half-line":
            sys.stdout.write('{"jsonrpc":')
            sys.stdout.flush()
        os._exit(0)

    def handle(self, id, method, params):
        if method == "initialize":
            resume = os.environ.get("FAKE_RESUME", "loadSession")
            capabilities = {"loadSession": True} if resume in ("loadSession", "careless") else {}
            if resume == "resume":
                capabilities = {"sessionCapabilities": {"resume": {}}}
            asked = params["clientCapabilities"].get("_meta")
            emit(
                {
                    "id": id,
                    "result": {"protocolVersion": 1, "agentCapabilities": capabilities, "asked": asked},
                }
            )
        elif method == "session/new":
            if os.environ.get("FAKE") == "refuses-sessions" or params.get("additionalDirectories"):
                emit({"id": id, "error": {"code": -32602, "message": "no such session today"}})
                return
            session = str(uuid.uuid4())
            self.logs[session] = Log(session)
            emit({"id": id, "result": {} if os.environ.get("FAKE") == "nameless" else {"sessionId": session}})
        elif method in ("session/load", "session/resume"):
            self.logs[params["sessionId"]] = Log(params["sessionId"])
            if os.environ.get("FAKE_RESUME") != "careless":
                self.logs[params["sessionId"]].mend()
            emit({"id": id, "result": {"how": method}})
        elif method == "session/prompt":
            text = "".join(block.get("text", "") for block in params["prompt"])
            threading.Thread(target=self.prompt, args=(id, params["sessionId"], text), daemon=True).start()

    def prompt(self, id, session, text):
        log = self.logs[session]
        self.calls += 1
        with open(RUN["requests"], "a") as file:
            call = {"session": session, "call": self.calls, "purpose": "main", "config": {}, "messages": []}
            file.write(json.dumps(call) + "\n")
        word, _, rest = text.partition(" ")
        log.event(
            "agent/inbox/spliced",
            {
                "target": "next-turn",
                "start": 0,
                "inserted": [
                    {"role": "user", "id": str(uuid.uuid4()), "content": [{"type": "text", "text": text}]}
                ],
            },
        )
        log.start()
        log.event(
            "agent/inbox/spliced", {"target": "next-turn", "start": 0, "removedCount": 1, "inserted": []}
        )
        reason = "end_turn"
        handler = getattr(self, "do_" + word.replace("-", "_"), None)
        answer = handler(session, rest, log) if handler else say(session, text.upper())
        if answer == "later":
            return
        if isinstance(answer, dict):
            log.end()
            emit({"id": id, "error": answer})
            return
        if isinstance(answer, str):
            reason = answer
        log.end()
        emit({"id": id, "result": {"stopReason": reason}})
        if self.leaving:
            os._exit(0)

    def do_die(self, session, rest, log):
        print("the last words", file=sys.stderr, flush=True)
        os._exit(int(rest or 3))

    def do_segfault(self, session, rest, log):
        os.kill(os.getpid(), signal.SIGSEGV)
        time.sleep(60)

    def do_hang(self, session, rest, log):
        print("about to hang", file=sys.stderr, flush=True)
        time.sleep(60)

    def do_print(self, session, rest, log):
        with OUT:
            sys.stdout.write("a stray print\n")
            sys.stdout.flush()

    def do_warn(self, session, rest, log):
        for number in range(1, 13):
            print(f"warning {number}", file=sys.stderr, flush=True)
        say(session, rest)

    def do_fail(self, session, rest, log):
        return {"code": -32603, "message": rest or "the model said no"}

    def do_reason(self, session, rest, log):
        return rest

    def do_ask(self, session, rest, log):
        done = threading.Event()
        outcome = []
        self.asked["q1"] = lambda frame: (outcome.append(frame), done.set())
        options = [{"optionId": "yes-1", "name": "Yes", "kind": "allow_once"}]
        method = rest or "session/request_permission"
        emit({"id": "q1", "method": method, "params": {"sessionId": session, "options": options}})
        done.wait(20)
        say(session, json.dumps(outcome[0].get("result") or outcome[0].get("error")))

    def do_wait(self, session, rest, log):
        """Make a file, then wait for the cancellation."""
        with open(os.path.join(RUN["roots"]["cwd"], rest), "w"):
            pass
        self.cancelled.wait(20)
        return "cancelled"

    def do_orphan(self, session, rest, log):
        """Leave a process in a session of its own, working in the workspace."""
        child = subprocess.Popen(["sleep", "300"], start_new_session=True, cwd=RUN["roots"]["cwd"])
        say(session, str(child.pid))

    def do_helper(self, session, rest, log):
        """Leave a process in the agent's own session, as any tool does that does not wait for it."""
        child = subprocess.Popen(["sleep", "300"])
        say(session, str(child.pid))

    def do_daemon(self, session, rest, log):
        """Leave a process that has a session and a folder of its own."""
        child = subprocess.Popen(["sleep", "300"], start_new_session=True, cwd="/")
        say(session, str(child.pid))

    def do_environment(self, session, rest, log):
        mask = os.umask(0)
        os.umask(mask)
        facts = {"env": dict(os.environ), "umask": mask, "cwd": os.getcwd(), "mode": RUN["mode"], "run": RUN}
        say(session, json.dumps(facts))

    def do_look(self, session, rest, log):
        cwd = RUN["roots"]["cwd"]
        found = {}
        for folder, names, files in os.walk(cwd):
            for name in names + files:
                path = os.path.join(folder, name)
                stat = os.lstat(path)
                link = os.readlink(path) if os.path.islink(path) else None
                found[os.path.relpath(path, cwd)] = [oct(stat.st_mode), int(stat.st_mtime), link]
        say(session, json.dumps(found))

    def do_big(self, session, rest, log):
        say(session, "x" * int(rest))

    def do_background(self, session, rest, log):
        """Answer now, and take another turn a little later; a child session takes turns too."""

        def later():
            time.sleep(0.05)
            child = Log(str(uuid.uuid4()), parent=session)
            child.start()
            child.end()
            child.start()
            child.end()
            log.start()
            say(session, "the job is done")
            log.end()
            log.event("goal/change", {})

        threading.Thread(target=later, daemon=True).start()

    def do_stuck_child(self, session, rest, log):
        """Have a child at work for ever."""
        Log(str(uuid.uuid4()), parent=session).start()
        say(session, "it works")
        time.sleep(60)

    def do_never_idle(self, session, rest, log):
        log.end = lambda: None

    def do_linger(self, session, rest, log):
        """Say something, and answer only after the turn has long ended."""
        log.end()  # first: what was said may get the agent killed
        log.end = lambda: None
        say(session, "more")
        time.sleep(0.3)

    def do_garbage(self, session, rest, log):
        """Spoil the file of the runner that is named."""
        with open(RUN[rest], "a") as file:
            file.write("no json\n")

    def do_half(self, session, rest, log):
        """Write half a line to the file of the runner that is named."""
        with open(RUN[rest], "a") as file:
            file.write('{"kind":')

    def do_repeat(self, session, rest, log):
        """Log an event with a key twice."""
        log.end()
        with open(log.path) as file:
            text = file.read()
        with open(log.path, "w") as file:
            file.write(text.replace('"turn":1', '"turn":2,"turn":1'))
        log.start = log.end = lambda: None

    def do_copy(self, session, rest, log):
        """Leave the log a second time."""
        folder = os.path.join(RUN["sessionsRoot"], "project", "copy")
        os.makedirs(folder)
        with open(log.path) as file, open(os.path.join(folder, "session.jsonl"), "w") as copy:
            copy.write(file.read())

    def do_leave(self, session, rest, log):
        """End right after the answer."""
        self.leaving = True

    def do_headless(self, session, rest, log):
        """Leave a log without a header."""
        folder = os.path.join(RUN["sessionsRoot"], "project", "broken")
        os.makedirs(folder)
        with open(os.path.join(folder, "session.jsonl"), "w") as file:
            file.write("no header\n")

    def do_image(self, session, rest, log):
        """Updates that hold no text."""
        for update in (
            {"sessionUpdate": "plan"},
            {"sessionUpdate": "agent_message_chunk", "content": {}},
            None,
        ):
            emit({"method": "session/update", "params": {"sessionId": session, "update": update}})
        emit({"method": "session/other", "params": {}})
        emit({"id": 99, "result": "nobody asked"})
        say(session, "done")

    def do_torn(self, session, rest, log):
        log.end()
        with open(log.path, "a") as file:
            file.write('{"type":"half')
        log.start = log.end = lambda: None


if os.environ.get("FAKE") == "dies-at-start":
    print("cannot find my configuration", file=sys.stderr)
    sys.exit(4)
Agent().serve()
