-- test.lua tests job_submit.lua with every way of requesting GPUs.
--
--   lua test.lua <job_submit.lua> <table to write> <key vectors>
--
-- CAELUM_DECISIONS must name the table. The stubs job_desc and slurm behave like the tables of slurmctld. A write to
-- the "gres" field sets tres_per_node, with the release's prefix.

local script, table_path, vectors = arg[1], arg[2], arg[3]

local NO_VAL, NO_VAL16, INFINITE = 4294967294, 65534, 4294967295
local log, said = {}, {}
slurm = {
  SUCCESS = 0, ERROR = -1, NO_VAL = NO_VAL, NO_VAL16 = NO_VAL16, INFINITE = INFINITE,
  log_error = function(...) log[#log + 1] = string.format(...) end,
  log_user = function(...) said[#said + 1] = string.format(...) end,
}

local failures, checks = 0, 0
local function check(ok, name, got)
  checks = checks + 1
  if ok then return end
  failures = failures + 1
  print("FAIL " .. name .. ": got " .. tostring(got))
end

local generation = 0
local function write_table(text, header)
  generation = generation + 1
  local f = assert(io.open(table_path, "w"))
  f:write((header or "caelum-decisions 1 " .. generation) .. "\n" .. text)
  f:close()
end

local TABLE = [[
# exported for the test
partition gpu                 # the default partition
partition gpu-long
profile 1g.5gb 4864
profile 1g.5gb+me 4864
profile 2g.10gb 9856
profile 3g.20gb 19968
profile 7g.40gb 40192
default 2g.10gb
max_nodes 2
]]

-- reload loads the script as slurmctld does when it starts. The script has then read no table.
local function reload()
  log, said = {}, {}
  check(dofile(script) == slurm.SUCCESS, "the script loads", "another value")
end

-- poked returns the bytes written to the trigger file since the last call, or nil if the file does not exist.
local function poked()
  local f = io.open(os.getenv("CAELUM_POKE"), "r")
  if not f then return nil end
  local text = f:read("*a")
  f:close()
  assert(io.open(os.getenv("CAELUM_POKE"), "w")):close()
  return text
end

-- Numbers are doubles; unset numbers are NO_VAL. Writing "gres" writes tres_per_node with a prefix.
local function job_desc(fields, prefix)
  local store = {
    user_id = 1001, name = "train.sh", script = "#!/bin/sh\n", account = "phys", priority = NO_VAL,
    min_nodes = NO_VAL, max_nodes = NO_VAL, num_tasks = NO_VAL, ntasks_per_node = NO_VAL16, ntasks_per_tres = NO_VAL16,
    sockets_per_node = NO_VAL16, cpus_per_task = NO_VAL16,
  }
  for k, v in pairs(fields) do store[k] = v end
  for k, v in pairs(store) do if type(v) == "number" then store[k] = v + 0.0 end end
  return setmetatable({}, {
    __index = store,
    __newindex = function(_, k, v)
      if k == "gres" then k, v = "tres_per_node", prefix .. v:gsub(",", "," .. prefix) end
      store[k] = v
    end,
  })
end

local PARTS = {gpu = {flag_default = 1.0}, ["gpu-long"] = {flag_default = 0.0}, cpu = {flag_default = 0.0}}

local function submit(fields, prefix)
  said = {}
  local job = job_desc(fields, prefix or "gres:")
  return slurm_job_submit(job, PARTS, 1001), job
end

-- env returns the spank_job_env that Slurm generates from --mig, --mig-mem and --mig-grow. The indices of the table
-- start at 0.
local function env(mig, mem, grow)
  local all = {[0] = "X=1"}
  if mig then all[#all + 1] = "_SLURM_SPANK_OPTION_caelum_mig=" .. mig end
  if mem then all[#all + 1] = "_SLURM_SPANK_OPTION_caelum_mig_mem=" .. mem end
  if grow then all[#all + 1] = "_SLURM_SPANK_OPTION_caelum_mig_grow=" .. grow end
  return all
end

-- word returns the value of one of Caelum's tags in a job's admin_comment, or nil.
local function word(job, name) return (" " .. tostring(job.admin_comment)):match(" caelum:" .. name .. "=(%S+)") end

reload()
write_table(TABLE)

---------------------------------------------------------------- accepted requests: the request and
---------------------------------------------------------------- the resulting tres_per_node

local accepted = {
  {"--gres=gpu:1", {tres_per_node = "gres:gpu:1"}, "gres:gpu:1,gres:mig:2g.10gb:1"},
  {"--gres=gpu", {tres_per_node = "gres:gpu"}, "gres:gpu,gres:mig:2g.10gb:1"},
  {"--gres=gpu:a100:2", {tres_per_node = "gres:gpu:a100:2"}, "gres:gpu:a100:2,gres:mig:2g.10gb:2"},
  {"--gres=gpu:a100", {tres_per_node = "gres:gpu:a100"}, "gres:gpu:a100,gres:mig:2g.10gb:1"},
  {"with another gres", {tres_per_node = "gres:net:4,gres:gpu:2"}, "gres:net:4,gres:gpu:2,gres:mig:2g.10gb:2"},
  {"another gres with a unit", {tres_per_node = "gres:gpu:1,gres:tmpfs:100G"}, "gres:gpu:1,gres:tmpfs:100G,gres:mig:2g.10gb:1"},
  {"another gres in MiB", {tres_per_node = "gres:gpu:1,gres:tmpfs:1000MiB"}, "gres:gpu:1,gres:tmpfs:1000MiB,gres:mig:2g.10gb:1"},
  {"another gres in bytes", {tres_per_node = "gres/gpu:1,gres/tmpfs:107374182400"}, "gres/gpu:1,gres/tmpfs:107374182400,gres/mig:2g.10gb:1"},
  {"another gres with a type and a unit", {tres_per_node = "gres:gpu:1,gres:scratch:ssd:128kb"}, "gres:gpu:1,gres:scratch:ssd:128kb,gres:mig:2g.10gb:1"},
  {"two models", {tres_per_node = "gres:gpu:a100:1,gres:gpu:h100:2"}, "gres:gpu:a100:1,gres:gpu:h100:2,gres:mig:2g.10gb:3"},
  {"a count given twice: the last", {tres_per_node = "gres:gpu:1,gres:gpu:3"}, "gres:gpu:1,gres:gpu:3,gres:mig:2g.10gb:3"},
  {"later releases", {tres_per_node = "gres/gpu:2"}, "gres/gpu:2,gres/mig:2g.10gb:2"},
  {"--gpus=4", {tres_per_job = "gres:gpu:4"}, "gres:gpu:4,gres:mig:2g.10gb:4"},
  {"--gpus=4 -N2", {tres_per_job = "gres:gpu:4", min_nodes = 2, max_nodes = 2}, "gres:gpu:2,gres:mig:2g.10gb:2"},
  {"--gpus=4 -N1-2", {tres_per_job = "gres:gpu:4", min_nodes = 1, max_nodes = 2}, "gres:gpu:4,gres:mig:2g.10gb:4"},
  {"--gpus=a100:2 -N2", {tres_per_job = "gres/gpu:a100:2", min_nodes = 2}, "gres/gpu:a100:1,gres/mig:2g.10gb:1"},
  {"--gpus=4 -n4 --ntasks-per-node=2", {tres_per_job = "gres:gpu:4", num_tasks = 4, ntasks_per_node = 2}, "gres:gpu:2,gres:mig:2g.10gb:2"},
  {"--gpus=4 --gpus-per-node=2", {tres_per_job = "gres:gpu:4", tres_per_node = "gres:gpu:2"}, "gres:gpu:2,gres:mig:2g.10gb:2"},
  {"--gpus=2 --gres=net:1", {tres_per_job = "gres:gpu:2", tres_per_node = "gres:net:1"}, "gres:net:1,gres:gpu:2,gres:mig:2g.10gb:2"},
  {"--gpus-per-task=1 -n4", {tres_per_task = "gres:gpu:1", num_tasks = 4}, "gres:gpu:4,gres:mig:2g.10gb:4"},
  {"--gpus-per-task=1 -n4 -N2", {tres_per_task = "gres:gpu:1", num_tasks = 4, min_nodes = 2}, "gres:gpu:2,gres:mig:2g.10gb:2"},
  {"--gpus-per-task=2 --ntasks-per-node=3", {tres_per_task = "gres:gpu:2", ntasks_per_node = 3}, "gres:gpu:6,gres:mig:2g.10gb:6"},
  {"--gpus-per-task in 24.11", {tres_per_task = "cpu=2,gres/gpu:a100=1", num_tasks = 2}, "gres/gpu:a100:2,gres/mig:2g.10gb:2"},
  {"--gpus-per-socket=1", {tres_per_socket = "gres:gpu:1", sockets_per_node = 2}, "gres:gpu:2,gres:mig:2g.10gb:2"},
  {"--ntasks-per-gpu=2 -n4", {ntasks_per_tres = 2, num_tasks = 4}, "gres:gpu:2,gres:mig:2g.10gb:2"},
  {"--ntasks-per-gpu=2 -N2", {ntasks_per_tres = 2, min_nodes = 2}, "gres:gpu:1,gres:mig:2g.10gb:1"},
  {"--gres=mig:1g.5gb:2", {tres_per_node = "gres:mig:1g.5gb:2"}, "gres:mig:1g.5gb:2,gres:gpu:2", "named"},
  {"--gres=mig:1g.5gb", {tres_per_node = "gres:mig:1g.5gb"}, "gres:mig:1g.5gb,gres:gpu:1", "named"},
  {"two profiles", {tres_per_node = "gres:mig:1g.5gb+me:1,gres:mig:2g.10gb:2"}, "gres:mig:1g.5gb+me:1,gres:mig:2g.10gb:2,gres:gpu:3", "named"},
  {"slices and GPUs that agree", {tres_per_node = "gres:mig:1g.5gb:2,gres:gpu:a100:2"}, "gres:mig:1g.5gb:2,gres:gpu:a100:2", "named"},
  {"slices per node, GPUs per job", {tres_per_node = "gres:mig:1g.5gb:1", tres_per_job = "gres:gpu:2", min_nodes = 2}, "gres:mig:1g.5gb:1,gres:gpu:1", "named"},
  {"--gres=mig:2", {tres_per_node = "gres:mig:2"}, "gres:gpu:2,gres:mig:2g.10gb:2"},
  {"--gres=gpu:2,mig", {tres_per_node = "gres:gpu:2,gres:mig:2"}, "gres:gpu:2,gres:mig:2g.10gb:2"},
  {"--mig=1g.5gb", {tres_per_node = "gres:gpu:1", spank_job_env = {[0] = "X=1", "_SLURM_SPANK_OPTION_caelum_mig=1g.5gb"}}, "gres:gpu:1,gres:mig:1g.5gb:1", "named"},
  {"--mig, the other name", {tres_per_node = "gres:gpu:1", spank_job_env = {[0] = "SLURM_SPANK__SLURM_SPANK_OPTION_caelum_mig=7g.40gb"}}, "gres:gpu:1,gres:mig:7g.40gb:1", "named"},
  {"--mig=auto", {tres_per_node = "gres:gpu:1", spank_job_env = {[0] = "_SLURM_SPANK_OPTION_caelum_mig=auto"}}, "gres:gpu:1,gres:mig:2g.10gb:1"},
  {"another plugin's option", {tres_per_node = "gres:gpu:1", spank_job_env = {[0] = "A_SLURM_SPANK_OPTION_caelum_mig=1g.5gb"}}, "gres:gpu:1,gres:mig:2g.10gb:1"},
  {"an inherited --mig, typed slices", {tres_per_node = "gres:mig:1g.5gb:1", spank_job_env = {[0] = "_SLURM_SPANK_OPTION_caelum_mig=7g.40gb"}}, "gres:mig:1g.5gb:1,gres:gpu:1", "named"},
  {"partition named", {tres_per_node = "gres:gpu:1", partition = "gpu-long"}, "gres:gpu:1,gres:mig:2g.10gb:1"},
  {"a mixed list of partitions", {tres_per_node = "gres:gpu:1", partition = "cpu,gpu"}, "gres:gpu:1,gres:mig:2g.10gb:1"},
}
for _, case in ipairs(accepted) do
  local rc, job = submit(case[2])
  check(rc == slurm.SUCCESS, case[1] .. " is accepted", said[1])
  check(job.tres_per_node == case[3], case[1], job.tres_per_node)
  check(job.tres_per_job == case[2].tres_per_job and job.tres_per_task == case[2].tres_per_task, case[1] .. " keeps the rest", "a change")
  local words = "^caelum:key=%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x caelum:work=%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x%x" .. (case[4] and "$" or " caelum:sized=2g%.10gb caelum:by=default$")
  check((job.admin_comment or ""):find(words), case[1] .. " has a key, and the tag sized if the request named no profile", job.admin_comment)
  check(job.priority == NO_VAL, case[1] .. " is not held", job.priority)
end

-- If no field of the job has a prefix, slurmctld adds that of its release.
local _, later = submit({ntasks_per_tres = 1, num_tasks = 1}, "gres/")
check(later.tres_per_node == "gres/gpu:1,gres/mig:2g.10gb:1", "--ntasks-per-gpu in 24.11", later.tres_per_node)
_, later = submit({ntasks_per_tres = 1, num_tasks = 1, tres_per_node = "odd:1"}, "gres/")
check(later.tres_per_node == "odd:1,gres/gpu:1,gres/mig:2g.10gb:1", "slurmctld refuses an entry without a prefix", later.tres_per_node)

---------------------------------------------------------------- unchanged

for name, fields in pairs({
  ["no GPU"] = {}, ["another gres"] = {tres_per_node = "gres:net:1"}, ["none of them"] = {tres_per_node = "gres:gpu:0"},
  ["an empty field"] = {tres_per_node = ""}, ["not a gres"] = {tres_per_node = "gpu:1"},
  ["an unmanaged partition"] = {tres_per_node = "gres:gpu:1", partition = "cpu"},
  ["an unmanaged partition, misspelt"] = {tres_per_node = "gres:gpu:1k", partition = "cpu"},
  ["slices and GPUs in an unmanaged partition"] = {tres_per_node = "gres:gpu:2,gres:mig:1g.5gb:2", partition = "cpu"},
  ["a partition unlike a pattern"] = {tres_per_node = "gres:gpu:1", partition = "gp."},
  ["--mig inherited by a job without GPUs"] = {spank_job_env = {[0] = "_SLURM_SPANK_OPTION_caelum_mig=1g.5gb"}},
  ["longer than slurmctld takes"] = {tres_per_node = string.rep("gres:gpu:1,", 1000)},
  ["fields of a wrong type"] = {tres_per_node = {}, tres_per_job = 7, spank_job_env = "x", admin_comment = 3},
  ["fewer tasks than one GPU serves"] = {ntasks_per_tres = 4, num_tasks = 2},
}) do
  local rc, job = submit(fields)
  check(rc == slurm.SUCCESS, name .. " passes", said[1])
  check(job.tres_per_node == fields.tres_per_node and job.admin_comment == fields.admin_comment and job.priority == NO_VAL, name .. " is untouched", job.tres_per_node)
end
check(#log == 0, "the script has logged nothing", log[1]) -------------------------------------------------------------- rejected requests, with the reason

for _, case in ipairs({
  {"an unknown profile", {tres_per_node = "gres:mig:9g.99gb:1"}, "the MIG profile 9g%.99gb does not exist; the profiles are 1g%.5gb, 1g%.5gb%+me, 2g%.10gb, 3g%.20gb, 7g%.40gb"},
  {"the filler", {tres_per_node = "gres:mig:closed:1"}, "the MIG profile closed does not exist"},
  {"an unknown --mig", {tres_per_node = "gres:gpu:1", spank_job_env = {[0] = "_SLURM_SPANK_OPTION_caelum_mig=%s%n\27[2J"}}, "^caelum: %-%-mig: the MIG profile %?s%?n%?%?2J does not exist"},
  {"slices and GPUs that disagree", {tres_per_node = "gres:mig:1g.5gb:2,gres:gpu:1"}, "2 slices and 1 GPU per node"},
  {"typed and untyped slices", {tres_per_node = "gres:mig:1g.5gb:1,gres:mig:1"}, "every slice or for no slice"},
  {"slices per job", {tres_per_job = "gres:mig:1g.5gb:1"}, "per node"},
  {"slices per task", {tres_per_task = "gres/mig:1g.5gb=1", num_tasks = 2}, "per node"},
  {"3 GPUs and 2 slices per node on 2 nodes", {tres_per_job = "gres:gpu:3", tres_per_node = "gres:mig:1g.5gb:2", min_nodes = 2}, "3 GPUs cannot be divided evenly among 2 nodes"},
  {"3 GPUs and 2 slices without a profile", {tres_per_job = "gres:gpu:3", tres_per_node = "gres:mig:2", min_nodes = 2}, "3 GPUs cannot be divided evenly among 2 nodes"},
  {"3 GPUs, and 2 GPUs per task", {tres_per_job = "gres:gpu:3", tres_per_task = "gres:gpu:2"}, "multiple of %-%-gpus%-per%-task"},
  {"per socket, of how many", {tres_per_socket = "gres:gpu:1"}, "sockets%-per%-node"},
  {"a count with a suffix", {tres_per_node = "gres:gpu:1k"}, "gres:gpu:1k is not valid"},
  {"a negative count", {tres_per_node = "gres:gpu:-1"}, "not valid"},
  {"a signed count", {tres_per_node = "gres:gpu:+2"}, "not valid"},
  {"an endless count", {tres_per_node = "gres:gpu:" .. string.rep("9", 400)}, "not valid"},
  {"too many colons", {tres_per_node = "gres:gpu:a100:1:1"}, "not valid"},
  {"control characters", {tres_per_node = "gres:gpu:\n\27[2J\194\155"}, "^caelum: the request gres:gpu:%?%?%[2J%?%? is not valid"},
  {"no count after the colon", {tres_per_node = "gres:gpu:"}, "not valid"},
  {"a count of 0 of a type with a parenthesis", {tres_per_node = "gres:gpu:1,gres:mig:x(:0"}, "gres:mig:x%(:0 is not valid"},
  {"a count of 0 of a type with a blank", {tres_per_node = "gres:gpu:1,gres:gpu:x y:0"}, "gres:gpu:x y:0 is not valid"},
  {"another gres with a parenthesis", {tres_per_node = "gres:gpu:1,gres:net:x(:0"}, "not valid"},
  {"a type that is a count", {tres_per_node = "gres:gpu:1,gres:mig:7k:0"}, "not valid"},
  {"a type that begins with a sign", {tres_per_node = "gres:gpu:1,gres:mig:-x:0"}, "not valid"},
  {"a unit that Slurm does not have", {tres_per_node = "gres:gpu:1,gres:net:9x.y("}, "not valid"},
  {"a type that is a count with a unit", {tres_per_node = "gres:gpu:1,gres:net:5GB:2"}, "not valid"},
  {"text before the prefix", {tres_per_node = "gres:gpu:1,xgres:net:1"}, "not valid"},
  {"a parenthesis per job", {tres_per_node = "gres:gpu:1", tres_per_job = "gres:mig:x(:0"}, "not valid"},
  {"slices without GPUs, elsewhere", {tres_per_node = "gres:mig:1g.5gb:1", partition = "cpu"}, "a request for slices must include the same number of GPUs"},
  {"more slices than GPUs, elsewhere", {tres_per_node = "gres:gpu:1,gres:mig:1g.5gb:7", partition = "cpu"}, "a request for slices must include the same number of GPUs"},
  {"slices next to GPUs per job, elsewhere", {tres_per_node = "gres:mig:1g.5gb:1", tres_per_job = "gres:gpu:1", partition = "cpu"}, "a request for slices must include the same number of GPUs"},
  {"slices of type closed, elsewhere", {tres_per_node = "gres:gpu:1,gres:mig:closed:1", partition = "cpu"}, "closed is not a profile"},
  {"untyped slices, elsewhere", {tres_per_node = "gres:gpu:1,gres:mig:1", partition = "cpu"}, "a request for slices must include the same number of GPUs"},
  {"slices per job, elsewhere", {tres_per_job = "gres:mig:1g.5gb:7", partition = "cpu"}, "per node"},
  {"slices that cannot be counted, elsewhere", {tres_per_node = "gres:mig:1g.5gb:1k", partition = "cpu"}, "not valid"},
}) do
  local rc, job = submit(case[2])
  check(rc == slurm.ERROR, case[1] .. " is refused", rc)
  check((said[1] or ""):find(case[3]), case[1], said[1])
  check(job.tres_per_node == case[2].tres_per_node, case[1] .. " changes nothing", job.tres_per_node)
end

---------------------------------------------------------------- held

for name, fields in pairs({
  ["-w n1"] = {req_nodes = "n1"}, ["-x n1"] = {exc_nodes = "n1"}, ["--reservation"] = {reservation = "r"}, ["-N3 of 2"] = {min_nodes = 3},
  ["3 nodes by tasks"] = {num_tasks = 6, ntasks_per_node = 2},
}) do
  fields.tres_per_node = "gres:gpu:1"
  local rc, job = submit(fields)
  check(rc == slurm.SUCCESS and job.priority == 0, name .. " is held", job.priority)
  check((job.admin_comment or ""):find("^caelum:key=%x+ caelum:work=%x+ caelum:sized=2g%.10gb caelum:by=default caelum:held$"), name .. " has the tag", job.admin_comment)
  fields.priority = 0
  rc, job = submit(fields)
  check(rc == slurm.SUCCESS and job.priority == 0 and not (job.admin_comment or ""):find("held"), name .. " with the user's --hold has no tag", job.admin_comment)
  fields.priority, fields.partition = nil, "cpu"
  rc, job = submit(fields)
  check(rc == slurm.SUCCESS and job.priority == NO_VAL, name .. " in an unmanaged partition is not held", job.priority)
end
local _, noted = submit({tres_per_node = "gres:gpu:1", admin_comment = "JS1:abc"})
check(noted.admin_comment:find("^JS1:abc caelum:key=%x+ caelum:work=%x+ caelum:sized=2g%.10gb caelum:by=default$"), "the existing admin_comment is kept", noted.admin_comment)

---------------------------------------------------------------- catalogue nodes: a job sees only the real nodes

local function part(nodes, total) return {flag_default = 0.0, nodes = nodes, total_nodes = total + 0.0, total_cpus = 64.0 * total} end
PARTS.gpu = part("mig-catalog[1-2],n[1-3]", 5)
PARTS.gpu.flag_default = 1.0
PARTS["gpu-long"] = part("mig-catalog[2-3],r[01-02]x[1-2]", 6)
PARTS.cpu = part("n[1-9]", 9)
local function limited(fields)
  local rc, job = submit(fields)
  local function n(name) return job[name] ~= NO_VAL and job[name] ~= nil and string.format(" %s=%s", name, string.format(type(job[name]) == "number" and "%.0f" or "%s", job[name])) or "" end
  return rc == slurm.SUCCESS and "accepted" .. n("min_nodes") .. n("max_nodes") .. n("min_cpus") .. n("exc_nodes") .. (job.priority == 0 and " held" or "") or rc
end
write_table(TABLE .. "max_cpus 64\n")
for _, case in ipairs({
  {{}, "accepted exc_nodes=mig-catalog[1-2]"},
  {{exc_nodes = "n2"}, "accepted exc_nodes=n2,mig-catalog[1-2]"},
  {{partition = "cpu,gpu-long,gpu"}, "accepted exc_nodes=mig-catalog[2-3],mig-catalog[1-2]"},
  {{partition = "gpu" .. string.rep(",gpu", 250)}, "accepted exc_nodes=mig-catalog[1-2]"},
  {{partition = "cpu", min_nodes = 10}, "accepted min_nodes=10"},
  {{min_nodes = 3, max_nodes = 3}, "accepted min_nodes=3 max_nodes=3 exc_nodes=mig-catalog[1-2]"},
  {{min_nodes = 4, max_nodes = 4}, "accepted min_nodes=6 max_nodes=6"},
  {{min_nodes = 1, max_nodes = 9}, "accepted min_nodes=1 max_nodes=9 exc_nodes=mig-catalog[1-2]"},
  {{min_nodes = 4, partition = "gpu,cpu"}, "accepted min_nodes=4 exc_nodes=mig-catalog[1-2]"},
  {{min_nodes = 5, partition = "gpu-long"}, "accepted min_nodes=7"},
  {{min_cpus = 192}, "accepted min_cpus=192 exc_nodes=mig-catalog[1-2]"},
  {{min_cpus = 193}, "accepted min_cpus=321"},
  {{tres_per_node = "gres:gpu:v100:1", min_nodes = 4}, "accepted min_nodes=6", "model a100 7g.40gb\n"},
  {{tres_per_node = "gres:gpu:1", min_nodes = 2}, "accepted min_nodes=2"},
  {{tres_per_node = "gres:gpu:1", min_nodes = 4}, "accepted min_nodes=6"},
  {{tres_per_node = "gres:gpu:1", min_nodes = 4, req_nodes = "n1"}, "accepted min_nodes=6"},
  {{tres_per_node = "gres:gpu:1", min_cpus = 256, num_tasks = 256}, "accepted min_cpus=321"},
  {{tres_per_job = "gres:gpu:4", min_nodes = 4}, "accepted min_nodes=4 min_cpus=321"},
  {{tres_per_job = "gres:gpu:9"}, 2014, "profile 2g.10gb 9856 2\n"},
  {{tres_per_node = "gres:gpu:1", min_nodes = 2, exc_nodes = "n2"}, "accepted min_nodes=2 exc_nodes=n2 held"},
  {{tres_per_node = "gres:gpu:1", max_nodes = 1, num_tasks = 2, cpus_per_task = 32, req_nodes = "n1"}, "accepted max_nodes=1 held"},
  {{tres_per_node = "gres:gpu:1", max_nodes = 1, num_tasks = 2, cpus_per_task = 33, req_nodes = "n1"}, 2014},
}) do
  write_table(TABLE .. "max_cpus 64\n" .. (case[3] or ""))
  local got = limited(case[1])
  check(got == case[2], "with catalogue nodes, case " .. tostring(case[2]), tostring(got))
end
for _, case in ipairs({
  {{exc_nodes = "n2"}, {}, "n2,mig-catalog[1-2]", nil, "a job without GPUs"},
  {{min_nodes = 4}, {}, nil, 6, "more nodes than there are"},
  {{tres_per_node = "gres:gpu:1"}, {}, "", nil, "the first GPUs of a job"},
  {{exc_nodes = "n2"}, {tres_per_node = "gres:gpu:1,gres:mig:1g.5gb:1"}, "n2", nil, "a job with slices"},
  {{exc_nodes = "n2", partition = "cpu"}, {}, "n2", nil, "a partition without catalogue nodes"},
}) do
  local job = setmetatable({}, {__index = case[1], __newindex = function(_, k, v) case[1][k] = v end})
  local record = {partition = "gpu", min_nodes = 1, job_state = 0, user_id = 1001, admin_comment = "", time_limit = NO_VAL}
  for k, v in pairs(case[2]) do record[k] = v end
  local rc = slurm_job_modify(job, record, PARTS, 1001)
  check(rc == slurm.SUCCESS and case[1].exc_nodes == case[3] and case[1].min_nodes == case[4], "an update of " .. case[5], case[1].exc_nodes)
end
for _, name in ipairs({"gpu", "gpu-long", "cpu"}) do PARTS[name].nodes = nil end
write_table(TABLE)

---------------------------------------------------------------- CPUs and memory of a slice

write_table(TABLE .. "profile 1g.5gb 4864 14\nmodel a100 1g.5gb\nmodel a100 2g.10gb\nmodel a100 3g.20gb\nmodel a100 7g.40gb\n" ..
  "per_gpu gpu 16 120000\nper_gpu gpu-long 8 0\n")
PARTS["gpu-long"].max_share = 0.0
for _, case in ipairs({
  {"1g.5gb", {}, "gres:gpu:2,gres:mig:2", "gres:gpu:15000"},
  {"2g.10gb", {}, "gres:gpu:4,gres:mig:4", "gres:gpu:30000"},
  {"3g.20gb", {}, "gres:gpu:6,gres:mig:6", "gres:gpu:60000"},
  {"7g.40gb", {}, "gres:gpu:16,gres:mig:16", "gres:gpu:120000"},
  {"7g.40gb", {tres_per_node = "gres:gpu:2"}, "gres:gpu:16,gres:mig:16", "gres:gpu:120000"},
  {"1g.5gb", {tres_per_node = "gres:gpu:1,gres:mig:3g.20gb:1"}, "gres:gpu:6,gres:mig:6", "gres:gpu:60000"},
  {"1g.5gb", {cpus_per_task = 4}, nil, "gres:gpu:15000"},
  {"1g.5gb", {cpus_per_tres = "gres:gpu:3"}, "gres:gpu:3,gres:mig:3", "gres:gpu:15000"},
  {"1g.5gb", {min_mem_per_node = 0}, "gres:gpu:2,gres:mig:2", nil},
  {"1g.5gb", {min_mem_per_cpu = 100}, "gres:gpu:2,gres:mig:2", nil},
  {"1g.5gb", {mem_per_tres = "gres:gpu:500"}, "gres:gpu:2,gres:mig:2", "gres:gpu:500"},
  {"1g.5gb", {partition = "gpu,cpu"}, nil, nil},
  {"1g.5gb", {shared = 0}, nil, nil},
  {"7g.40gb", {shared = 0, cpus_per_tres = "gres:gpu:30"}, "gres:gpu:30,gres:mig:30", nil},
  {"1g.5gb", {partition = "gpu-long"}, nil, nil},
}) do
  local fields = {tres_per_node = "gres:gpu:1", spank_job_env = env(case[1])}
  for k, v in pairs(case[2]) do fields[k] = v end
  local rc, job = submit(fields)
  check(rc == slurm.SUCCESS and job.cpus_per_tres == case[3] and job.mem_per_tres == case[4], "the share of " .. case[1],
    tostring(job.cpus_per_tres) .. " " .. tostring(job.mem_per_tres) .. " " .. tostring(said[1]))
end
PARTS["gpu-long"].max_share = nil
write_table(TABLE)

---------------------------------------------------------------- --mig and --mig-mem: profile, choice, message to the user

for _, case in ipairs({
  {"--mig=off", "off", nil, "7g.40gb", true},
  {"--mig-mem in MiB", nil, "4864", "1g.5gb", true},
  {"one MiB more", nil, "4865", "2g.10gb", true},
  {"--mig-mem in G", nil, "8G", "2g.10gb", true},
  {"--mig-mem in g", nil, "8g", "2g.10gb", true},
  {"--mig-mem in GB", nil, "8GB", "2g.10gb", true},
  {"--mig-mem in GiB", nil, "8GiB", "2g.10gb", true},
  {"--mig in capital letters", "3G.20GB", nil, "3g.20gb", false},
  {"--mig-mem in K, rounded up", nil, "10092545K", "3g.20gb", true},
  {"--mig-mem with zeros", nil, "008G", "2g.10gb", true},
  {"the most there is", nil, "40192m", "7g.40gb", true},
  {"--mig=auto --mig-mem", "auto", "1", "1g.5gb", true},
  {"--mig=off --mig-mem", "off", "8G", "7g.40gb", true},
  {"--mig and --mig-mem that agree", "3g.20gb", "8G", "3g.20gb", false},
}) do
  local rc, job = submit({tres_per_node = "gres:gpu:2", spank_job_env = env(case[2], case[3])})
  local want = case[5] and case[2] ~= "off" and "caelum: " .. case[4] .. ", the smallest slice with this memory (--mig-mem)"
  if want and not case[3] then want = "caelum: 2g.10gb, the default, because no earlier runs are known" end
  check(rc == slurm.SUCCESS and said[1] == (want or nil) and #said == (want and 1 or 0), case[1] .. ": the message", said[1])
  check(job.tres_per_node == "gres:gpu:2,gres:mig:" .. case[4] .. ":2", case[1], job.tres_per_node)
  check(word(job, "sized") == (case[5] and case[4] or nil), case[1] .. ": whether Caelum chose", job.admin_comment)
end
for _, case in ipairs({
  {"more memory than there is", nil, "40193", "%-%-mig%-mem=40193: no MIG profile has enough memory; the profiles have, in MiB: 1g%.5gb 4864, 1g%.5gb%+me 4864, 2g%.10gb 9856, 3g%.20gb 19968, 7g%.40gb 40192$"},
  {"far more", nil, "999999999T", "no MIG profile has enough memory"},
  {"no size", nil, "8GX", "^caelum: %-%-mig%-mem: couldn't read '8GX': specify the memory of a slice, as in 8G$"},
  {"bytes", nil, "8B", "couldn't read '8B'"},
  {"a unit without a prefix", nil, "8iB", "couldn't read '8iB'"},
  {"nothing", nil, "0", "couldn't read '0'"},
  {"ten digits", nil, "1000000000", "couldn't read"},
  {"not a size, and long", nil, "\27" .. string.rep("9", 500), "couldn't read '%?9+': specify"},
  {"--mig and --mig-mem that disagree", "1g.5gb", "8G", "%-%-mig=1g%.5gb and %-%-mig%-mem=8G contradict each other, because 1g%.5gb has 4864 MiB"},
  {"a whole GPU that is too small", "off", "1T", "%-%-mig=off and %-%-mig%-mem=1T contradict each other, because 7g%.40gb has 40192 MiB"},
  {"an unknown --mig with --mig-mem", "9g.99gb", "8G", "the MIG profile 9g%.99gb does not exist"},
}) do
  local rc, job = submit({tres_per_node = "gres:gpu:1", spank_job_env = env(case[2], case[3])})
  check(rc == slurm.ERROR and job.tres_per_node == "gres:gpu:1" and not job.admin_comment, case[1] .. " is refused", job.tres_per_node)
  check((said[1] or ""):find(case[4]), case[1], said[1])
end
-- GPUs without MIG may have less memory than the largest slice. Only their own type or size selects them.
write_table(TABLE .. "profile full 32768 2\nmodel v100 full\n")
for _, case in ipairs({
  {"30G", "gpu:1", "7g.40gb"}, {"5G", "gpu:v100:1", "full"}, {"5G", "gpu:1", "2g.10gb"}, {nil, "gpu:v100:2", "full"},
}) do
  local _, job = submit({tres_per_node = "gres:" .. case[2], spank_job_env = case[1] and env(nil, case[1])})
  check((job.tres_per_node or ""):find("gres:mig:" .. case[3] .. ":", 1, true), "GPUs without MIG: " .. case[2], job.tres_per_node)
end
write_table((TABLE:gsub("profile 7g%.40gb 40192\n", "profile full 46068 1\n")))
local _, only_full = submit({tres_per_node = "gres:gpu:1", spank_job_env = env(nil, "44G")})
check(only_full.tres_per_node == "gres:gpu:1,gres:mig:full:1", "only a GPU without MIG has enough memory", only_full.tres_per_node)
write_table(TABLE)

local _, small = submit({tres_per_node = "gres:mig:1g.5gb:1", spank_job_env = env("off", "8G")})
check(small.tres_per_node == "gres:mig:1g.5gb:1,gres:gpu:1" and not word(small, "sized"), "typed slices take precedence over --mig and --mig-mem", small.tres_per_node)
local _, inherited = submit({tres_per_node = "gres:gpu:1", spank_job_env = {[0] = "SLURM_SPANK__SLURM_SPANK_OPTION_caelum_mig_mem=16G"}})
check(inherited.tres_per_node == "gres:gpu:1,gres:mig:3g.20gb:1", "--mig-mem under the inherited name", inherited.tres_per_node)

-- In these cases, the request names a GPU model that does not have the chosen profile.
write_table(TABLE .. "profile 2g.20gb 20096\nmodel a100 1g.5gb\nmodel a100 2g.10gb\nmodel h100 1g.5gb+me\nmodel h100 2g.20gb\nmodel h100 7g.40gb\nmodel l4 1g.5gb\n")
for _, case in ipairs({
  {"the model has it", {tres_per_node = "gres:gpu:a100:1"}, "gres:gpu:a100:1,gres:mig:2g.10gb:1", "2g.10gb"},
  {"another model has as much", {tres_per_node = "gres:gpu:h100:2"}, "gres:gpu:h100:2,gres:mig:2g.20gb:2", "2g.20gb"},
  {"by --gpus", {tres_per_job = "gres:gpu:h100:2"}, "gres:gpu:h100:2,gres:mig:2g.20gb:2", "2g.20gb"},
  {"it has less: its largest", {tres_per_node = "gres:gpu:l4:1"}, "gres:gpu:l4:1,gres:mig:1g.5gb:1", "1g.5gb"},
  {"a model that is not in the table", {tres_per_node = "gres:gpu:v100:1"}, "gres:gpu:v100:1", nil},
  {"such a model by --gpus", {tres_per_job = "gres:gpu:v100:2"}, nil, nil},
  {"such a model with --ntasks-per-gpu", {tres_per_job = "gres:gpu:v100:2", ntasks_per_tres = 1}, nil, nil},
  {"such a model beside another one", {tres_per_node = "gres:gpu:v100:1,gres:gpu:h100:2"}, "gres:gpu:v100:1,gres:gpu:h100:2,gres:mig:2g.20gb:2", "2g.20gb"},
  {"two models", {tres_per_node = "gres:gpu:h100:1,gres:gpu:a100:1"}, "gres:gpu:h100:1,gres:gpu:a100:1,gres:mig:2g.10gb:2", "2g.10gb"},
  {"--mig-mem", {tres_per_node = "gres:gpu:h100:1", spank_job_env = env(nil, "8G")}, "gres:gpu:h100:1,gres:mig:2g.20gb:1", "2g.20gb"},
  {"a profile by name", {tres_per_node = "gres:gpu:h100:1", spank_job_env = env("7g.40gb")}, "gres:gpu:h100:1,gres:mig:7g.40gb:1", nil},
}) do
  local rc, job = submit(case[2])
  check(rc == slurm.SUCCESS and job.tres_per_node == case[3] and word(job, "sized") == case[4], case[1], tostring(job.tres_per_node) .. " " .. tostring(job.admin_comment))
end

local rc_other, other = submit({tres_per_node = "gres:gpu:h100:1", spank_job_env = env("3g.20gb")})
check(rc_other == slurm.ERROR and not other.admin_comment and (said[1] or ""):find("GPUs of type h100 do not have the profile 3g%.20gb; their profiles are 1g%.5gb%+me, 2g%.20gb, 7g%.40gb"), "another model's profile by name", said[1])

-- A change does not add slices to a job whose GPUs have none.
do
  local record = {partition = "gpu", tres_per_node = "gres/gpu:v100:1", job_state = 0.0, user_id = 1001.0, min_nodes = 1.0, admin_comment = ""}
  local job = job_desc({time_limit = 5}, "gres/")
  check(slurm_job_modify(job, record, PARTS, 1001) == slurm.SUCCESS and not job.tres_per_node, "a change to a job with a V100", said[1])
  job = job_desc({tres_per_node = "gres/gpu:v100:2"}, "gres/")
  check(slurm_job_modify(job, record, PARTS, 1001) == slurm.SUCCESS and job.tres_per_node == "gres/gpu:v100:2", "a second V100", said[1])
  record.tres_per_job, record.tres_per_node, record.partition = "gres:gpu:h100:1", nil, "cpu"
  job = job_desc({tres_per_job = "gres:gpu:v100:1", partition = "gpu"}, "gres:")
  check(slurm_job_modify(job, record, PARTS, 1001) == slurm.ERROR, "a V100 in addition to an H100 without a slice")
  job = job_desc({tres_per_job = ("x"):rep(1025), tres_per_task = "gres:gpu:v100:1", partition = "gpu"}, "gres:")
  check(slurm_job_modify(job, record, PARTS, 1001) == slurm.ERROR, "a V100 per task, and a long request per job")
  record.tres_per_job, record.tres_fmt_req_str = nil, "cpu=2,gres/gpu=2"
  job = job_desc({tres_per_node = "gres:gpu:v100:1", partition = "gpu"}, "gres:")
  check(slurm_job_modify(job, record, PARTS, 1001) == slurm.ERROR, "a V100 in addition to GPUs of --ntasks-per-gpu")
  record.tres_fmt_req_str, record.partition = nil, "gpu"
  local ok = submit({tres_per_node = "gres:gpu:v100:1,gres:mig:1g.5gb:1"})
  check(ok == slurm.ERROR and said[1]:find("1 slice and 0 GPUs"), "a slice for a V100", said[1])
  record.tres_per_node = "gres:gpu:h100:1,gres:mig:2g.20gb:1"
  job = job_desc({tres_per_node = "gres:gpu:v100:1"}, "gres:")
  check(slurm_job_modify(job, record, PARTS, 1001) == slurm.ERROR, "a V100 in addition to a slice", job.tres_per_node)
end

---------------------------------------------------------------- fractions of GPUs without MIG

local FRACTIONS = TABLE .. "profile 1f.11gb 11389 16\nprofile 2f.22gb 22778 8\nprofile full 46068 4\nwhole 7g.40gb\n" ..
  "model a100 1g.5gb\nmodel a100 2g.10gb\nmodel a100 7g.40gb\nmodel l40s 1f.11gb 4\nmodel l40s 2f.22gb 4\nmodel l40s full 4\n"
write_table(FRACTIONS)
for _, case in ipairs({
  {"mig:1f.11gb", {tres_per_node = "gres:mig:1f.11gb:1"}, "gres:mig:1f.11gb:1,gres:gpu:1"},
  {"gpu:l40s,mig:1f.11gb", {tres_per_node = "gres/gpu:l40s:1,gres/mig:1f.11gb:1"}, "gres/gpu:l40s:1,gres/mig:1f.11gb:1"},
  {"--mig=1f.11gb", {tres_per_node = "gres:gpu:1", spank_job_env = env("1f.11gb")}, "gres:gpu:1,gres:mig:1f.11gb:1"},
  {"--mig=1F.11GB", {tres_per_job = "gres:gpu:l40s:1", spank_job_env = env("1F.11GB")}, "gres:gpu:l40s:1,gres:mig:1f.11gb:1"},
  {"one per node", {tres_per_job = "gres:gpu:2", min_nodes = 2, spank_job_env = env("1f.11gb")}, "gres:gpu:1,gres:mig:1f.11gb:1"},
  {"gpu:l40s_1f.11gb", {tres_per_node = "gres:gpu:l40s_1f.11gb:1"}, "gres:gpu:l40s:1,gres:mig:1f.11gb:1"},
  {"gpu:1f.11gb", {tres_per_node = "gres:gpu:1f.11gb"}, "gres:gpu:1,gres:mig:1f.11gb:1"},
  {"--gpus=L40S.2F.22GB:1", {tres_per_job = "gres/gpu:L40S.2F.22GB:1"}, "gres/gpu:l40s:1,gres/mig:2f.22gb:1"},
  {"a mark", {tres_per_node = "gres:gpu:1", script = "", spank_job_env = {"_SLURM_SPANK_OPTION_caelum_static=l40s_1f.11gb"}}, "gres:gpu:l40s:1,gres:mig:1f.11gb:1"},
  {"the default on an L40S", {tres_per_node = "gres:gpu:l40s:1"}, "gres:gpu:l40s:1,gres:mig:1f.11gb:1", "1f.11gb"},
  {"the default without a type", {tres_per_node = "gres:gpu:1"}, "gres:gpu:1,gres:mig:2g.10gb:1", "2g.10gb"},
  {"--mig=off", {tres_per_node = "gres:gpu:l40s:1", spank_job_env = env("off")}, "gres:gpu:l40s:1,gres:mig:full:1", "full"},
  {"two L40S", {tres_per_node = "gres:gpu:l40s:2"}, "gres:gpu:l40s:2,gres:mig:full:2", "full", "full, because the job requests several GPUs per node"},
  {"two of --gpus", {tres_per_job = "gres:gpu:l40s:2"}, "gres:gpu:l40s:2,gres:mig:full:2", "full"},
  {"two L40S on two nodes", {tres_per_job = "gres:gpu:l40s:2", min_nodes = 2}, "gres:gpu:l40s:1,gres:mig:1f.11gb:1", "1f.11gb"},
  {"--mig-mem=11G", {tres_per_node = "gres:gpu:l40s:1", spank_job_env = env(nil, "11G")}, "gres:gpu:l40s:1,gres:mig:1f.11gb:1", "1f.11gb"},
  {"--mig-mem=12G", {tres_per_node = "gres:gpu:l40s:1", spank_job_env = env(nil, "12G")}, "gres:gpu:l40s:1,gres:mig:2f.22gb:1", "2f.22gb"},
  {"--mig-mem=30G", {tres_per_node = "gres:gpu:l40s:1", spank_job_env = env(nil, "30G")}, "gres:gpu:l40s:1,gres:mig:full:1", "full"},
  {"--mig-mem=12G for two", {tres_per_node = "gres:gpu:l40s:2", spank_job_env = env(nil, "12G")}, "gres:gpu:l40s:2,gres:mig:full:2", "full"},
  {"--mig-mem=11G of any GPU", {tres_per_node = "gres:gpu:1", spank_job_env = env(nil, "11G")}, "gres:gpu:1,gres:mig:1f.11gb:1", "1f.11gb"},
  {"--mig-mem=11G of an A100", {tres_per_node = "gres:gpu:a100:1", spank_job_env = env(nil, "11G")}, "gres:gpu:a100:1,gres:mig:7g.40gb:1", "7g.40gb"},
  {"--gres=mig:2f.22gb:2", {tres_per_node = "gres:mig:2f.22gb:2"}, nil},
  {"two sizes", {tres_per_node = "gres:mig:1f.11gb:1,gres:mig:1g.5gb:1"}, nil},
  {"--mig=1f.11gb for two", {tres_per_job = "gres:gpu:2", spank_job_env = env("1f.11gb")}, nil},
  {"two of gpu:l40s_1f.11gb", {tres_per_job = "gres:gpu:l40s_1f.11gb:2"}, nil},
}) do
  local rc, job = submit(case[2])
  if case[3] then
    check(rc == slurm.SUCCESS and job.tres_per_node == case[3] and word(job, "sized") == case[4], "fractions: " .. case[1], tostring(job.tres_per_node) .. " " .. tostring(said[1]))
    check(not case[5] or said[1] == "caelum: " .. case[5], "fractions: message of " .. case[1], said[1])
  else
    check(rc == slurm.ERROR and not job.admin_comment and (said[1] or ""):find("only one fraction of a GPU on each node", 1, true), "fractions: " .. case[1] .. " is refused", said[1])
  end
end

-- The user's earlier runs: the profile in the table, the type in the request, and the profile of the job. A fraction has
-- the run time of the whole GPU, so the time limit does not matter.
for _, case in ipairs({
  {"1g.5gb", "gpu:l40s:1", "1f.11gb"}, {"3g.20gb", "gpu:l40s:1", "2f.22gb"}, {"7g.40gb", "gpu:l40s:1", "full"},
  {"1g.5gb+me", "gpu:l40s:1", "full"}, {"2f.22gb", "gpu:l40s:1", "2f.22gb"}, {"2f.22gb", "gpu:1", "2f.22gb"},
  {"2f.22gb", "gpu:l40s:2", "full"}, {"1f.11gb", "gpu:a100:1", "7g.40gb"}, {"1f.11gb", "gpu:2", "full"}, {"2g.10gb", "gpu:2", "2g.10gb"},
}) do
  local _, before = submit({tres_per_node = "gres:" .. case[2]})
  write_table(FRACTIONS .. "key 1001:" .. word(before, "key") .. " " .. case[1] .. " 3000-4000 90\n")
  local _, job = submit({tres_per_node = "gres:" .. case[2], time_limit = 5})
  check(word(job, "sized") == case[3], case[1] .. " for " .. case[2], tostring(job.tres_per_node) .. " " .. tostring(said[1]))
end

-- A whole GPU is never replaced by a fraction of a larger one, and a fraction has the share of its memory.
write_table((FRACTIONS:gsub("default 2g.10gb\nmax_nodes 2\n", "default 3g.20gb\nper_gpu gpu 16 120000\n"):gsub("whole 7g.40gb", "whole 3g.20gb")))
local _, unknown_job = submit({tres_per_node = "gres:gpu:l40s:1"})
check(unknown_job.tres_per_node == "gres:gpu:l40s:1,gres:mig:full:1" and unknown_job.mem_per_tres == "gres:gpu:120000", "the default is a whole GPU", unknown_job.tres_per_node)
for profile, want in pairs({["1f.11gb"] = "4 30000", ["2f.22gb"] = "8 60000", full = "16 120000"}) do
  local _, job = submit({tres_per_node = "gres:mig:" .. profile .. ":1"})
  local cpus, mib = want:match("(%d+) (%d+)")
  check(job.cpus_per_tres == "gres:gpu:" .. cpus .. ",gres:mig:" .. cpus and job.mem_per_tres == "gres:gpu:" .. mib, "the share of " .. profile, tostring(job.cpus_per_tres) .. " " .. tostring(job.mem_per_tres))
end

-- A change of a waiting job follows the same rules.
write_table(FRACTIONS)
for _, case in ipairs({
  {"gres:gpu:l40s:1", "gres:gpu:l40s:1,gres:mig:1f.11gb:1"}, {"gres:gpu:l40s:2", "gres:gpu:l40s:2,gres:mig:full:2"},
  {"gres:gpu:l40s_1f.11gb:1", "gres:gpu:l40s:1,gres:mig:1f.11gb:1"}, {"gres:mig:1f.11gb:2", nil},
}) do
  said = {}
  local record = {partition = "gpu", tres_per_node = "gres:gpu:l40s:1", job_state = 0.0, user_id = 1001.0, min_nodes = 1.0, admin_comment = ""}
  local job = job_desc({tres_per_node = case[1]}, "gres:")
  local rc = slurm_job_modify(job, record, PARTS, 1001)
  check(rc == (case[2] and slurm.SUCCESS or slurm.ERROR) and (not case[2] or job.tres_per_node == case[2]), "a change to " .. case[1], tostring(job.tres_per_node) .. " " .. tostring(said[1]))
end
write_table(TABLE)

---------------------------------------------------------------- several nodes

-- In these cases, no node has more than two slices of 7g.40gb, or more than 64 CPUs.
write_table(TABLE .. "profile 7g.40gb 40192 2\nprofile 2g.10gb 9856 6\nmax_cpus 64\n")
for _, case in ipairs({
  {"--gpus=4", {tres_per_job = "gres:gpu:4"}, {tres_per_node = "gres:gpu:2,gres:mig:7g.40gb:2", min_nodes = 2}},
  {"--gpus=4 -n4", {tres_per_job = "gres:gpu:4", num_tasks = 4}, {tres_per_node = "gres:gpu:2,gres:mig:7g.40gb:2", min_nodes = 2}},
  {"--gpus=4 --ntasks-per-node=2", {tres_per_job = "gres:gpu:4", ntasks_per_node = 2}, {tres_per_node = "gres:gpu:2,gres:mig:7g.40gb:2", min_nodes = 2}},
  {"--gpus=4 --ntasks-per-node=1, later", {tres_per_job = "gres/gpu:4", ntasks_per_node = 1}, {tres_per_node = "gres/gpu:2,gres/mig:7g.40gb:2", min_nodes = 2}},
  {"--gpus=4 --ntasks-per-node=1: more nodes than tasks", {tres_per_job = "gres:gpu:4", ntasks_per_node = 1}, 2014},
  {"--gpus=2", {tres_per_job = "gres:gpu:2"}, {tres_per_node = "gres:gpu:2,gres:mig:7g.40gb:2", min_nodes = NO_VAL}},
  {"--gpus=a100:3", {tres_per_job = "gres/gpu:a100:3"}, {tres_per_job = "", tres_per_node = "gres/gpu:a100:2,gres/mig:7g.40gb:2", min_nodes = 2, max_nodes = 2}},
  {"--gpus=3 -N2", {tres_per_job = "gres:gpu:3", min_nodes = 2, max_nodes = 2}, {tres_per_job = "", tres_per_node = "gres:gpu:2,gres:mig:7g.40gb:2", max_nodes = 2, num_tasks = NO_VAL}},
  {"--gpus=3 -n2 -N2-4", {tres_per_job = "gres:gpu:3", num_tasks = 2, min_nodes = 2, max_nodes = 4}, {tres_per_job = "", tres_per_node = "gres:gpu:2,gres:mig:7g.40gb:2", max_nodes = 2, num_tasks = 2}},
  {"--gpus=3 -N4", {tres_per_job = "gres:gpu:3", min_nodes = 4}, {tres_per_job = "", tres_per_node = "gres:gpu:1,gres:mig:7g.40gb:1"}},
  {"--gpus=a100:1,h100:2 -N2", {tres_per_job = "gres:gpu:a100:1,gres:gpu:h100:2", min_nodes = 2}, {tres_per_job = "", tres_per_node = "gres:gpu:a100:1,gres:gpu:h100:1,gres:mig:7g.40gb:2"}},
  {"--gpus=a100:3,h100:2 -N2: three GPUs on a node", {tres_per_job = "gres:gpu:a100:3,gres:gpu:h100:2", min_nodes = 2, max_nodes = 2}, 2014},
  {"--gpus-per-task=a100:1,h100:1 -n3 -N2", {tres_per_task = "gres:gpu:a100:1,gres:gpu:h100:1", num_tasks = 3, min_nodes = 2, max_nodes = 2}, slurm.ERROR},
  {"--gpus=6 -n3 -N4", {tres_per_job = "gres:gpu:6", num_tasks = 3, min_nodes = 4}, {tres_per_job = "", tres_per_node = "gres:gpu:2,gres:mig:7g.40gb:2", num_tasks = 3}},
  {"--gpus-per-task=1 -n4", {tres_per_task = "gres:gpu:1", num_tasks = 4}, {tres_per_node = "gres:gpu:2,gres:mig:7g.40gb:2", min_nodes = 2}},
  {"--gpus-per-task=1 -n3 -N2", {tres_per_task = "cpu=1,gres/gpu=1", num_tasks = 3, min_nodes = 2}, {tres_per_node = "gres/mig:7g.40gb:2", tres_per_task = "cpu=1,gres/gpu=1", ntasks_per_node = 2}},
  {"--gpus-per-task=1 -n5 -N1 --ntasks-per-node=5: at most two tasks on a node", {tres_per_task = "gres:gpu:1", num_tasks = 5, min_nodes = 1, ntasks_per_node = 5}, {min_nodes = 3, tres_per_node = "gres:mig:7g.40gb:2", tres_per_task = "gres:gpu:1", num_tasks = 5, ntasks_per_node = 2}},
  {"--gpus=5 -n5 -N3 --ntasks-per-node=4", {tres_per_job = "gres:gpu:5", num_tasks = 5, min_nodes = 3, ntasks_per_node = 4}, {tres_per_job = "", tres_per_node = "gres:gpu:2,gres:mig:7g.40gb:2", num_tasks = 5, ntasks_per_node = 4}},
  {"--gres=gpu:1 -n3 -c64", {tres_per_node = "gres:gpu:1", num_tasks = 3, cpus_per_task = 64}, {min_nodes = NO_VAL, tres_per_node = "gres:gpu:1,gres:mig:7g.40gb:1"}},
  {"--gpus=3 -n3 -c64", {tres_per_job = "gres:gpu:3", num_tasks = 3, cpus_per_task = 64}, {min_nodes = 3, tres_per_node = "gres:gpu:1,gres:mig:7g.40gb:1"}},
  {"--gpus-per-task=2 -n3 -N2", {tres_per_task = "gres:gpu:2", num_tasks = 3, min_nodes = 2}, {tres_per_node = "gres:gpu:2,gres:mig:7g.40gb:2", min_nodes = 3}},
  {"--gpus-per-task=4 -n3 --mig=2g.10gb", {tres_per_task = "gres:gpu:4", num_tasks = 3, spank_job_env = env("2g.10gb")}, {tres_per_node = "gres:gpu:4,gres:mig:2g.10gb:4", min_nodes = 3}},
  {"--gpus-per-task=3 -n2", {tres_per_task = "gres:gpu:3", num_tasks = 2}, 2014},
  {"--gpus=2 --cpus-per-gpu=64", {tres_per_job = "gres:gpu:2", cpus_per_tres = "gres:gpu:64"}, {tres_per_node = "gres:gpu:1,gres:mig:7g.40gb:1", min_nodes = 2, cpus_per_tres = "gres:gpu:64,gres:mig:64"}},
  {"--gpus=5 --cpus-per-gpu=24 --mig=2g.10gb", {tres_per_job = "gres:gpu:5", cpus_per_tres = "gres:gpu:24", spank_job_env = env("2g.10gb")}, {tres_per_job = "", tres_per_node = "gres:gpu:2,gres:mig:2g.10gb:2", min_nodes = 3, max_nodes = 3}},
  {"--gpus=1 --cpus-per-gpu=128", {tres_per_job = "gres:gpu:1", cpus_per_tres = "gres:gpu:128"}, 2014},
  {"--gpus=10 -n5, two GPUs per task", {tres_per_job = "gres:gpu:10", num_tasks = 5}, {tres_per_node = "gres:gpu:2,gres:mig:7g.40gb:2", min_nodes = 5}},
  {"--gpus=3 -n1", {tres_per_job = "gres:gpu:3", num_tasks = 1}, 2014},
  {"--gpus=6 -n2: more nodes than tasks", {tres_per_job = "gres:gpu:6", num_tasks = 2}, 2014},
  {"--gpus=6 --gpus-per-task=2 -N2", {tres_per_job = "gres:gpu:6", tres_per_task = "gres:gpu:2", min_nodes = 2, spank_job_env = env("2g.10gb")}, {tres_per_node = "gres:mig:2g.10gb:4", tres_per_job = "gres:gpu:6", tres_per_task = "gres:gpu:2", ntasks_per_node = 2}},
  {"--gpus-per-task=1 --ntasks-per-node=3", {tres_per_task = "gres:gpu:1", ntasks_per_node = 3}, 2014},
  {"--gpus=4 -N1", {tres_per_job = "gres:gpu:4", min_nodes = 1, max_nodes = 1}, 2014},
  {"--gpus=4 --gres=mig:4: the slices of each node", {tres_per_job = "gres:gpu:4", tres_per_node = "gres:mig:4"}, 2014},
  {"--gres=gpu:3", {tres_per_node = "gres:gpu:3"}, 2014},
  {"--gres=gpu:3 -w n1", {tres_per_node = "gres:gpu:3", req_nodes = "n1"}, 2014},
  {"--gres=gpu:3,mig:7g.40gb:3", {tres_per_node = "gres:gpu:3,gres:mig:7g.40gb:3"}, 2014},
  {"--gres=gpu:6 --mig=2g.10gb", {tres_per_node = "gres:gpu:6", spank_job_env = env("2g.10gb")}, {tres_per_node = "gres:gpu:6,gres:mig:2g.10gb:6"}},
  {"--gres=gpu:9 --mig=1g.5gb", {tres_per_node = "gres:gpu:9", spank_job_env = env("1g.5gb")}, {tres_per_node = "gres:gpu:9,gres:mig:1g.5gb:9"}},
}) do
  case[2].spank_job_env = case[2].spank_job_env or env("7g.40gb")
  local rc, job = submit(case[2])
  if type(case[3]) == "number" then
    check(rc == case[3] and not job.admin_comment, case[1] .. " is refused", rc)
  else
    check(rc == slurm.SUCCESS, case[1] .. " is accepted", said[1])
    for field, want in pairs(case[3]) do check(job[field] == want, case[1] .. ": " .. field, job[field]) end
    check(not case[3].ntasks_per_node or not tostring(job.admin_comment):find("caelum:grow"), case[1] .. " does not grow", job.admin_comment)
  end
end

-- A job whose nodes have different numbers of GPUs keeps its request, but may be changed otherwise.
do
  local record = {partition = "gpu", tres_per_task = "gres:gpu:1", tres_per_node = "gres:mig:7g.40gb:2", job_state = 0.0, user_id = 1001.0, min_nodes = 2.0, admin_comment = ""}
  for _, case in ipairs({
    {"a time limit", {time_limit = 5}, slurm.SUCCESS}, {"another managed partition", {partition = "gpu-long"}, slurm.SUCCESS},
    {"an unmanaged partition", {partition = "cpu"}, slurm.ERROR}, {"other slices", {tres_per_node = "gres:mig:1g.5gb:1"}, slurm.ERROR},
    {"other GPUs", {tres_per_task = "gres:gpu:2"}, slurm.ERROR}, {"tasks", {num_tasks = 4}, slurm.ERROR}, {"nodes", {min_nodes = 3}, slurm.ERROR},
  }) do
    local rc = slurm_job_modify(job_desc(case[2], "gres:"), record, PARTS, 1001)
    check(rc == case[3], "GPUs per task: change of " .. case[1], rc)
  end
  record.partition = "cpu"
  for _, case in ipairs({
    {"a time limit", {time_limit = 5}, slurm.SUCCESS}, {"a managed partition", {partition = "gpu"}, slurm.ERROR},
    {"tasks", {num_tasks = 4}, slurm.ERROR}, {"nodes", {min_nodes = 3}, slurm.ERROR},
    {"no slices", {tres_per_node = ""}, slurm.SUCCESS}, {"other GPUs", {tres_per_task = "gres:gpu:2"}, slurm.ERROR},
  }) do
    local rc = slurm_job_modify(job_desc(case[2], "gres:"), record, PARTS, 1001)
    check(rc == case[3], "GPUs per task in an unmanaged partition: change of " .. case[1], rc)
  end
  record.partition, record.tres_per_node, record.tres_per_task = "gpu", nil, "gres:gpu:1,gres:mig:7g.40gb:1"
  check(slurm_job_modify(job_desc({time_limit = 5}, "gres:"), record, PARTS, 1001) == slurm.ERROR, "slices per task: any change", "accepted")
  record.partition, record.tres_per_node, record.tres_per_task = "cpu", nil, "gres:gpu:1,gres:mig:7g.40gb:0"
  check(slurm_job_modify(job_desc({partition = "gpu"}, "gres:"), record, PARTS, 1001) == slurm.ERROR, "0 slices per task: change of the partition", "accepted")
end

---------------------------------------------------------------- CPUs per GPU

write_table(TABLE)
for _, case in ipairs({
  {"--cpus-per-gpu=4", {tres_per_node = "gres:gpu:1", cpus_per_tres = "gres:gpu:4"}, "gres:gpu:4,gres:mig:4"},
  {"... with typed slices", {tres_per_node = "gres/gpu:1,gres/mig:1g.5gb:1", cpus_per_tres = "gres/gpu:4"}, "gres/gpu:4,gres/mig:4"},
  {"... in another form", {tres_per_job = "gres/gpu:1", cpus_per_tres = "gres/gpu=4"}, "gres/gpu=4,gres/mig=4"},
  {"no --cpus-per-gpu", {tres_per_node = "gres:gpu:1"}, nil},
  {"another GRES", {tres_per_node = "gres:gpu:1,gres:net:1", cpus_per_tres = "gres:net:4"}, "gres:net:4"},
  {"a refused count", {tres_per_node = "gres:gpu:1", cpus_per_tres = "gres:gpu:99999999999"}, "gres:gpu:99999999999"},
}) do
  local rc, job = submit(case[2])
  check(rc == slurm.SUCCESS and job.cpus_per_tres == case[3], case[1], job.cpus_per_tres)
end

---------------------------------------------------------------- types of static MIG devices

write_table(TABLE .. "model a100 1g.5gb\nmodel a100 2g.10gb\nmodel H100 3g.20gb\nalias a100_10g 2g.10gb\nalias l40s.4 1g.5gb\nalias 10gb 2g.10gb\n")
for _, case in ipairs({
  {"gpu:1g.5gb:1", {tres_per_node = "gres:gpu:1g.5gb:1"}, "gres:gpu:1,gres:mig:1g.5gb:1"},
  {"gpu:1g.5gb", {tres_per_node = "gres:gpu:1g.5gb"}, "gres:gpu:1,gres:mig:1g.5gb:1"},
  {"with a model", {tres_per_node = "gres/gpu:a100_3g.20gb:2"}, "gres/gpu:a100:2,gres/mig:3g.20gb:2"},
  {"AutoDetect's name", {tres_per_node = "gres/gpu:nvidia_h100_80gb_hbm3_3g.20gb:1"}, "gres/gpu:H100:1,gres/mig:3g.20gb:1"},
  {"capitals", {tres_per_node = "gres/gpu:3G.20GB:1"}, "gres/gpu:1,gres/mig:3g.20gb:1"},
  {"an alias", {tres_per_node = "gres:gpu:a100_10g:1"}, "gres:gpu:a100:1,gres:mig:2g.10gb:1"},
  {"a fraction", {tres_per_node = "gres:gpu:l40s.4:1"}, "gres:gpu:1,gres:mig:1g.5gb:1"},
  {"two profiles", {tres_per_node = "gres:gpu:1g.5gb:1,gres:net:2,gres:gpu:2g.10gb:2"}, "gres:gpu:3,gres:net:2,gres:mig:1g.5gb:1,gres:mig:2g.10gb:2"},
  {"--gpus=1g.5gb:1", {tres_per_job = "gres:gpu:1g.5gb:1"}, "gres:gpu:1,gres:mig:1g.5gb:1"},
  {"--gpus-per-task=a100_1g.5gb:1 -n2", {tres_per_task = "gres/gpu:a100_1g.5gb=1", num_tasks = 2}, "gres/gpu:a100:2,gres/mig:1g.5gb:2"},
  {"the same type twice: the last count", {tres_per_node = "gres:gpu:1g.5gb:1,gres:gpu:1g.5gb:2"}, "gres:gpu:2,gres:mig:1g.5gb:2"},
  {"two types with one profile", {tres_per_node = "gres:gpu:1g.5gb:1,gres:gpu:a100_1g.5gb:2"}, "gres:gpu:1,gres:gpu:a100:2,gres:mig:1g.5gb:3"},
  {"an alias that begins with a digit", {tres_per_job = "gres:gpu:10gb:2"}, "gres:gpu:2,gres:mig:2g.10gb:2"},
  {"other slices", {tres_per_job = "gres:gpu:1g.5gb:1", tres_per_node = "gres:mig:2g.10gb:1"}, nil, "several profiles"},
  {"a long request", {tres_per_node = "gres:gpu:1g.5gb:1,gres:net:" .. ("1"):rep(990)}, nil, "longer than 1024 bytes"},
  {"an unknown profile", {tres_per_node = "gres:gpu:9g.99gb:1"}, nil, "the MIG profile 9g%.99gb does not exist"},
  {"only some", {tres_per_node = "gres:gpu:1g.5gb:1,gres:gpu:a100:1"}, nil, "for only some of the GPUs"},
  {"several profiles in --gpus", {tres_per_job = "gres:gpu:1g.5gb:1,gres:gpu:2g.10gb:1"}, nil, "several profiles"},
  {"without a script", {tres_per_node = "gres:gpu:1g.5gb:1", script = ""}, nil, "write %-%-gpus=1 %-%-mig=1g%.5gb"},
}) do
  case[2].environment = {SLURM_GPUS = "a100_1g.5gb:1", SLURM_GPUS_PER_TASK = "2", OTHER = "1g.5gb", SLURM_TRES_PER_TASK = "cpu=2,gres/gpu:10gb=1"}
  local rc, job = submit(case[2])
  if case[4] then
    check(rc == slurm.ERROR and (said[1] or ""):find(case[4]), case[1], said[1])
    check(job.tres_per_node == case[2].tres_per_node and job.tres_per_job == case[2].tres_per_job, case[1] .. " changes nothing", job.tres_per_node)
    check(job.environment.SLURM_GPUS == "a100_1g.5gb:1", case[1] .. ": environment", job.environment.SLURM_GPUS)
  else
    check(rc == slurm.SUCCESS and job.tres_per_node == case[3], case[1], job.tres_per_node or said[1])
    check(not word(job, "sized"), case[1] .. " names the profile", job.admin_comment)
    check(job.environment.SLURM_GPUS == "a100:1" and job.environment.SLURM_GPUS_PER_TASK == "2" and job.environment.OTHER == "1g.5gb", case[1] .. ": environment", job.environment.SLURM_GPUS)
    check(job.environment.SLURM_TRES_PER_TASK == "cpu=2,gres/gpu:1", case[1] .. ": tres_per_task in the environment", job.environment.SLURM_TRES_PER_TASK)
  end
end

---------------------------------------------------------------- shards (gres/shard)

local UNITS = "profile 1f.11gb 11389 4\nprofile 2f.22gb 22778 2\nprofile full 46068 1\n" ..
  "model l40s 1f.11gb 4\nmodel l40s 2f.22gb 4\nmodel l40s full 4\nmodel a100 1g.5gb\nalias l40s.4 1f.11gb\n"
local SHARDS = TABLE .. UNITS .. "shard 4 1f.11gb\nshard 2 1g.5gb\nshard 20000 full\nshard l40s:2 1f.11gb\n" ..
  "shard l40s:4 2f.22gb\nshard v100:1 1g.5gb\n"
write_table(SHARDS)
local shards = {
  {"the smallest line", {tres_per_node = "gres:shard:1"}, "gres:gpu:1,gres:mig:1g.5gb:1"},
  {"without a count", {tres_per_node = "gres/shard"}, "gres/gpu:1,gres/mig:1g.5gb:1"},
  {"exactly a line's number", {tres_per_node = "gres:shard:4"}, "gres:gpu:1,gres:mig:1f.11gb:1"},
  {"more than one line's number", {tres_per_node = "gres/shard=5"}, "gres/gpu:1,gres/mig:full:1"},
  {"a type", {tres_per_node = "gres:shard:l40s:3"}, "gres:gpu:l40s:1,gres:mig:2f.22gb:1"},
  {"a type without a count", {tres_per_node = "gres/shard:l40s"}, "gres/gpu:l40s:1,gres/mig:1f.11gb:1"},
  {"a type without model lines", {tres_per_node = "gres:shard:v100:1"}, "gres:gpu:1,gres:mig:1g.5gb:1"},
  {"another GRES", {tres_per_node = "gres/nvme:100G,gres/shard:l40s:2"}, "gres/nvme:100G,gres/gpu:l40s:1,gres/mig:1f.11gb:1"},
  {"--tres-per-task", {tres_per_task = "cpu=2,gres/shard=2", num_tasks = 1}, "gres/gpu:1,gres/mig:1g.5gb:1"},
  {"--tres-per-task -n2 -N2", {tres_per_task = "gres/shard:3", num_tasks = 2, min_nodes = 2}, "gres/gpu:1,gres/mig:1f.11gb:1"},
  {"options for another profile", {tres_per_node = "gres:shard:2", spank_job_env = env("7g.40gb")}, "gres:gpu:1,gres:mig:1g.5gb:1"},
  {"a count of 0", {tres_per_node = "gres:shard:0"}, "gres:shard:0"},
  {"an unmanaged partition", {tres_per_node = "gres:shard:9", partition = "cpu", script = ""}, "gres:shard:9"},
  {"another GRES whose name contains shard", {tres_per_node = "gres:shards:9"}, "gres:shards:9"},
  {"an alias for a fraction", {tres_per_node = "gres:gpu:l40s.4:1"}, "gres:gpu:l40s:1,gres:mig:1f.11gb:1"},
  {"--gpus with such an alias", {tres_per_job = "gres:gpu:l40s.4:1"}, "gres:gpu:l40s:1,gres:mig:1f.11gb:1"},
  {"too many", {tres_per_node = "gres:shard:20001"}, nil, "at most 20000 shards without a type: request fewer"},
  {"too many of a type", {tres_per_node = "gres:shard:l40s:5"}, nil, "at most 4 shards of type l40s"},
  {"very many", {tres_per_node = "gres:shard:" .. ("9"):rep(400)}, nil, "at most 20000 shards"},
  {"an unknown type", {tres_per_node = "gres:shard:a100:1"}, nil, "there are no shards of type a100: request a GPU"},
  {"a unit", {tres_per_node = "gres:shard:1k"}, nil, "there are no shards of type 1k"},
  {"an invalid count", {tres_per_node = "gres:shard:l40s:1k"}, nil, "the number of shards is not valid"},
  {"with a GPU", {tres_per_node = "gres:gpu:1,gres:shard:1"}, nil, "shards for only some of the GPUs"},
  {"two fractions on a node", {tres_per_task = "gres/shard:3", num_tasks = 2}, nil, "only one fraction"},
  {"without a script", {tres_per_node = "gres:shard:1", script = ""}, nil, "or shards: write %-%-gpus=1 %-%-mig=1g%.5gb"},
}
for _, case in ipairs(shards) do
  case[2].environment = {SLURM_TRES_PER_TASK = "cpu=2,gres/shard=2"}
  local rc, job = submit(case[2])
  if case[4] then
    check(rc == slurm.ERROR and (said[1] or ""):find(case[4]), "shards: " .. case[1], said[1])
    check(job.tres_per_node == case[2].tres_per_node, case[1] .. " changes nothing", job.tres_per_node)
  else
    check(rc == slurm.SUCCESS and job.tres_per_node == case[3], "shards: " .. case[1], job.tres_per_node or said[1])
    check(not word(job, "sized"), case[1] .. " names the profile", job.admin_comment)
  end
  if case[1] == "--tres-per-task" then
    check(job.tres_per_task == "cpu=2,gres/gpu:1", "shards per task", job.tres_per_task)
    check(job.environment.SLURM_TRES_PER_TASK == "cpu=2,gres/gpu:1", "shards in the environment", job.environment.SLURM_TRES_PER_TASK)
    check(job.environment.CAELUM_STATIC_TYPES == nil, "shards are not types", job.environment.CAELUM_STATIC_TYPES)
  end
end
for _, text in ipairs({"shard 0 1g.5gb\n", "shard 2 1g.5gb\nshard 2 2g.10gb\n", "shard 1:2 1g.5gb\n", "shard 2 9g.9gb\n", "shard 2\n", "shard 2 1g.5gb 3\n"}) do
  write_table(TABLE .. text)
  log = {}
  submit({tres_per_node = "gres:gpu:1"})
  check(#log == 1 and log[1]:find("line 1%d"), "invalid: " .. text, log[1])
end

-- With a bypass line, a request for shards is refused like one for slices. Without shard lines, shards are not read.
write_table(SHARDS .. "bypass cpu\n")
check(submit({tres_per_node = "gres:shard:1"}) == slurm.ERROR and said[1]:find("get no MIG slices at present"), "shards with a bypass line", said[1])
write_table(TABLE .. UNITS)
for _, text in ipairs({"gres:shard:1", "gres:shard:1k", "gres:shard:99999999"}) do
  local rc, job = submit({tres_per_node = text, script = ""})
  check(rc == slurm.SUCCESS and job.tres_per_node == text and not job.admin_comment, text .. " without shard lines", job.tres_per_node)
end

---------------------------------------------------------------- types that the plugin has removed

write_table(TABLE .. "model a100 1g.5gb\nmodel a100 2g.10gb\nmodel H100 3g.20gb\nalias a100_10g 2g.10gb\nalias 10gb 2g.10gb\n")

-- The plugin removes the type from a request of srun or salloc and marks the job with it. In an unmanaged partition,
-- the job gets the type back.
for _, case in ipairs({
  {"srun", {tres_per_node = "gres:gpu:2,gres:net:1"}, "1g.5gb", "gres:gpu:2,gres:net:1,gres:mig:1g.5gb:2"},
  {"--gpus", {tres_per_job = "gres:gpu:1"}, "a100_2g.10gb", "gres:gpu:a100:1,gres:mig:2g.10gb:1"},
  {"tres-per-task", {tres_per_task = "cpu=2,gres/gpu=1"}, "1g.5gb", "gres/gpu:1,gres/mig:1g.5gb:1"},
  {"an unmanaged partition", {partition = "cpu", tres_per_node = "gres:nvme:1,gres:gpu:1"}, "1g.5gb", "gres:nvme:1,gres:gpu:1g.5gb:1"},
  {"without a count", {partition = "cpu", tres_per_node = "gres/gpu"}, "1g.5gb", "gres/gpu:1g.5gb"},
  {"another type", {partition = "cpu", tres_per_node = "gres:gpu:a100:1"}, "1g.5gb", "gres:gpu:a100:1"},
  {"a count that is not a number", {partition = "cpu", tres_per_node = "gres:gpu:1K"}, "1g.5gb", "gres:gpu:1K"},
  {"a forged mark", {partition = "cpu", tres_per_node = "gres:gpu:1"}, "a,gres:mig:1g.5gb", "gres:gpu:1"},
}) do
  case[2].script = ""
  case[2].spank_job_env = {[0] = "_SLURM_SPANK_OPTION_caelum_static=" .. case[3]}
  local rc, job = submit(case[2])
  check(rc == slurm.SUCCESS and job.tres_per_node == case[4], case[1] .. " with a mark", job.tres_per_node or said[1])
  local seen = job_desc(case[2], "gres:")
  caelum_restore_types(seen)
  caelum_restore_types(seen)
  check(case[2].partition ~= "cpu" or seen.tres_per_node == case[4], case[1] .. " restored for the site", seen.tres_per_node)
end

-- In an unmanaged partition, a request of slices for such a device is refused, as without the plugin: the device is not
-- a slot.
for _, case in ipairs({
  {tres_per_node = "gres:gpu:1g.5gb:1,gres:mig:1g.5gb:1"}, {tres_per_node = "gres:gpu:1,gres:mig:1g.5gb:1"},
}) do
  case.partition, case.script = "cpu", ""
  case.spank_job_env = {[0] = "_SLURM_SPANK_OPTION_caelum_static=1g.5gb"}
  check(submit(case) == slurm.ERROR and (said[1] or ""):find("gres:gpu:1g.5gb:1 is not valid", 1, true), "slices for a static device", said[1])
end

-- slurmctld copies the script, and searches the environment, at each access.
do
  local job = job_desc({tres_per_node = "gres:gpu:a100_1g.5gb:1"}, "gres:")
  local reads, environment = {script = 0, environment = 0, variable = 0}
  local function counted(store, name)
    return setmetatable({}, {__newindex = store, __index = function(_, k)
      local what = name or k
      if reads[what] then reads[what] = reads[what] + 1 end
      if k == "environment" and not name then return environment end
      return store[k]
    end})
  end
  environment = counted({SLURM_GPUS = "1g.5gb:1", SLURM_GPUS_PER_NODE = ("1g.5gb:1,"):rep(100000)}, "variable")
  local rc = slurm_job_submit(counted(job), PARTS, 1001)
  check(rc == slurm.SUCCESS and reads.script == 2 and reads.environment == 1 and reads.variable == 5, "accesses to the script and the environment", reads.script .. ", " .. reads.environment .. ", " .. reads.variable)
end

-- Types that contain a profile many times, and environments that repeat them, take little time.
for _, case in ipairs({
  {"one long type", ("gres:gpu:x" .. ("_1g.1gb"):rep(142) .. "!:1")}, {"one type of dots", "gres:gpu:" .. ("1g.1gb."):rep(142) .. "x!:1"},
  {"many types", (("gres:gpu:a_1g.5gb:1,"):rep(50)) .. "gres:gpu:1g.5gb:1"}, {"digits", "gres:gpu:x_" .. ("1"):rep(1000)},
}) do
  local from = os.clock()
  for _ = 1, 10 do submit({tres_per_node = case[2], tres_per_job = case[2], tres_per_task = case[2], tres_per_socket = case[2], environment = {SLURM_GPUS = case[2]}}) end
  check(os.clock() - from < 0.5, "time for " .. case[1], os.clock() - from)
end
write_table(TABLE)

-- If GPU models have different sizes under the same profile name, the script uses the smaller size. The last case is a
-- table without sizes.
write_table(TABLE .. "profile 2g.10gb 9728\nprofile 2g.10gb\nwhole 3g.20gb\n")
local _, tight = submit({tres_per_node = "gres:gpu:1", spank_job_env = env(nil, "9729")})
check(tight.tres_per_node == "gres:gpu:1,gres:mig:3g.20gb:1", "a profile listed twice", tight.tres_per_node)
local _, third = submit({tres_per_node = "gres:gpu:1", spank_job_env = env("off")})
check(third.tres_per_node == "gres:gpu:1,gres:mig:3g.20gb:1", "a line for --mig=off", third.tres_per_node)
write_table((TABLE:gsub("(profile %S+) %d+", "%1")))
check(submit({tres_per_node = "gres:gpu:1", spank_job_env = env(nil, "8G")}) == slurm.ERROR and said[1]:find("does not list the memory of profiles", 1, true), "a table without memory", said[1])
check(submit({tres_per_node = "gres:gpu:1", spank_job_env = env("1g.5gb", "8G")}) == slurm.ERROR and said[1]:find("the memory of 1g.5gb is unknown", 1, true), "a table without memory, with --mig", said[1])
write_table(TABLE)

---------------------------------------------------------------- jobs with several GPUs

-- The gpu partition has the full profile for jobs with several GPUs; the gpu-long partition has none.
write_table((TABLE:gsub("partition gpu  ", "partition gpu full ")) .. "profile full 40960\nmodel a100 full\nmodel h100 2g.10gb\n")
for _, case in ipairs({
  {"two GPUs", {tres_per_node = "gres:gpu:2"}, "gres:gpu:2,gres:mig:full:2", "full"},
  {"one GPU", {tres_per_node = "gres:gpu:1"}, "gres:gpu:1,gres:mig:2g.10gb:1", "2g.10gb"},
  {"a GPU for each of four tasks", {tres_per_task = "gres:gpu:1", num_tasks = 4, ntasks_per_node = 4}, "gres:gpu:4,gres:mig:full:4", "full"},
  {"a GPU on each of two nodes", {tres_per_job = "gres:gpu:2", min_nodes = 2, max_nodes = 2}, "gres:gpu:1,gres:mig:2g.10gb:1", "2g.10gb"},
  {"a model with the profile", {tres_per_node = "gres:gpu:a100:4"}, "gres:gpu:a100:4,gres:mig:full:4", "full"},
  {"a model without the profile", {tres_per_node = "gres:gpu:h100:4"}, "gres:gpu:h100:4,gres:mig:2g.10gb:4", "2g.10gb"},
  {"another partition", {tres_per_node = "gres:gpu:2", partition = "gpu-long"}, "gres:gpu:2,gres:mig:2g.10gb:2", "2g.10gb"},
  {"both partitions", {tres_per_node = "gres:gpu:2", partition = "gpu,gpu-long"}, "gres:gpu:2,gres:mig:2g.10gb:2", "2g.10gb"},
  {"with an unmanaged partition", {tres_per_node = "gres:gpu:2", partition = "gpu,cpu"}, "gres:gpu:2,gres:mig:full:2", "full"},
  {"--mig=off", {tres_per_node = "gres:gpu:1", spank_job_env = env("off")}, "gres:gpu:1,gres:mig:full:1", "full"},
  {"a profile by name", {tres_per_node = "gres:gpu:2", spank_job_env = env("1g.5gb")}, "gres:gpu:2,gres:mig:1g.5gb:2", nil},
  {"typed slices", {tres_per_node = "gres:gpu:2,gres:mig:1g.5gb:2"}, "gres:gpu:2,gres:mig:1g.5gb:2", nil},
  {"memory", {tres_per_node = "gres:gpu:2", spank_job_env = env(nil, "8G")}, "gres:gpu:2,gres:mig:2g.10gb:2", "2g.10gb"},
}) do
  local rc, job = submit(case[2])
  check(rc == slurm.SUCCESS and job.tres_per_node == case[3] and word(job, "sized") == case[4], "several GPUs: " .. case[1], tostring(job.tres_per_node) .. " " .. tostring(job.admin_comment))
  local by = {["two GPUs"] = "full", ["one GPU"] = "default", ["--mig=off"] = "off", memory = "memory"}
  check(not by[case[1]] or word(job, "by") == by[case[1]], "the source for several GPUs: " .. case[1], job.admin_comment)
end
write_table(TABLE)

---------------------------------------------------------------- jobs that grow

-- Without a line, no job grows.
write_table(TABLE)
local _, still = submit({tres_per_node = "gres:gpu:1"})
check(word(still, "grow") == nil, "no mode", still.admin_comment)
_, still = submit({tres_per_node = "gres:gpu:1", spank_job_env = env(nil, nil, "forecast")})
check(word(still, "grow") == "forecast", "no mode, but --mig-grow", still.admin_comment)

-- The gpu-long partition has a mode of its own, and the gpu partition has the site's mode.
write_table((TABLE:gsub("partition gpu%-long", "partition gpu-long full grow=forecast")) .. "grow oom\nprofile full 40960\n")
for _, case in ipairs({
  {"the site's mode", {}, "oom"},
  {"the partition's mode", {partition = "gpu-long"}, "forecast"},
  {"two partitions", {partition = "gpu-long,gpu"}, "oom"},
  {"with an unmanaged partition", {partition = "gpu-long,cpu"}, "forecast"},
  {"--mig-grow=off", {spank_job_env = env(nil, nil, "off")}, nil},
  {"--mig-grow=forecast", {spank_job_env = env(nil, nil, "forecast")}, "forecast"},
  {"--mig-grow=oom", {partition = "gpu-long", spank_job_env = env(nil, "8G", "oom")}, "oom"},
  {"a profile by name", {spank_job_env = env("1g.5gb", nil, "oom")}, nil},
  {"typed slices", {tres_per_node = "gres:gpu:1,gres:mig:1g.5gb:1"}, nil},
  {"no script", {script = ""}, nil},
  {"an empty option", {spank_job_env = env(nil, nil, "")}, "oom"},
}) do
  local fields = {tres_per_node = "gres:gpu:1"}
  for k, v in pairs(case[2]) do fields[k] = v end
  local rc, job = submit(fields)
  check(rc == slurm.SUCCESS and word(job, "grow") == case[3], "growth: " .. case[1], job.admin_comment)
end
check(submit({tres_per_node = "gres:gpu:1", spank_job_env = env(nil, nil, "always")}) == slurm.ERROR and said[1] == "caelum: --mig-grow: couldn't read 'always': specify off, oom or forecast", "an invalid mode", said[1])
for _, line in ipairs({"grow sometimes", "grow", "grow oom off", "grow off\ngrow oom", "partition x grow=", "partition x grow=on",
  "partition x grow=oom full", "partition x full oom", "partition x full grow=oom y"}) do
  reload()
  write_table(TABLE .. "profile full 40960\n" .. line .. "\n")
  submit({tres_per_node = "gres:gpu:1"})
  check(#log == 1 and log[1]:find("is not valid", 1, true), "the line " .. line, log[1])
end
reload()
write_table(TABLE)

---------------------------------------------------------------- the key and the script fingerprint

local function unescape(word)
  if word == "-" then return "" end
  local text, times = word:match("^(.*)%*(%d+)$")
  text = (text or word):gsub("%%(%x%x)", function(x) return string.char(tonumber(x, 16)) end)
  return text:rep(tonumber(times or 1))
end
local seen, known_key = 0, nil
for line in io.lines(vectors) do
  local w = {}
  for word in line:gmatch("%S+") do w[#w + 1] = word end
  if #w >= 10 and w[1] ~= "#" then
    seen = seen + 1
    local argv = {[0] = "train.sh"}
    for i = 12, #w do argv[i - 11] = unescape(w[i]) end
    local _, job = submit({
      user_id = tonumber(w[1]), account = unescape(w[2]), name = unescape(w[3]), script = unescape(w[4]),
      tres_per_node = "gres:gpu:" .. w[5], min_nodes = tonumber(w[6]),
      num_tasks = w[7] ~= "0" and tonumber(w[7]) or NO_VAL, cpus_per_task = w[8] ~= "0" and tonumber(w[8]) or NO_VAL16,
      argc = #argv + 1, argv = argv,
    })
    check(word(job, "key") == w[9], "the key of " .. line:sub(1, 60), job.admin_comment)
    check(word(job, "work") == (w[10] ~= "-" and w[10] or nil), "the fingerprint of " .. line:sub(1, 60), job.admin_comment)
    check((word(job, "args") or "-") == (w[11] or "-"), "the numbers of " .. line:sub(1, 60), job.admin_comment)
    known_key = w[9]
  end
end
check(seen >= 30, "key vectors read", seen)
local _, numbered = submit({tres_per_node = "gres:gpu:1", argc = 3, argv = {[0] = "train.sh", "64", "-b2000"}})
check(numbered.admin_comment:find("^caelum:key=%x+ caelum:work=%x+ caelum:args=64,2000 caelum:sized="), "the numbers follow the fingerprint", numbered.admin_comment)
local _, nobody = submit({tres_per_node = "gres:gpu:1", account = false, default_account = "phys"})
local _, named = submit({tres_per_node = "gres:gpu:1", account = "phys"})
check(nobody.admin_comment == named.admin_comment, "the default account counts like a given account", nobody.admin_comment)

local _, stepped = submit({tres_per_node = "gres:gpu:1", script = false})
check(word(stepped, "key") and not word(stepped, "work"), "a job without a script has a key and no fingerprint", stepped.admin_comment)

-- reads counts how often a field, or else the script, is read, because slurmctld copies the whole script or all
-- arguments each time.
local function reads(fields, name)
  local store, read = job_desc(fields, "gres:"), 0
  local counting = setmetatable({}, {
    __index = function(_, k)
      if k == (name or "script") then read = read + 1 end
      return store[k]
    end,
    __newindex = function(_, k, v) store[k] = v end,
  })
  slurm_job_submit(counting, PARTS, 1001)
  return read
end
check(reads({tres_per_node = "gres:gpu:1"}) == 1, "the script is read once", "more or less")
check(reads({}) == 0, "for a job without GPUs, the script is not read", "read")
check(reads({tres_per_node = "gres:gpu:1", partition = "cpu"}) == 0, "in an unmanaged partition, the script is not read", "read")
check(reads({tres_per_node = "gres:gpu:x1:y"}) == 0, "for a refused request, the script is not read", "read")
for _, case in ipairs({
  {65, 1}, {66, 0}, {1, 0}, {0, 0}, {NO_VAL, 0}, {nil, 0}, {"65", 0},
  {65, 0, {script = ""}}, {65, 0, {partition = "cpu"}}, {65, 0, {tres_per_node = ""}},
}) do
  local fields = {tres_per_node = "gres:gpu:1", argc = case[1], argv = {[0] = "train.sh", "64"}}
  for k, v in pairs(case[3] or {}) do fields[k] = v end
  check(reads(fields, "argv") == case[2], "reads of the arguments if argc is " .. tostring(case[1]), "another number")
end
-- Arguments that are missing, or are not text, count as empty.
local function args_of(argc, argv)
  local _, job = submit({tres_per_node = "gres:gpu:1", argc = argc, argv = argv})
  return job.admin_comment
end
check(args_of(3, {[0] = "train.sh", [2] = "a"}) == args_of(3, {[0] = "train.sh", "", "a"}), "a missing argument", "another key")
check(args_of(3, "train.sh a") == args_of(nil, nil), "arguments that are not a table", "another key")

---------------------------------------------------------------- sizes that a user chooses

-- entries counts the steps of loops over tables, and the reads of spank_job_env, while f runs.
local function entries(f, fields)
  local store, steps, read = job_desc(fields, "gres:"), 0, 0
  local plain_pairs = pairs
  pairs = function(t)
    local step, state, key = plain_pairs(t)
    return function(...) steps = steps + 1; return step(...) end, state, key
  end
  local rc = f(setmetatable({}, {
    __index = function(_, k)
      if k == "spank_job_env" then read = read + 1 end
      return store[k]
    end,
    __newindex = function(_, k, v) store[k] = v end,
  }))
  pairs = plain_pairs
  return rc, steps, read, store
end
local function submitted(job) said = {}; return slurm_job_submit(job, PARTS, 1001) end
local function changed(record)
  said = {}
  return slurm_job_modify(job_desc({tres_per_node = "gres/gpu:2"}, "gres/"), record, PARTS, 1001)
end

-- A job without GPUs is accepted unchanged, with a message if its options have no effect.
for _, case in ipairs({
  {"2g.10gb", nil, nil, "--mig has"}, {"off", nil, nil, "--mig has"}, {nil, "8G", nil, "--mig-mem has"},
  {nil, nil, "oom", "--mig-grow has"}, {"2g.10gb", "8G", "forecast", "--mig, --mig-mem, --mig-grow have"},
  {"auto", nil, "off"}, {},
}) do
  for _, fields in ipairs({{}, {partition = "cpu"}, {het_job_offset = NO_VAL}, {het_job_offset = 0}, {het_job_offset = 1}}) do
    fields.spank_job_env = env(case[1], case[2], case[3])
    local rc, job = submit(fields)
    local component = fields.het_job_offset and fields.het_job_offset < NO_VAL
    local want = case[4] and not component and
      "caelum: " .. case[4] .. " no effect, because the job requests no GPU: add --gres=gpu:1 or --gpus=1" or nil
    check(rc == slurm.SUCCESS and not job.admin_comment and not job.tres_per_node, "a job without GPUs is unchanged", job.admin_comment)
    check(said[1] == want and #said == (want and 1 or 0), "the message about options without a GPU", said[1])
  end
end

local full, flood = env("1g.5gb", "4G"), {}
for i = #full + 1, 255 do full[i] = "_SLURM_SPANK_OPTION_other_x" .. i .. "=" .. string.rep("y", 1000) end
for i = 0, 99999 do flood[i] = "_SLURM_SPANK_OPTION_caelum_mi" end
local rc_full, steps_full, read_full, stored = entries(submitted, {tres_per_node = "gres:gpu:1", spank_job_env = full, spank_job_env_size = 256})
check(rc_full == slurm.SUCCESS and stored.tres_per_node == "gres:gpu:1,gres:mig:1g.5gb:1", "256 variables are read", said[1])
check(read_full == 1 and steps_full < 300, "256 variables are read once", read_full .. " reads, " .. steps_full .. " steps")
for name, f in pairs({["a submission"] = submitted, ["a change"] = changed}) do
  local fields = {partition = "gpu", tres_per_node = "gres/gpu:1", spank_job_env = flood, spank_job_env_size = 100000}
  local rc, steps, read = entries(f, fields)
  check(rc == slurm.ERROR and (said[1] or ""):find("more than 256 variables", 1, true), name .. " with 100,000 variables is refused", said[1])
  check(read == 0 and steps < 300, name .. ": 100,000 variables are not read", read .. " reads, " .. steps .. " steps")
  fields.spank_job_env_size = nil
  rc, steps = entries(f, fields)
  check(rc == slurm.ERROR and steps < 300, name .. ": at most 256 variables are read if their number is unknown", steps)
end
rc_full, steps_full, read_full = entries(submitted, {tres_per_node = "gres:gpu:1", partition = "cpu", spank_job_env = flood,
  spank_job_env_size = 100000})
check(rc_full == slurm.SUCCESS and read_full == 0, "in an unmanaged partition, 100,000 variables are not read", read_full)
local rc_none, steps_none, read_none = entries(submitted, {spank_job_env = flood, spank_job_env_size = 100000})
check(rc_none == slurm.SUCCESS and #said == 0 and read_none == 0 and steps_none < 300, "100,000 variables of a job without GPUs are not read", said[1])
local _, listed = submit({tres_per_node = "gres:gpu:1", partition = string.rep("cpu,", 5000)})
check(listed.tres_per_node == "gres:gpu:1,gres:mig:2g.10gb:1", "a list of partitions that is too long is managed", listed.tres_per_node)
local looks = 0
local function look(_, name) looks = looks + 1 return PARTS[name] end
slurm_job_submit(job_desc({tres_per_node = "gres:gpu:1", partition = string.rep("gpu,", 5000)}, "gres:"),
  setmetatable({}, {__index = look}), 1001)
check(looks == 0, "a list of partitions that is too long is not read", looks)
for _, name in ipairs({"req_nodes", "exc_nodes"}) do
  for _, partition in ipairs({"gpu", "cpu"}) do
    for n, want in pairs({[2048] = slurm.SUCCESS, [2049] = slurm.ERROR}) do
      local job = job_desc({partition = partition, [name] = string.rep("n", n)}, "gres:")
      said = {}
      check(slurm_job_submit(job, PARTS, 1001) == want, name .. " of " .. n .. " bytes", said[1])
      local rc = slurm_job_modify(job, {partition = partition}, PARTS, 1001)
      check(rc == want and (want == slurm.SUCCESS or said[2]:find("the list of nodes has more than 2048", 1, true)), name .. " by an update", said[2])
      check(slurm_job_submit(job, PARTS, 0) == slurm.SUCCESS, name .. " by root")
    end
  end
end

---------------------------------------------------------------- args lines

local function with_args(...) return {tres_per_node = "gres:gpu:1", argc = 1 + select("#", ...), argv = {[0] = "train.sh", ...}} end
local by_args = "1001:" .. word(numbered, "key")
local ARGS = "args " .. by_args .. " 1 64=1g.5gb 2000.5=3g.20gb *=7g.40gb\n"
local LIMITED = "key " .. by_args .. " 2g.10gb 3600-4500 80\n"
for _, case in ipairs({
  {ARGS, {"64", "-b1"}, "1g.5gb", "args"}, {ARGS, {"0.5", "-b1"}, "1g.5gb", "args"}, {ARGS, {"64.1", "-b1"}, "3g.20gb", "args"},
  {ARGS, {"2000.5", "-b1"}, "3g.20gb", "args"}, {ARGS, {"2001", "-b1"}, "7g.40gb", "args"},
  {ARGS, {"64", "-c1"}, "2g.10gb", "default"}, {ARGS, {"64"}, "2g.10gb", "default"}, {ARGS, {}, "2g.10gb", "default"},
  {ARGS:gsub(" 1 64", " 2 64"), {"2001", "-b1"}, "1g.5gb", "args"},
  {ARGS:gsub(" 1 64", " 3 64"), {"2001", "-b1"}, "2g.10gb", "default"},
  {ARGS:gsub("1001", "1002"), {"64", "-b1"}, "2g.10gb", "default"},
  {ARGS .. LIMITED, {"64", "-b1"}, "1g.5gb", "args", "3600-4500", "80"},
  {ARGS .. "user 1001:" .. word(numbered, "work") .. " 2g.10gb 60\n", {"64", "-b1"}, "1g.5gb", "args", "60"},
  {ARGS .. "site " .. word(numbered, "work") .. " 1g.5gb 60\n", {"65", "-b1"}, "3g.20gb", "args", "60"},
  {ARGS:gsub("64=", "8=", 1), {"8", "-b1"}, "1g.5gb", "args"}, {ARGS:gsub(" 64", "\t08"), {"8", "-b1"}, "1g.5gb", "args"},
}) do
  write_table(TABLE .. case[1])
  local rc, job = submit(with_args((table.unpack or unpack)(case[2])))
  local name = table.concat(case[2], " ") .. " with " .. case[1]
  check(rc == slurm.SUCCESS and word(job, "sized") == case[3] and word(job, "by") == case[4], name, job.admin_comment)
  check(word(job, "runs") == case[5] and word(job, "busy") == case[6], "the run time of " .. name, job.admin_comment)
  check((said[1] == "caelum: " .. case[3] .. ", from the arguments and your earlier runs of this job") == (case[4] == "args"), "the message for " .. name, said[1])
end
-- The run times are those on the key line's profile: 4500 s on 2g.10gb are 7500 s on 1g.5gb.
write_table(TABLE .. ARGS .. LIMITED)
for limit, want in pairs({[124] = "2g.10gb", [125] = "1g.5gb"}) do
  local fields = with_args("64", "-b1")
  fields.time_limit = limit
  local _, job = submit(fields)
  check(word(job, "sized") == want, "an args line and a limit of " .. limit .. " minutes", job.admin_comment)
end
for _, case in ipairs({
  {env("2g.10gb"), "2g.10gb"}, {env("off"), "7g.40gb", "off"}, {env(nil, "9G"), "2g.10gb", "memory"}, {env("auto"), "3g.20gb", "args"},
}) do
  local fields = with_args("65", "-b1")
  fields.spank_job_env = case[1]
  local _, job = submit(fields)
  check(job.tres_per_node == "gres:gpu:1,gres:mig:" .. case[2] .. ":1" and word(job, "by") == case[3], "an option and an args line", job.admin_comment)
  check((said[1] or ""):find("earlier runs indicate 3g.20gb", 1, true) ~= nil == (case[3] == "memory"), "the warning about an args line", said[1])
end
for _, text in ipairs({
  "", " 1", " 1 *=1g.5gb", " 1 64=1g.5gb", " 1 *=1g.5gb 64=1g.5gb", " 1 64=1g.5gb *=1g.5gb *=1g.5gb", " 5 64=1g.5gb *=1g.5gb",
  " 0 64=1g.5gb *=1g.5gb", " 12 64=1g.5gb *=1g.5gb", " 64=1g.5gb *=1g.5gb", " 1 64=1g.5gb 64.0=2g.10gb *=1g.5gb",
  " 1 64=1g.5gb 8=2g.10gb *=1g.5gb", " 1 6.=1g.5gb *=1g.5gb", " 1 .6=1g.5gb *=1g.5gb", " 1 1e3=1g.5gb *=1g.5gb",
  " 1 1234567890123=1g.5gb *=1g.5gb", " 1 1.1234567=1g.5gb *=1g.5gb", " 1 64== *=1g.5gb", " 1 64=-x *=1g.5gb", " 1 64=1g_5gb *=1g.5gb",
  " 1 64=1g.5gb *=1g.5gb 60", " 1 -1=1g.5gb *=1g.5gb", " 1" .. (" 1=1g.5gb"):rep(17) .. " *=1g.5gb", " 1 " .. ("x"):rep(1000000),
}) do
  reload()
  write_table(TABLE .. "args 1:0123456789abcdef" .. text .. "\n")
  submit({tres_per_node = "gres:gpu:1"})
  check(#log == 1 and log[1]:find("line 12 is not valid", 1, true), "the line args" .. text:sub(1, 60), log[1])
end
for _, text in ipairs({"args 0123456789abcdef", " args 1:0123456789abcdef", "args 01:0123456789abcdef", "args 1:0123456789ABCDEF", "args 1:0123"}) do
  reload()
  write_table(TABLE .. text .. " 1 64=1g.5gb *=1g.5gb\n")
  submit({tres_per_node = "gres:gpu:1"})
  check(#log == 1 and log[1]:find("line 12 is not valid", 1, true), "the line " .. text, log[1])
end
local steps = {}
for i = 1, 17 do steps[i] = " " .. i .. "=1g.5gb" end
for _, case in ipairs({
  {table.concat(steps, "", 1, 16) .. " *=1g.5gb", nil}, {table.concat(steps) .. " *=1g.5gb", "line 12 is not valid"},
  {" 64=9g.99gb *=1g.5gb", "line 12 names a profile"}, {" 64=1g.5gb *=9g.99gb", "line 12 names a profile"},
  {" 64=1g.5gb *=1g.5gb\nargs 1:0123456789abcdef 1 64=1g.5gb *=1g.5gb", "line 13 is not valid"},
}) do
  reload()
  write_table(TABLE .. "args 1:0123456789abcdef 1" .. case[1] .. "\n")
  submit({tres_per_node = "gres:gpu:1"})
  check(case[2] and (log[1] or ""):find(case[2], 1, true) or not case[2] and #log == 0, "the line args 1" .. case[1], log[1])
end
reload()

---------------------------------------------------------------- learned lines

local plain, work = word(named, "key"), word(named, "work")
write_table(TABLE .. "key 1001:" .. known_key .. " 7g.40gb\nkey 1001:" .. plain .. " 1g.5gb\n")
local _, learned = submit({tres_per_node = "gres:gpu:1"})
check(learned.tres_per_node == "gres:gpu:1,gres:mig:1g.5gb:1" and word(learned, "sized") == "1g.5gb" and not word(learned, "runs"), "a key in the table", learned.admin_comment)
local lines = {"key 1001:" .. plain .. " 1g.5gb 60\n", "user 1001:" .. work .. " 2g.10gb 3600\n", "site " .. work .. " 7g.40gb 999999999\n"}
local profiles, seconds = {"1g.5gb", "2g.10gb", "7g.40gb"}, {"60", "3600", "999999999"}
for first = 1, 3 do
  write_table(TABLE .. table.concat(lines, "", first))
  local _, job = submit({tres_per_node = "gres:gpu:1"})
  check(job.tres_per_node == "gres:gpu:1,gres:mig:" .. profiles[first] .. ":1", "the first line is " .. lines[first], job.tres_per_node)
  check(word(job, "runs") == seconds[first] and word(job, "sized") == profiles[first], "and its seconds", job.admin_comment)
end
-- A line may also contain the busy share, which the script writes only for a profile that Caelum chose.
for busy, case in pairs({[""] = {}, [" 0"] = {"0"}, [" 7"] = {"7"}, ["\t 47  "] = {"47"}, [" 100 # all"] = {"100"}}) do
  for _, subject in ipairs({"key 1001:" .. plain, "user 1001:" .. work, "site " .. work}) do
    local line = subject .. " 1g.5gb 60" .. busy .. "\n"
    write_table(TABLE .. line .. "key " .. known_key .. " 1g.5gb 60" .. busy .. "\n")
    log = {}
    local _, job = submit({tres_per_node = "gres:gpu:1"})
    check(job.tres_per_node == "gres:gpu:1,gres:mig:1g.5gb:1" and word(job, "runs") == "60" and word(job, "busy") == case[1], "the busy share of " .. line, job.admin_comment)
    check(#log == 1 and log[1]:find("ignored 1 key line because of a missing user id;", 1, true), "the log names a key without a user", log[1])
    for _, mig in ipairs({"off", "auto"}) do
      _, job = submit({tres_per_node = "gres:gpu:1", spank_job_env = env(mig)})
      check(word(job, "sized") and word(job, "busy") == case[1], "the busy share with --mig=" .. mig, job.admin_comment)
    end
    _, job = submit({tres_per_node = "gres:gpu:1", spank_job_env = env("1g.5gb")})
    check(word(job, "runs") == "60" and not word(job, "busy"), "no busy share with --mig", job.admin_comment)
    _, job = submit({tres_per_node = "gres:mig:1g.5gb:1"})
    check(word(job, "runs") == "60" and not word(job, "busy"), "no busy share with a typed slice", job.admin_comment)
    _, job = submit({tres_per_node = "gres:gpu:1", req_nodes = "n1"})
    check(word(job, "busy") == case[1] and job.admin_comment:find(" caelum:held$"), "the busy share of a held job", job.admin_comment)
  end
end
log = {}
write_table(TABLE .. table.concat(lines))
for name, case in pairs({
  ["another name"] = {{name = "other"}, "2g.10gb"}, ["other CPUs"] = {{cpus_per_task = 3}, "2g.10gb"}, ["another user"] = {{user_id = 1002}, "7g.40gb"},
  ["another script"] = {{script = "#!/bin/sh\nexit\n"}, "2g.10gb", "default"}, ["another user's srun"] = {{user_id = 1002, script = false}, "2g.10gb", "default"},
}) do
  case[1].tres_per_node = "gres:gpu:1"
  local _, job = submit(case[1])
  check(job.tres_per_node == "gres:gpu:1,gres:mig:" .. case[2] .. ":1" and not word(job, "runs") == (case[3] == "default"), name, job.admin_comment)
end
local _, own = submit({tres_per_node = "gres:gpu:1", spank_job_env = env("7g.40gb")})
check(own.tres_per_node == "gres:gpu:1,gres:mig:7g.40gb:1" and word(own, "runs") == "60" and not word(own, "sized"), "--mig takes precedence over learned lines, and the run time is written", own.admin_comment)
write_table(TABLE .. "key 1001:" .. plain .. " 3g.20gb 60\n")
for mem, case in pairs({
  ["8G"] = {"2g.10gb", "caelum: --mig-mem=8G selects 2g.10gb, but earlier runs indicate 3g.20gb"}, ["16G"] = {"3g.20gb", "caelum: 3g.20gb, the smallest slice with this memory (--mig-mem)"},
  ["32G"] = {"7g.40gb", "caelum: 7g.40gb, the smallest slice with this memory (--mig-mem)"},
}) do
  local rc, job = submit({tres_per_node = "gres:gpu:1", spank_job_env = env(nil, mem)})
  check(rc == slurm.SUCCESS and job.tres_per_node == "gres:gpu:1,gres:mig:" .. case[1] .. ":1", "--mig-mem=" .. mem .. " takes precedence over learned lines", job.tres_per_node)
  check(said[1] == case[2] and #said == (case[2] and 1 or 0), "the message to the user for --mig-mem=" .. mem, said[1])
end

-- The user learns the size of a job and its source, unless the table or sbatch's --parsable turns the message off.
local quiet = {[0] = "_SLURM_SPANK_OPTION_caelum_quiet=1"}
local NAME = "476796a045c14126"   -- predict.NameHash("train.sh")
local work_line = "user 1001:" .. work .. " 3g.20gb\n"
for _, case in ipairs({
  {"key 1001:" .. plain .. " 3g.20gb\n", {}, "caelum: 3g.20gb, from your earlier runs of this job", "key"},
  {work_line, {}, "caelum: 3g.20gb, from your earlier runs of this script", "user"},
  {"site " .. work .. " 3g.20gb\n", {}, "caelum: 3g.20gb, from other users' runs of this script", "site"},
  {"name 1001:" .. NAME .. " 3g.20gb\nowner 1001 7g.40gb\n", {}, "caelum: 3g.20gb, from your earlier jobs with this name", "name"},
  {"name 1002:" .. NAME .. " 3g.20gb\nowner 1001 7g.40gb\n", {}, "caelum: 7g.40gb, from your earlier jobs", "owner"},
  {"name 1001:" .. NAME .. " 3g.20gb\nowner 1001 7g.40gb\n", {name = "eval.sh"}, "caelum: 7g.40gb, from your earlier jobs", "owner"},
  {"name 1001:" .. NAME .. " 3g.20gb\n" .. "site " .. work .. " 1g.5gb\n", {}, "caelum: 1g.5gb, from other users' runs of this script", "site"},
  {"owner 1001 3g.20gb\n", {script = ""}, "caelum: 2g.10gb, the default, because no earlier runs are known", "default"},
  {"", {}, "caelum: 2g.10gb, the default, because no earlier runs are known", "default"},
  {"", {spank_job_env = env("off")}, nil, "off"},
  {work_line .. "size_message on\n", {}, "caelum: 3g.20gb, from your earlier runs of this script", "user"},
  {work_line .. "size_message off\n", {}, nil, "user"},
  {work_line, {spank_job_env = quiet}, nil, "user"},
  {"key 1001:" .. plain .. " 1g.5gb 3600-4500 80\n", {time_limit = 50},
    "caelum: 2g.10gb, from your earlier runs of this job; larger than 1g.5gb, so that the job ends within its time limit", "key"},
  {"", {spank_job_env = env("3g.20gb", nil, "oom")}, "caelum: --mig-grow has no effect, because the job names its profile"},
  {"", {spank_job_env = env("3g.20gb", "1G"), tres_per_node = "gres:gpu:1,gres:mig:1g.5gb:1"},
    "caelum: --mig, --mig-mem have no effect, because the job names its profile"},
  {"", {spank_job_env = env("3g.20gb"), partition = "cpu"}, "caelum: --mig has no effect, because the job's partition has no MIG slices"},
}) do
  write_table(TABLE .. case[1])
  case[2].tres_per_node = case[2].tres_per_node or "gres:gpu:1"
  local rc, job = submit(case[2])
  check(rc == slurm.SUCCESS and said[1] == case[3] and #said == (case[3] and 1 or 0), "the size: " .. tostring(case[3]), said[1])
  check(word(job, "by") == case[4], "the source: " .. tostring(case[4]), job.admin_comment)
end
for _, lines in ipairs({"size_message\n", "size_message of\n", "size_message on\nsize_message on\n"}) do
  write_table(TABLE)
  submit({})
  write_table(TABLE .. lines)
  submit({tres_per_node = "gres:gpu:1"})
  check((log[#log] or ""):find("is not valid", 1, true), "an invalid line: " .. lines, log[#log])
  log = {}
end
-- The second number of a run time is its 90% quantile. The profile is larger if the job could otherwise reach its time
-- limit (in minutes). On the profiles in this table, the line's run time is 60, 36, 28 and 19 minutes, and its quantile
-- is 75, 45, 35 and 23.6 minutes.
local hour = "key 1001:" .. plain .. " 1g.5gb 3600-4500 80\n"
local function limited(name, fields, want, instead_of, runs)
  fields.tres_per_node = fields.tres_per_node or "gres:gpu:1"
  local rc, job = submit(fields)
  local text = name .. ": " .. tostring(job.tres_per_node) .. " " .. tostring(job.admin_comment) .. tostring(said[1])
  check(rc == slurm.SUCCESS and job.tres_per_node:find("mig:" .. want .. ":", 1, true), "a time limit, " .. name, text)
  check(word(job, "instead%-of") == instead_of and word(job, "runs") == runs, "and its tags", text)
end
write_table(TABLE .. hour)
limited("none", {}, "1g.5gb", nil, "3600-4500")
limited("infinite", {time_limit = INFINITE}, "1g.5gb", nil, "3600-4500")
limited("zero", {time_limit = 0}, "1g.5gb", nil, "3600-4500")
limited("no number", {time_limit = "30"}, "1g.5gb", nil, "3600-4500")
limited("not a number", {time_limit = 0 / 0}, "1g.5gb", nil, "3600-4500")
limited("the longest", {time_limit = NO_VAL - 1}, "1g.5gb", nil, "3600-4500")
limited("sufficient", {time_limit = 75}, "1g.5gb", nil, "3600-4500")
limited("a minute less", {time_limit = 74}, "2g.10gb", "1g.5gb", "2160-2700")
limited("three slices", {time_limit = 44}, "3g.20gb", "1g.5gb", "1543-1929")
limited("the whole GPU", {time_limit = 24}, "7g.40gb", "1g.5gb", "1104-1380")
limited("shorter than the quantile on the whole GPU", {time_limit = 19}, "7g.40gb", "1g.5gb", "1104-1380")
limited("shorter than every run time", {time_limit = 18}, "1g.5gb", nil, "3600-4500")
limited("--mig=auto", {time_limit = 44, spank_job_env = env("auto")}, "3g.20gb", "1g.5gb", "1543-1929")
limited("a named profile", {time_limit = 44, spank_job_env = env("1g.5gb")}, "1g.5gb", nil, "3600-4500")
limited("a typed slice", {time_limit = 44, tres_per_node = "gres:mig:1g.5gb:1"}, "1g.5gb", nil, "3600-4500")
limited("the whole GPU by name", {time_limit = 18, spank_job_env = env("off")}, "7g.40gb", nil, "3600-4500")
limited("--mig-mem, which is fast enough", {time_limit = 45, spank_job_env = env(nil, "8G")}, "2g.10gb", nil, "3600-4500")
limited("--mig-mem, which is too slow", {time_limit = 44, spank_job_env = env(nil, "8G")}, "3g.20gb", "2g.10gb", "1543-1929")
for limit, want in pairs({[75] = "1g.5gb", [44] = "3g.20gb"}) do
  PARTS.gpu.default_time = limit + 0.0
  limited("the partition's default", {}, want, want ~= "1g.5gb" and "1g.5gb" or nil, want == "1g.5gb" and "3600-4500" or "1543-1929")
  limited("the job's own", {time_limit = 80}, "1g.5gb", nil, "3600-4500")
  limited("none at all", {time_limit = INFINITE}, "1g.5gb", nil, "3600-4500")
end
PARTS.gpu.default_time, PARTS.gpu.max_time = NO_VAL + 0.0, 44.0
limited("the partition's maximum", {}, "3g.20gb", "1g.5gb", "1543-1929")
PARTS["gpu-long"].max_time, PARTS.cpu.max_time = 74.0, 1.0
limited("another partition's maximum", {partition = "gpu-long"}, "2g.10gb", "1g.5gb", "2160-2700")
limited("the shortest of a list of partitions", {partition = "cpu,gpu-long,gpu"}, "3g.20gb", "1g.5gb", "1543-1929")
PARTS.gpu.max_time = INFINITE + 0.0
limited("a partition without a maximum", {}, "1g.5gb", nil, "3600-4500")
PARTS.gpu.default_time, PARTS.gpu.max_time, PARTS["gpu-long"].max_time, PARTS.cpu.max_time = nil, nil, nil, nil
write_table(TABLE .. (hour:gsub("%-4500", "")))
limited("without a quantile", {time_limit = 20}, "1g.5gb", nil, "3600")
write_table(TABLE .. (hour:gsub(" 80", "")))
limited("an unknown busy share counts as 80", {time_limit = 44}, "3g.20gb", "1g.5gb", "1543-1929")
write_table(TABLE .. (hour:gsub(" 80", " 0")))
limited("a job that no larger profile makes faster", {time_limit = 50}, "1g.5gb", nil, "3600-4500")
write_table(TABLE .. (hour:gsub("1g.5gb", "1g.5gb+me")))
limited("a variant", {time_limit = 20}, "1g.5gb+me", nil, "3600-4500")
write_table(TABLE .. hour .. "profile 2g.20gb\nprofile 4g.40gb\nmodel a100 1g.5gb\nmodel a100 3g.20gb\n" ..
  "model h100 1g.5gb\nmodel h100 2g.20gb\nmodel h100 4g.40gb\nmodel l4 2g.10gb\n")
limited("only models with the profile", {time_limit = 74}, "2g.20gb", "1g.5gb", "2160-2700")
limited("the GPU model that the request names", {time_limit = 74, tres_per_node = "gres:gpu:a100:1"}, "3g.20gb", "1g.5gb", "1543-1929")
limited("the profile that this model has instead", {time_limit = 74, tres_per_node = "gres:gpu:l4:1"}, "2g.10gb", nil, "3600-4500")
-- A key line applies only to the key's own user. Earlier releases wrote keys without a user. These lines have no
-- effect, which the script logs once.
write_table(TABLE .. "key 1002:" .. plain .. " 7g.40gb\n")
local _, foreign = submit({tres_per_node = "gres:gpu:1"})
check(foreign.tres_per_node == "gres:gpu:1,gres:mig:2g.10gb:1" and #log == 0, "the job key of another user", foreign.tres_per_node)
write_table(TABLE .. "key " .. plain .. " 7g.40gb\nkey " .. known_key .. " 1g.5gb 60\n")
for _ = 1, 2 do
  local _, old = submit({tres_per_node = "gres:gpu:1"})
  check(old.tres_per_node == "gres:gpu:1,gres:mig:2g.10gb:1", "a key without a user", old.tres_per_node)
end
check(#log == 1 and log[1]:find("ignored 2 key lines because of a missing user id;", 1, true), "the log names key lines without a user", log[1])
log = {}
write_table(TABLE .. "key 1001:" .. known_key .. " 7g.40gb\nkey 1001:" .. plain .. " 1g.5gb\n")
submit({tres_per_node = "gres:gpu:1"})

---------------------------------------------------------------- a table that cannot be read

check(#log == 0, "nothing to log so far", log[1])
for name, text in pairs({
  ["cut short"] = TABLE:sub(1, -2),
  ["an unknown word"] = TABLE .. "colour red\n",
  ["a word too many"] = TABLE .. "profile 3g.20gb 4g.20gb\n",
  ["a short key"] = TABLE .. "key 1001:0123 2g.10gb\n",
  ["a key in capitals"] = TABLE .. "key 1001:0123456789ABCDEF 2g.10gb\n",
  ["a key without profile"] = TABLE .. "key 1001:0123456789abcdef\n",
  ["a key twice"] = TABLE .. "key 1001:0123456789abcdef 2g.10gb\nkey 1001:0123456789abcdef 2g.10gb\n",
  ["a key with an unknown profile"] = TABLE .. "key 1001:0123456789abcdef 9g.10gb\n",
  ["a user without work"] = TABLE .. "user 1001 2g.10gb\n",
  ["a user's name"] = TABLE .. "user root:0123456789abcdef 2g.10gb\n",
  ["a user with zeros in front"] = TABLE .. "user 01001:0123456789abcdef 2g.10gb\n",
  ["a user's work twice"] = TABLE .. string.rep("user 1001:0123456789abcdef 2g.10gb\n", 2),
  ["a name line without a user"] = TABLE .. "name 0123456789abcdef 2g.10gb\n",
  ["a name line twice"] = TABLE .. string.rep("name 1001:0123456789abcdef 2g.10gb\n", 2),
  ["an owner line with a zero in front"] = TABLE .. "owner 01001 2g.10gb\n",
  ["an owner line with a hash"] = TABLE .. "owner 1001:0123456789abcdef 2g.10gb\n",
  ["an owner line twice"] = TABLE .. string.rep("owner 1001 2g.10gb\n", 2),
  ["a site line twice"] = TABLE .. string.rep("site 0123456789abcdef 2g.10gb\n", 2),
  ["a site line with an unknown profile"] = TABLE .. "site 0123456789abcdef 9g.10gb\n",
  ["no seconds"] = TABLE .. "key 1001:0123456789abcdef 2g.10gb 0\n",
  ["seconds with a unit"] = TABLE .. "key 1001:0123456789abcdef 2g.10gb 60s\n",
  ["ten digits of seconds"] = TABLE .. "key 1001:0123456789abcdef 2g.10gb 1000000000\n",
  ["a busy share above 100"] = TABLE .. "key 1001:0123456789abcdef 2g.10gb 60 101\n",
  ["a busy share below 0"] = TABLE .. "user 1001:0123456789abcdef 2g.10gb 60 -1\n",
  ["a busy share with a zero in front"] = TABLE .. "site 0123456789abcdef 2g.10gb 60 050\n",
  ["a busy share with a unit"] = TABLE .. "key 1001:0123456789abcdef 2g.10gb 60 50%\n",
  ["a busy share after no seconds"] = TABLE .. "key 1001:0123456789abcdef 2g.10gb 0 50\n",
  ["a busy share of an old key that is none"] = TABLE .. "key 0123456789abcdef 2g.10gb 60 101\n",
  ["something behind the busy share"] = TABLE .. "key 1001:0123456789abcdef 2g.10gb 60 50 1\n",
  ["a quantile below the run time"] = TABLE .. "key 1001:0123456789abcdef 2g.10gb 60-59\n",
  ["a range without a quantile"] = TABLE .. "key 1001:0123456789abcdef 2g.10gb 60-\n",
  ["a range without a run time"] = TABLE .. "key 1001:0123456789abcdef 2g.10gb -60\n",
  ["a quantile with a zero in front"] = TABLE .. "key 1001:0123456789abcdef 2g.10gb 60-070\n",
  ["a quantile of ten digits"] = TABLE .. "key 1001:0123456789abcdef 2g.10gb 60-1000000000\n",
  ["three run times"] = TABLE .. "key 1001:0123456789abcdef 2g.10gb 60-70-80\n",
  ["a range of memory"] = TABLE .. "profile 4g.20gb 60-70\n",
  ["a range of a busy share"] = TABLE .. "key 1001:0123456789abcdef 2g.10gb 60 50-60\n",
  ["memory with a unit"] = TABLE .. "profile 4g.20gb 20G\n",
  ["something behind the memory"] = TABLE .. "profile 4g.20gb 19968 MiB\n",
  ["two for --mig=off"] = TABLE .. "whole 7g.40gb\nwhole 7g.40gb\n",
  ["an unknown one for several GPUs"] = TABLE .. "partition new 7g.80gb\n",
  ["an unknown one for --mig=off"] = TABLE .. "whole 7g.80gb\n",
  ["a blank in front"] = TABLE .. " partition gpu\n",
  ["no default"] = "partition gpu\nprofile 1g.5gb\n",
  ["two defaults"] = TABLE .. "default 1g.5gb\n",
  ["an unknown default"] = "profile 1g.5gb\ndefault 2g.10gb\n",
  ["the filler as a profile"] = TABLE .. "profile closed\n",
  ["a profile that is none"] = TABLE .. "profile a,b\n",
  ["max_nodes in words"] = TABLE .. "max_nodes two\n",
  ["a long line"] = TABLE .. "partition " .. string.rep("x", 300000) .. " y z\n",   -- took an earlier version of the script hours
  ["a long fourth word"] = TABLE .. "key 1001:0123456789abcdef 2g.10gb " .. string.rep("6", 300000) .. " 50 1\n",
  ["a long fifth word"] = TABLE .. "key 1001:0123456789abcdef 2g.10gb 60 " .. string.rep("6", 300000) .. " 1\n",
  ["many blanks"] = TABLE .. "key 1001:0123456789abcdef 2g.10gb" .. string.rep(" ", 200000) .. "60" .. string.rep(" ", 200000) .. "50" .. string.rep(" ", 200000) .. "1\n",
  ["too many lines"] = TABLE .. string.rep("#\n", 20001),
  ["too long"] = TABLE .. "# " .. string.rep("x", 1048576) .. "\n",
  ["binary"] = TABLE .. "\127ELF\2\1\1\0\0\0\0\0\0\0\0\0\2\0\62\0\n",
  ["a CR in one line"] = TABLE .. "profile 3g.20gb\r4g.20gb\n",
}) do
  log = {}
  write_table(text)
  local _, job = submit({tres_per_node = "gres:gpu:1"})
  submit({tres_per_node = "gres:gpu:1"})
  check(job.tres_per_node == "gres:gpu:1,gres:mig:1g.5gb:1", name .. ": the last valid table", job.tres_per_node)
  check(#log == 1 and log[1]:find("last valid table", 1, true), name .. ": logged once", #log)
end
for _, header in ipairs({"", "\239\187\191caelum-decisions 1 9", "caelum-decisions 1 -9", "caelum-decisions 1 99999999999999999999999999999999999999999999999999", "\0\0\0\0", "caelum-decisions 1 9\r", "caelum-decisions 2 9", "caelum-decisions 1 x", "caelum-decisions 1 12 "}) do
  log = {}
  write_table(TABLE, header)
  submit({tres_per_node = "gres:gpu:1"})
  log = {}
  os.remove(table_path)
  local _, job = submit({tres_per_node = "gres:gpu:1"})
  submit({tres_per_node = "gres:gpu:1"})
  check(job.tres_per_node == "gres:gpu:1,gres:mig:1g.5gb:1", "a removed table: the last valid table is used", job.tres_per_node)
  check(#log == 1, "a removed table: logged once", #log)
end
log = {}
write_table(TABLE)
local _, back = submit({tres_per_node = "gres:gpu:1"})
check(back.tres_per_node == "gres:gpu:1,gres:mig:2g.10gb:1" and #log == 0, "a new valid table is used", back.tres_per_node)

-- At the first read, the table is incomplete. The complete table has an unchanged generation.
log = {}
local half_way = TABLE .. "key 1001:" .. plain .. " 7g.40gb\n"
local file = assert(io.open(table_path, "w"))
file:write("caelum-decisions 1 777\n" .. half_way:sub(1, -9))
file:close()
local _, early = submit({tres_per_node = "gres:gpu:1", account = "phys"})
check(early.tres_per_node == "gres:gpu:1,gres:mig:2g.10gb:1" and #log == 1, "an incomplete table: the last valid table is used", early.tres_per_node)
file = assert(io.open(table_path, "w"))
file:write("caelum-decisions 1 777\n" .. half_way)
file:close()
local _, whole = submit({tres_per_node = "gres:gpu:1", account = "phys"})
check(whole.tres_per_node == "gres:gpu:1,gres:mig:7g.40gb:1", "the completed table with an unchanged generation is used", whole.tres_per_node)
log = {}
file = assert(io.open(table_path, "w"))
file:write((("caelum-decisions 1 778\n" .. TABLE):gsub("\n", "\r\n")))
file:close()
submit({tres_per_node = "gres:gpu:1"})
check(#log == 1 and log[1]:find("CR LF", 1, true), "a table with CR LF is reported", log[1])

os.remove(table_path)
reload()
check(submit({tres_per_node = "gres:gpu:1", partition = "cpu"}) == slurm.ERROR, "no valid table: GPUs are refused", "accepted")
check((said[1] or ""):find(table_path, 1, true), "the refusal names the file", said[1])
check(submit({}) == slurm.SUCCESS, "no valid table: a job without GPUs is accepted", said[1])
write_table("partition gpu\nprofile 1g.5gb\ndefault 1g.5gb\n")
local _, two = submit({tres_per_node = "gres:gpu:1", min_nodes = 2})
check(two.priority == 0, "without max_nodes, a job on two nodes is held", two.priority)

---------------------------------------------------------------- changes to a waiting job

write_table(TABLE)
local function modify(fields, record, uid)
  said = {}
  local job = job_desc(fields, "gres:")
  return slurm_job_modify(job, record, PARTS, uid or 1001), job
end
local OLD = {partition = "gpu", tres_per_node = "gres:gpu:1,gres:mig:2g.10gb:1", admin_comment = "caelum:key=0123456789abcdef"}
local NEW = {partition = "gpu", tres_per_node = "gres/gpu:1,gres/mig:2g.10gb:1", admin_comment = "caelum:key=0123456789abcdef"}
local HELD = {partition = "gpu", tres_per_node = OLD.tres_per_node, admin_comment = OLD.admin_comment .. " caelum:held"}
check(modify({nice = 2147483653}, HELD) == slurm.ERROR and said[1]:find("nice value can be changed then", 1, true), "another nice value of a held job", said[1])
check(modify({nice = 2147483653}, OLD) == slurm.SUCCESS, "another nice value", said[1])

-- --test-only
for _, case in ipairs({
  {{tres_per_node = "gres:gpu:1"}, "gres:gpu:1"},
  {{tres_per_node = "gres:gpu:2,gres:mig:7g.40gb:2,gres:net:1"}, "gres:gpu:2,gres:net:1"},
  {{tres_per_node = "gres:gpu:1g.5gb:1"}, "gres:gpu:1"},
  {{tres_per_job = "gres:gpu:3", min_nodes = 2}, nil},
}) do
  case[1].spank_job_env = env()
  case[1].spank_job_env[1] = "_SLURM_SPANK_OPTION_caelum_test_only=1"
  local rc, job = submit(case[1])
  check(rc == 0 and job.tres_per_node == case[2] and not job.admin_comment, "--test-only has no slices", job.tres_per_node)
  check(job.priority == 0 and tostring(said[1]):find("ignores MIG slices"), "--test-only is held", said[1])
  if case[2] and not case[2]:find("net") then
    local rc, released = modify({priority = INFINITE}, {partition = "gpu", priority = 0, tres_per_node = case[2]})
    check(rc == 0 and released.tres_per_node == case[2] .. ",gres:mig:2g.10gb:1", "a released job gets slices", released.tres_per_node)
  end
end
check(submit({tres_per_node = "gres:gpu:1", spank_job_env = {[0] = "_SLURM_SPANK_OPTION_caelum_mig=9g.90gb",
  "_SLURM_SPANK_OPTION_caelum_test_only=1"}}) == slurm.ERROR, "--test-only of an unknown profile", said[1])

local rc, job = modify({tres_per_node = "gres:gpu:2"}, OLD)
check(rc == 0 and job.tres_per_node == "gres:gpu:2,gres:mig:2g.10gb:2", "more GPUs", job.tres_per_node)
check(modify({tres_per_node = "gres:mig:1g.5gb:1"}, OLD) == slurm.ERROR, "another type is refused up to 23.02", said[1])
check(modify({tres_per_node = "gres:gpu:a100:1"}, OLD) == slurm.ERROR, "another GPU model is refused up to 23.02", said[1])
rc, job = modify({tres_per_node = "gres/mig:1g.5gb:1"}, NEW)
check(rc == 0 and job.tres_per_node == "gres/mig:1g.5gb:1,gres/gpu:1", "another type replaces the type after 23.02", job.tres_per_node)
check(modify({tres_per_node = "gres/mig:9g.5gb:1"}, NEW) == slurm.ERROR, "an unknown type", said[1])
check(modify({tres_per_job = "gres/gpu:2"}, NEW) == slurm.ERROR, "GPUs per job", said[1])
check(modify({tres_per_node = "gres/gpu:2"}, {partition = "gpu", tres_per_job = "gres/gpu:2"}) == slurm.ERROR, "GPUs per node for a job with GPUs per job", said[1])
rc, job = modify({tres_per_node = "gres:gpu:2"}, {partition = "cpu", tres_per_node = "gres:gpu:1"})
check(rc == 0 and job.tres_per_node == "gres:gpu:2", "an unmanaged job", job.tres_per_node)
rc, job = modify({tres_per_node = "gres:mig:9g.5gb:1", priority = 0}, HELD, 0)
check(rc == 0 and job.tres_per_node == "gres:mig:9g.5gb:1", "root's update is unchanged", job.tres_per_node)
-- Shards in an update become a slice. A job's own shards remain.
write_table(SHARDS)
rc, job = modify({tres_per_node = "gres/shard:l40s:1"}, NEW)
check(rc == 0 and job.tres_per_node == "gres/gpu:l40s:1,gres/mig:1f.11gb:1", "an update to shards", job.tres_per_node)
rc, job = modify({tres_per_node = "gres/shard:1"}, {partition = "gpu"})
check(rc == 0 and job.tres_per_node == "gres/gpu:1,gres/mig:1g.5gb:1", "the first shards", job.tres_per_node)
rc, job = modify({tres_per_node = "gres/shard:9"}, {partition = "cpu"})
check(rc == 0 and job.tres_per_node == "gres/shard:9", "shards in an unmanaged partition", job.tres_per_node)
check(modify({tres_per_node = "gres/shard:20001"}, NEW) == slurm.ERROR and said[1]:find("at most 20000"), "too many shards in an update", said[1])
rc, job = modify({time_limit = 5}, {partition = "gpu", tres_per_node = "gres/shard:2"})
check(rc == 0 and not job.tres_per_node, "another update of a job with shards", job.tres_per_node)
write_table(TABLE)
-- An update uses the options and the learned lines from the job's submission.
local RECORD = {partition = "gpu", tres_per_node = "gres/gpu:1,gres/mig:1g.5gb:1", user_id = 1001.0}
local function again(name, options, comment, want)
  RECORD.spank_job_env, RECORD.admin_comment = options, comment
  local _, changed = modify({tres_per_node = "gres/gpu:2"}, RECORD)
  check(changed.tres_per_node == "gres/gpu:2" .. (want and ",gres/mig:" .. want .. ":2" or ""), "a change: " .. name, changed.tres_per_node)
end
write_table(TABLE .. "key 1001:0123456789abcdef 1g.5gb\nuser 1001:fedcba9876543210 3g.20gb\nsite fedcba9876543210 7g.40gb\n")
again("by its key", nil, "caelum:key=0123456789abcdef caelum:work=fedcba9876543210", "1g.5gb")
again("by its user's work", nil, "caelum:key=0000000000000000 caelum:work=fedcba9876543210", "3g.20gb")
RECORD.user_id = 1002.0
again("by its work", nil, "caelum:key=0000000000000000 caelum:work=fedcba9876543210", "7g.40gb")
again("nothing is known", nil, nil, "2g.10gb")
again("--mig-mem", env(nil, "8G"), "caelum:key=0123456789abcdef", "2g.10gb")
again("--mig=off", env("off"), nil, "7g.40gb")
write_table(TABLE .. "key 1001:0123456789abcdef 1g.5gb 3600-4500 80\n")
RECORD.user_id, RECORD.time_limit = 1001.0, 44.0
again("the limit in the record", nil, "caelum:key=0123456789abcdef", "3g.20gb")
RECORD.time_limit = nil
write_table(TABLE .. "key 1001:0123456789abcdef 1g.5gb\nargs 1001:0123456789abcdef 2 64=2g.10gb *=3g.20gb\n")
local TAGS = "caelum:key=0123456789abcdef caelum:work=fedcba9876543210"
again("by a number", nil, TAGS .. " caelum:args=9000,64", "2g.10gb")
again("by a larger number", nil, TAGS .. " caelum:args=1,64.5 caelum:sized=2g.10gb", "3g.20gb")
again("without the number", nil, TAGS .. " caelum:args=9000", "1g.5gb")
again("with a damaged tag", nil, TAGS .. " caelum:args=9000,6.4.5", "1g.5gb")
again("of another key", nil, "caelum:key=0000000000000000 caelum:work=fedcba9876543210 caelum:args=1,1", "2g.10gb")
write_table(TABLE .. "key 1001:0123456789abcdef 1g.5gb 3600-4500 80\n")
again("no limit in the record", nil, "caelum:key=0123456789abcdef", "1g.5gb")
again("options that disagree", env("1g.5gb", "8G"), nil, nil)
check(said[1]:find("contradict each other", 1, true), "a change is refused with the reason", said[1])
check(modify({time_limit = 5}, OLD) == 0, "a time limit", said[1])
check(modify({priority = 0}, OLD) == 0, "the user's hold of a job without the tag", said[1])
check(modify({priority = 0}, HELD) == slurm.ERROR, "the user's hold of a job that Caelum holds", said[1])
check(modify({priority = INFINITE}, HELD) == slurm.ERROR, "the user's release of a job that Caelum holds", said[1])
check(modify({time_limit = 5}, HELD) == 0, "a time limit of a held job", said[1])

---------------------------------------------------------------- caelum convert-jobs

-- convert returns the changes to a job whose record has the given fields.
local function convert(record, numbers)
  said, log = {}, {}
  for k, v in pairs({partition = "gpu", min_nodes = 1.0, max_nodes = 0.0, priority = 100.0, user_id = 1001.0,
                     script = "#!/bin/sh\n", name = "train.sh", account = "phys"}) do
    if record[k] == nil then record[k] = v end
  end
  local job = job_desc({admin_comment = "caelum:convert" .. (numbers or "")}, "gres:")
  local rc = slurm_job_modify(job, record, PARTS, 0)
  check(rc == slurm.SUCCESS and #said == 0 and #log == 0, "convert says nothing", said[1] or log[1])
  return job
end
write_table(TABLE .. "per_gpu gpu 16 70000\n")
local UNCHANGED = ""
local CPUS = {cpus_per_tres = "gres:gpu:16", mem_per_tres = "gres:gpu:100"}
local function job_with(fields)
  for k, v in pairs(CPUS) do if fields[k] == nil then fields[k] = v end end
  return fields
end
local same = {
  {"--gres=gpu:1", job_with({tres_per_node = "gres:gpu:1"}), "", "gres:gpu:1,gres:mig:2g.10gb:1"},
  {"--gpus=4", job_with({tres_per_job = "gres:gpu:4"}), "", "gres:gpu:4,gres:mig:2g.10gb:4", {max_nodes = 1}},
  {"--gpus=4 -N2", job_with({tres_per_job = "gres:gpu:4", min_nodes = 2.0, max_nodes = 2.0}), "", "gres:gpu:2,gres:mig:2g.10gb:2"},
  {"--gpus=3 -N2", job_with({tres_per_job = "gres:gpu:3", min_nodes = 2.0}), "", "gres:gpu:2,gres:mig:2g.10gb:2",
    {max_nodes = 2, tres_per_job = "gres:gpu:4"}},
  {"--gpus-per-task=1 -n3", job_with({tres_per_task = "gres:gpu:1"}), " num_tasks=3", "gres:gpu:3,gres:mig:2g.10gb:3", {max_nodes = 1}},
  {"--gpus-per-task=1 -n3 -N2", job_with({tres_per_task = "gres:gpu:1", min_nodes = 2.0}), " num_tasks=3 cpus_per_task=2",
    "gres:mig:2g.10gb:2", {ntasks_per_node = 2, num_tasks = 3, min_cpus = 6, tres_per_task = "gres:gpu:1"}},
  {"--gpus-per-socket=1", job_with({tres_per_socket = "gres:gpu:1"}), " sockets_per_node=2", "gres:gpu:2,gres:mig:2g.10gb:2",
    {sockets_per_node = 2}},
  {"--ntasks-per-gpu=2 -n4", job_with({cpus_per_tres = "", mem_per_tres = ""}), " num_tasks=4 ntasks_per_tres=2 shared=0", "gres:gpu:2,gres:mig:2g.10gb:2",
    {max_nodes = 1, ntasks_per_tres = 2}},
  {"a share", {tres_per_node = "gres:gpu:1", cpus_per_tres = "gpu:16", mem_per_tres = "gpu:70000", min_mem_per_node = 0.0}, "",
    "gres:gpu:1,gres:mig:2g.10gb:1", {cpus_per_tres = "gres:gpu:16,gres:mig:16", mem_per_tres = "gres:gpu:70000"}},
  {"a default for each task", {tres_per_task = "gres:gpu:1", cpus_per_tres = "gpu:16", mem_per_tres = "gpu:70000"},
    " num_tasks=1 cpus_per_task=16", "gres:gpu:1,gres:mig:2g.10gb:1",
    {max_nodes = 1, cpus_per_tres = "gres:gpu:16,gres:mig:16", mem_per_tres = "gres:gpu:70000"}},
  {"own CPUs and memory", {tres_per_node = "gres:gpu:1", min_mem_per_cpu = 50.0}, " cpus_per_task=2", "gres:gpu:1,gres:mig:2g.10gb:1"},
  {"a default of the partition", {tres_per_node = "gres:gpu:1", min_mem_per_cpu = 70.0}, " cpus_per_task=2",
    "gres:gpu:1,gres:mig:2g.10gb:1", {mem_per_tres = "gres:gpu:70000"}},
  {"a named node", job_with({tres_per_node = "gres:gpu:1"}), " named=1", "gres:gpu:1,gres:mig:2g.10gb:1", {priority = 0}},
  {"a reservation", job_with({tres_per_node = "gres:gpu:1", resv_name = "r"}), "", "gres:gpu:1,gres:mig:2g.10gb:1", {priority = 0}},
  {"three nodes", job_with({tres_per_node = "gres:gpu:1", min_nodes = 3.0}), "", "gres:gpu:1,gres:mig:2g.10gb:1", {priority = 0}},
  {"a named node, held by its user", job_with({tres_per_node = "gres:gpu:1", priority = 0.0}), " named=1", "gres:gpu:1,gres:mig:2g.10gb:1"},
  {"an unmanaged partition", {tres_per_node = "gres:gpu:1", partition = "cpu"}, "", nil},
  {"no GPU", {}, "", nil},
}
PARTS.gpu.def_mem_per_cpu = 70.0
local HELD_FOR = {["a named node"] = true, ["a reservation"] = true, ["three nodes"] = true}
for _, case in ipairs(same) do
  local name, job = "convert " .. case[1], convert(case[2], case[3])
  local want = case[5] or {}
  check(job.tres_per_node == case[4], name, job.tres_per_node)
  for field, none in pairs({
    max_nodes = NO_VAL, num_tasks = NO_VAL, min_cpus = UNCHANGED, ntasks_per_node = NO_VAL16, ntasks_per_tres = NO_VAL16,
    sockets_per_node = NO_VAL16, priority = NO_VAL, tres_per_job = UNCHANGED, tres_per_task = UNCHANGED, mem_per_tres = UNCHANGED,
  }) do
    local got = job[field]
    if got == nil then got = UNCHANGED end
    check(got == (want[field] or none), name .. ": " .. field, got)
  end
  if want.cpus_per_tres then check(job.cpus_per_tres == want.cpus_per_tres, name .. ": cpus_per_tres", job.cpus_per_tres) end
  check((word(job, "sized") == "2g.10gb") == (case[4] ~= nil), name .. ": the tag", job.admin_comment)
  check((job.admin_comment:find("caelum:held", 1, true) ~= nil) == (HELD_FOR[case[1]] == true), name .. ": held", job.admin_comment)
  check(case[4] ~= nil or job.admin_comment == "", name .. ": the comment stays", job.admin_comment)
  local wants_share = want.mem_per_tres and (want.cpus_per_tres and "cpusmemory" or "memory") or nil
  check(word(job, "share") == wants_share, name .. ": the share", job.admin_comment)
end
PARTS.gpu.def_mem_per_cpu = nil
write_table(TABLE)
local new = convert({tres_per_node = "gres:gpu:1", admin_comment = "note caelum:unconverted=x caelum:sized=1g.5gb"})
check(new.admin_comment:find("^note caelum:key=") and not new.admin_comment:find("unconverted"), "earlier tags are replaced", new.admin_comment)
local _, submitted = submit({tres_per_node = "gres:gpu:1"})
check(word(new, "key") == word(submitted, "key") and word(new, "work") == word(submitted, "work"), "the key is that of a new job", new.admin_comment)
PARTS.gpu.nodes, PARTS.gpu.total_nodes = "mig-catalog[1-2],n[1-2]", 4.0
for _, case in ipairs({
  {{tres_per_node = "gres:gpu:1g.5gb:1", admin_comment = "note"}, "", "the_request_names_static_MIG_devices_or_shards"},
  {{tres_per_node = "gres:gpu:1", min_nodes = 3.0}, "", "the_partition_does_not_have_enough_nodes_or_CPUs"},
  {{tres_per_task = "gres:gpu:1", tres_per_job = "gres:gpu:3", tres_per_socket = "gres:gpu:x(y:1"}, "",
    "the_request_gres:gpu:x(y:1_is_not_valid:_omit_the_entry,_or_write_gres=<name>:<type>:<count>"},
}) do
  local job = convert(case[1], case[2])
  check(word(job, "unconverted") == case[3] and job.tres_per_node == nil, "unconverted", job.admin_comment)
  check(job.priority == 0 and (case[1].admin_comment == nil or job.admin_comment:find("^note caelum:unc")), "unconverted is held", job.admin_comment)
end
PARTS.gpu.nodes, PARTS.gpu.total_nodes = nil, nil
write_table(TABLE .. "bypass cpu\n")
check(convert({tres_per_node = "gres:gpu:1"}).admin_comment == "caelum:convert", "a bypass line prevents conversions")
write_table(TABLE)
check(modify({admin_comment = "caelum:convert"}, {partition = "gpu", tres_per_node = "gres:gpu:1"}) == slurm.SUCCESS, "not root", said[1])
for _, partition in ipairs({"cpu", "gpu"}) do
  local marked = convert({tres_per_node = "gres:gpu:1", partition = partition,
    spank_job_env = {[0] = "_SLURM_SPANK_OPTION_caelum_static=1g.5gb"}})
  check(marked.tres_per_node == (partition == "gpu" and "gres:gpu:1,gres:mig:2g.10gb:1" or nil), "a forged mark does not count", marked.tres_per_node)
end

-- The answer depends on the resulting job. Each case consists of the update, the job's record, and the resulting
-- tres_per_node. false means unchanged, and nil means rejected.
write_table(TABLE)
local TYPED = "gres:gpu:1,gres:mig:2g.10gb:1"
for _, case in ipairs({
  {"slices emptied, GPUs per job", {tres_per_node = ""}, {partition = "gpu", tres_per_node = TYPED, tres_per_job = "gres:gpu:1"}, nil},
  {"slices emptied, GPUs too", {tres_per_node = ""}, {partition = "gpu", tres_per_node = TYPED}, nil},
  {"slices emptied in a later release", {tres_per_node = ""}, {partition = "gpu", tres_per_node = "gres/gpu:1,gres/mig:2g.10gb:1"}, nil},
  {"slices emptied while it moves away", {tres_per_node = "", partition = "cpu"}, {partition = "gpu", tres_per_node = TYPED}, ""},
  {"zero slices", {tres_per_node = "gres:gpu:1,gres:mig:2g.10gb:0"}, {partition = "gpu", tres_per_node = TYPED}, "gres:gpu:1,gres:mig:2g.10gb:0,gres:mig:2g.10gb:1"},
  {"zero slices, of another type by --mig", {tres_per_node = "gres:gpu:1,gres:mig:2g.10gb:0"}, {partition = "gpu", tres_per_node = TYPED, spank_job_env = env("1g.5gb")}, nil},
  {"zero GPUs", {tres_per_node = "gres:gpu:0"}, {partition = "gpu", tres_per_node = TYPED}, nil},
  {"another GRES instead of the slices", {tres_per_node = "gres:net:1"}, {partition = "gpu", tres_per_node = TYPED}, nil},
  {"another GRES instead of the slices, after 23.02", {tres_per_node = "gres/net:1"}, {partition = "gpu", tres_per_node = "gres/gpu:1,gres/mig:2g.10gb:1"}, nil},
  {"GPUs per job added", {tres_per_job = "gres:gpu:4"}, {partition = "gpu", tres_per_node = TYPED}, nil},
  {"GPUs per task added", {tres_per_task = "gres:gpu:4"}, {partition = "gpu"}, nil},
  {"GPUs per socket added", {tres_per_socket = "gres:gpu:4"}, {partition = "gpu", tres_per_node = TYPED}, nil},
  {"GPUs per job changed", {tres_per_job = "gres:gpu:4"}, {partition = "gpu", tres_per_node = TYPED, tres_per_job = "gres:gpu:1"}, nil},
  {"GPUs per job emptied", {tres_per_job = ""}, {partition = "gpu", tres_per_node = TYPED, tres_per_job = "gres:gpu:1"}, nil},
  {"GPUs per job not valid", {tres_per_job = "gres:gpu:1k"}, {partition = "gpu", tres_per_node = TYPED}, nil},
  {"GPUs by tasks per GPU", {ntasks_per_tres = 1, cpus_per_tres = "gres:gpu:1"}, {partition = "gpu"}, nil},
  {"GPUs by tasks per GPU, elsewhere", {ntasks_per_tres = 1, cpus_per_tres = "gres:gpu:1"}, {partition = "cpu"}, nil},
  {"more nodes of GPUs per job", {min_nodes = 4}, {partition = "gpu", tres_per_node = TYPED, tres_per_job = "gres:gpu:2", min_nodes = 2}, nil},
  {"more tasks of GPUs per task", {num_tasks = 8}, {partition = "gpu", tres_per_node = TYPED, tres_per_task = "gres:gpu:1"}, nil},
  {"more nodes", {min_nodes = 4}, {partition = "gpu", tres_per_node = TYPED, min_nodes = 2}, false},
  {"a job moves in", {partition = "gpu"}, {partition = "cpu", tres_per_node = "gres:gpu:1"}, TYPED},
  {"a job moves in, later", {partition = "gpu"}, {partition = "cpu", tres_per_node = "gres/gpu:a100:2"}, "gres/gpu:a100:2,gres/mig:2g.10gb:2"},
  {"a job moves into a list", {partition = "cpu,gpu-long"}, {partition = "cpu", tres_per_node = "gres:net:1,gres:gpu:1"}, "gres:net:1,gres:gpu:1,gres:mig:2g.10gb:1"},
  {"a job moves in with --mig", {partition = "gpu"}, {partition = "cpu", tres_per_node = "gres:gpu:1", spank_job_env = env("1g.5gb")}, "gres:gpu:1,gres:mig:1g.5gb:1"},
  {"a job moves in with slices", {partition = "gpu"}, {partition = "cpu", tres_per_node = TYPED}, false},
  {"a job moves in with untyped slices", {partition = "gpu"}, {partition = "cpu", tres_per_node = "gres:gpu:1,gres:mig:1"}, nil},   -- up to 23.02 the types add up
  {"a job moves in with untyped slices, later", {partition = "gpu"}, {partition = "cpu", tres_per_node = "gres/gpu:1,gres/mig:1"}, "gres/gpu:1,gres/mig:2g.10gb:1"},
  {"a job moves in with slices that do not agree", {partition = "gpu"}, {partition = "cpu", tres_per_node = "gres:gpu:2,gres:mig:2g.10gb:1"}, nil},
  {"a job moves in with an unknown profile", {partition = "gpu"}, {partition = "cpu", tres_per_node = "gres:gpu:1,gres:mig:9g.5gb:1"}, nil},
  {"a job moves in with GPUs per job", {partition = "gpu"}, {partition = "cpu", tres_per_job = "gres:gpu:1"}, nil},
  {"a job moves in with GPUs per job and node", {partition = "gpu"}, {partition = "cpu", tres_per_job = "gres:gpu:1", tres_per_node = "gres:gpu:1"}, TYPED},
  {"a job moves in with GPUs per task", {partition = "gpu"}, {partition = "cpu", tres_per_task = "gres:gpu:1"}, nil},
  {"a job moves in with tasks per GPU", {partition = "gpu"}, {partition = "cpu", tres_fmt_req_str = "cpu=1,node=1,billing=1,gres/gpu=1"}, nil},
  {"a job moves in with GPUs it cannot read", {partition = "gpu"}, {partition = "cpu", tres_per_node = "gres:gpu:1k"}, nil},
  {"a job moves in with new GPUs", {partition = "gpu", tres_per_node = "gres:gpu:2"}, {partition = "cpu"}, "gres:gpu:2,gres:mig:2g.10gb:2"},
  {"a job moves in without GPUs", {partition = "gpu"}, {partition = "cpu", tres_fmt_req_str = "cpu=1,node=1,billing=1"}, false},
  {"a job moves in and drops its GPUs", {partition = "gpu", tres_per_node = ""}, {partition = "cpu", tres_per_node = "gres:gpu:1"}, nil},
  {"a job moves away", {partition = "cpu"}, {partition = "gpu", tres_per_node = TYPED}, nil},
  {"elsewhere an update through 23.02 hides a GPU", {tres_per_node = "gres:net:1"}, {partition = "cpu", tres_per_node = "gres:gpu:1"}, nil},
  {"elsewhere it hides a model", {tres_per_node = "gres:gpu:h100:1"}, {partition = "cpu", tres_per_node = "gres:gpu:a100:1"}, nil},
  {"elsewhere it hides a count", {tres_per_node = "gres:gpu:0,gres:net:1"}, {partition = "cpu", tres_per_node = "gres:gpu:1"}, nil},
  {"elsewhere a later release replaces", {tres_per_node = "gres/net:1"}, {partition = "cpu", tres_per_node = "gres/gpu:1"}, "gres/net:1"},
  {"elsewhere slices without GPUs", {tres_per_node = "gres:gpu:0,gres:mig:1g.5gb:7"}, {partition = "cpu"}, nil},
  {"elsewhere more slices than GPUs", {tres_per_node = "gres:gpu:1,gres:mig:1g.5gb:7"}, {partition = "cpu", tres_per_node = "gres:gpu:1"}, nil},
  {"elsewhere slices that cannot be counted", {tres_per_node = "gres:mig:1g.5gb:1k"}, {partition = "cpu"}, nil},
  {"elsewhere as many slices as GPUs", {tres_per_node = "gres:gpu:1,gres:mig:1g.5gb:1"}, {partition = "cpu", tres_per_node = "gres:gpu:1"}, "gres:gpu:1,gres:mig:1g.5gb:1"},
  {"elsewhere a time limit", {time_limit = 5}, {partition = "cpu", tres_per_node = "gres:mig:1g.5gb:1"}, false},
  {"a text that cannot be read", {tres_per_node = "gres:gpu:1,gres:mig:2g.10gb:1,gres:mig:x(:0"}, {partition = "gpu", tres_per_node = TYPED}, nil},
  {"elsewhere an empty list clears", {tres_per_node = ""}, {partition = "cpu", tres_per_node = "gres:gpu:1"}, ""},
  {"an untyped job is released", {priority = INFINITE}, {partition = "gpu", tres_per_node = "gres:gpu:1"}, TYPED},
  {"an untyped job of GPUs per job is released", {priority = INFINITE}, {partition = "gpu", tres_per_job = "gres:gpu:1"}, nil},
  {"an untyped job that runs gets another limit", {time_limit = 5}, {partition = "gpu", tres_per_node = "gres:gpu:1", job_state = 1.0}, false},
  {"an untyped job that is requeued gets another limit", {time_limit = 5}, {partition = "gpu", tres_per_node = "gres:gpu:1", job_state = 1024.0}, TYPED},
  {"a job of a profile that is gone gets another limit", {time_limit = 5}, {partition = "gpu", tres_per_node = "gres:gpu:1,gres:mig:9g.5gb:1"}, false},
}) do
  local name, update, record, want = case[1], case[2], case[3], case[4]
  if want == false then want = update.tres_per_node end
  local rc, job = modify(update, record)
  if case[4] == nil then
    check(rc == slurm.ERROR and job.tres_per_node == update.tres_per_node and #said == 1, "an update is refused: " .. name, job.tres_per_node)
  else
    check(rc == slurm.SUCCESS and job.tres_per_node == want, "an update: " .. name, tostring(job.tres_per_node) .. " " .. tostring(said[1]))
  end
  check(modify(update, record, 0) == slurm.SUCCESS, "root's update: " .. name, said[1])
end

---------------------------------------------------------------- the bypass line

write_table(TABLE .. "bypass cpu # since Monday\n")
for name, fields in pairs({
  ["in the default partition"] = {}, ["in a managed partition"] = {partition = "gpu-long"}, ["per job"] = {tres_per_node = false, tres_per_job = "gres:gpu:3", min_nodes = 2},
  ["in a list"] = {partition = "long,gpu"}, ["with an option"] = {spank_job_env = env("1g.5gb")},
  ["in a list of partitions that is too long"] = {partition = string.rep("cpu,", 5000) .. "cpu"},
}) do
  fields.tres_per_node = fields.tres_per_node == nil and "gres:gpu:a100:2" or fields.tres_per_node or nil
  local rc, job = submit(fields)
  check(rc == slurm.SUCCESS and job.partition == "cpu", "a job with GPUs " .. name .. " goes to the other partition", job.partition)
  check(job.tres_per_node == fields.tres_per_node and not job.admin_comment and job.priority == NO_VAL, "and is otherwise unchanged " .. name, job.tres_per_node)
  check(#said == 1 and said[1]:find("was sent to partition cpu,", 1, true), "the user sees the partition " .. name, said[1])
end
for name, fields in pairs({
  ["without GPUs"] = {}, ["in another partition"] = {tres_per_node = "gres:gpu:1", partition = "long"},
}) do
  local rc, job = submit(fields)
  check(rc == slurm.SUCCESS and job.partition == fields.partition and #said == 0, "a job stays " .. name, job.partition)
end
for _, gres in ipairs({"gres:gpu:1,gres:mig:1g.5gb:1", "gres:mig:1g.5gb:1", "gres:gpu:1,gres:mig:1"}) do
  local rc, job = submit({tres_per_node = gres})
  check(rc == slurm.ERROR and not job.partition and said[1]:find("partition cpu: request GPUs without a profile", 1, true), gres .. " is refused", said[1])
end
for _, case in ipairs({
  {"moves in", {partition = "gpu"}, {partition = "cpu", tres_per_node = "gres:gpu:1"}, false},
  {"moves in with slices", {partition = "gpu"}, {partition = "cpu", tres_per_node = TYPED}, false},
  {"gets its first GPU", {tres_per_node = "gres:gpu:1"}, {partition = "gpu"}, false},
  {"gets its first GPU and moves in", {partition = "gpu", tres_per_node = "gres:gpu:1"}, {partition = "cpu"}, false},
  {"waits and gets another GPU", {tres_per_node = "gres:gpu:2"}, {partition = "gpu", tres_per_node = TYPED}, false},
  {"waits and gets another slice", {tres_per_node = TYPED .. ",gres:mig:1g.5gb:1"}, {partition = "gpu", tres_per_node = TYPED}, false},
  {"waits and gets another limit", {time_limit = 5}, {partition = "gpu", tres_per_node = TYPED}, true},
}) do
  local rc = modify(case[2], case[3])
  check((rc == slurm.SUCCESS) == case[4], "a job " .. case[1], said[1])
  check(case[4] or said[1]:find("submit the job to partition cpu", 1, true), "the user sees the reason: a job " .. case[1], said[1])
end
for _, line in ipairs({"", "bypass off\n"}) do
  write_table(TABLE .. line)
  local _, job = submit({tres_per_node = "gres:gpu:1"})
  check(job.tres_per_node == TYPED and not job.partition, "without a partition in the bypass line, jobs get slices", job.partition)
end
log = {}
write_table(TABLE .. "bypass gpu-long\n")
submit({tres_per_node = "gres:gpu:1"})
check(#log == 1 and log[1]:find("line 12 sends jobs to a managed partition;", 1, true), "the log names the bypass line", log[1])
log = {}
write_table(TABLE)
submit({tres_per_node = "gres:gpu:1"})

---------------------------------------------------------------- the watcher

submit({tres_per_node = "gres:gpu:1"})
check(poked() == nil, "without a watcher, the script creates no trigger file", "a file")
assert(io.open(os.getenv("CAELUM_POKE"), "w")):close()
reload()
check(poked() == ".", "the watcher is notified that slurmctld has started", "nothing")
submit({tres_per_node = "gres:gpu:1"})
check(poked() == ".", "the watcher is notified of a submission", "nothing")
submit({})
submit({tres_per_node = "gres:gpu:1", partition = "cpu"})
submit({tres_per_node = "gres:mig:9g.5gb:1"})
check(poked() == "", "the watcher is not notified of submissions without slices, in unmanaged partitions, or refused", "something")
submit({tres_per_node = "gres:gpu:1"})
submit({tres_per_node = "gres:gpu:1"})
check(poked() == ".", "the trigger file does not grow", "it grew")

---------------------------------------------------------------- errors in the script

log = {}
local broken = setmetatable({}, {__index = function() error("no such field") end})
check(slurm_job_submit(broken, PARTS, 1001) == slurm.SUCCESS and #log == 1, "after an error in the script, the job is accepted", #log)
check(slurm_job_modify(broken, {}, PARTS, 1001) == slurm.ERROR and #log == 2, "after an error in the script, the change is refused", #log)
check(slurm_job_modify(job_desc({time_limit = 5}, "gres:"), broken, PARTS, 1001) == slurm.ERROR and #log == 3, "after an error in the job record, the change is refused", #log)
check(slurm_job_modify(broken, broken, PARTS, 0) == slurm.SUCCESS and #log == 4, "root's change is accepted despite the error", #log)
local half = job_desc({tres_per_node = "gres:gpu:1"}, "gres:")
check(slurm_job_submit(half, nil, 1001) == slurm.SUCCESS and half.tres_per_node == "gres:gpu:1", "after an error in the script, the job is unchanged", half.tres_per_node)

print(_VERSION .. ": " .. checks .. " checks, " .. failures .. " failures")
os.exit(failures == 0 and 0 or 1)
