/* Emulates the Go object of another release. The plugin reads the interface version and does not call the object. */
const int caelum_job_abi = 0;
