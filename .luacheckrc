-- luacheck for job_submit.lua and its tests. Slurm's plugin and the tests define these globals.
std = "lua51+lua52+lua53+lua54"
max_line_length = false
globals = { "slurm_job_submit", "slurm_job_modify", "slurm" }
ignore = { "431", "212/submit_uid" } -- a local of the same name as an outer one; an argument of Slurm's interface
-- Cases redefine and shadow names, and replace pairs() by one in another order.
files["contrib/job_submit/*.lua"] = { ignore = { "4..", "121", "311" } }
