-- job_submit.lua adds MIG slices to every request for GPUs in a managed partition.
--
-- The script does not change the job's own request. It adds one slice of gres/mig for each GPU
-- slot. All slices of a job have the same profile. The profile comes from --mig or --mig-mem, or
-- otherwise from the decision table (docs/internals.md, "The decision table"). The reasons for the
-- rules, with measurements, are in contrib/job_submit/README.md. contrib/job_submit/KEY.md
-- specifies the job's key.
--
-- slurmctld holds its locks while it runs this script. The script therefore reads only one small
-- file per GPU job, starts no process and never waits. It runs on Lua 5.1 to 5.4 and needs only the
-- standard libraries.

-- TRIGGER is the trigger file of the watcher (caelumd watch). The watcher creates the file, and reads the queue after
-- each write to the file.
local TRIGGER = os.getenv("CAELUM_POKE") or "/run/caelum-watch/poke"

local TABLE = os.getenv("CAELUM_DECISIONS") or "/etc/caelum/decisions"

-- These limits bound the time for which slurmctld holds its locks while the script reads a changed table. Lua 5.1 takes
-- about 75 ms for 20,000 lines.
local MAX_LINES = 20000
local MAX_BYTES = 1048576

local MAX_COUNT = 65533   -- 65534 and above mean "not set" in Slurm's 16-bit fields; 0xfffffffe and above in 32 bits
local MAX_TRES = 1024     -- slurmctld itself refuses a longer tres_per_node, after this script

-- MAX_ENV limits the entries of spank_job_env: one entry for each SPANK option of the job, and the variables that SPANK
-- plugins set for the job.
local MAX_ENV = 256
local MAX_OPTION = 512    -- bytes of an entry's name and value that are read: profiles and sizes are shorter
local MAX_NAMES = 16384   -- bytes of a list of partitions: a list of all partitions of a site is shorter

---------------------------------------------------------------- the decision table

local decisions     -- the last valid table; nil before the first valid table
local last_read     -- the last generation and size, or the last reason for a failure; each reason is logged once

-- number parses a count of MiB or seconds in decimal. It returns nil for any other text.
local function number(text)
  return #text <= 9 and text:find("^[1-9]%d*$") and tonumber(text) or nil
end

-- percent parses a whole number from 0 to 100 in decimal. It returns nil for any other text.
local function percent(text)
  return (text == "0" or text == "100" or text:find("^[1-9]%d?$")) and tonumber(text) or nil
end

-- split returns the words of a line with two to five words, and nil for any other line. Two
-- adjacent repetitions in a pattern must not match the same characters: with such a pattern, a line
-- of 100 kB took 139 s. The ".*" at the end of a pattern is an exception, because it always matches
-- the rest of the text.
local function split(line)
  local word, value, third, rest = line:match("^(%S+)%s+(%S+)%s+(%S+)(.*)$")
  if not word then return line:match("^(%S+)%s+(%S+)%s*$") end
  if rest == "" then return word, value, third end
  local fourth, tail = rest:match("^%s+(%S+)(.*)$")
  if not fourth then return word, value, third end
  local fifth = tail:match("^%s+(%S+)%s*$")
  if fifth or not tail:find("%S") then return word, value, third, fourth, fifth end
end

-- LEARNED contains the patterns of learned lines. Such a line assigns a profile to a user and key,
-- to a user and script fingerprint, or to a script fingerprint. The hash is not cryptographic, so a
-- key applies only to its own user. Lines without a user, as in the tables of earlier releases, have no
-- effect.
local LEARNED = {key = "^%d+:(%x+)$", user = "^%d+:(%x+)$", site = "^(%x+)$"}

local function learn(t, word, value, profile, fourth, fifth)
  local old = word == "key" and value:find("^%x+$")
  local hex = old and value or value:match(LEARNED[word])
  if not profile or not hex or #hex ~= 16 or hex:find("%u") or value:find("^0%d+:") or t[word][value] then
    return false
  end
  local seconds, busy = fourth and number(fourth), fifth and percent(fifth)
  if fourth and not seconds or fifth and not busy then return false end
  if old then
    t.old = t.old + 1
  else
    t[word][value], t.seconds[word][value], t.busy[word][value] = profile, seconds, busy
  end
  return true
end

local function list(t, profile, third, fourth)
  local mib = third and number(third)
  if fourth or third and not mib or not profile:find("^%w[%w.+-]*$") or profile == "closed" then return false end
  if not t.profiles[profile] then t.known[#t.known + 1] = profile end
  -- Two GPU models may use the same profile name for different sizes. The smaller size then applies,
  -- because a job may run on either GPU model.
  local before = t.profiles[profile] or 0
  t.profiles[profile] = mib and (before == 0 or mib < before) and mib or before
  return true
end

-- read_line reads line n of a table into t. It returns false for an invalid line. It does not check
-- whether the profile in the line has a profile line, because profile lines may follow later in the
-- table.
local function read_line(t, n, line)
  local word, value, third, fourth, fifth = split(line)
  local named
  if LEARNED[word] then
    if not learn(t, word, value, third, fourth, fifth) then return false end
    named = third
  elseif word == "profile" then
    return list(t, value, third, fourth)
  elseif word == "model" and third and not fourth then
    local of = t.models[value] or {}
    of[#of + 1] = third
    t.models[value], named = of, third
  elseif third then
    return false
  elseif word == "partition" then
    t.partitions[value] = true
  elseif (word == "default" or word == "whole") and not t[word] then
    t[word], named = value, value
  elseif word == "max_nodes" and not t.max_nodes and value:find("^%d%d?%d?%d?$") then
    t.max_nodes = tonumber(value)
  else
    return false
  end
  if named and not t.named[named] then t.named[named] = n end
  return true
end

local function parse(text)
  if #text > MAX_BYTES then return nil, "longer than " .. MAX_BYTES .. " bytes" end
  if text:sub(-1) ~= "\n" then return nil, "the last line is not complete" end
  local t = {
    partitions = {}, profiles = {}, known = {}, models = {}, named = {}, key = {}, user = {}, site = {}, old = 0,
    seconds = {key = {}, user = {}, site = {}}, busy = {key = {}, user = {}, site = {}},
  }
  local n = 0
  for line in text:gmatch("([^\n]*)\n") do
    n = n + 1
    if n > MAX_LINES then return nil, "more than " .. MAX_LINES .. " lines" end
    if line:find("#", 1, true) then line = line:gsub("#.*$", "") end
    -- refresh() has checked the first line.
    if n > 1 and line:find("%S") and not read_line(t, n, line) then return nil, "line " .. n .. " is not valid" end
  end
  if not t.default then return nil, "the default line is missing" end
  local wrong
  for profile, line in pairs(t.named) do
    if not t.profiles[profile] and (not wrong or line < wrong) then wrong = line end
  end
  if wrong then return nil, "line " .. wrong .. " names a profile without a profile line" end
  t.whole = t.whole or t.known[#t.known]
  t.max_nodes = t.max_nodes or 1   -- the catalogue has at least one node
  return t
end

-- refresh reads the table's first line and size. If the line or the size has changed, refresh reads the rest of the
-- table. The size is compared because the script may read an incomplete table while another program writes it. When the
-- table is complete, its size has changed and the script reads the table again.
local function refresh()
  local file, why = io.open(TABLE, "r")
  local head = file and file:read(64)
  local version = head and head:match("^caelum%-decisions 1 (%d+)\n")
  local fresh
  if version then version = version .. " " .. tostring(file:seek("end")) end
  if version and version ~= last_read then
    file:seek("set")
    fresh, why = parse(file:read(MAX_BYTES + 1) or "")
  elseif head and head:find("^[^\n]*\r") then
    why = "its lines end with CR LF; they must end with LF"
  elseif file and not version then
    why = "its first line is not \"caelum-decisions 1 <generation>\""
  end
  if file then file:close() end
  if last_read == (version or why) then return end
  last_read = version or why
  if fresh then
    decisions = fresh
    if fresh.old > 0 then
      slurm.log_error("%s", "caelum: decision table " .. TABLE .. ": key lines without a user id (" ..
        fresh.old .. ") have no effect; write key <user id>:<key>, or run `caelum repo decisions` to replace them")
    end
    return
  end
  slurm.log_error("%s", "caelum: decision table " .. TABLE .. ": " .. why ..
    (decisions and "; the last good table stays in force" or "; requests for GPUs are refused"))
end

---------------------------------------------------------------- the request of a job

local function count(value)
  if type(value) == "number" and value >= 1 and value <= MAX_COUNT then return math.floor(value) end
end

-- entries splits a tres_per_* string. 22.05 and 23.02 write "gres:gpu:a100:2"; later releases write "gres/gpu:a100:2"
-- and "gres/gpu:a100=2" (tres_per_task). "gpu" means one GPU, and "gpu:a100" one GPU of a type. Like slurmctld, entries
-- finds the prefix anywhere in an entry.
local function entries(list)
  local out = {}
  if type(list) ~= "string" or #list > MAX_TRES then return out end
  for token in list:gmatch("[^,]+") do
    local entry = {text = token}
    local name, rest = token:match("gres[:/]([^:=]+)(.*)$")
    if name then
      local kind, number = rest:match("^:([^:=]*%a[^:=]*)(.*)$")   -- a type contains a letter
      number = number or rest
      entry.name, entry.type = name, kind or ""
      entry.count = number == "" and 1 or tonumber(number:match("^[:=](%d+)$") or "")
    end
    out[#out + 1] = entry
  end
  return out
end

-- readable reports whether the agents can read an entry. slurmctld ignores some entries that the agents cannot parse,
-- for example `mig:x(:0`. If a request contained such an entry, the agents could not parse its other entries either.
local function readable(text)
  if text:find("[^%w._+:=/-]") then return false end
  local rest = text:match("^gres[:/](.*)$")
  if not rest then return not text:find("gres[:/]") end   -- cpu=2, in a later release's list
  local name, tail = rest:match("^(%a[%w_]*)(.*)$")
  if not name or name == "gres" then return false end
  local kind, digits, unit = tail:match("^(.*)[:=](%d+)([kKmMgGtT]?)$")
  if kind and #digits > (unit == "" and 9 or 2) then return false end
  kind = (kind or tail):gsub(":no_consume$", "")
  return kind == "" or kind:find("^:%w[%w._+-]*$") ~= nil and not kind:find("^:%d+[kKmMgGtTpP]?$")
end

-- total adds up the entries of one GRES. As in slurmctld, the last of several counts of one type applies, and a count
-- of 0 requests nothing.
local function total(list, name)
  local sum = {all = 0, types = {}, count = {}}
  for _, entry in ipairs(list) do
    if entry.name == name then
      if not entry.count or entry.count > MAX_COUNT or (name == "gpu" and entry.type:find("^[^%a]")) then
        return nil, "the request " .. entry.text .. " is not valid: write gres=" .. name .. ":<count> or " ..
          name .. ":<type>:<count>"
      elseif entry.count > 0 then
        if not sum.count[entry.type] then sum.types[#sum.types + 1] = entry.type end
        sum.all = sum.all - (sum.count[entry.type] or 0) + entry.count
        sum.count[entry.type] = entry.count
      end
    end
  end
  return sum
end

-- PER lists the units (node, job, socket and task) for which options can count GPUs.
local PER = {"node", "job", "socket", "task"}

-- request reads the GPUs per node, job, socket and task, and the slices per node, from a job_desc. It returns nil if
-- the job requests no GPU.
local function request(job)
  local r, found = {}, false
  for _, per in ipairs(PER) do
    local list = entries(job["tres_per_" .. per])
    local gpu, why = total(list, "gpu")
    if not gpu then return nil, why end
    local mig, why_not = total(list, "mig")
    if not mig then return nil, why_not end
    if mig.all > 0 and per ~= "node" then
      return nil, "slices must be requested per node: write --gres=mig:<profile>:<count>"
    end
    r[per] = {list = list, gpu = gpu, mig = mig}
    found = found or gpu.all > 0 or mig.all > 0
  end
  r.tasks, r.tasks_per_node = count(job.num_tasks), count(job.ntasks_per_node)
  r.nodes = count(job.min_nodes) or (r.tasks and r.tasks_per_node and math.ceil(r.tasks / r.tasks_per_node)) or 1
  -- For --ntasks-per-gpu without a count of GPUs, slurmctld calculates the count from the number of tasks.
  r.tasks_per_gpu = count(job.ntasks_per_tres)
  found = found or r.tasks_per_gpu and (r.tasks or count(job.min_nodes) and r.tasks_per_gpu or 0) >= r.tasks_per_gpu
  return found and r or nil
end

-- unreadable returns the reason to reject a request that has an entry that the agents could not
-- read. For any other request it returns nil.
local function unreadable(r)
  for _, per in ipairs(PER) do
    for _, entry in ipairs(r[per].list) do
      if not readable(entry.text) then
        return "the request " .. entry.text .. " is not valid: omit it, or write gres=<name>:<type>:<count>"
      end
    end
  end
end

-- counted returns a number with its noun: "1 GPU", "2 GPUs".
local function counted(n, noun) return n .. " " .. noun .. (n == 1 and "" or "s") end

-- scaled returns a request with each count multiplied by factor / divisor, or nil if a result is not a whole number.
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

-- slots returns the number of GPU slots on each node of the job. slurmctld would spread --gpus=4 over two nodes with
-- two free slots each (22.05). slurmctld counts gres/mig per node and would not spread the slices in this way, so the
-- script adds a count of GPUs per node to such requests.
local function slots(r, job)
  local even, what
  if r.node.gpu.all > 0 then return r.node.gpu end
  if r.job.gpu.all > 0 then
    even, what = scaled(r.job.gpu, 1, r.nodes), counted(r.job.gpu.all, "GPU")
  elseif r.socket.gpu.all > 0 then
    local sockets = count(job.sockets_per_node)
    if not sockets then return nil, "--gpus-per-socket needs --sockets-per-node" end
    return scaled(r.socket.gpu, sockets, 1)
  elseif r.task.gpu.all > 0 then
    local tasks = r.tasks_per_node and r.tasks_per_node * r.nodes or r.tasks or r.nodes
    even, what = scaled(r.task.gpu, tasks, r.nodes), "the GPUs of " .. counted(tasks, "task")
  elseif r.node.mig.all > 0 then
    return {all = r.node.mig.all, types = {""}, count = {[""] = r.node.mig.all}}
  else
    local gpus = math.floor((r.tasks or r.nodes * r.tasks_per_gpu) / r.tasks_per_gpu)
    even, what = scaled({types = {""}, count = {[""] = gpus}}, 1, r.nodes), counted(gpus, "GPU")
  end
  if even then return even end
  return nil, what .. " cannot be divided evenly among " .. r.nodes .. " nodes: request them with --gpus-per-node"
end

---------------------------------------------------------------- the job's key and script fingerprint

-- The hash consists of two polynomials over the bytes, modulo the largest prime below 2^32. Their bases are below 2^20,
-- so that every product stays below 2^53 and is exact in the doubles of Lua 5.1. KEY.md specifies the hash;
-- internal/predict implements it in Go.
local PRIME, BASE_A, BASE_B = 4294967291, 1000003, 786433

-- multiply returns x * y modulo PRIME. It splits y into two halves, because the full product would not be exact.
local function multiply(x, y)
  return (x * math.floor(y / 65536) % PRIME * 65536 + x * (y % 65536)) % PRIME
end

local function power(base, n)
  local out = 1
  while n > 0 do
    if n % 2 == 1 then out = multiply(out, base) end
    base, n = multiply(base, base), math.floor(n / 2)
  end
  return out
end

-- extend adds the bytes of a text to a hash.
local function extend(a, b, text)
  local byte = string.byte
  for i = 1, #text do
    local c = byte(text, i)
    a = (a * BASE_A + c) % PRIME
    b = (b * BASE_B + c) % PRIME
  end
  return a, b
end

-- digest computes the contribution of a text to a hash, which does not depend on the preceding text. Both hashes of a
-- job use the same result, because Lua 5.1 needs a quarter of a millisecond for each pass over a script of 4 kB.
local function digest(text)
  local a, b = extend(0, 0, text)
  return {a = a, b = b, shift_a = power(BASE_A, #text), shift_b = power(BASE_B, #text)}
end

local function hash(before, middle, after)
  local a, b = extend(0, 0, before)
  a = (multiply(a, middle.shift_a) + middle.a) % PRIME
  b = (multiply(b, middle.shift_b) + middle.b) % PRIME
  a, b = extend(a, b, after)
  return string.format("%08x%08x", a, b)
end

local function field(value, most)
  value = type(value) == "string" and value:sub(1, most) or ""
  return #value .. ":" .. value .. ","
end

local function decimal(value) return field(string.format("%d", value or 0), 20) end

local function user_id(job) return type(job.user_id) == "number" and math.floor(job.user_id) or 0 end

-- key_and_fingerprint returns the job's key, and its script fingerprint, which does not depend on user, account, name
-- and CPUs. Without a script the fingerprint is nil.
local function key_and_fingerprint(job, r, gpus)
  local text = job.script   -- each read of the field copies the whole script
  local has_script = type(text) == "string" and text ~= ""
  local script = digest(field(text, 4096))
  local size = decimal(gpus.all) .. decimal(r.nodes) .. decimal(r.tasks)
  local who = decimal(user_id(job)) .. field(job.account or job.default_account, 256):lower() .. field(job.name, 256)
  local key = hash(field("caelum-key-1", 20) .. who, script, size .. decimal(count(job.cpus_per_task)))
  if not has_script then return key, nil end
  return key, hash(field("caelum-work-1", 20), script, size)
end

---------------------------------------------------------------- the decision

-- spank_job_env contains the argument of an option under one of these names, which are the same for sbatch, srun and
-- salloc (22.05). If a job submits other jobs, these jobs inherit the argument.
local OPTION = {"_SLURM_SPANK_OPTION_caelum_", "SLURM_SPANK__SLURM_SPANK_OPTION_caelum_"}

-- options returns the arguments of --mig and --mig-mem as fields mig and mig_mem. These options choose the profile for
-- a request for GPUs, and request nothing by themselves. If spank_job_env is too large, options returns nil and the
-- reason. The limit is necessary because a user can send a million entries, and each read of the field copies all
-- entries.
local function options(job)
  local found, n = {}, 0
  local why = "the job has more than " .. MAX_ENV ..
    " variables of SPANK plugins: unset the variables SPANK_* and SLURM_SPANK_*"
  if (tonumber(job.spank_job_env_size) or 0) > MAX_ENV then return nil, why end
  local env = job.spank_job_env
  if type(env) ~= "table" then return found end
  for _, assignment in pairs(env) do
    n = n + 1
    if n > MAX_ENV then return nil, why end
    for _, prefix in ipairs(OPTION) do
      if type(assignment) == "string" and assignment:sub(1, #prefix) == prefix then
        local name, value = assignment:sub(#prefix + 1, #prefix + MAX_OPTION):match("^([%l_]+)=(.+)$")
        if name and not found[name] then found[name] = value end
      end
    end
  end
  return found
end

local UNITS = {[""] = 1, k = 1 / 1024, m = 1, g = 1024, t = 1048576}

-- mebibytes parses a size as Slurm writes memory: MiB, or with the suffix K, M, G or T.
local function mebibytes(size)
  local digits, unit = size:match("^(%d+)([kKmMgGtT]?)$")
  if digits and #digits <= 9 and tonumber(digits) > 0 then return math.ceil(tonumber(digits) * UNITS[unit:lower()]) end
end

-- learned returns the profile, the seconds and the busy share in the table for the user's key, otherwise for the user's
-- script fingerprint, otherwise for the fingerprint of any user.
local function learned(t, uid, key, fingerprint)
  local kind, subject = "key", string.format("%d:%s", uid, key)
  if not t.key[subject] then
    if not fingerprint then return nil end
    kind, subject = "user", string.format("%d:%s", uid, fingerprint)
    if not t.user[subject] then kind, subject = "site", fingerprint end
  end
  return t[kind][subject], t.seconds[kind][subject], t.busy[kind][subject]
end

local function known(profile, t)
  if t.profiles[profile] then return true end
  return nil, "there is no MIG profile " .. profile:sub(1, 64):gsub("[^%w.+-]", "?") .. " here; the profiles are " ..
    table.concat(t.known, ", ")
end

-- with_memory returns the profile with the least sufficient memory. Among profiles with equal memory, it returns the
-- first profile in the table.
local function with_memory(t, mib, memory)
  local best
  local all = {}
  for _, profile in ipairs(t.known) do
    local has = t.profiles[profile]
    if has > 0 then all[#all + 1] = string.format("%s %d", profile, has) end
    if has >= mib and (not best or has < t.profiles[best]) then best = profile end
  end
  if best then return best end
  if #all == 0 then
    return nil, "--mig-mem cannot be used: " .. TABLE ..
      " does not list the memory of profiles; choose a profile with --mig"
  end
  return nil, "--mig-mem=" .. memory .. ": no MIG profile has that much memory; the profiles have, in MiB: " ..
    table.concat(all, ", ")
end

-- size returns the profile of slices for which the request names no profile. The profile comes from
-- --mig, otherwise from --mig-mem, otherwise from earlier runs, otherwise from the default line.
-- size also returns whether Caelum has chosen the profile, and a warning for the user. If the
-- options cannot be satisfied, size returns nil and the reason.
local function size(t, job, predicted)
  local given, too_many = options(job)
  if not given then return nil, too_many end
  local mig, memory = given.mig, given.mig_mem
  if mig == "auto" then mig = nil end
  local named = mig == "off" and t.whole or mig
  if named then
    local ok, why = known(named, t)
    if not ok then return nil, "--mig: " .. why end
  end
  if not memory then return named or predicted or t.default, not mig or mig == "off" end
  local mib = mebibytes(memory)
  if not mib then
    return nil, "--mig-mem: couldn't read '" .. memory:sub(1, 40) .. "': write the memory of a slice as in 8G"
  end
  if named then
    if t.profiles[named] >= mib then return named, mig == "off" end
    local memory_of = t.profiles[named] > 0 and string.format("%s has %d MiB", named, t.profiles[named]) or
      "the memory of " .. named .. " is unknown"
    return nil, string.format("--mig=%s and --mig-mem=%s do not agree, because %s: use only one of them, or --mig=auto",
      mig, memory, memory_of)
  end
  local fits, why = with_memory(t, mib, memory)
  if not fits then return nil, why end
  local warning = predicted and t.profiles[fits] < t.profiles[predicted] and
    "--mig-mem=" .. memory .. " selects " .. fits .. ", but according to its earlier runs this job needs " .. predicted
  return fits, true, warning or nil
end

-- on_model returns the profile to use on the GPU model that the request names, for a profile that Caelum chose: the
-- same profile, otherwise the first listed profile whose name states at least as many compute slices and as much
-- memory, otherwise the last listed profile.
local function on_model(t, kinds, profile)
  local of = #kinds == 1 and t.models[kinds[1]]
  if not of then return profile end
  local compute, gb = profile:match("^(%d+)g%.(%d+)gb$")
  local enough
  for _, name in ipairs(of) do
    if name == profile then return profile end
    local c, m = name:match("^(%d+)g%.(%d+)gb$")
    if compute and c and not enough and tonumber(c) >= tonumber(compute) and tonumber(m) >= tonumber(gb) then
      enough = name
    end
  end
  return enough or of[#of]
end

-- resolve returns the entries of tres_per_node to keep, the entries to add (without prefix), the profile if Caelum has
-- chosen it, and a warning for the user. job contains the options --mig and --mig-mem. These options are ignored for
-- typed slices, because the job may have inherited the options.
local function resolve(r, gpus, t, job, predicted)
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
    return nil, "the request names " .. counted(mig.all, "slice") .. " and " .. counted(gpus.all, "GPU") ..
      " per node: the numbers must be equal"
  end
  for _, entry in ipairs(r.node.list) do
    if not (entry.name == "mig" and entry.type == "") then kept[#kept + 1] = entry.text end
  end
  if r.node.gpu.all == 0 then
    for _, kind in ipairs(gpus.types) do
      added[#added + 1] = "gpu:" .. (kind ~= "" and kind .. ":" or "") .. gpus.count[kind]
    end
  end
  if typed then return kept, added end
  local profile, chosen, warning = size(t, job, predicted)
  if not profile then return nil, chosen end
  if chosen then profile = on_model(t, gpus.types, profile) end
  added[#added + 1] = "mig:" .. profile .. ":" .. gpus.all
  return kept, added, chosen and profile or nil, warning
end

-- write puts the entries into tres_per_node. It uses the prefix in the strings of `from`, because slurmctld of this
-- release has written these strings. If no string has a prefix, write sets the field "gres". slurmctld then also sets
-- tres_per_node, with the prefix of its release.
local function write(job, from, kept, added)
  if #added == 0 then return end
  local prefix
  for _, per in ipairs(PER) do
    prefix = prefix or tostring(from["tres_per_" .. per]):sub(1, MAX_TRES):match("gres[:/]")
  end
  if not prefix then
    job.gres = table.concat(added, ",")
    -- The entries of kept have no prefix here. They remain in the request, so that slurmctld
    -- rejects it.
    if #kept > 0 then job.tres_per_node = table.concat(kept, ",") .. "," .. job.tres_per_node end
    return
  end
  for _, entry in ipairs(added) do kept[#kept + 1] = prefix .. entry end
  job.tres_per_node = table.concat(kept, ",")
end

-- managed reports whether at least one partition of a list is managed. The job then gets a slice in
-- any partition in which it starts. If the list is too long to read, managed returns true.
local function managed(names, parts, t)
  if type(names) == "string" and #names > MAX_NAMES then return true end
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

-- must_hold reports whether the script must submit the job held. If the count of the profile is 0
-- on all nodes that a job may use, slurmctld rejects the job at submission. This can happen if the
-- job names nodes, or needs more nodes than the catalogue has. slurmctld accepts such a job if it is
-- held, and an agent releases the job after publishing the slice.
local function must_hold(job, r, t)
  local function set(value) return type(value) == "string" and value ~= "" end
  return set(job.req_nodes) or set(job.exc_nodes) or set(job.reservation) or r.nodes > t.max_nodes
end

-- inform shows a line to the user, even if the job is accepted. (In 22.05, sbatch, srun and salloc show the line for an
-- accepted job, and scontrol does not.) The text is an argument of the format "%s", because it may contain user input.
local function inform(text) slurm.log_user("%s", "caelum: " .. (text:gsub("[^\32-\126]", "?"))) end

-- On 22.05, the reason for rejecting a change appears only in slurmctld's log. Later releases show
-- the reason to the user.
local function refuse(why)
  inform(why)
  return slurm.ERROR
end

local function table_or_reason()
  refresh()
  if decisions then return decisions end
  return nil, "requests for GPUs are refused until slurmctld can read " .. TABLE .. "; please tell your administrator"
end

-- notify writes to the trigger file, if the file exists. The file is on a tmpfs, so opening the file and writing a byte
-- never block.
local function notify()
  local file = io.open(TRIGGER, "r+")
  if not file then return end
  file:write(".")
  file:close()
end

local function typed(r)
  return r.node.mig.all > 0 and r.node.mig.all == r.node.gpu.all and not r.node.mig.count[""]
end

-- lacks_slots returns the reason to reject a request in an unmanaged partition, or nil if the
-- request is acceptable. slurmctld would also allocate slices to a job whose numbers of GPU slots
-- and slices differ. Such a job would get no device, and its slices would not be available to other
-- jobs. r and why are the results of request() for the job.
local function lacks_slots(job, r, why)
  if r and (r.node.mig.all == 0 or typed(r)) then return nil end
  if r then
    return "a request for slices must name the same number of GPUs: write --gres=gpu:<count>,mig:<profile>:<count>"
  end
  for _, per in ipairs(PER) do
    for _, entry in ipairs(entries(job["tres_per_" .. per])) do
      if why and entry.name == "mig" then return why end
    end
  end
end

local function submit(job, parts)
  local r, why = request(job)
  if not r and not why then return slurm.SUCCESS end
  local t, no_table = table_or_reason()
  if not t then return refuse(no_table) end
  if not managed(job.partition, parts, t) then
    local without = lacks_slots(job, r, why)
    return without and refuse(without) or slurm.SUCCESS
  end
  if not r then return refuse(why) end
  local invalid = unreadable(r)
  if invalid then return refuse(invalid) end
  local gpus, uneven = slots(r, job)
  if not gpus then return refuse(uneven) end
  local key, fingerprint = key_and_fingerprint(job, r, gpus)
  local predicted, seconds, busy = learned(t, user_id(job), key, fingerprint)
  local kept, added, sized, warning = resolve(r, gpus, t, job, predicted)
  if not kept then return refuse(added) end

  local tags = {type(job.admin_comment) == "string" and job.admin_comment or nil}
  tags[#tags + 1] = "caelum:key=" .. key
  if fingerprint then tags[#tags + 1] = "caelum:work=" .. fingerprint end
  -- The user did not request this profile, so a node with another GPU model may run the job on an equivalent profile.
  if sized then tags[#tags + 1] = "caelum:sized=" .. sized end
  if seconds then tags[#tags + 1] = "caelum:runs=" .. seconds end
  -- Agents use this share only to choose a larger profile, and a profile that the user named does not change.
  if sized and busy then tags[#tags + 1] = "caelum:busy=" .. busy end
  -- A priority of 0 here means --hold, and only the user may release this hold. squeue shows JobHeldUser for both holds
  -- (22.05).
  local hold = must_hold(job, r, t) and job.priority ~= 0
  if hold then tags[#tags + 1] = "caelum:held" end
  write(job, job, kept, added)
  job.admin_comment = table.concat(tags, " ")
  if hold then job.priority = 0 end
  if warning then inform(warning) end
  notify()
  return slurm.SUCCESS
end

-- The script checks the job that would result from an update. In a managed partition the resulting
-- job must have one typed slice per GPU slot. Otherwise the script completes or rejects the
-- update. The cases are in contrib/job_submit/README.md, "Changes to a waiting job".

local NO_CHANGE = "this change to the GPUs of a pending job is not possible: cancel the job and submit it again"

-- drops reports whether an option of the job contains a type of GPU or slice that a list of entries
-- does not contain. Releases up to 23.02, which write "gres:", add the types of an update to the
-- types of the job, and the string then no longer contains all types (22.05). Later releases, which write
-- "gres/", replace the types. An empty list clears the option on every release. slurmctld
-- ignores a count of 0.
local function drops(before, now)
  if type(before) ~= "string" or not before:find("gres:", 1, true) or #now == 0 then return false end
  local stays = {}
  for _, entry in ipairs(now) do
    if entry.count ~= 0 then stays[(entry.name or "") .. ":" .. (entry.type or "")] = true end
  end
  for _, entry in ipairs(entries(before)) do
    local counts = (entry.name == "gpu" or entry.name == "mig") and entry.count ~= 0
    if counts and not stays[entry.name .. ":" .. entry.type] then return true end
  end
  return false
end

-- updated returns the options of the job after an update, and whether the update sets one of them.
local function updated(job, record)
  local after, set = {min_nodes = count(job.min_nodes) or record.min_nodes}, false
  for _, per in ipairs(PER) do
    local name = "tres_per_" .. per
    local new = job[name]
    if type(new) == "string" then set = true else new = record[name] end
    after[name] = new
  end
  return after, set
end

-- counts_elsewhere reports whether a request counts GPUs per job, socket or task.
local function counts_elsewhere(r) return r.job.gpu.all > 0 or r.socket.gpu.all > 0 or r.task.gpu.all > 0 end

-- reshapes reports whether an update changes the numbers that convert counts per job, socket and task into counts per
-- node.
local function reshapes(job)
  for _, name in ipairs({
    "num_tasks", "min_nodes", "max_nodes", "ntasks_per_node", "ntasks_per_socket", "sockets_per_node",
  }) do
    if count(job[name]) then return true end
  end
  return false
end

local function modify(job, record, parts)
  -- Caelum could not distinguish the user's hold from its own hold, and a release before the slice is offered leads to
  -- BadConstraints. While the job has the tag, only an agent may therefore hold and release it. (This script cannot
  -- change admin_comment here.)
  local holds = job.priority == 0 or job.priority == slurm.INFINITE
  if holds and tostring(record.admin_comment):find("caelum:held", 1, true) then
    return refuse("the job is held until its slice can be carved, and is then released automatically; " ..
      "cancel it with scancel")
  end
  -- scontrol cannot set this field. Together with cpus_per_tres, it adds GPUs that no string of the
  -- job shows (according to the source of 22.05).
  if count(job.ntasks_per_tres) then return refuse(NO_CHANGE) end

  local after, set = updated(job, record)
  local r, why = request(after)
  local before, unknown = request(record)
  -- If the job was submitted to an unmanaged partition, the GPUs of --ntasks-per-gpu are only in slurmctld's count.
  local counted = tostring(record.tres_fmt_req_str):find("gres/[gm][pi][ug]")
  if not (r or why or before or unknown or counted) then return slurm.SUCCESS end
  -- slurmctld itself rejects such changes to a started job. The low 8 bits of a job's state are 0
  -- while the job is pending.
  if (tonumber(record.job_state) or 0) % 256 ~= 0 and not set and not job.partition then return slurm.SUCCESS end

  local t, no_table = table_or_reason()
  if not t then return refuse(no_table) end
  if not managed(job.partition or record.partition, parts, t) then
    for _, per in ipairs(PER) do   -- a later change of the partition needs the job's complete list of GPUs
      local new = job["tres_per_" .. per]
      if type(new) == "string" and new ~= "" and drops(record["tres_per_" .. per], entries(new)) then
        return refuse(NO_CHANGE)
      end
    end
    local without = set and lacks_slots(after, r, why)
    return without and refuse(without) or slurm.SUCCESS
  end
  local moves = job.partition and not managed(record.partition, parts, t)
  if not r then
    if not why and not before and not unknown and not moves then return slurm.SUCCESS end
    return refuse(why or NO_CHANGE)
  end
  -- The script cannot see the numbers of tasks and sockets in a job record, so it can add types
  -- only to counts per node.
  for _, per in ipairs({"job", "socket", "task"}) do
    local has = r[per].gpu.all > 0 or before and before[per].gpu.all > 0 or unknown
    if has and type(job["tres_per_" .. per]) == "string" then return refuse(NO_CHANGE) end
  end
  if r.node.gpu.all == 0 and r.node.mig.all == 0 then return refuse(NO_CHANGE) end
  if counts_elsewhere(r) and (set or reshapes(job)) then return refuse(NO_CHANGE) end
  if typed(r) and not set and not moves then return slurm.SUCCESS end

  local invalid = unreadable(r)
  if invalid then return refuse(invalid) end
  local gpus, uneven = slots(r, after)
  if not gpus then return refuse(uneven) end
  local comment = tostring(record.admin_comment)
  local key, fingerprint = comment:match("caelum:key=(%x+)") or "", comment:match("caelum:work=(%x+)")
  local predicted = learned(t, user_id(record), key, fingerprint)
  local kept, added = resolve(r, gpus, t, record, predicted)
  if not kept then return refuse(added) end
  local now = {}
  for _, text in ipairs(kept) do now[#now + 1] = text end
  for _, text in ipairs(added) do now[#now + 1] = "gres:" .. text end
  if drops(record.tres_per_node, entries(table.concat(now, ","))) then return refuse(NO_CHANGE) end
  write(job, after, kept, added)
  return slurm.SUCCESS
end

-- guarded runs f and returns its result. If f raises an error, guarded returns the argument
-- `otherwise`, because an error of this script must not block all submissions. A submission is then accepted
-- unchanged, and an agent later requeues the job with a profile. A change is rejected, so that the
-- job stays in a valid state.
local function guarded(what, otherwise, f, ...)
  local ok, rc = pcall(f, ...)
  if ok then return rc end
  slurm.log_error("%s", "caelum: " .. what .. " after an error in job_submit.lua: " .. tostring(rc))
  return otherwise
end

notify()   -- slurmctld has started or read its configuration again, which removes all offers

function slurm_job_submit(job_desc, part_list, submit_uid)
  return guarded("a submission was accepted unchanged", slurm.SUCCESS, submit, job_desc, part_list)
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  -- The agents run as root, and root's changes are accepted. The script cannot distinguish operators and coordinators
  -- from other users, so the same rules apply to their changes.
  if modify_uid == 0 then return slurm.SUCCESS end
  return guarded("a change was refused", slurm.ERROR, modify, job_desc, job_rec, part_list)
end

return slurm.SUCCESS
