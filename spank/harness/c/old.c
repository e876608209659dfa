/* Emulates the Go object of another release. The plugin reads only the version of this object, and does not call it. */
const int caelum_job_abi = 0;
