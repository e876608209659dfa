// Package pytorch tests caelum_memory.py, which reports the memory usage of PyTorch's allocator to the agent. The tests
// run the module with Python 3, against the real server of package api and a stand-in for PyTorch (testdata/torch). The
// Go package consists only of tests.
package pytorch
