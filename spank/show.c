/*
 * caelum-show prints records of slurmctld that scontrol can only print after it has read the records of all nodes. The
 * cost of reading one record would thus grow with the size of the cluster.
 *
 *   caelum-show node NAME...   prints nodes in the form of `scontrol -d show node`, without the partitions
 *   caelum-show job ID         prints the GRES that a running or suspended job holds on each node
 *
 * scontrol reads all nodes for each node that it prints (scontrol_load_nodes() in info_node.c, 20.11 to 26.05) and, up
 * to 24.05, also for the detailed record of a job (_threads_per_core() in job_info.c).
 *
 * slurmctld does not update the numbers of allocated CPUs and the allocated memory before it sends a single node
 * (_slurm_rpc_dump_node_single() in proc_req.c, 22.05.8), so these numbers, and the states IDLE, MIXED and ALLOCATED,
 * may be old. The counts of GRES are current.
 *
 * Like the plugin, this program must be built for each Slurm release. Exit status: 0; 1 if the node does not exist, the
 * job does not hold GRES, or slurmctld cannot be reached; 2 if the arguments are wrong, or the record does not show on which nodes the
 * job holds its GRES.
 */
/* With this macro, slurm_load_job() takes a job id in 26.05, too. */
#define SLURM_BACKWARD_COMPAT
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { failed = 1,
       unclear = 2 };

static int show_node(char *name)
{
	node_info_msg_t *reply = NULL;
	int rc = EXIT_SUCCESS;

	if (slurm_load_node_single(&reply, name, SHOW_DETAIL)) {
		slurm_perror("slurm_load_node error");
		return failed;
	}
	if (reply->record_count == 1 && reply->node_array[0].name) {
		slurm_print_node_table(stdout, &reply->node_array[0], 0);
	} else {
		printf("Node %s not found\n", name);
		rc = failed;
	}
	slurm_free_node_info_msg(reply);
	return rc;
}

/*
 * Prints the start time in Unix seconds and the restart count, which identify the job's run, and then a line for each
 * node. slurmctld lists the GRES in the order of the nodes that were allocated to the job. While the job is completing,
 * the record names only the nodes that are still completing, so the lists may differ in length.
 */
static int show_gres(const job_info_t *job)
{
	char *node;
	uint32_t state = job->job_state & JOB_STATE_BASE;

	/* slurmctld sends no GRES of a job that has ended (_pack_job_gres() in job_mgr.c). */
	if (state != JOB_RUNNING && state != JOB_SUSPENDED) {
		printf("Job %u not found\n", job->job_id);
		return failed;
	}
	__auto_type nodes = slurm_hostlist_create(job->nodes);
	if (!nodes)
		return unclear;
	if (job->gres_detail_cnt && (int)job->gres_detail_cnt != slurm_hostlist_count(nodes)) {
		slurm_hostlist_destroy(nodes);
		return unclear;
	}
	printf("StartTime=%" PRId64 " Restarts=%u\n", (int64_t)job->start_time, (unsigned)job->restart_cnt);
	for (uint32_t i = 0; (node = slurm_hostlist_shift(nodes)); i++) {
		printf("Node=%s GRES=%s\n", node, i < job->gres_detail_cnt && job->gres_detail_str[i] ? job->gres_detail_str[i] : "");
		free(node);
	}
	slurm_hostlist_destroy(nodes);
	return EXIT_SUCCESS;
}

static int show_job(const char *text)
{
	job_info_msg_t *reply = NULL;
	char *end;
	int rc = failed;
	unsigned long id = strtoul(text, &end, 10);

	if (!*text || *end || id == 0 || id > UINT32_MAX)
		return unclear;
	if (slurm_load_job(&reply, (uint32_t)id, SHOW_DETAIL)) {
		slurm_perror("slurm_load_jobs error");
		return failed;
	}
	/* For an array or a heterogeneous job, the reply contains all tasks or components. */
	uint32_t i = 0;
	while (i < reply->record_count && reply->job_array[i].job_id != id)
		i++;
	if (i < reply->record_count)
		rc = show_gres(&reply->job_array[i]);
	else
		printf("Job %lu not found\n", id);
	slurm_free_job_info_msg(reply);
	return rc;
}

int main(int argc, char **argv)
{
	int rc = EXIT_SUCCESS;

	if (argc >= 3 && !strcmp(argv[1], "node")) {
		slurm_init(NULL);
		for (int i = 2; i < argc && rc == EXIT_SUCCESS; i++)
			rc = show_node(argv[i]);
	} else if (argc == 3 && !strcmp(argv[1], "job")) {
		slurm_init(NULL);
		rc = show_job(argv[2]);
	} else {
		fprintf(stderr, "usage: caelum-show node NAME... | job ID\n");
		rc = unclear;
	}
	if (fflush(stdout) || ferror(stdout)) {
		perror("caelum-show");
		rc = failed;
	}
	return rc;
}
