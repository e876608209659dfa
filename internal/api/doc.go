// Package api implements the calls to the agent over its Unix sockets: wire types, a client and a server.
//
// The package is linked into the Go object that the SPANK plugin opens inside Slurm's prolog. It therefore imports only
// the standard library (no go-nvml, no SQLite, no viper) and never starts a child process.
//
// Files:
//
//	adopt.go     POST /v1/adopt: request, answer, handler and client
//	api.go       the types of all other calls: LeaseRequest, Lease, Slice, Status, GPU, Instance; names of the sockets
//	client.go    Client: root.sock, then caelumd.sock; Retry (every 250 ms); which errors are temporary
//	errors.go    Error and its HTTP status; NotNow (503), NotFound (404)
//	limit.go     calls of one user: 50 in a burst, then 10 a second; the text of status 429
//	listener.go  connections of one user (64) and of all users (512); the peer's user id
//	private.go   the data of other users' jobs that a user may see: the levels, and the fields that are left out
//	request.go   checks a request: size (64 KiB), slots (256), restart count, job id; texts of status 400
//	server.go    Handler; sockets and their modes; routes; root-only calls; time limits; status of an error (CodeOf)
package api
