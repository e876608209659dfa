/* A Go object of another release, as far as the plugin looks. */
const int caelum_job_abi = 0;
