-- fuzz.lua runs job_submit.lua for the Go fuzz targets, which send questions over stdin and read answers from stdout.
--
--   lua fuzz.lua <job_submit.lua>       CAELUM_DECISIONS names the table
--
-- A question consists of a line "<word> <number of fields>" and the fields. A field consists of a line "<s or n> <name>
-- <length>" and the bytes of its value. The words are load (load the script as slurmctld does when it starts), submit
-- and modify. Fields named record.<x> belong to the job record, those named env.<i> to spank_job_env, those named
-- argv.<i> to argv, and those named environ.<x> to the environment. The uid field is an argument of the call. An answer
-- also consists of a line and fields: rc, the messages to the user and the log, and the written fields with their values.

local script = arg[1]
local said, log

slurm = {
  SUCCESS = 0, ERROR = -1, NO_VAL = 4294967294, NO_VAL16 = 65534, INFINITE = 4294967295,
  log_error = function(...) log[#log + 1] = string.format(...) end,
  log_user = function(...) said[#said + 1] = string.format(...) end,
}

local function read_fields(n)
  local fields = {}
  for _ = 1, n do
    local kind, name, length = io.read("*l"):match("^(%l) (%S+) (%d+)$")
    local value = length == "0" and "" or io.read(tonumber(length))
    -- Up to Lua 5.2, every number is a double. slurmctld also pushes doubles in later versions.
    if kind == "n" then value = tonumber(value) + 0.0 end
    fields[name] = value
  end
  return fields
end

local function answer(fields)
  io.write(#fields, "\n")
  for _, f in ipairs(fields) do
    local value = type(f[2]) == "number" and string.format("%.0f", f[2]) or tostring(f[2])
    io.write(type(f[2]) == "number" and "n" or "s", " ", f[1], " ", #value, "\n", value)
  end
  io.flush()
end

-- watched returns a table that behaves like slurmctld's: a read returns the last value written. It also records every
-- write.
local function watched(store, writes, prefix)
  return setmetatable({}, {
    __index = store,
    __newindex = function(_, k, v)
      writes[#writes + 1] = {(prefix or "write.") .. tostring(k), v}
      if k == "gres" then k, v = "tres_per_node", "gres:" .. v:gsub(",", ",gres:") end
      store[k] = v
    end,
  })
end

local PARTS = {
  gpu = {
    flag_default = 1.0, default_time = 20.0, max_time = 60.0,
    nodes = "mig-catalog[1-2],n[1-3]", total_nodes = 5.0, total_cpus = 320.0,
  },
  ["gpu-long"] = {
    flag_default = 0.0, default_time = slurm.NO_VAL, max_time = 50.0, max_share = 0.0,
    nodes = "mig-catalog2,n5", total_nodes = 2.0, total_cpus = 128.0,
  },
  cpu = {
    flag_default = 0.0, default_time = 1.0, max_time = 1.0, nodes = "n[1-4]", total_nodes = 4.0, total_cpus = 256.0,
  },
}

local words = {}

function words.load()
  return {{"rc", dofile(script)}}
end

local function run(call, fields)
  local job, record, env, environ, argv, writes = {}, {}, {}, {}, {}, {}
  for name, value in pairs(fields) do
    local where, rest = name:match("^(%l+)%.(.+)$")
    if where == "record" then record[rest] = value
    elseif where == "env" then env[tonumber(rest)] = value
    elseif where == "argv" then argv[tonumber(rest)] = value
    elseif where == "environ" then environ[rest] = value
    else job[name] = value end
  end
  local uid, parts = job.uid, job.no_parts and {} or PARTS
  job.uid, job.no_parts = nil, nil
  if next(argv) then job.argv = argv end
  if next(env) then job.spank_job_env, record.spank_job_env = env, env end
  if job.script and job.script ~= "" then job.environment = watched(environ, writes, "write.environ.") end
  local rc
  if call == "submit" then
    rc = slurm_job_submit(watched(job, writes), parts, uid)
  else
    rc = slurm_job_modify(watched(job, writes), watched(record, writes), parts, uid)
  end
  table.insert(writes, 1, {"rc", rc})
  return writes
end

function words.submit(fields) return run("submit", fields) end
function words.modify(fields) return run("modify", fields) end

said, log = {}, {}
words.load()
for line in function() return io.read("*l") end do
  local word, n = line:match("^(%l+) (%d+)$")
  local fields = read_fields(tonumber(n))
  said, log = {}, {}
  local ok, out = pcall(words[word], fields)
  if not ok then out = {{"raised", tostring(out)}} end
  for _, text in ipairs(said) do out[#out + 1] = {"said", text} end
  for _, text in ipairs(log) do out[#out + 1] = {"log", text} end
  answer(out)
end
