/* A replacement for the Go object of another release: the plugin only reads this version and does not call it. */
const int caelum_job_abi = 0;
