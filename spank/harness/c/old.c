/* Emulates another release's Go object, of which the plugin reads only the interface version. */
const int caelum_job_abi = 0;
