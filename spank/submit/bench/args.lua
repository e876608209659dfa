-- args.lua measures what the arguments of a job's script cost slurmctld.
--
--   CAELUM_DECISIONS=<table> lua args.lua <job_submit.lua> <arguments> <bytes of each> <rounds>
--
-- The program submits a job with a 4 kB script <rounds> times, and once before to read the decision table. It prints
-- the median time in microseconds.

slurm = {
  SUCCESS = 0, ERROR = -1, NO_VAL = 4294967294, NO_VAL16 = 65534, INFINITE = 4294967295,
  log_error = function(...) error(string.format(...)) end, log_user = function() end,
}
dofile(arg[1])

local n, bytes, rounds = tonumber(arg[2]), tonumber(arg[3]), tonumber(arg[4])
local heads, tail = {}, "=64"
for i = 1, n do heads[i] = string.rep(string.char(33 + i), bytes - #tail) end

-- argv copies the arguments, as slurmctld does at each access to job.argv.
local function argv()
  local out = {[0] = "train.sh"}
  for i = 1, n do out[i] = heads[i] .. tail end
  return out
end

local function submit()
  local job = {
    user_id = 1001.0, name = "train.sh", account = "phys", partition = "gpu", script = string.rep("x", 4096),
    tres_per_node = "gres:gpu:1", argc = n + 1.0,
  }
  setmetatable(job, {__index = function(_, name) return name == "argv" and argv() or nil end})
  local began = os.clock()
  assert(slurm_job_submit(job, {}, 1001) == slurm.SUCCESS)
  return (os.clock() - began) * 1e6
end

submit()
local times = {}
for i = 1, rounds do times[i] = submit() end
table.sort(times)
print(string.format("%.0f", times[math.ceil(#times / 2)]))
