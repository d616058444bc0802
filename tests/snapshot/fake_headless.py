"""A tiny headless agent for tests of the runner: what it does is the first word of the prompt.

Standard library only, and nothing of onetake: it stands for any agent that takes a prompt, prints events and
ends. `FAKE` in its environment makes it misbehave in one way, whatever the prompt.
"""

import json
import os
import signal
import sys
import time
import uuid

with open(os.environ["ONETAKE_RUN"]) as run_file:
    RUN = json.load(run_file)
FAKE = os.environ.get("FAKE", "")
SESSION = str(uuid.uuid4())
LOGGED = []


def emit(line):
    print(json.dumps(line), flush=True)


def say(text, role="assistant"):
    emit({"type": "message", "message": {"role": role, "content": [{"type": "text", "text": text}]}})


def log(kind, data):
    """Append an event to the session log, which is only there once something happened."""
    path = os.path.join(RUN["sessionsRoot"], "project", SESSION, "session.jsonl")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if not LOGGED:
        header = {"type": "session", "version": 0, "id": SESSION, "createdAt": 0, "delegationDepth": 0}
        LOGGED.append(header)
        write(path, header)
    write(path, {"type": kind, "seq": len(LOGGED) - 1, "time": 0, "data": data})
    LOGGED.append(kind)


def write(path, line):
    with open(path, "a") as file:
        file.write(json.dumps(line, separators=(",", ":")) + "\n")


def end(ending, code):
    if FAKE == "open-turn":
        log("turn/start", {"turn": 2})
    if FAKE == "owes-notice":
        log("tool/result", {"meta": {"subagentId": "agent-1"}})
    result = {"type": "result", "ending": ending, "exitCode": code, "sessionId": SESSION}
    if FAKE == "nameless-ending":
        del result["ending"]
    if FAKE == "no-result":
        sys.exit(code)
    emit(result)
    if FAKE == "late-line":
        print("one thing more", flush=True)
    if FAKE == "half-line":
        sys.stdout.write('{"type":')
        sys.stdout.flush()
    if FAKE == "hang":
        time.sleep(60)
    if FAKE == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
        time.sleep(60)
    sys.exit(code + 1 if FAKE == "other-code" else code)


def cancelled(number, frame):
    if FAKE == "ignores-signals":
        return
    log("turn/end", {"turn": 1, "reason": {"kind": "aborted"}})
    end("completed" if FAKE == "completes" else "cancelled", 128 + number)


def make(name):
    with open(os.path.join(RUN["roots"]["cwd"], name), "w"):
        pass


for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, cancelled)
if FAKE == "crash":
    print("cannot find my configuration", file=sys.stderr)
    sys.exit(9)
prompt = sys.argv[1] if len(sys.argv) > 1 else sys.stdin.read()
word, _, rest = prompt.partition(" ")
if FAKE != "no-session":
    emit({"type": "session", "sessionId": SESSION})
say(prompt, role="user")
emit({"type": "message", "message": {"role": "assistant", "content": None}})
blocks = [{"type": "text"}, {"type": "text", "text": "*"}]
emit({"type": "message", "message": {"role": "assistant", "content": blocks}})
if FAKE == "stray":
    print("a stray print", flush=True)
if word == "fail":
    end("error", 4)
elif word == "wait":
    say("Waiting now.")
    log("turn/start", {"turn": 1})
    make(rest)
    for _ in range(600):
        time.sleep(0.1)
elif word == "stay":
    say("Staying a while.")
    make(rest)
    end("completed", 0)
else:
    if FAKE != "dropped-event":
        say(prompt.upper())
    end("completed", 0)
