/*
 * Sets the reason for a node whose prolog fails. Slurm itself would drain the node with the reason "Prolog error", and
 * the message with the remedy would appear only in slurmd's log. But Slurm does not replace an existing reason
 * (_drain_node() in node_mgr.c of 22.05, 24.11 and 26.05; measured on 22.05.8), so the plugin drains the node shortly
 * before Slurm would.
 */
#include "drain.h"

#include <slurm/slurm.h>
#include <slurm/spank.h>

#include <stdbool.h>

/*
 * Every Slurm process that loads plugins includes Slurm's client library. The symbols are weak so that a process
 * without it can load the plugin, too.
 */
#pragma weak slurm_init
#pragma weak slurm_load_node_single
#pragma weak slurm_free_node_info_msg
#pragma weak slurm_init_update_node_msg
#pragma weak slurm_update_node

static bool has_client_library(void)
{
	return slurm_init && slurm_load_node_single && slurm_free_node_info_msg && slurm_init_update_node_msg && slurm_update_node;
}

/* Reports whether the node has no reason. The plugin must not replace an administrator's reason. */
static bool lacks_reason(const char *node)
{
	node_info_msg_t *info = NULL;
	bool lacks;

	if (slurm_load_node_single(&info, (char *)node, SHOW_ALL) != SLURM_SUCCESS)
		return false;
	lacks = info->record_count == 1 && (!info->node_array[0].reason || !info->node_array[0].reason[0]);
	slurm_free_node_info_msg(info);
	return lacks;
}

void drain(const char *node, const char *reason)
{
	update_node_msg_t update;

	if (!node[0] || !has_client_library())
		return;
	/*
	 * In 23.02 and later, a process must load Slurm's authentication plugins with slurm_init, which the process
	 * that runs a prolog does not call (_handle_spank_mode() in 24.11).
	 */
	slurm_init(NULL);
	if (!lacks_reason(node))
		return;
	slurm_init_update_node_msg(&update);
	update.node_names = (char *)node;
	update.node_state = NODE_STATE_DRAIN;
	update.reason = (char *)reason;
	if (slurm_update_node(&update) != SLURM_SUCCESS)
		slurm_error("caelum: prolog: couldn't set the reason for node %s: %m", node);
}
