/*
 * The reason of a node whose prolog fails. Slurm drains it for "Prolog error", and what to do would stand in slurmd's log
 * alone; but it keeps a reason that is there (_drain_node() in node_mgr.c of 22.05, 24.11 and 26.05; measured on
 * 22.05.8). So the node is drained from here, a moment before Slurm does it.
 */
#include "drain.h"

#include <slurm/slurm.h>
#include <slurm/spank.h>

#include <stdbool.h>

/* Slurm's client library is part of every process that loads plugins. Where a build leaves it out, the plugin must load all the same. */
#pragma weak slurm_init
#pragma weak slurm_load_node_single
#pragma weak slurm_free_node_info_msg
#pragma weak slurm_init_update_node_msg
#pragma weak slurm_update_node

static bool has_client_library(void)
{
	return slurm_init && slurm_load_node_single && slurm_free_node_info_msg && slurm_init_update_node_msg && slurm_update_node;
}

/* A node that somebody drains keeps his reason. */
static bool is_free(const char *node)
{
	node_info_msg_t *info = NULL;
	bool free_of_reason;

	if (slurm_load_node_single(&info, (char *)node, SHOW_ALL) != SLURM_SUCCESS)
		return false;
	free_of_reason = info->record_count == 1 && (!info->node_array[0].reason || !info->node_array[0].reason[0]);
	slurm_free_node_info_msg(info);
	return free_of_reason;
}

void drain(const char *node, const char *reason)
{
	update_node_msg_t update;

	if (!node[0] || !has_client_library())
		return;
	/* From 23.02 a process must load the plugins of authentication itself, and one that runs a prolog has not (24.11's _handle_spank_mode()). */
	slurm_init(NULL);
	if (!is_free(node))
		return;
	slurm_init_update_node_msg(&update);
	update.node_names = (char *)node;
	update.node_state = NODE_STATE_DRAIN;
	update.reason = (char *)reason;
	if (slurm_update_node(&update) != SLURM_SUCCESS)
		slurm_error("caelum: prolog: couldn't give %s its reason: %m", node);
}
