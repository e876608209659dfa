// Package api implements the calls to the agent over its Unix sockets: wire types, a client and a server.
//
// The package is part of the Go object that the SPANK plugin opens in Slurm's prolog, so it imports only the standard
// library (no go-nvml, no SQLite, no viper) and never starts a child process.
//
// Files:
//
//	adopt.go     POST /v1/adopt: request, answer, handler and client
//	api.go       the types of all other calls: LeaseRequest, Lease, Slice, Status, GPU, Instance; names of the sockets
//	client.go    Client: root.sock, then caelumd.sock; Retry (retryEvery) repeats a call after temporary errors
//	errors.go    Error and its HTTP status; NotNow (503), NotFound (404)
//	limit.go     limits the calls of users (callBurst, allBurst); the message for status 429
//	listener.go  limits connections per user and in total (maxPerUser, maxAllUsers); the peer's user id
//	memory.go    POST /v1/jobs/{id}/memory: report, limits (maxReport), handler and client
//	private.go   removes data about other users' jobs that a user may not see; the levels of visibility
//	readmit.go   POST /v1/gpus/{gpu}/readmit: handler and client
//	request.go   checks a request: size (maxRequest), slots (maxSlots), restart count, job id; messages for status 400
//	server.go    Handler; sockets and their modes; routes; root-only calls; time limits; status of an error (CodeOf)
package api
