"""Import caelum_memory at the start of every Python program whose PYTHONPATH contains this directory and its parent.

Python imports only the first sitecustomize in its path, so this module also runs the next one.
"""

import importlib.machinery
import importlib.util
import os
import sys

_here = os.path.dirname(os.path.realpath(__file__))
_others = [p for p in sys.path if os.path.realpath(p or ".") != _here]
_next = importlib.machinery.PathFinder.find_spec("sitecustomize", _others)
if _next is not None and _next.loader is not None:
    _next.loader.exec_module(importlib.util.module_from_spec(_next))

try:
    import caelum_memory  # noqa: F401
except Exception:
    pass
