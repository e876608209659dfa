stats = {}
initialized = False
fails = False


def is_initialized():
    return initialized


def memory_stats(device=None):
    if fails:
        raise RuntimeError("CUDA error: device-side assert triggered")
    if not initialized:
        raise AssertionError("memory_stats must not be called before CUDA is initialized")
    return stats
