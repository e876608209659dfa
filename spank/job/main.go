// Command job is the SPANK plugin's Go object, which sends the requests of a job's prolog and epilog to the node's
// agent.
//
// The Go object is a C shared object, loaded only by the process that Slurm forks and execs for a single prolog or
// epilog. It is only a client of the agent's socket and never uses NVML, a database, a configuration file, a child
// process or a signal handler. The agent does any work that continues after the call.
package main

// #include "job.h"
import "C"

import (
	"fmt"
	"unsafe"
)

// main is required in a c-shared object but is never called.
func main() {}

//export caelum_job_prolog
func caelum_job_prolog(job *C.struct_caelum_job, message *C.char, size C.size_t) C.int {
	return run(prolog, job, message, size)
}

//export caelum_job_epilog
func caelum_job_epilog(job *C.struct_caelum_job, message *C.char, size C.size_t) C.int {
	return run(epilog, job, message, size)
}

// run calls f and converts an error or a panic to -1 and a message for the C code.
func run(f func(call) error, job *C.struct_caelum_job, message *C.char, size C.size_t) (rc C.int) {
	fail := func(text string) {
		buf := unsafe.Slice((*byte)(unsafe.Pointer(message)), int(size))
		n := copy(buf[:len(buf)-1], oneLine(text))
		buf[n] = 0
		rc = -1
	}
	defer func() {
		if p := recover(); p != nil {
			fail(fmt.Sprintf("couldn't complete the call: %v; report this error", p))
		}
	}()
	if err := f(fromC(job)); err != nil {
		fail(err.Error())
	}
	return rc
}

func fromC(job *C.struct_caelum_job) call {
	return call{
		id:        uint32(job.id),
		uid:       uint32(job.uid),
		gid:       uint32(job.gid),
		wait:      int(job.wait),
		restart:   C.GoString(job.restart),
		slots:     C.GoString(job.slots),
		partition: C.GoString(job.partition),
		sluid:     C.GoString(job.sluid),
		node:      C.GoString(job.node),
		mig:       C.GoString(job.mig),
		runDir:    C.GoString(job.run_dir),
	}
}
