/*
 * caelum-show-node NAME... prints slurmctld's records of the named nodes in the form of `scontrol -d show node`, without
 * the partitions. It exists because scontrol reads the records of all nodes (scontrol_load_nodes() in info_node.c of
 * 20.11 to 26.05), so the cost of reading one node would grow with the size of the cluster.
 *
 * slurmctld does not update the numbers of allocated CPUs and the allocated memory before it sends a single record
 * (_slurm_rpc_dump_node_single() in proc_req.c, 22.05.8), so these numbers, and MIXED and ALLOCATED, may be old. The
 * counts of GRES are current.
 *
 * Like the plugin, this program must be built for each Slurm release. It exits with 1 if a node does not exist or
 * slurmctld cannot be reached.
 */
#include <slurm/slurm.h>

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	int rc = EXIT_SUCCESS;

	slurm_init(NULL);
	for (int i = 1; i < argc && rc == EXIT_SUCCESS; i++) {
		node_info_msg_t *reply = NULL;
		if (slurm_load_node_single(&reply, argv[i], SHOW_DETAIL)) {
			slurm_perror("slurm_load_node error");
			return EXIT_FAILURE;
		}
		if (reply->record_count == 1 && reply->node_array[0].name) {
			slurm_print_node_table(stdout, &reply->node_array[0], 0);
		} else {
			printf("Node %s not found\n", argv[i]);
			rc = EXIT_FAILURE;
		}
		slurm_free_node_info_msg(reply);
	}
	if (fflush(stdout) || ferror(stdout)) {
		perror("caelum-show-node");
		rc = EXIT_FAILURE;
	}
	return rc;
}
