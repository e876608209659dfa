"""Report the memory of PyTorch's allocator to the Caelum agent of the node.

    import caelum_memory

After this import, a daemon thread sends a report to the agent every 10 seconds while the program uses CUDA through
PyTorch, and the program sends a last report when it exits. Without a Slurm job, an agent, PyTorch or CUDA, the module
does nothing. The module never imports PyTorch, never initializes CUDA, and never raises an exception into the program.

A program that knows its number of iterations can improve the forecast of the agent:

    caelum_memory.iteration(step, total)

CAELUM_MEMORY=off in the environment disables the module. CAELUM_RUN_DIR names the agent's run directory.
"""

import atexit
import os
import sys
import threading

_EVERY = 10.0  # seconds between reports; the agent accepts one report per second from each process
_POLL = 1.0  # seconds between checks whether the program uses CUDA
_TIMEOUT = 1.0  # seconds that one call to the agent may take

_progress = (0, 0)  # the last iteration and the total number of iterations; 0: unknown
_reporter = None


def iteration(done, total=0):
    """Set the number of completed iterations and the total number of iterations (0: unknown)."""
    global _progress
    try:
        _progress = (max(int(done), 0), max(int(total), 0))
    except Exception:
        pass


class _Reporter:
    def __init__(self, job, path):
        self.job, self.path, self.pid = job, path, os.getpid()
        self.ended = threading.Event()
        self.sending = threading.Lock()

    def run(self):
        """Report until the agent refuses a report."""
        while not self.ended.wait(_EVERY if self.report() else _POLL):
            pass

    def report(self):
        """Send one report if the program uses CUDA. Return whether a report was sent."""
        try:
            stats = _stats()
            if stats is None or self.ended.is_set():
                return False
            with self.sending:
                # 429: too many reports; 503: try again later. All other errors are permanent, for example an agent of an
                # earlier release (404 or 405), or a process that does not belong to the job (403).
                if _post(self.path, self.job, stats) not in (200, 429, 503):
                    self.ended.set()
            return True
        except OSError:  # the agent restarts, or its answer took too long
            return True
        except Exception:
            return False

    def last(self):
        """Send the last report. Children of fork also run the exit handlers of the parent, but must not report."""
        if os.getpid() == self.pid:
            self.report()
            self.ended.set()


def _stats():
    """Return the report, or None if the program does not use CUDA through PyTorch."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    s = torch.cuda.memory_stats(0)
    done, total = _progress
    return {
        "uuid": os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0][:64],
        "allocated": int(s.get("allocated_bytes.all.current", 0)),
        "peak_allocated": int(s.get("allocated_bytes.all.peak", 0)),
        "reserved": int(s.get("reserved_bytes.all.current", 0)),
        "peak_reserved": int(s.get("reserved_bytes.all.peak", 0)),
        "unreleasable": int(s.get("inactive_split_bytes.all.current", 0)),
        "ooms": int(s.get("num_ooms", 0)),
        "iteration": done,
        "iterations": total,
    }


def _post(path, job, report):
    """Send a report to the agent and return the status of the answer."""
    import json
    import socket

    body = json.dumps(report).encode()
    head = (
        "POST /v1/jobs/%d/memory HTTP/1.1\r\nHost: caelumd\r\nConnection: close\r\n"
        "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (job, len(body))
    )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.settimeout(_TIMEOUT)
        s.connect(path)
        s.sendall(head.encode() + body)
        return int(s.recv(64).split()[1])


def _start():
    """Start the thread if the program runs in a job on a node with an agent."""
    global _reporter
    job = os.environ.get("SLURM_JOB_ID", "")
    path = os.path.join(os.environ.get("CAELUM_RUN_DIR", "/run/caelum"), "caelumd.sock")
    if _reporter or not job.isdigit() or os.environ.get("CAELUM_MEMORY") == "off" or not os.path.exists(path):
        return
    _reporter = _Reporter(int(job), path)
    atexit.register(_reporter.last)
    threading.Thread(target=_reporter.run, name="caelum_memory", daemon=True).start()


try:
    _start()
except Exception:
    pass
