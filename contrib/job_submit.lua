-- job_submit.lua: gives every request for GPUs in a managed partition the MIG slices that fit.
--
-- A job keeps what it asked for; gres/mig, typed by profile, is added to it, one slice per GPU slot. The profile comes from
-- the decision table (docs/internals.md, "The decision table"). Why the rules are what they are, and what was measured:
-- contrib/job_submit/README.md. The job's key: contrib/job_submit/KEY.md.
--
-- slurmctld runs this under its locks: one small read per GPU job, no process, no wait. Lua 5.1 to 5.4, stock libraries.

-- Where there is a watcher (caelumd watch), it has made this file, and looks at the queue when it is written to.
local POKE = os.getenv("CAELUM_POKE") or "/run/caelum-watch/poke"

local TABLE = os.getenv("CAELUM_DECISIONS") or "/etc/caelum/decisions"

-- A table is read whole, with slurmctld's locks held, when its generation changes: 20,000 lines take Lua 5.1 about 40 ms.
local MAX_LINES = 20000
local MAX_BYTES = 1048576

local MAX_COUNT = 65533   -- 65534 and up are Slurm's "not set" in 16 bits, 0xfffffffe and up in 32
local MAX_TRES = 1024     -- slurmctld refuses a longer tres_per_node itself, after this script

---------------------------------------------------------------- the decision table

local decisions           -- the last good table, nil before the first
local seen                -- generation and size read last, or the reason why none was: each is logged once

local function parse(text)
  if #text > MAX_BYTES then return nil, "longer than " .. MAX_BYTES .. " bytes" end
  if text:sub(-1) ~= "\n" then return nil, "the last line is not complete" end
  local t = {partitions = {}, profiles = {}, known = {}, keys = {}}
  local n = 0
  for line in text:gmatch("([^\n]*)\n") do
    n = n + 1
    if n > MAX_LINES then return nil, "more than " .. MAX_LINES .. " lines" end
    if line:find("#", 1, true) then line = line:gsub("#.*$", "") end
    -- No two repetitions side by side that could share out the same characters: a line of 100 kB took such a pattern 139 s.
    local word, value, tail = line:match("^(%l[%l_]*)%s+(%S+)(.*)$")
    local rest = tail and (tail:match("^%s+(%S+)%s*$") or tail:match("^%s*$") and "")
    if n == 1 or line:match("^%s*$") then      -- the first line was checked by refresh()
    elseif not rest then return nil, "line " .. n .. " is not understood"
    elseif word == "key" and #value == 16 and not value:find("[^0-9a-f]") and rest ~= "" and not t.keys[value] then
      t.keys[value] = rest
    elseif rest ~= "" then return nil, "line " .. n .. " is not understood"
    elseif word == "partition" then t.partitions[value] = true
    elseif word == "profile" and value:find("^%w[%w.+-]*$") and value ~= "closed" then
      t.profiles[value] = true
      t.known[#t.known + 1] = value
    elseif word == "default" and not t.default then t.default = value
    elseif word == "max_nodes" and not t.max_nodes and value:find("^%d%d?%d?%d?$") then t.max_nodes = tonumber(value)
    else return nil, "line " .. n .. " is not understood" end
  end
  if not t.default then return nil, "it names no default" end
  if not t.profiles[t.default] then return nil, "its default is not one of its profiles" end
  for key, profile in pairs(t.keys) do
    if not t.profiles[profile] then return nil, "the profile of key " .. key .. " is not one of its profiles" end
  end
  t.max_nodes = t.max_nodes or 1   -- one catalogue node is the least that works at all
  return t
end

-- refresh looks at the table's first line and its size, and at the rest when one of them has changed. The size, because a table
-- that is edited in place may be met half written, and is then read again when it is whole.
local function refresh()
  local file, why = io.open(TABLE, "r")
  local head = file and file:read(64)
  local version = head and head:match("^caelum%-decisions 1 (%d+)\n")
  local fresh
  if version then version = version .. " " .. tostring(file:seek("end")) end
  if version and version ~= seen then
    file:seek("set")
    fresh, why = parse(file:read(MAX_BYTES + 1) or "")
  elseif head and head:find("^[^\n]*\r") then
    why = "its lines end with CR LF, and with LF they should"
  elseif file and not version then
    why = "its first line is not \"caelum-decisions 1 <generation>\""
  end
  if file then file:close() end
  if seen == (version or why) then return end
  seen = version or why
  if fresh then decisions = fresh return end
  slurm.log_error("%s", "caelum: decision table " .. TABLE .. ": " .. why ..
    (decisions and "; the last good table stays in force" or "; requests for GPUs are refused"))
end

---------------------------------------------------------------- what a job asks for

local function count(value)
  if type(value) == "number" and value >= 1 and value <= MAX_COUNT then return math.floor(value) end
end

-- entries splits a tres_per_* string. 22.05 writes "gres:gpu:a100:2"; later releases write "gres/gpu:a100:2" and
-- "gres/gpu:a100=2" (tres_per_task). "gpu" is one, "gpu:a100" is one of a type. Like slurmctld, it finds the prefix anywhere.
local function entries(list)
  local out = {}
  if type(list) ~= "string" or #list > MAX_TRES then return out end
  for token in list:gmatch("[^,]+") do
    local entry = {text = token}
    local name, rest = token:match("gres[:/]([^:=]+)(.*)$")
    if name then
      local kind, number = rest:match("^:([^:=]*%a[^:=]*)(.*)$")   -- a type has a letter in it
      number = number or rest
      entry.name, entry.type = name, kind or ""
      entry.count = number == "" and 1 or tonumber(number:match("^[:=](%d+)$") or "")
    end
    out[#out + 1] = entry
  end
  return out
end

-- total adds up one GRES of a list. As in slurmctld the last of several counts of one type wins, and 0 is no request.
local function total(list, name)
  local sum = {all = 0, types = {}, count = {}}
  for _, entry in ipairs(list) do
    if entry.name == name then
      if not entry.count or entry.count > MAX_COUNT or (name == "gpu" and entry.type:find("^[^%a]")) then
        return nil, "the request " .. entry.text .. " is not understood: write gres=" .. name .. ":<count> or " .. name .. ":<type>:<count>"
      elseif entry.count > 0 then
        if not sum.count[entry.type] then sum.types[#sum.types + 1] = entry.type end
        sum.all = sum.all - (sum.count[entry.type] or 0) + entry.count
        sum.count[entry.type] = entry.count
      end
    end
  end
  return sum
end

-- request reads a job_desc: GPUs as its options name them, per node, job, socket and task, and slices per node.
-- nil: it asks for no GPU.
local function request(job)
  local r, found = {}, false
  for _, per in ipairs({"node", "job", "socket", "task"}) do
    local list = entries(job["tres_per_" .. per])
    local gpu, why = total(list, "gpu")
    if not gpu then return nil, why end
    local mig, why_not = total(list, "mig")
    if not mig then return nil, why_not end
    if mig.all > 0 and per ~= "node" then
      return nil, "slices are asked for per node: write --gres=mig:<profile>:<count>"
    end
    r[per] = {list = list, gpu = gpu, mig = mig}
    found = found or gpu.all > 0 or mig.all > 0
  end
  r.tasks, r.tasks_per_node = count(job.num_tasks), count(job.ntasks_per_node)
  r.nodes = count(job.min_nodes) or (r.tasks and r.tasks_per_node and math.ceil(r.tasks / r.tasks_per_node)) or 1
  -- --ntasks-per-gpu without a count of GPUs: slurmctld derives it from the tasks.
  r.tasks_per_gpu = count(job.ntasks_per_tres)
  found = found or r.tasks_per_gpu and (r.tasks or count(job.min_nodes) and r.tasks_per_gpu or 0) >= r.tasks_per_gpu
  return found and r or nil
end

local function scaled(gpu, factor, divisor)
  local out = {all = 0, types = gpu.types, count = {}}
  for kind, n in pairs(gpu.count) do
    out.count[kind] = n * factor / divisor
    if out.count[kind] % 1 ~= 0 then return nil end
    out.count[kind] = math.floor(out.count[kind])
    out.all = out.all + out.count[kind]
  end
  return out
end

-- slots says how many GPU slots a request means on each of its nodes. slurmctld would spread --gpus=4 over two nodes with
-- two free slots each (22.05), where gres/mig, which is per node, cannot follow: so such requests get a count per node too.
local function slots(r, job)
  local even, what
  if r.node.gpu.all > 0 then return r.node.gpu end
  if r.job.gpu.all > 0 then
    even, what = scaled(r.job.gpu, 1, r.nodes), r.job.gpu.all .. " GPUs"
  elseif r.socket.gpu.all > 0 then
    local sockets = count(job.sockets_per_node)
    if not sockets then return nil, "--gpus-per-socket needs --sockets-per-node" end
    return scaled(r.socket.gpu, sockets, 1)
  elseif r.task.gpu.all > 0 then
    local tasks = r.tasks_per_node and r.tasks_per_node * r.nodes or r.tasks or r.nodes
    even, what = scaled(r.task.gpu, tasks, r.nodes), "the GPUs of " .. tasks .. " tasks"
  elseif r.node.mig.all > 0 then
    return {all = r.node.mig.all, types = {""}, count = {[""] = r.node.mig.all}}
  else
    local gpus = math.floor((r.tasks or r.nodes * r.tasks_per_gpu) / r.tasks_per_gpu)
    even, what = scaled({types = {""}, count = {[""] = gpus}}, 1, r.nodes), gpus .. " GPUs"
  end
  if even then return even end
  return nil, what .. " cannot be shared evenly by " .. r.nodes .. " nodes: ask for them with --gpus-per-node"
end

---------------------------------------------------------------- the job's key

-- Two polynomials over the bytes, modulo the largest prime below 2^32, their bases below 2^20: every product stays below
-- 2^53, exact in the doubles of Lua 5.1. KEY.md specifies it; internal/predict has the same in Go.
local function hash(text)
  local a, b, byte = 0, 0, string.byte
  for i = 1, #text do
    local c = byte(text, i)
    a = (a * 1000003 + c) % 4294967291
    b = (b * 786433 + c) % 4294967291
  end
  return string.format("%08x%08x", a, b)
end

local function job_key(job, r, gpus)
  local function text(value, most)
    value = type(value) == "string" and value:sub(1, most) or ""
    return #value .. ":" .. value .. ","
  end
  local function number(value) return text(string.format("%d", value or 0), 20) end
  return hash(table.concat({
    text("caelum-key-1", 20),
    number(type(job.user_id) == "number" and math.floor(job.user_id)),
    text(job.account or job.default_account, 256):lower(),
    text(job.name, 256),
    text(job.script, 4096),
    number(gpus.all), number(r.nodes), number(r.tasks), number(count(job.cpus_per_task)),
  }))
end

---------------------------------------------------------------- the decision

-- option is the argument of --mig. Slurm passes it in spank_job_env from sbatch, srun and salloc alike (22.05), and hands it
-- on to whatever a job submits in turn: so it chooses the profile of a request for GPUs, and is no request by itself.
local function option(env)
  if type(env) ~= "table" then return nil end
  for _, assignment in pairs(env) do
    local value = tostring(assignment):match("^_SLURM_SPANK_OPTION_caelum_mig=(.*)$") or
      tostring(assignment):match("^SLURM_SPANK__SLURM_SPANK_OPTION_caelum_mig=(.*)$")
    if value and value ~= "" and value ~= "auto" then return value end
  end
end

local function known(profile, t)
  if t.profiles[profile] then return true end
  return nil, "there is no MIG profile " .. profile:sub(1, 64):gsub("[^%w.+-]", "?") .. " here; known are " .. table.concat(t.known, ", ")
end

-- resolve returns the entries of tres_per_node to keep, and those to add, without prefix. Slices that the request does not
-- type get the profile of --mig, else the predicted one, which is then returned too; --mig says nothing about typed ones, as it may be inherited.
local function resolve(r, gpus, t, asked, predicted)
  local kept, added = {}, {}
  local typed, mig = false, r.node.mig
  for _, profile in ipairs(mig.types) do
    if profile ~= "" then
      typed = true
      local ok, why = known(profile, t)
      if not ok then return nil, why end
    end
  end
  if typed and mig.count[""] then return nil, "name a profile for every slice, or for none" end
  if mig.all > 0 and mig.all ~= gpus.all then
    return nil, "the request names " .. mig.all .. " slices and " .. gpus.all .. " GPUs per node: the numbers must be equal"
  end
  for _, entry in ipairs(r.node.list) do
    if not (entry.name == "mig" and entry.type == "") then kept[#kept + 1] = entry.text end
  end
  if r.node.gpu.all == 0 then
    for _, kind in ipairs(gpus.types) do
      added[#added + 1] = "gpu:" .. (kind ~= "" and kind .. ":" or "") .. gpus.count[kind]
    end
  end
  if not typed then
    if asked then
      local ok, why = known(asked, t)
      if not ok then return nil, "--mig: " .. why end
    end
    added[#added + 1] = "mig:" .. (asked or predicted) .. ":" .. gpus.all
  end
  return kept, added, not typed and not asked and predicted or nil
end

-- write puts the entries into tres_per_node with the prefix that this release's own strings carry. With none to copy
-- it sets the field "gres", which is tres_per_node too, and to which every release adds its prefix.
local function write(job, kept, added)
  if #added == 0 then return end
  local prefix
  for _, per in ipairs({"node", "job", "socket", "task"}) do
    prefix = prefix or tostring(job["tres_per_" .. per]):match("gres[:/]")
  end
  if not prefix then
    job.gres = table.concat(added, ",")
    -- Entries without a prefix are nothing that slurmctld knows, but it is slurmctld that must say so.
    if #kept > 0 then job.tres_per_node = table.concat(kept, ",") .. "," .. job.tres_per_node end
    return
  end
  for _, entry in ipairs(added) do kept[#kept + 1] = prefix .. entry end
  job.tres_per_node = table.concat(kept, ",")
end

-- A list of partitions is managed if one of them is: the job then has a slice wherever it starts, or waits.
local function managed(names, parts, t)
  if type(names) ~= "string" or names == "" then
    for name, part in pairs(parts) do
      if part.flag_default == 1 then names = name end
    end
  end
  for name in tostring(names):gmatch("[^,]+") do
    if t.partitions[name] then return true end
  end
  return false
end

-- With its type at 0 on the nodes it may use, a job that names nodes, or more nodes than the catalogue has, is refused at
-- submission; held, it is accepted, and an agent releases it once it has published the slice.
local function to_be_held(job, r, t)
  local function set(value) return type(value) == "string" and value ~= "" end
  return set(job.req_nodes) or set(job.exc_nodes) or set(job.reservation) or r.nodes > t.max_nodes
end

-- why may hold a user's text: log_user takes a format, and writes a refused change into slurmctld's log (22.05).
local function refuse(why)
  slurm.log_user("%s", "caelum: " .. (why:gsub("[^\32-\126]", "?")))
  return slurm.ERROR
end

local function table_or_reason()
  refresh()
  if decisions then return decisions end
  return nil, "requests for GPUs are refused until slurmctld can read " .. TABLE .. "; please tell your administrator"
end

-- poke wakes the watcher, if there is one. The file is on a tmpfs: to open it and to write a byte waits for nobody.
local function poke()
  local file = io.open(POKE, "r+")
  if not file then return end
  file:write(".")
  file:close()
end

local function submit(job, parts)
  local r, why = request(job)
  if not r and not why then return slurm.SUCCESS end
  local t, no_table = table_or_reason()
  if not t then return refuse(no_table) end
  if not managed(job.partition, parts, t) then return slurm.SUCCESS end
  if not r then return refuse(why) end
  local gpus, uneven = slots(r, job)
  if not gpus then return refuse(uneven) end
  local key = job_key(job, r, gpus)
  local kept, added, sized = resolve(r, gpus, t, option(job.spank_job_env), t.keys[key] or t.default)
  if not kept then return refuse(added) end

  local words = {type(job.admin_comment) == "string" and job.admin_comment or nil}
  words[#words + 1] = "caelum:key=" .. key
  if sized then words[#words + 1] = "caelum:sized=" .. sized end   -- nobody asked for it: a board that has another for as much may serve the job
  -- priority 0 here is the user's own --hold, which is hers to release. squeue shows JobHeldUser for both (22.05).
  local hold = to_be_held(job, r, t) and job.priority ~= 0
  if hold then words[#words + 1] = "caelum:held" end
  write(job, kept, added)
  job.admin_comment = table.concat(words, " ")
  if hold then job.priority = 0 end
  poke()
  return slurm.SUCCESS
end

-- Through 23.02, which write "gres:", an update adds its types to those the job has: a job changed from mig:2g.10gb:1 to
-- mig:3g.20gb:1 then waits for both and is given both (22.05). Later releases, which write "gres/", replace them.
local function adds_to(record, kept, added)
  local before = tostring(record.tres_per_node)
  if not before:find("gres:", 1, true) then return false end
  local now = {}
  for _, text in ipairs(kept) do now[#now + 1] = text end
  for _, text in ipairs(added) do now[#now + 1] = "gres:" .. text end
  local stays = {}
  for _, entry in ipairs(entries(table.concat(now, ","))) do stays[(entry.name or "") .. ":" .. (entry.type or "")] = true end
  for _, entry in ipairs(entries(before)) do
    if (entry.name == "gpu" or entry.name == "mig") and not stays[entry.name .. ":" .. entry.type] then return true end
  end
  return false
end

local function modify(job, record, parts)
  -- A hold of the user's own on top of ours could not be told from it, and a release before the slice is on offer ends in
  -- BadConstraints: while the mark stands, an agent holds and releases. (admin_comment cannot be changed from here.)
  if (job.priority == 0 or job.priority == slurm.INFINITE) and tostring(record.admin_comment):find("caelum:held", 1, true) then
    return refuse("the job is held until its slice can be made, and is then released; scancel ends it")
  end
  local r, why = request(job)
  if not r and not why then return slurm.SUCCESS end
  local t, no_table = table_or_reason()
  if not t then return refuse(no_table) end
  if not managed(job.partition or record.partition, parts, t) then return slurm.SUCCESS end
  -- A job record tells a script neither tasks nor sockets, so only counts per node can be typed anew.
  local no_change = "this change of GPUs cannot be made to a waiting job: cancel it and submit it again"
  local before = request({
    tres_per_job = record.tres_per_job, tres_per_socket = record.tres_per_socket, tres_per_task = record.tres_per_task,
  })
  if not r or before or (r.node.gpu.all == 0 and r.node.mig.all == 0) then return refuse(why or no_change) end
  local gpus, uneven = slots(r, job)
  if not gpus then return refuse(uneven) end
  local key = tostring(record.admin_comment):match("caelum:key=(%x+)")
  local kept, added = resolve(r, gpus, t, option(record.spank_job_env), t.keys[key or ""] or t.default)
  if not kept then return refuse(added) end
  if adds_to(record, kept, added) then return refuse(no_change) end
  write(job, kept, added)
  return slurm.SUCCESS
end

-- An error of our own must not close the cluster: the job passes as it came, and the prolog's agent gives a job that has
-- no slice one that fits.
local function guarded(what, f, ...)
  local ok, rc = pcall(f, ...)
  if ok then return rc end
  slurm.log_error("%s", "caelum: " .. what .. " passed unchanged: " .. tostring(rc))
  return slurm.SUCCESS
end

poke()   -- slurmctld has started, or read its configuration anew: all offers are gone

function slurm_job_submit(job_desc, part_list, submit_uid)
  return guarded("a submission", submit, job_desc, part_list)
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  if modify_uid == 0 then return slurm.SUCCESS end   -- agents and admins know what they write
  return guarded("a change", modify, job_desc, job_rec, part_list)
end

return slurm.SUCCESS
