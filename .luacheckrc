-- The luacheck settings for job_submit.lua and its tests. Slurm's plugin and the tests define the globals.
std = "lua51+lua52+lua53+lua54"
max_line_length = false
globals = { "slurm_job_submit", "slurm_job_modify", "slurm", "caelum_restore_types" }
ignore = { "431", "212/submit_uid" } -- 431: a local variable shadows another; submit_uid: required by Slurm's interface
-- Test cases redefine and shadow names, and replace pairs() by an iterator with another order.
for _, name in ipairs({"test.lua", "fuzz.lua", "bench/sha256.lua"}) do
  files["spank/submit/" .. name] = { ignore = { "4..", "121", "311" } }
end
