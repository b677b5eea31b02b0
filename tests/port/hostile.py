"""Reads files with `mxsame.from_keras` in a process of its own: bounded memory and time, nothing executed or written.

    python tests/port/hostile.py FILE    # FILE: JSON, [[name, [arguments]], ..]; the first must be a file that is fine

Prints one line of JSON for each: name, error type, message, seconds, and what the interpreter was seen to do.
"""

import faulthandler
import json
import os
import resource
import signal
import sys
import time

MEMORY = 512 << 20  # bytes above what the process has when MXNet is imported
SECONDS = 20  # for one file, on a busy machine
WRITES = ("mkdir", "rename", "remove", "symlink", "chmod")
RUNS = ("exec", "compile", "marshal.loads", "pickle.find_class", "os.system", "os.exec", "os.posix_spawn", "os.fork")
TOUCHES = ("subprocess.Popen", "socket.connect", "shutil.", *(f"os.{name}" for name in WRITES))


class Watch:
    """What the interpreter does while a file is read, by its audit events."""

    def __init__(self):
        self.seen = None
        sys.addaudithook(self.hook)

    def hook(self, event, arguments):
        if self.seen is None:
            return
        writes = event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
        opens_to_write = event == "open" and arguments[1] is None and (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR)
        touches = writes or opens_to_write or event in RUNS or event.startswith(TOUCHES)
        if touches and not self._imports():
            self.seen.append(f"{event} {str(arguments)[:100]}")

    @staticmethod
    def _imports():
        """Whether an import of a module is at work: it compiles and executes what is installed."""
        frame = sys._getframe(2)
        while frame is not None:
            if "importlib._bootstrap" in frame.f_code.co_filename:
                return True
            frame = frame.f_back
        return False


def limit_memory():
    """No more than MEMORY above what is taken now."""
    with open("/proc/self/statm", encoding="ascii") as file:
        taken = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, taken + MEMORY))


def too_late(*_):
    raise TimeoutError(f"more than {SECONDS} s")


def main():
    import mxsame

    with open(sys.argv[1], encoding="utf-8") as file:
        cases = json.load(file)
    mxsame.from_keras(*cases[0][1])  # whatever is imported late is there now
    watch = Watch()
    limit_memory()
    signal.signal(signal.SIGALRM, too_late)
    for name, arguments in cases:
        watch.seen = []
        began, kind, message = time.monotonic(), None, ""
        signal.alarm(SECONDS)
        faulthandler.dump_traceback_later(SECONDS + 5, exit=True)  # where a library in C does not come back
        try:
            mxsame.from_keras(*arguments)
        except BaseException as error:  # a MemoryError or SystemExit is a finding too
            expected = (base.__name__ for base in (ValueError, TypeError) if isinstance(error, base))
            kind, message = next(expected, type(error).__name__), str(error)
        signal.alarm(0)
        faulthandler.cancel_dump_traceback_later()
        seen, watch.seen = watch.seen, None
        report = {"name": name, "kind": kind, "message": message[:2000], "seen": seen}
        print(json.dumps({**report, "length": len(message), "seconds": time.monotonic() - began}), flush=True)


if __name__ == "__main__":
    main()
