"""A stand-in for PyTorch with the part of torch.cuda that caelum_memory uses. Tests set the values."""

from . import cuda  # noqa: F401
