-- job_submit.lua adds MIG slices to every GPU request in a managed partition.
--
-- It keeps the job's own request, and adds one gres/mig slice for each GPU slot. All of a job's slices have the same
-- profile, which comes from --mig, from --mig-mem, or from the decision table (docs/internals/submission.md, "The
-- decision table"). For measurements and the reasons for the rules, see spank/submit/README.md; for the job key, see
-- spank/submit/KEY.md.
--
-- Because slurmctld holds its locks while it runs the script, the script reads only one small file per GPU job, starts
-- no processes and never waits. It runs on Lua 5.1 to 5.4, and needs only the standard libraries.

-- TRIGGER is the trigger file of the watcher (caelum-watch), which creates this file and reads the queue after each
-- write to it.
local TRIGGER = os.getenv("CAELUM_POKE") or "/run/caelum-watch/poke"

local TABLE = os.getenv("CAELUM_DECISIONS") or "/etc/caelum/decisions"

-- MAX_LINES and MAX_BYTES limit how long slurmctld holds its locks while the script reads a changed table. Lua 5.1
-- takes about 75 ms for 20,000 lines.
local MAX_LINES = 20000
local MAX_BYTES = 1048576

-- In Slurm, 65534 and above mean "not set" in 16-bit fields, and 0xfffffffe and above in 32-bit fields.
local MAX_COUNT = 65533

local MAX_TRES = 1024     -- bytes in tres_per_node; slurmctld refuses a longer string after job_submit.lua

-- NO_SUCH_NODE is the error for which Slurm prints "Requested node configuration is not available" (slurm_errno.h).
local NO_SUCH_NODE = 2014

-- MAX_ENV limits the number of entries in spank_job_env, which has one entry for each of the job's SPANK options and
-- for each variable that SPANK plugins set for the job.
local MAX_ENV = 256
local MAX_OPTION = 512    -- how many bytes the script reads from an entry in spank_job_env
local MAX_TYPE = 128      -- bytes in a GPU type that may name a static MIG device; matching a longer one takes too long
local MAX_NAMES = 1024    -- bytes in a list of partitions, which slurmctld also limits to 1 kB

-- MAX_NODES limits the bytes in a list of requested or excluded nodes. squeue expands and sorts the list of each array
-- task before it prints it: for 10,000 tasks with lists of 64 kB, that takes minutes, in which no agent can read the
-- queue. With 2 kB, it takes about a second.
local MAX_NODES = 2048

local MAX_ARGS = 64       -- arguments of a script; slurmctld copies all of them when the script reads them
local MAX_NUMBERS = 4     -- numbers in the arguments
local MAX_STEPS = 16      -- steps of an args line

---------------------------------------------------------------- the decision table

local decisions     -- the last valid decision table; nil before the script has read a valid table
local last_read     -- the last generation and size, or the last error, so that the script logs each error once

-- counted returns a number with its noun: "1 GPU", "2 GPUs".
local function counted(n, noun) return n .. " " .. noun .. (n == 1 and "" or "s") end

-- number parses a decimal count of MiB or seconds. For anything else, it returns nil.
local function number(text)
  return #text <= 9 and text:find("^[1-9]%d*$") and tonumber(text) or nil
end

-- contains reports whether a list has an element.
local function contains(list, wanted)
  for _, element in ipairs(list) do
    if element == wanted then return true end
  end
  return false
end

-- amount is like number, but also accepts 0.
local function amount(text) return text == "0" and 0 or number(text) end

-- percent parses a decimal whole number from 0 to 100. For anything else, it returns nil.
local function percent(text)
  return (text == "0" or text == "100" or text:find("^[1-9]%d?$")) and tonumber(text) or nil
end

-- range parses "<seconds>" or "<seconds>-<high>": an expected run time and its 90% quantile. For anything else, it
-- returns nil.
local function range(text)
  local low, high = text:match("^(%d+)%-(%d+)$")
  if not low then return number(text) end
  low, high = number(low), number(high)
  if low and high and high >= low then return low, high end
end

-- split returns the words of a line that has two to five words, and nil for any other line. Beware of Lua patterns in
-- which two adjacent repetitions can match the same characters: the time to match a long line then grows with the
-- square of its length (139 s for a line of 100 kB). The ".*" at the end of a pattern is safe, because it always
-- matches the rest of the text.
local function split(line)
  local word, value, third, rest = line:match("^(%S+)%s+(%S+)%s+(%S+)(.*)$")
  if not word then return line:match("^(%S+)%s+(%S+)%s*$") end
  if rest == "" then return word, value, third end
  local fourth, tail = rest:match("^%s+(%S+)(.*)$")
  if not fourth then return word, value, third end
  local fifth = tail:match("^%s+(%S+)%s*$")
  if fifth or not tail:find("%S") then return word, value, third, fourth, fifth end
end

-- LEARNED holds the patterns of learned lines. Such a line assigns a profile to a user's job key, to a user's script
-- fingerprint, to a script fingerprint alone, to a user's job name, or to a user. Because the hash is not cryptographic,
-- a key applies only to its own user. The script ignores key lines without a user id, which earlier releases wrote.
local OF_USER = "^%d+:(%x+)$"
local LEARNED = {key = OF_USER, user = OF_USER, site = "^(%x+)$", name = OF_USER, owner = OF_USER}

-- hashed reports whether a text has the form of the second word of a learned line, of which pattern captures the hash.
local function hashed(text, pattern)
  local hex = text:match(pattern)
  return hex and #hex == 16 and not hex:find("%u") and not text:find("^0%d+:")
end

-- decimal_number parses a number in the arguments of a script, which has up to 12 digits and up to 6 decimals. For
-- anything else, it returns nil.
local function decimal_number(text)
  if #text > 19 then return nil end
  local whole, rest = text:match("^(%d+)(.*)$")
  return whole and #whole <= 12 and (rest == "" or #rest <= 7 and rest:find("^%.%d+$")) and tonumber(text) or nil
end

-- read_args reads an args line, which assigns profiles to the values of a number in the arguments of a user's job. It
-- has the form "args <user id>:<job key> <position> <number>=<profile>... *=<profile>", with ascending numbers. t.args
-- holds the position, the numbers and profiles in turn, and the last profile in one list, which takes the least time.
local function read_args(t, n, line)
  local subject, position, rest = line:match("^args%s+(%S+)%s+([1-4])(%s.*)$")
  if not subject or t.args[subject] or not hashed(subject, LEARNED.key) then return false end
  local of, last = {tonumber(position)}, -1   -- last is nil after the last profile
  for word in rest:gmatch("%S+") do
    local text, profile = word:match("^([^=]*)=(%w[%w.+-]*)$")
    if not text or not last then return false end
    if text == "*" then
      last = nil
    else
      local upto = decimal_number(text)
      if not upto or upto <= last or #of > 2 * MAX_STEPS then return false end
      of[#of + 1], last = upto, upto
    end
    of[#of + 1] = profile
    t.named[profile] = t.named[profile] or n
  end
  t.args[subject] = of
  return #of > 2 and not last
end

local function learn(t, word, value, profile, fourth, fifth)
  local old = word == "key" and value:find("^%x+$")
  -- The second word of an owner line is a user id, which needs a hash to have the form of the others.
  local subject = word == "owner" and value .. ":0123456789abcdef" or value
  if not profile or t[word][value] or not hashed(subject, old and LEARNED.site or LEARNED[word]) then return false end
  local seconds, high
  if fourth then
    seconds, high = range(fourth)
    if not seconds then return false end
  end
  local busy = fifth and percent(fifth)
  if fifth and not busy then return false end
  if old then
    t.old = t.old + 1
  else
    t[word][value], t.seconds[word][value], t.high[word][value], t.busy[word][value] = profile, seconds, high, busy
  end
  return true
end

-- list reads a profile line: the profile, its memory in MiB and the largest number of its slices on a node.
local function list(t, profile, third, fourth)
  local mib, most = third and number(third), fourth and number(fourth)
  if third and not mib or fourth and not most or not profile:find("^%w[%w.+-]*$") or profile == "closed" then
    return false
  end
  if most then t.most[profile] = math.max(most, t.most[profile] or 0) end
  if not t.profiles[profile] then t.known[#t.known + 1] = profile end
  -- Two GPU models may use the same profile name for different sizes. The smaller size counts, because the job may run
  -- on either model.
  local before = t.profiles[profile] or 0
  t.profiles[profile] = mib and (before == 0 or mib < before) and mib or before
  return true
end

-- GROW lists the growth modes of jobs. A mode with a larger number includes the requeues of those with smaller numbers.
local GROW = {off = 0, oom = 1, forecast = 2}

-- manage reads the rest of a partition line, which has the form "[profile] [grow=mode]". It returns whether the line is
-- valid, and the profile.
local function manage(t, partition, third, fourth)
  local mode = (fourth or third or ""):match("^grow=(.*)$")
  if mode and not GROW[mode] or fourth and not mode then return false end
  local full = (fourth or not mode) and third or nil
  t.partitions[partition] = full or true
  t.grow_in[partition] = mode or t.grow_in[partition]
  return true, full
end

-- divide reads a shard line: "[type:]count", and the profile of a job that requests up to this number of shards.
local function divide(t, value, profile)
  local kind, most = value:match("^(%a[^:]*):(.*)$")
  most = number(most or value)
  kind = kind or ""
  local of = t.shards[kind] or {}
  if not most or of[most] then return false end
  of[most], t.shards[kind] = profile, of
  return true
end

-- read_line reads line n of a table into t, and returns false if the line is invalid. It does not check that there is a
-- profile line for the line's profile, because that may come later in the table.
local function read_line(t, n, line)
  if line:sub(1, 4) == "args" then return read_args(t, n, line) end
  local word, value, third, fourth, fifth = split(line)
  local named
  if LEARNED[word] then
    if not learn(t, word, value, third, fourth, fifth) then return false end
    named = third
  elseif word == "profile" then
    return not fifth and list(t, value, third, fourth)
  elseif word == "model" and third and not fifth then
    local of, units = t.models[value] or {}, fourth and number(fourth)
    if fourth and not units then return false end
    of[#of + 1] = third
    t.models[value], named = of, third
    t.units[third] = math.max(units or 0, t.units[third] or 0)
  elseif word == "per_gpu" and fourth and not fifth and not t.per_gpu[value] then
    t.per_gpu[value] = {cpus = amount(third), mib = amount(fourth)}
    return t.per_gpu[value].cpus ~= nil and t.per_gpu[value].mib ~= nil
  elseif word == "alias" and third and not fourth and not t.alias[value] then
    t.alias[value], named = third, third
  elseif word == "shard" and third and not fourth and divide(t, value, third) then
    named = third
  elseif word == "partition" and not fifth then
    local ok
    ok, named = manage(t, value, third, fourth)
    if not ok then return false end
  elseif third then
    return false
  elseif (word == "default" or word == "whole") and not t[word] then
    t[word], named = value, value
  elseif word == "grow" and not t.grow and GROW[value] then
    t.grow = value
  elseif word == "max_nodes" and not t.max_nodes and value:find("^%d%d?%d?%d?$") then
    t.max_nodes = tonumber(value)
  elseif word == "max_cpus" and number(value) then
    t.max_cpus = math.max(number(value), t.max_cpus or 0)
  elseif word == "size_message" and not t.size_message and (value == "on" or value == "off") then
    t.size_message = value
  elseif word == "bypass" and not t.bypass and not value:find(",", 1, true) then
    t.bypass, t.bypass_line = value, n
  else
    return false
  end
  if named and not t.named[named] then t.named[named] = n end
  return true
end

local function parse(text)
  if #text > MAX_BYTES then return nil, "the table is longer than " .. MAX_BYTES .. " bytes" end
  if text:sub(-1) ~= "\n" then return nil, "the last line is not complete" end
  local t = {
    partitions = {}, grow_in = {}, profiles = {}, known = {}, models = {}, alias = {}, most = {}, named = {},
    units = {}, per_gpu = {}, shards = {},
    args = {}, old = 0, seconds = {}, high = {}, busy = {},
  }
  for word in pairs(LEARNED) do
    t[word], t.seconds[word], t.high[word], t.busy[word] = {}, {}, {}, {}
  end
  local n = 0
  for line in text:gmatch("([^\n]*)\n") do
    n = n + 1
    if n > MAX_LINES then return nil, "the table has more than " .. MAX_LINES .. " lines" end
    if line:find("#", 1, true) then line = line:gsub("#.*$", "") end
    -- refresh has already checked the first line.
    if n > 1 and line:find("%S") and not read_line(t, n, line) then return nil, "line " .. n .. " is not valid" end
  end
  if not t.default then return nil, "the default line is missing" end
  local wrong
  for profile, line in pairs(t.named) do
    if not t.profiles[profile] and (not wrong or line < wrong) then wrong = line end
  end
  if wrong then return nil, "line " .. wrong .. " names a profile that has no profile line" end
  if t.bypass == "off" then t.bypass = nil end
  if t.bypass and t.partitions[t.bypass] then
    return nil, "line " .. t.bypass_line .. " sends jobs to a managed partition"
  end
  t.whole = t.whole or t.known[#t.known]
  t.max_nodes = t.max_nodes or 1   -- the catalogue has at least one node
  return t
end

-- refresh reads the first line and the size of the decision table, and rereads the whole table if either has changed.
-- It compares the size because it may have read the table while another program was writing it. The complete table then
-- has a different size, and is read as well.
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
    why = "the lines must end with LF, not with CR LF"
  elseif file and not version then
    why = "the first line is not \"caelum-decisions 1 <generation>\""
  end
  if file then file:close() end
  if last_read == (version or why) then return end
  last_read = version or why
  if fresh then
    decisions = fresh
    if fresh.old > 0 then
      slurm.log_error("%s", "caelum: decision table " .. TABLE .. ": ignored " ..
        counted(fresh.old, "key line") .. " because of a missing user id; write key <user id>:<key> <profile>, or " ..
        "run `caelum repo decisions`, which rewrites all learned lines")
    end
    return
  end
  slurm.log_error("%s", "caelum: decision table " .. TABLE .. ": " .. why ..
    (decisions and "; the last valid table remains in use" or "; requests for GPUs are refused"))
end

---------------------------------------------------------------- the request of a job

local function count(value)
  if type(value) == "number" and value >= 1 and value <= MAX_COUNT then return math.floor(value) end
end

-- entries splits a tres_per_* string into its entries. Slurm 22.05 and 23.02 write "gres:gpu:a100:2". Later releases
-- write "gres/gpu:a100:2", or "gres/gpu:a100=2" in tres_per_task. "gpu" means one GPU, and "gpu:a100" means one GPU of
-- type a100. Like slurmctld, entries accepts the prefix anywhere in an entry. If table t has shard lines, entries reads
-- shards as a GPU: "gres:shard:l40s:2" has the name gpu, the type shard:l40s:2 and the count 1.
local function entries(list, t)
  local out = {}
  if type(list) ~= "string" or #list > MAX_TRES then return out end
  for token in list:gmatch("[^,]+") do
    local entry = {text = token}
    local name, rest = token:match("gres[:/]([^:=]+)(.*)$")
    if name then
      local kind, number = rest:match("^:([^:=]*%a[^:=]*)(.*)$")   -- a type has a letter
      number = number or rest
      entry.name, entry.type = name, kind or ""
      entry.count = number == "" and 1 or tonumber(number:match("^[:=](%d+)$") or "")
      if name == "shard" and t and next(t.shards) and entry.count ~= 0 then
        local n = number == "" and "1" or number:match("^[:=](%d+)$") or ""
        entry.name, entry.type, entry.count = "gpu", "shard:" .. entry.type .. ":" .. n, 1
      end
    end
    out[#out + 1] = entry
  end
  return out
end

-- is_count reports whether Slurm reads a text as a count: a number, possibly with a unit as in 100G, 100GB or 100GiB
-- (suffix_mult in Slurm's source).
local function is_count(text)
  local unit = text:lower():match("^%d+(%a*)$")
  return unit == "" or unit ~= nil and (unit:find("^[kmgtp]$") or unit:find("^[kmgtp]i?b$")) ~= nil
end

-- readable reports whether the agents can parse an entry. slurmctld ignores some entries that they cannot, for example
-- `mig:x(:0`, but a single invalid entry makes the whole request unreadable for the agents.
local function readable(text)
  if text:find("[^%w._+:=/-]") then return false end
  local rest = text:match("^gres[:/](.*)$")
  if not rest then return not text:find("gres[:/]") end   -- not a GRES, for example cpu=2 (from 23.02)
  local name, tail = rest:match("^(%a[%w_]*)(.*)$")
  if not name or name == "gres" then return false end
  local kind, last = tail:match("^(.*)[:=](%w+)$")
  if not kind or not is_count(last) then kind = tail end
  kind = kind:gsub(":no_consume$", "")
  return kind == "" or kind:find("^:%w[%w._+-]*$") ~= nil and not is_count(kind:sub(2))
end

-- sharded returns the profile and the GPU model for n shards, which may have a type, from the shard line with the
-- smallest sufficient number. If there is none, it returns nil and the reason.
local function sharded(t, kind, n)
  local best, most
  for upto in pairs(t.shards[kind] or {}) do
    most = math.max(upto, most or 0)
    if n and n <= upto and (not best or upto < best) then best = upto end
  end
  if best then return t.shards[kind][best], (t.models[kind] or not next(t.models)) and kind or "" end
  local what = kind ~= "" and "shards of type " .. kind or "shards without a type"
  if not n then return nil, "the number of shards is not valid: write --gres=shard:<count>" end
  return nil, most and "a job can have at most " .. string.format("%d ", most) .. what ..
    ": request fewer, or whole GPUs with --gpus=<count>" or "there are no " .. what .. ": request a GPU with --gpus=1"
end

-- static returns the profile and the GPU model of a type of static MIG devices. The type states the profile, for
-- example 1g.5gb, a100_1g.5gb or nvidia_h100_80gb_hbm3_1g.10gb, or an alias line lists it. The same applies to types
-- that state a fraction, for example l40s_1f.11gb. The model is empty if the type contains none of the table's models.
-- The type may also be one of shards (entries). For any other type, static returns nil; for shards that no line lists,
-- also the reason.
local function static(kind, t)
  local of, n = kind:match("^shard:(.*):(%d*)$")
  if of then return sharded(t, of, tonumber(n)) end
  if t.models[kind] or #kind > MAX_TYPE then return nil end
  local profile = t.alias[kind] or kind:lower():match("^%d+[fg]%.%d+gb[%w.+-]*$") or
    kind:lower():match("[_.-](%d+[fg]%.%d+gb[%w.+-]*)$")
  if not profile then return nil end
  local model = ""
  for name in pairs(t.models) do
    local longer = #name > #model or #name == #model and name < model
    if longer and kind:lower():find(name:lower(), 1, true) then model = name end
  end
  return profile, model
end

-- total adds up the entries of one GRES. Like slurmctld, it uses the last of several counts for the same type, and
-- ignores counts of 0. A type of GPUs that begins with a digit is invalid, as in gpu:1k, unless it is a type of static
-- MIG devices in table t.
local function total(list, name, t)
  local sum = {all = 0, types = {}, count = {}}
  for _, entry in ipairs(list) do
    if entry.name == name then
      local digit = name == "gpu" and entry.type:find("^[^%a]") and not (t and static(entry.type, t))
      if not entry.count or entry.count > MAX_COUNT or digit then
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

-- PER lists the scopes for which options can give a number of GPUs.
local PER = {"node", "job", "socket", "task"}

-- request reads the GPUs per node, job, socket and task, and the slices per node, from a job_desc. It returns nil if
-- the job requests no GPUs. Types of static MIG devices that begin with a digit are valid only if a decision table, t,
-- is given.
local function request(job, t)
  local r, found = {}, false
  for _, per in ipairs(PER) do
    local list = entries(job["tres_per_" .. per])
    local gpu, why = total(list, "gpu", t)
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
  -- With --ntasks-per-gpu and no GPU count, slurmctld derives the number of GPUs from the number of tasks.
  r.tasks_per_gpu = count(job.ntasks_per_tres)
  found = found or r.tasks_per_gpu and (r.tasks or count(job.min_nodes) and r.tasks_per_gpu or 0) >= r.tasks_per_gpu
  return found and r or nil
end

-- unreadable returns the reason to reject a request with an entry that the agents cannot parse, or nil if there is
-- none.
local function unreadable(r)
  for _, per in ipairs(PER) do
    for _, entry in ipairs(r[per].list) do
      if not readable(entry.text) then
        return "the request " .. entry.text .. " is not valid: omit the entry, or write gres=<name>:<type>:<count>"
      end
    end
  end
end

-- dynamic rewrites a tres_per_* string that requests static MIG devices or shards: it returns a request for as many
-- GPUs, and the profiles with their counts, in the order of the request. It returns nil if the string requests none of
-- these, and nil and the reason if the string cannot be rewritten.
local function dynamic(text, t)
  local list = entries(text, t)
  local gpu = total(list, "gpu", t)
  local model_of, gpus, profiles, at, n = {}, {}, {}, {}, 0
  for _, kind in ipairs(gpu and gpu.types or {}) do
    local profile, model = static(kind, t)
    if not profile and model then return nil, model end
    if profile then
      n = n + 1
      model_of[kind], gpus[model] = model, (gpus[model] or 0) + gpu.count[kind]
      at[profile] = at[profile] or #profiles + 1
      local before = profiles[at[profile]] or {count = 0}
      profiles[at[profile]] = {name = profile, count = before.count + gpu.count[kind]}
    end
  end
  if n == 0 then return nil end
  if n < #gpu.types then return nil, "the request names a MIG device or shards for only some of the GPUs" end
  local texts, written = {}, {}
  for _, entry in ipairs(list) do
    local model = entry.name == "gpu" and entry.count > 0 and model_of[entry.type]
    if not model then
      texts[#texts + 1] = entry.text
    elseif not written[model] then
      written[model] = true
      texts[#texts + 1] = entry.text:match("^(.-gres[:/])[^:=]") .. "gpu" .. (model ~= "" and ":" .. model or "") .. ":" ..
        gpus[model]
    end
  end
  return table.concat(texts, ","), profiles
end

local SEVERAL = "the request names several profiles: request the slices with --gres"

-- translate replaces requests for static MIG devices or shards in a job, or in a change to one, by requests for slices
-- with their profiles. It returns a table that contains the new tres_per_* strings and otherwise reads as the job does,
-- and the profile of the requests that are not per node. The job itself does not change. If the job must be rejected,
-- translate returns nil and the reason. A job without a script is rejected, because srun would request the devices
-- again for its step, unless the plugin has marked the request (restore).
local function translate(job, t, new, marked)
  local asked = setmetatable({}, {__index = function(_, name) return job[name] end})
  local single, found, several
  for _, per in ipairs(new and PER or {"node"}) do
    local text, profiles = dynamic(job["tres_per_" .. per], t)
    if not text and profiles then return nil, profiles end
    for _, profile in ipairs(profiles or {}) do
      several = several or found and found ~= profile.name
      found = profile.name
      if per == "node" then
        text = text .. "," .. text:match("gres[:/]") .. "mig:" .. profile.name .. ":" .. profile.count
      else
        single = profile.name
      end
    end
    if text and #text > MAX_TRES then return nil, "the request is longer than " .. MAX_TRES .. " bytes" end
    asked["tres_per_" .. per] = text
  end
  if single and several then return nil, SEVERAL end
  if new and found then
    local text = job.script   -- a local copy, because slurmctld copies the whole script at each access to job.script
    if not marked and (type(text) ~= "string" or text == "") then
      return nil, "this srun or salloc cannot request MIG devices by type, or shards: write --gpus=1 --mig=" .. found
    end
  end
  return asked, single
end

-- restore puts the type of static MIG devices that the plugin has removed from a request of srun or salloc back into
-- the job, and returns whether the plugin has removed one. kind is the argument of the plugin's mark. In an unmanaged
-- partition, the job then gets the devices that the user requested, and its step, which requests GPUs without a type,
-- gets the job's.
local function restore(job, kind)
  if not kind or not kind:find("^[%w_.+-]+$") then return false end
  for _, per in ipairs(PER) do
    local text = job["tres_per_" .. per]
    if type(text) == "string" and #text <= MAX_TRES then
      local typed = text:gsub("[^,]+", function(entry)
        local gpu, number = entry:match("^(gres[:/]gpu)([:=]?%d*)$")
        return gpu and gpu .. ":" .. kind .. number
      end)
      if typed ~= text then job["tres_per_" .. per] = typed end
    end
  end
  return true
end

-- ENVIRONMENT lists the variables in which sbatch repeats a request, and from which the job's steps take it, with the
-- prefix that their values lack.
local ENVIRONMENT = {
  SLURM_GPUS = "gres:gpu:", SLURM_GPUS_PER_NODE = "gres:gpu:", SLURM_GPUS_PER_SOCKET = "gres:gpu:",
  SLURM_GPUS_PER_TASK = "gres:gpu:", SLURM_TRES_PER_TASK = "",
}

-- adopt makes the changes of translate to a job. Steps take their requests from the environment of a new batch job, so
-- adopt rewrites the environment if batch is true. If a step repeats a type on its command line, the plugin in srun
-- removes the types in CAELUM_STATIC_TYPES.
local function adopt(job, asked, t, batch)
  local types, changed = {}, false
  for _, per in ipairs(PER) do
    local text = rawget(asked, "tres_per_" .. per)
    if text then
      changed = true
      for kind in job["tres_per_" .. per]:gmatch("gres[:/]gpu:([^,:=]+)") do types[#types + 1] = kind end
      job["tres_per_" .. per] = text
    end
  end
  local env = changed and batch and job.environment
  if not env then return end
  if #types > 0 then env.CAELUM_STATIC_TYPES = table.concat(types, ",") end
  for name, prefix in pairs(ENVIRONMENT) do
    local value = env[name]   -- slurmctld searches the whole environment at each access
    if type(value) == "string" and #value <= MAX_TRES then
      local text = dynamic(prefix .. value:gsub(",", "," .. prefix), t)
      if text then env[name] = prefix == "" and text or text:gsub(prefix, "") end
    end
  end
end

-- drop_unmanaged removes the GPUs of types that no model line names from a request, and returns whether any GPUs or
-- slices remain. Such GPUs have no slices. A table without model lines does not say which GPUs have slices. Types of
-- static MIG devices remain only if keep_static is true.
local function drop_unmanaged(r, t, keep_static)
  local left, dropped = r.node.mig.all > 0, false
  for _, per in ipairs(PER) do
    local gpu, types = r[per].gpu, {}
    for _, kind in ipairs(gpu.types) do
      local stays = kind == "" or t.models[kind]
      if not stays and static(kind, t) then stays = keep_static elseif not next(t.models) then stays = true end
      if stays then
        types[#types + 1] = kind
      else
        gpu.all, gpu.count[kind], gpu.dropped, dropped = gpu.all - gpu.count[kind], nil, true, true
      end
    end
    gpu.types = types
    left = left or #types > 0
  end
  return left or not dropped
end

---------------------------------------------------------------- catalogue nodes

-- partitions returns the names in a list of partitions, or the default partition if it is empty. It does not read a list
-- that is longer than MAX_NAMES, and then returns no names.
local function partitions(names, parts)
  local all = {}
  if type(names) == "string" and #names > MAX_NAMES then return all end
  if type(names) ~= "string" or names == "" then
    for name, part in pairs(parts) do
      if part.flag_default == 1 then names = name end
    end
  end
  for name in tostring(names):gmatch("[^,]+") do all[#all + 1] = name end
  return all
end

-- catalogue returns the numbers that hide the catalogue nodes from a job in the given partitions, or nil if these have
-- none: the largest number of real nodes (nodes), of catalogue nodes (most) and of all CPUs (cpus) of a partition, and
-- the lists of catalogue nodes (lists).
local function catalogue(names, parts)
  local out, seen = {nodes = 0, most = 0, cpus = 0, lists = {}}, {}
  for _, name in ipairs(partitions(names, parts)) do
    -- A user may repeat a name thousands of times.
    local part, n = not seen[name] and parts[name] or {}, 0
    seen[name] = true
    for list in tostring(part.nodes):gmatch("mig%-catalog[%d,%[%]-]*[%d%]]") do
      out.lists[#out.lists + 1] = list
      for first, last in list:gmatch("(%d+)%-?(%d*)") do n = n + math.max((tonumber(last) or first) - first, 0) + 1 end
    end
    out.nodes = math.max(out.nodes, (tonumber(part.total_nodes) or 0) - n)
    out.most, out.cpus = math.max(out.most, n), math.max(out.cpus, tonumber(part.total_cpus) or 0)
  end
  return out.most > 0 and out or nil
end

-- beyond changes a job that needs more nodes or CPUs than any of its partitions really has, so that it needs more than
-- the partition has with the catalogue nodes. As without them, EnforcePartLimits then decides whether slurmctld rejects
-- the job, or lets it wait without blocking others. It returns whether the job is such a job. If shares is true, or if
-- the job would have fewer tasks than nodes, the number of nodes does not change, because slurmctld rejects fewer GPUs
-- per job or task than nodes, and since 26.05 also fewer tasks.
local function beyond(job, hidden, max_cpus, shares)
  if not hidden then return false end
  local nodes, cpus, most = count(job.min_nodes), count(job.min_cpus), count(job.max_nodes)
  local many = nodes and nodes > hidden.nodes
  if many and not shares and (count(job.num_tasks) or math.huge) >= nodes + hidden.most then
    job.min_nodes = nodes + hidden.most
    if most then job.max_nodes = math.max(most, nodes + hidden.most) end
  elseif many or cpus and max_cpus and cpus > hidden.nodes * max_cpus then
    job.min_cpus = hidden.cpus + 1
  else
    return false
  end
  return true
end

-- exclude adds the catalogue nodes to the nodes that a job without slices excludes.
local function exclude(job, hidden)
  local own = type(job.exc_nodes) == "string" and job.exc_nodes ~= "" and job.exc_nodes .. "," or ""
  job.exc_nodes = own .. table.concat(hidden.lists, ",")
end

-- hide hides the catalogue nodes from a new job without slices.
local function hide(job, parts)
  local hidden = catalogue(job.partition, parts)
  if not hidden then return slurm.SUCCESS end
  if (count(job.min_cpus) or 0) > hidden.nodes then refresh() end   -- for max_cpus
  if not beyond(job, hidden, decisions and decisions.max_cpus) then exclude(job, hidden) end
  return slurm.SUCCESS
end

---------------------------------------------------------------- the distribution over nodes

-- scaled multiplies each count in a request by factor / divisor. If a result is not a whole number, scaled rounds it up
-- if the argument up is true, and otherwise returns nil.
local function scaled(gpu, factor, divisor, up)
  local out = {all = 0, types = gpu.types, count = {}}
  for kind, n in pairs(gpu.count) do
    local exact = n * factor / divisor
    if exact % 1 ~= 0 and not up then return nil end
    out.count[kind] = math.ceil(exact)
    out.all = out.all + out.count[kind]
  end
  return out
end

-- uneven returns the reason to reject a request for a number of GPUs that cannot be divided evenly.
local function uneven(what, nodes)
  return what .. " cannot be divided evenly among " .. nodes .. " nodes: specify the GPUs with --gpus-per-node"
end

-- slots returns the number of GPU slots on each of the job's nodes. slurmctld would distribute --gpus=4 over two nodes
-- that have two free slots each (22.05), but it counts gres/mig per node and does not distribute slices over nodes. For
-- this reason, requests without a count of GPUs per node get one. If the request counts GPUs per job or task, the sum
-- field of the result is their total. If the GPUs cannot be divided evenly among the nodes, the result is the largest
-- number on a node, and the each field the request's GPUs per task.
local function slots(r, job)
  local sum, what
  if r.node.gpu.all > 0 or r.node.gpu.dropped and r.node.mig.all > 0 then return r.node.gpu end
  if r.job.gpu.all > 0 then
    sum, what = r.job.gpu, counted(r.job.gpu.all, "GPU")
    if r.task.gpu.all > 0 and sum.all % r.task.gpu.all > 0 then
      return nil, "--gpus must be a multiple of --gpus-per-task"
    end
  elseif r.socket.gpu.all > 0 then
    local sockets = count(job.sockets_per_node)
    if not sockets then return nil, "--gpus-per-socket requires --sockets-per-node" end
    return scaled(r.socket.gpu, sockets, 1)
  elseif r.task.gpu.all > 0 then
    local tasks = r.tasks_per_node and r.tasks_per_node * r.nodes or r.tasks or r.nodes
    sum, what = scaled(r.task.gpu, tasks, 1), "the GPUs of " .. counted(tasks, "task")
  elseif r.node.mig.all > 0 then
    return {all = r.node.mig.all, types = {""}, count = {[""] = r.node.mig.all}}
  else
    local gpus = math.floor((r.tasks or r.nodes * r.tasks_per_gpu) / r.tasks_per_gpu)
    sum, what = {all = gpus, types = {""}, count = {[""] = gpus}}, counted(gpus, "GPU")
  end
  local gpus, each = scaled(sum, 1, r.nodes), r.task.gpu
  -- Tasks with GPUs of several models are not distributed, because the node with the most tasks may lack a model.
  if each.count[sum.types[1]] ~= each.all then each = nil end
  if not gpus and r.task.gpu.all > 0 then
    if not each then return nil, uneven(what, r.nodes) end
    gpus = scaled(each, math.ceil(sum.all / each.all / r.nodes), 1)
  end
  gpus = gpus or scaled(sum, 1, r.nodes, true)
  gpus.sum, gpus.what, gpus.each = sum, what, each
  return gpus
end

-- cpus_per_gpu returns the number of CPUs per GPU that a job requests, and the text before "gpu" and after it in
-- cpus_per_tres. It returns nil if the job requests none.
local function cpus_per_gpu(job)
  local prefix, rest = tostring(job.cpus_per_tres):match("^(gres[:/])gpu([:=]%d+)$")
  if prefix and #rest <= 6 then return count(tonumber(rest:sub(2))), prefix, rest end
end

-- claims returns the compute slices and the memory, in GB, that a plain profile's name states, and nil for any other
-- name.
local function claims(profile)
  local compute, gb = profile:match("^([1-9]%d?)g%.([1-9]%d*)gb$")
  if compute and #gb <= 4 then return tonumber(compute), tonumber(gb) end
end

-- fraction returns the number of units in the name of a fraction of a GPU without MIG, and nil for any other profile.
local function fraction(profile)
  local units = profile:match("^([1-9]%d*)f%.[1-9]%d*gb$")
  return units and tonumber(units)
end

-- exclusive reports whether a job gets whole nodes, because of its own request or of its partition.
local function exclusive(job, parts)
  if job.shared == 0 then return true end
  for _, name in ipairs(partitions(job.partition, parts)) do
    if parts[name] and parts[name].max_share == 0 then return true end
  end
end

-- whole returns the compute slices and the memory of the largest profile of the GPU models that have a profile.
local function whole(t, profile)
  local compute, gb = 0, 0
  for _, of in pairs(t.models) do
    for _, name in ipairs(contains(of, profile) and of or {}) do
      local c, m = claims(name)
      compute, gb = math.max(compute, c or 0), math.max(gb, m or 0)
    end
  end
  return compute, gb
end

-- share returns the numbers of CPUs and of MiB per GPU for a new job that requests none, or nil if Slurm's own default
-- applies: the slice's share of those that come with a whole GPU according to the per_gpu lines. A fraction's share is
-- that of the memory, because it has the whole GPU's compute. A job with whole nodes gets none, because slurmctld 22.05
-- would multiply them by the number of slots of a node.
local function share(t, job, profile, parts)
  local names = partitions(job.partition, parts)
  if #names == 0 or exclusive(job, parts) then return {} end
  local cpus, mib = MAX_COUNT, 1e9
  for _, name in ipairs(names) do
    local own = t.per_gpu[name] or {cpus = 0, mib = 0}
    cpus, mib = math.min(cpus, own.cpus), math.min(mib, own.mib)
  end
  local compute, gb = claims(profile)
  local all_compute, all_gb = whole(t, profile)
  local units, all_units = fraction(profile), t.units[profile] or 0
  if units and all_units >= units then cpus, mib = cpus * units / all_units, mib * units / all_units end
  if compute and all_compute > 0 then cpus, mib = cpus * compute / all_compute, mib * gb / all_gb end
  local function given(value) return value ~= nil and value ~= "" end
  if given(job.cpus_per_tres) or count(job.cpus_per_task) then cpus = 0 end
  if given(job.mem_per_tres) or job.min_mem_per_node or job.min_mem_per_cpu then mib = 0 end
  local function rounded(value) return value > 0 and math.max(1, math.floor(value)) or nil end
  return {cpus = rounded(cpus), mib = rounded(mib)}
end

-- cpus_of_tasks returns the CPUs that a job's tasks request, or 0 if they request none.
local function cpus_of_tasks(job, r) return (r.tasks or 1) * (count(job.cpus_per_task) or 0) end

-- place decides on how many nodes a new job runs and how many GPUs it has on each of them, so that no node needs more
-- slices of a profile, or more CPUs, than the nodes have. Like slurmctld, it uses as few nodes as possible. It returns
-- the slots. If the GPUs of the job cannot be divided evenly among the nodes, the slots are rounded up, because
-- slurmctld would distribute the GPUs without regard to the slices. If those of its tasks cannot, the result has the
-- largest number of GPUs on a node, and per_task is true: the job keeps its GPUs per task and limits its tasks on a
-- node. The slices stay per node, because slurmctld does not count a GRES without files that a job requests per task
-- (22.05.8). If place changes the numbers of nodes and tasks, these are in the fields min_nodes, max_nodes and
-- ntasks_per_node. It returns nil and the reason if no nodes can run the job.
local function place(t, r, gpus, job, profile)
  local most, all = math.min(t.most[profile] or MAX_COUNT, MAX_COUNT), gpus.sum and gpus.sum.all
  local cpus = cpus_per_gpu(job) or r.share.cpus
  if cpus and t.max_cpus then most = math.min(most, math.floor(t.max_cpus / cpus)) end
  if not all then
    if gpus.all > most then return nil, NO_SUCH_NODE end
    return gpus
  end
  local least = math.max(r.nodes, t.max_cpus and math.ceil(cpus_of_tasks(job, r) / t.max_cpus) or 1)
  -- slurmctld rejects a job on more nodes than tasks.
  local most_nodes = r.tasks or MAX_COUNT
  if not r.tasks and r.tasks_per_node then
    -- Up to 23.02, such a job has as many tasks as one of its nodes. Later, each node has tasks_per_node tasks, as it
    -- has on every release if the job counts GPUs per task; then it needs the GPUs of all of them.
    local later = tostring(job.tres_per_job):sub(1, 5) == "gres/"
    most_nodes = r.task.gpu.all > 0 and r.nodes or later and MAX_COUNT or r.tasks_per_node * r.nodes
  end
  local limit = math.min(count(job.max_nodes) or MAX_COUNT, most_nodes, r.hidden and r.hidden.nodes or MAX_COUNT)
  local unit = math.max(r.task.gpu.all, 1)   -- the GPUs of a task are on one node
  if most < unit then return nil, NO_SUCH_NODE end
  local nodes = math.max(least, math.ceil(all / (most - most % unit)))
  if nodes > r.nodes and nodes > limit then return nil, NO_SUCH_NODE end
  local out = scaled(gpus.sum, 1, nodes)
  if out and out.all % unit > 0 then out = nil end
  if not out and r.task.gpu.all > 0 then
    if not gpus.each then return nil, uneven(gpus.what, nodes) end
    local tasks = math.ceil(all / unit / nodes)
    out = scaled(gpus.each, tasks, 1)
    out.per_task = true
    -- With a larger limit, slurmctld may put more tasks on a node than the node has slices for.
    if not r.tasks_per_node or r.tasks_per_node > tasks then out.ntasks_per_node = tasks end
  elseif not out then
    out = scaled(gpus.sum, 1, nodes, true)
    out.rounded = "the job gets " .. counted(out.all, "GPU") .. " on each of " .. nodes .. " nodes, because " ..
      gpus.what .. " cannot be divided evenly among them"
    -- On more nodes, the job would get more GPUs.
    local most_asked = count(job.max_nodes)
    if not most_asked or most_asked > nodes then out.max_nodes = nodes end
  end
  if out.all > most then return nil, NO_SUCH_NODE end
  if nodes > r.nodes then r.nodes, out.min_nodes = nodes, nodes end
  return out
end

---------------------------------------------------------------- the job's key and script fingerprint

-- The hash consists of two polynomials over the bytes, modulo the largest prime below 2^32. Their bases are below 2^20,
-- so every product is below 2^53 and therefore exact in Lua 5.1's doubles. KEY.md specifies the hash, and
-- internal/core/predict implements it in Go.
local PRIME, BASE_A, BASE_B = 4294967291, 1000003, 786433

-- multiply returns x * y modulo PRIME. It splits y into two halves, because a double cannot represent x * y exactly.
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

-- extend adds the bytes of a string to a hash.
local function extend(a, b, text)
  local byte = string.byte
  for i = 1, #text do
    local c = byte(text, i)
    a = (a * BASE_A + c) % PRIME
    b = (b * BASE_B + c) % PRIME
  end
  return a, b
end

-- digest computes what a string contributes to a hash, which does not depend on the preceding input. The job key and
-- the script fingerprint share the script's digest, because Lua 5.1 needs a quarter of a millisecond for each pass over
-- a 4 kB script.
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

-- stated returns the number that an argument states, as typed: the whole argument, the part after one letter as in
-- -b64, or the part after the last equals sign. For any other argument, it returns nil.
local function stated(argument)
  -- 20 bytes hold an equals sign and the longest number.
  local text = argument:sub(-20):match("=([^=]*)$") or #argument <= 21 and (argument:match("^%-%a(.*)$") or argument)
  return text and decimal_number(text) and text
end

-- arguments returns what the arguments of a job's script contribute to the input of the job key, and their numbers as
-- in the caelum:args tag, or nil if they have none.
local function arguments(job)
  local n = job.argc   -- counts the script, too
  if type(n) ~= "number" or n < 2 or n > MAX_ARGS + 1 then return "" end
  local argv = job.argv   -- a local copy, because slurmctld copies all arguments at each access to job.argv
  if type(argv) ~= "table" then return "" end
  local fields, numbers = {}, {}
  for i = 1, n - 1 do
    local argument = type(argv[i]) == "string" and argv[i] or ""
    local text = #numbers < MAX_NUMBERS and stated(argument)
    if text then
      numbers[#numbers + 1] = text
      argument = argument:sub(1, math.min(#argument - #text, 256)) .. "#"
    end
    fields[i] = field(argument, 256)
  end
  return field(table.concat(fields), 1024), #numbers > 0 and table.concat(numbers, ",") or nil
end

-- key_and_fingerprint returns the job key and, unless the job has no script, the script fingerprint and the numbers of
-- its arguments.
local function key_and_fingerprint(job, r, gpus)
  local text = job.script   -- a local copy, because slurmctld copies the whole script at each access to job.script
  local has_script = type(text) == "string" and text ~= ""
  local script = digest(field(text, 4096))
  local size = decimal(gpus.all) .. decimal(r.nodes) .. decimal(r.tasks)
  local who = decimal(user_id(job)) .. field(job.account or job.default_account, 256):lower() .. field(job.name, 256)
  local args, numbers = "", nil
  if has_script then args, numbers = arguments(job) end
  local key = hash(field("caelum-key-1", 20) .. who, script, size .. decimal(count(job.cpus_per_task)) .. args)
  if not has_script then return key, nil end
  return key, hash(field("caelum-work-1", 20), script, size), numbers
end

---------------------------------------------------------------- the decision

-- OPTION lists the prefixes that the names of SPANK options have in spank_job_env. sbatch, srun and salloc use the same
-- names (22.05). A job inherits the arguments of the job that submitted it.
local OPTION = {"_SLURM_SPANK_OPTION_caelum_", "SLURM_SPANK__SLURM_SPANK_OPTION_caelum_"}

-- options returns the arguments of --mig, --mig-mem and --mig-grow in the mig, mig_mem and mig_grow fields. The plugin
-- sets the test_only field for --test-only, the quiet field for --parsable, and the static field to the type that it
-- has removed from a request.
-- --mig and --mig-mem choose the profile for a GPU request, and have no effect without one. If spank_job_env has more
-- than MAX_ENV entries, options returns nil and the reason, because a user can send a million entries, all of which
-- slurmctld copies on each access to job.spank_job_env.
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

-- mebibytes parses a memory size in Slurm's format, and returns MiB. A size without a suffix (K, M, G or T) is in MiB.
-- 8G, 8GB and 8GiB are equal.
local function mebibytes(size)
  local digits, unit, bytes = size:match("^(%d+)([kKmMgGtT]?)(i?I?[bB]?)$")
  if not digits or #digits > 9 or tonumber(digits) == 0 then return nil end
  bytes = bytes:lower()
  if bytes ~= "" and (unit == "" or bytes ~= "b" and bytes ~= "ib") then return nil end
  return math.ceil(tonumber(digits) * UNITS[unit:lower()])
end

-- by_number returns the profile that an args line, which may be nil, states for the numbers in the caelum:args tag. It
-- returns nil if they include no number at the line's position.
local function by_number(line, numbers)
  local at = 0
  for text in (line and numbers or ""):gmatch("[^,]+") do
    at = at + 1
    local number = at == line[1] and decimal_number(text)
    if number then
      for i = 2, #line - 1, 2 do
        if number <= line[i] then return line[i + 1] end
      end
      return line[#line]
    end
  end
end

-- matching returns the first word of the line that applies to a job, and the line's second word. It looks for the lines
-- of the user's job key, the user's script fingerprint, the script fingerprint, the user's job name, and the user, in
-- this order. If there is none, or if a job without a script has no key line, it returns nil.
local function matching(t, uid, key, fingerprint, name)
  local function of(hex) return string.format("%d:%s", uid, hex) end
  if t.key[of(key)] then return "key", of(key) end
  if not fingerprint then return end
  if t.user[of(fingerprint)] then return "user", of(fingerprint) end
  if t.site[fingerprint] then return "site", fingerprint end
  if next(t.name) then
    local a, b = extend(0, 0, field("caelum-name-1", 20) .. field(name, 256))
    local subject = of(string.format("%08x%08x", a, b))
    if t.name[subject] then return "name", subject end
  end
  local owner = string.format("%d", uid)
  if t.owner[owner] then return "owner", owner end
end

-- learned returns the contents of the line that applies to a job as profile, seconds, high and busy, and its first word
-- as kind. If there is none, these fields are nil. The by_number field has the profile from the args line of the job
-- key. It takes precedence over profile, on which the job takes seconds and high.
local function learned(t, uid, key, fingerprint, numbers, name)
  local steps = fingerprint and by_number(t.args[string.format("%d:%s", uid, key)], numbers)
  local kind, subject = matching(t, uid, key, fingerprint, name)
  if not kind then return {by_number = steps} end
  return {
    profile = t[kind][subject], seconds = t.seconds[kind][subject], high = t.high[kind][subject],
    busy = t.busy[kind][subject], kind = kind, by_number = steps,
  }
end

local function known(profile, t)
  if t.profiles[profile] then return true end
  return nil, "the MIG profile " .. profile:sub(1, 64):gsub("[^%w.+-]", "?") .. " does not exist; the profiles are " ..
    table.concat(t.known, ", ")
end

-- with_memory returns the profile with the least memory that is at least mib MiB. Of several profiles with the same
-- memory, it returns the first one in the table. It returns the profile of full GPUs only if no other has enough memory,
-- and a fraction only if `of`, the profiles of the GPU model that the request names, has it or is nil.
local function with_memory(t, mib, memory, of)
  local best
  local all = {}
  for _, profile in ipairs(t.known) do
    local has = t.profiles[profile]
    if has > 0 then all[#all + 1] = string.format("%s %d", profile, has) end
    local other = of and fraction(profile) and not contains(of, profile)
    if has >= mib and not other and (not best or best == "full" or profile ~= "full" and has < t.profiles[best]) then
      best = profile
    end
  end
  if best then return best end
  if #all == 0 then
    return nil, "--mig-mem cannot be used: " .. TABLE ..
      " does not list the memory of profiles; choose a profile with --mig"
  end
  return nil, "--mig-mem=" .. memory .. ": no MIG profile has enough memory; the profiles have, in MiB: " ..
    table.concat(all, ", ")
end

-- size returns the profile of the slices for a request that names none. It takes the profile from the first of these
-- sources that has one: --mig, --mig-mem, the profile for several GPUs, earlier runs, and the default line. If Caelum
-- chose the profile, it also returns the source for the caelum:by tag (off, memory, full, the first word of a learned
-- line, or default), and a warning for the user. If no profile satisfies the options, it returns nil and the reason. run
-- is the result of learned, and full that of full_of.
local function size(t, given, run, full, gpus)
  local mig, memory = given.mig, given.mig_mem
  local predicted, by = run.by_number or run.profile, run.by_number and "args" or run.kind or "default"
  if mig and not t.profiles[mig] and t.profiles[mig:lower()] then mig = mig:lower() end
  if mig == "auto" then mig = nil end
  local named = mig == "off" and (full or t.whole) or mig
  if gpus.all > 1 and full then predicted, by = full, "full" end
  if mig then by = mig == "off" and mig end
  if named then
    local ok, why = known(named, t)
    if not ok then return nil, "--mig: " .. why end
  end
  if not memory then return named or predicted or t.default, by end
  local mib = mebibytes(memory)
  if not mib then
    return nil, "--mig-mem: couldn't read '" .. memory:sub(1, 40) .. "': specify the memory of a slice, as in 8G"
  end
  if named then
    if t.profiles[named] >= mib then return named, by end
    local memory_of = t.profiles[named] > 0 and string.format("%s has %d MiB", named, t.profiles[named]) or
      "the memory of " .. named .. " is unknown"
    return nil, string.format("--mig=%s and --mig-mem=%s contradict each other, because %s: use only one option, or " ..
      "--mig=auto", mig, memory, memory_of)
  end
  local fits, why = with_memory(t, mib, memory, #gpus.types == 1 and t.models[gpus.types[1]] or nil)
  if not fits then return nil, why end
  local warning = predicted and t.profiles[fits] < t.profiles[predicted] and
    "--mig-mem=" .. memory .. " selects " .. fits .. ", but earlier runs indicate " .. predicted
  return fits, "memory", warning or nil
end

-- on_model converts a profile that Caelum chose to one of the GPU model that the request names. If that model has the
-- profile, it is returned unchanged. Otherwise, on_model returns the first of the model's listed profiles whose name
-- states at least as many compute slices and at least as much memory, or the last one if none of them is large enough.
-- A fraction has the whole GPU's compute, so it only needs as much memory, but never stands for the profile of a whole
-- GPU.
local function on_model(t, kinds, profile)
  local of = #kinds == 1 and t.models[kinds[1]]
  if not of then return profile end
  local compute, gb = profile:match("^(%d+)g%.(%d+)gb$")
  local mib = profile ~= t.whole and t.profiles[profile] or 0
  local enough
  for _, name in ipairs(of) do
    if name == profile then return profile end
    if not enough and compute and mib > 0 and fraction(name) and t.profiles[name] >= mib then enough = name end
    local c, m = name:match("^(%d+)g%.(%d+)gb$")
    if compute and c and not enough and tonumber(c) >= tonumber(compute) and tonumber(m) >= tonumber(gb) then
      enough = name
    end
  end
  return enough or of[#of]
end

-- full_of returns the profile for several GPUs from the partition lines of a job's managed partitions. It returns nil
-- if one of them has no such profile, because the job may start in any of them, or if the request names a GPU model
-- that lacks the profile.
local function full_of(t, kinds, names, parts)
  local full
  for _, name in ipairs(partitions(names, parts)) do
    local own = t.partitions[name]
    if own == true then return nil end
    full = own or full
  end
  local of = #kinds == 1 and t.models[kinds[1]]
  if not full or of and not contains(of, full) then return nil end
  return full
end

-- grow_mode returns a job's growth mode, from --mig-grow or from the table. If the job names several managed
-- partitions, the smallest of their modes applies, because it may start in any of them. A job without a script does not
-- grow, because Slurm requeues only batch jobs. If --mig-grow is invalid, grow_mode returns nil and the reason.
local function grow_mode(t, job, given, fingerprint, parts)
  local mode = given.mig_grow
  if mode and not GROW[mode] then
    return nil, "--mig-grow: couldn't read '" .. mode:sub(1, 40) .. "': specify off, oom or forecast"
  end
  if not fingerprint then return "off" end
  if mode then return mode end
  for _, name in ipairs(partitions(job.partition, parts)) do
    local own = t.partitions[name] and (t.grow_in[name] or t.grow or "off")
    if own and (not mode or GROW[own] < GROW[mode]) then mode = own end
  end
  return mode or "off"
end

-- time_limit returns a job's time limit in seconds, or nil if it has none. minutes is the limit that the job names. If
-- it names none, slurmctld uses the partition's default limit or, if there is none, its maximum limit. For a list of
-- partitions, time_limit returns the shortest limit of the managed ones, because the job may start in any of them.
local function time_limit(t, minutes, names, parts)
  local function limits(value) return type(value) == "number" and value >= 1 and value < slurm.NO_VAL end
  if type(minutes) == "number" and minutes ~= slurm.NO_VAL then return limits(minutes) and 60 * minutes or nil end
  local least
  for _, name in ipairs(partitions(names, parts)) do
    local part = t.partitions[name] and parts[name] or {}
    local most = part.default_time
    if most == nil or most == slurm.NO_VAL then most = part.max_time end
    if limits(most) and (not least or most < least) then least = most end
  end
  return least and 60 * least
end

-- alternatives returns the profiles that a job may request instead of a given one. If the request names a GPU model,
-- these are the model's profiles. Otherwise, they are the profiles of all GPU models that have the given profile, or
-- all profiles if no model line names it.
local function alternatives(t, kinds, profile)
  if #kinds == 1 and t.models[kinds[1]] then return t.models[kinds[1]] end
  local all = {}
  for _, of in pairs(t.models) do
    for _, name in ipairs(contains(of, profile) and of or {}) do all[#all + 1] = name end
  end
  return #all > 0 and all or t.known
end

-- UNKNOWN_BUSY is the busy share, in percent, assumed for a job whose busy share is unknown.
local UNKNOWN_BUSY = 80

-- resources returns the sum of the numbers of compute slices and memory slices of an instance with the given number of
-- compute slices (resources in internal/core/predict/compute.go).
local function resources(compute)
  if compute == 3 or compute == 7 then return 2 * compute + 1 end
  return 2 * compute
end

-- in_time returns the profile on which a job ends within its time limit in seconds. floor is the profile that the job
-- would request without a limit, and run is the job's line in the decision table. If the returned profile is larger
-- than floor, in_time also returns the job's expected run time on it and the 90% quantile. InTime in
-- internal/core/predict/limit.go makes the same choice, and its comment gives the rules. For profiles with up
-- to 7 compute slices, all products are whole numbers below 2^53, and therefore exact.
local function in_time(t, kinds, floor, run, limit)
  local compute, gb = claims(floor)
  local own = run.profile and claims(run.profile)
  if not (compute and own and run.high and limit) then return floor end
  local busy = run.busy or UNKNOWN_BUSY
  local function work(s) return (100 - busy) * s + 2 * busy end
  -- factors returns two numbers whose quotient is the run time on c compute slices divided by that on run.profile.
  local function factors(c)
    local on, own_on = resources(c), resources(own)
    return work(on) * own_on, work(own_on) * on
  end
  local function within(c, seconds)
    local to, from = factors(c)
    return seconds * to <= limit * from
  end
  if within(compute, run.high) then return floor end
  local best, fastest   -- each with its compute slices and memory
  for _, name in ipairs(alternatives(t, kinds, floor)) do
    local c, m = claims(name)
    if c and c > compute and m >= gb then
      if within(c, run.high) and (not best or c < best.c or c == best.c and m < best.m) then
        best = {name = name, c = c, m = m}
      end
      if not fastest or c > fastest.c or c == fastest.c and m < fastest.m then
        fastest = {name = name, c = c, m = m}
      end
    end
  end
  if not best and fastest and within(fastest.c, run.seconds) then best = fastest end
  if not best then return floor end
  local to, from = factors(best.c)
  local function on_best(seconds) return math.ceil(seconds * to / from) end
  return best.name, on_best(run.seconds), on_best(run.high)
end

-- lacks returns the reason to reject a request's numbers of slices, or nil if they are acceptable.
local function lacks(r, gpus, t)
  local mig, typed = r.node.mig, false
  for _, profile in ipairs(mig.types) do
    if profile ~= "" then
      typed = true
      local ok, why = known(profile, t)
      if not ok then return why end
    end
  end
  if typed and mig.count[""] then
    return "the request names a profile for only some slices: name a profile for every slice or for no slice"
  end
  if mig.all > 0 and mig.all ~= gpus.all then
    return "the request names " .. counted(mig.all, "slice") .. " and " .. counted(gpus.all, "GPU") ..
      " per node: the numbers must be equal"
  end
end

-- choose returns the profile of a request that names none and, if Caelum chose it, the choice: the profile, its source
-- (by), the warning for the user and, if the time limit requires a larger profile, the smaller one (instead_of) and the
-- run time in seconds. If there is no such profile, choose returns nil and the reason.
local function choose(gpus, t, run, limit, full)
  if not run.options then return nil, run.too_many end
  local profile, by, warning = size(t, run.options, run, full, gpus)
  if not profile then return nil, by end
  if not by then
    -- slurmctld could not start the job on any node, but its message would not say why.
    local kind = #gpus.types == 1 and gpus.types[1]
    local of = kind and t.models[kind]
    if not of or contains(of, profile) then return profile end
    return nil, "--mig: GPUs of type " .. kind .. " do not have the profile " .. profile .. "; their profiles are " ..
      table.concat(of, ", ")
  end
  local floor = on_model(t, gpus.types, profile)
  if gpus.all > 1 and fraction(floor) then floor, by, warning = t.profiles.full and "full" or t.whole, "full", nil end
  local choice = {warning = warning, by = by}
  choice.profile, choice.seconds, choice.high = in_time(t, gpus.types, floor, run, limit)
  if choice.profile ~= floor then choice.instead_of = floor end
  return choice.profile, choice
end

-- Two fractions of a GPU would be the same CUDA device, so a job gets at most one fraction on each node.
local ONE_FRACTION = "a job can have only one fraction of a GPU on each node: request one GPU per node, or whole GPUs " ..
  "with --mig=off"

-- resolve returns the changes to a request: kept, the entries of tres_per_node to keep; added, the entries to add to it
-- (without prefix); the slots with the fields of place; and the results of share. It also returns the result of choose.
-- If the request is rejected, it returns nil and the reason, which is a number for one of slurmctld's errors. run holds
-- the results of learned and options. The options are ignored for typed slices, because the job may have inherited them
-- from another job. full is the result of full_of. new is true for a new job.
local function resolve(r, gpus, t, job, run, limit, full, new)
  local why = lacks(r, gpus, t)
  if why then return nil, why end
  local mig, profile, choice = r.node.mig, r.static, nil
  local typed = mig.all > 0 and not mig.count[""]
  if typed then
    if profile and mig.count[profile] ~= mig.all then return nil, SEVERAL end
    for name, n in pairs(mig.count) do
      if new and t.most[name] and n > t.most[name] then return nil, NO_SUCH_NODE end
    end
  elseif profile then
    local ok, unknown = known(profile, t)
    if not ok then return nil, unknown end
  else
    profile, choice = choose(gpus, t, run, limit, full)
    if not profile then return nil, choice end
  end
  local parts = profile and fraction(profile)
  for _, name in ipairs(typed and mig.types or {}) do parts = parts or fraction(name) end
  if parts and gpus.all > 1 then return nil, ONE_FRACTION end
  r.share = new and share(t, job, profile or mig.types[1], r.parts) or {}
  if mig.all > 0 then
    -- The request counts the slices of each node, so all nodes have the same number.
    if gpus.sum and gpus.all * r.nodes ~= gpus.sum.all then return nil, uneven(gpus.what, r.nodes) end
    if new and not typed and mig.all > (t.most[profile] or MAX_COUNT) then return nil, NO_SUCH_NODE end
  elseif new then
    local unfit
    gpus, unfit = place(t, r, gpus, job, profile)
    if not gpus then return nil, unfit end
  end
  local changes = {kept = {}, added = {}, slots = gpus, share = r.share}
  for _, entry in ipairs(r.node.list) do
    if not (entry.name == "mig" and entry.type == "") then changes.kept[#changes.kept + 1] = entry.text end
  end
  for _, kind in ipairs(r.node.gpu.all == 0 and gpus.types or {}) do
    local entry = "gpu:" .. (kind ~= "" and kind .. ":" or "")
    if not gpus.per_task then changes.added[#changes.added + 1] = entry .. gpus.count[kind] end
  end
  if not typed then changes.added[#changes.added + 1] = "mig:" .. profile .. ":" .. gpus.all end
  return changes, choice
end

-- write makes the changes of resolve to a job. The added entries get the prefix of the tres_per_* strings in `from`,
-- which slurmctld wrote with its release's prefix. If none of them has a prefix, write sets the "gres" field instead,
-- upon which slurmctld sets tres_per_node with the right prefix.
local function write(job, from, changes)
  local kept, added = changes.kept, changes.added
  -- Slurm removes the CPUs that one of the GRES does not need (from 24.05: _foreach_gres_filter_sock_core), so the
  -- slices must need as many as the GPUs.
  local cpus, gres, number = cpus_per_gpu(from)
  if cpus then job.cpus_per_tres = gres .. "gpu" .. number .. "," .. gres .. "mig" .. number end
  for _, name in ipairs({"min_nodes", "max_nodes", "ntasks_per_node"}) do
    if changes.slots[name] then job[name] = changes.slots[name] end
  end
  local prefix
  for _, per in ipairs(PER) do
    prefix = prefix or tostring(from["tres_per_" .. per]):sub(1, MAX_TRES):match("gres[:/]")
  end
  cpus = changes.share.cpus
  if prefix and cpus then job.cpus_per_tres = prefix .. "gpu:" .. cpus .. "," .. prefix .. "mig:" .. cpus end
  if prefix and changes.share.mib then job.mem_per_tres = prefix .. "gpu:" .. changes.share.mib end
  if #added == 0 then return end
  if not prefix then
    job.gres = table.concat(added, ",")
    -- Entries in kept without a prefix are invalid. They stay in the request, so that slurmctld rejects it.
    if #kept > 0 then job.tres_per_node = table.concat(kept, ",") .. "," .. job.tres_per_node end
    return
  end
  for _, entry in ipairs(added) do kept[#kept + 1] = prefix .. entry end
  job.tres_per_node = table.concat(kept, ",")
  if changes.slots.rounded then job.tres_per_job = "" end
end

-- managed reports whether at least one partition in a list is managed. Lists longer than MAX_NAMES count as managed.
local function managed(names, parts, t)
  if type(names) == "string" and #names > MAX_NAMES then return true end
  for _, name in ipairs(partitions(names, parts)) do
    if t.partitions[name] then return true end
  end
  return false
end

-- must_hold reports whether the script must submit the job held. If the profile's count is 0 on all nodes that the job
-- may use, slurmctld rejects the job unless it is held. This can happen if the job names nodes, or if it needs more
-- nodes than the catalogue has. An agent releases the held job once it has offered the slice.
local function must_hold(job, r, t)
  local function set(value) return type(value) == "string" and value ~= "" end
  return set(job.req_nodes) or set(job.exc_nodes) or set(job.reservation) or r.nodes > t.max_nodes
end

-- inform shows a line to the user. In 22.05, sbatch, srun and salloc show it even if the script accepts the job, but
-- scontrol does not show it for an accepted change. The line is passed as an argument to the format "%s", because it
-- may contain user input.
local function inform(text) slurm.log_user("%s", "caelum: " .. (text:gsub("[^\32-\126]", "?"))) end

-- refuse rejects a submission or a change, and shows the user the reason. For a number, Slurm shows the text of its
-- error. On 22.05, the reason for rejecting a change appears only in slurmctld's log.
local function refuse(why)
  if type(why) == "number" then return why end
  inform(why)
  return slurm.ERROR
end

local function table_or_reason()
  refresh()
  if decisions then return decisions end
  return nil, "requests for GPUs are refused until slurmctld can read " .. TABLE .. "; please tell your administrator"
end

-- notify writes to the trigger file if it exists. The file is on a tmpfs, so notify never blocks.
local function notify()
  local file = io.open(TRIGGER, "r+")
  if not file then return end
  file:write(".")
  file:close()
end

local function typed(r)
  return r.node.mig.all > 0 and r.node.mig.all == r.node.gpu.all and not r.node.mig.count[""]
end

-- lacks_slots returns the reason to reject a request in an unmanaged partition, or nil if the request is acceptable.
-- slurmctld would allocate slices even to a job with different numbers of GPU slots and slices. The job would get no
-- device, and other jobs could not use the slices. r and why are the results of request() for the job.
local function lacks_slots(job, r, why)
  if r and r.node.mig.count.closed then return "closed is not a profile" end
  if r and (r.node.mig.all == 0 or typed(r)) then return nil end
  if r then
    return "a request for slices must include the same number of GPUs: write --gres=gpu:<count>,mig:<profile>:<count>"
  end
  for _, per in ipairs(PER) do
    for _, entry in ipairs(entries(job["tres_per_" .. per])) do
      if why and entry.name == "mig" then return why end
    end
  end
end

-- send_past sends a new job with GPUs to the partition in the bypass line. named is true if it names slices or shards.
-- slurmctld checks the new partition as if the user had named it. It also has to refuse an unknown partition, because
-- the table does not list the site's partitions, and part_list only those that the user may use.
local function send_past(job, named, to)
  if named then
    return refuse("new jobs get no MIG slices at present, because the administrator sends new GPU jobs to partition " ..
      to .. ": request GPUs without a profile, for example --gres=gpu:1")
  end
  job.partition = to
  inform("the job was sent to partition " .. to .. ", because new jobs get no MIG slices at present")
  return slurm.SUCCESS
end

-- warn_unused tells the user which of Caelum's options have no effect, and why. It does not refuse the job, because the
-- options may come from a site's or a user's defaults, or from the job that submits this one. It does not warn about a
-- component of a het job, because the options may be for another component.
local function warn_unused(job, given, why, only_grow)
  if type(job.het_job_offset) == "number" and job.het_job_offset < slurm.NO_VAL then return end
  local unused = {}
  if given.mig and given.mig ~= "auto" and not only_grow then unused[#unused + 1] = "--mig" end
  if given.mig_mem and not only_grow then unused[#unused + 1] = "--mig-mem" end
  if given.mig_grow and given.mig_grow ~= "off" then unused[#unused + 1] = "--mig-grow" end
  if #unused == 0 then return end
  inform(table.concat(unused, ", ") .. (#unused == 1 and " has" or " have") .. " no effect, because " .. why)
end

-- REASONS explains the sources of a job's size to its user.
local REASONS = {
  memory = "the smallest slice with this memory (--mig-mem)", full = "because the job requests several GPUs per node",
  args = "from the arguments and your earlier runs of this job",
  default = "the default, because no earlier runs are known", key = "from your earlier runs of this job",
  user = "from your earlier runs of this script", site = "from other users' runs of this script",
  name = "from your earlier jobs with this name", owner = "from your earlier jobs",
}

-- explain tells the user the size of a new job and its source, unless the job has a whole GPU because of --mig=off, the
-- table contains "size_message off", or sbatch runs with --parsable, which programs use that may read both its output
-- and its messages.
local function explain(choice, t, quiet)
  local why = REASONS[choice.by]
  if not why or quiet or t.size_message == "off" then return end
  inform(choice.profile .. ", " .. why .. (choice.instead_of and "; larger than " .. choice.instead_of ..
    ", so that the job ends within its time limit" or ""))
end

-- test prepares a request of sbatch or srun --test-only, which the plugin marks. slurmctld answers it for the nodes as
-- they are now, so it would refuse a profile that is not on offer. Without its slices, the request is accepted or refused
-- as it would be at submission. The hold does not affect the answer. A user who sets the mark for a job gets a held job,
-- to which modify adds slices when it is released.
local function test(job, asked, t, r, batch)
  local kept = {}
  for _, entry in ipairs(r.node.list) do
    if entry.name ~= "mig" then kept[#kept + 1] = entry.text end
  end
  adopt(job, asked, t, batch)
  if r.node.mig.all > 0 then job.tres_per_node = table.concat(kept, ",") end
  job.priority = 0
  inform("the answer to --test-only ignores MIG slices, so the job may start later: after submitting it, run caelum " ..
    "explain JOBID")
  return slurm.SUCCESS
end

-- shards reports whether a request, whose partitions are given, contains shards that the table's lines replace.
local function shards(job, names, parts)
  for _, per in ipairs(PER) do
    if tostring(job["tres_per_" .. per]):sub(1, MAX_TRES):find("gres[:/]shard") then
      refresh()
      return decisions and next(decisions.shards) and managed(names, parts, decisions)
    end
  end
end

local function submit(job, parts, converts)
  local r, why = request(job)
  local has_shards = shards(job, job.partition, parts)
  if not r and not why and not has_shards then
    warn_unused(job, options(job) or {}, "the job requests no GPU: add --gres=gpu:1 or --gpus=1")
    return hide(job, parts)
  end
  local given, too_many = options(job)
  -- A waiting job's request contains its types. Only another client than srun leaves the mark in the record.
  local marked = not converts and restore(job, given and given.static)
  if marked then r, why = request(job) end
  local t, no_table = table_or_reason()
  if not t then return refuse(no_table) end
  if not managed(job.partition, parts, t) then
    local without = lacks_slots(job, r, why)
    if without then return refuse(without) end
    warn_unused(job, given or {}, "the job's partition has no MIG slices")
    return slurm.SUCCESS
  end
  if t.bypass then
    if has_shards then return send_past(job, true, t.bypass) end
    r, why = request(job, t)
    if not r then return why and refuse(why) or slurm.SUCCESS end
    return drop_unmanaged(r, t, true) and send_past(job, r.node.mig.all > 0, t.bypass) or slurm.SUCCESS
  end
  local asked, static_profile = translate(job, t, true, marked)
  if not asked then return refuse(static_profile) end
  r, why = request(asked, t)
  if why then return refuse(why) end
  if not r or not drop_unmanaged(r, t) then return hide(job, parts) end
  local invalid = unreadable(r)
  if invalid then return refuse(invalid) end
  r.static, r.hidden, r.parts = static_profile, catalogue(job.partition, parts), parts
  -- Such a job never starts, so it needs no slices.
  local shares = r.job.gpu.all > 0 or r.task.gpu.all > 0 or r.tasks_per_gpu
  if beyond(job, r.hidden, t.max_cpus, shares) then return slurm.SUCCESS end
  local gpus, unfit = slots(r, job)
  if not gpus then return refuse(unfit) end
  local key, fingerprint, numbers = key_and_fingerprint(job, r, gpus)
  local run = learned(t, user_id(job), key, fingerprint, numbers, job.name)
  run.options, run.too_many = given, too_many
  local limit = time_limit(t, job.time_limit, job.partition, parts)
  local full = full_of(t, gpus.types, job.partition, parts)
  local changes, choice = resolve(r, gpus, t, job, run, limit, full, true)
  if not changes then return refuse(choice) end
  -- slurmctld does not compare the CPUs of a held job with the nodes.
  local most = t.max_cpus and count(job.max_nodes)
  if most and cpus_of_tasks(job, r) > most * t.max_cpus then return refuse(NO_SUCH_NODE) end
  local grow, unknown = "off"   -- an agent never changes a profile that the user named
  if choice then grow, unknown = grow_mode(t, job, run.options, fingerprint, parts) end
  if not grow then return refuse(unknown) end
  if changes.slots.per_task then grow = "off" end
  if run.options and run.options.test_only then return test(job, asked, t, r, not marked) end

  local tags = {type(job.admin_comment) == "string" and job.admin_comment or nil}
  tags[#tags + 1] = "caelum:key=" .. key
  if fingerprint then tags[#tags + 1] = "caelum:work=" .. fingerprint end
  if numbers then tags[#tags + 1] = "caelum:args=" .. numbers end
  local share = changes.share
  if share.cpus or share.mib then
    tags[#tags + 1] = "caelum:share=" .. (share.cpus and "cpus" or "") .. (share.mib and "memory" or "")
  end
  -- The tag means that the user did not name the profile. A node with another GPU model may then run the job on an
  -- equivalent one.
  if choice then tags[#tags + 1] = "caelum:sized=" .. choice.profile .. " caelum:by=" .. choice.by end
  if grow ~= "off" then tags[#tags + 1] = "caelum:grow=" .. grow end
  if choice and choice.instead_of then tags[#tags + 1] = "caelum:instead-of=" .. choice.instead_of end
  local times = choice and choice.seconds and choice or run
  if times.high then
    tags[#tags + 1] = string.format("caelum:runs=%d-%d", times.seconds, times.high)
  elseif times.seconds then
    tags[#tags + 1] = string.format("caelum:runs=%d", times.seconds)
  end
  -- Agents use the busy share only to choose a larger profile, and never change a profile that the user named.
  if choice and run.busy then tags[#tags + 1] = "caelum:busy=" .. run.busy end
  -- At submission, a priority of 0 means --hold, and only the user may release this hold. squeue shows JobHeldUser for
  -- both the script's hold and the user's hold (22.05).
  local hold = must_hold(job, r, t) and job.priority ~= 0
  if hold then tags[#tags + 1] = "caelum:held" end
  adopt(job, asked, t, not marked)
  write(job, job, changes)
  job.admin_comment = table.concat(tags, " ")
  if hold then job.priority = 0 end
  if choice and choice.warning then
    inform(choice.warning)
  elseif choice then
    explain(choice, t, given.quiet)
  elseif given then
    warn_unused(job, given, "the job names its profile", given.mig and r.node.mig.all == 0 and not r.static)
  end
  if changes.slots.rounded then inform(changes.slots.rounded) end
  notify()
  return slurm.SUCCESS
end

-- The script checks the job that would result from an update. In a managed partition, it must have one typed slice per
-- GPU slot; otherwise, the update is completed or rejected. spank/submit/README.md lists the cases under "Changes
-- to a waiting job".

local NO_CHANGE = "this change to the GPUs of a pending job is not possible: cancel the job and submit it again"

-- drops reports whether an update would remove a type of GPU or slice from an option's string although slurmctld keeps
-- it. Releases up to 23.02, which write "gres:", add the types in an update to the job's types, but the string then
-- contains only those in the update (22.05). Later releases, which write "gres/", replace the types. On every release,
-- an empty list clears the option, and slurmctld ignores counts of 0. The script does not read the entries of a list of
-- more than MAX_TRES bytes, so that such a list drops all of the job's types.
local function drops(before, text)
  local now = entries(text)
  local empty = #now == 0 and #text <= MAX_TRES
  if type(before) ~= "string" or not before:find("gres:", 1, true) or empty then return false end
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

-- updated returns the job's GPU and node counts after an update, and whether the update sets a GPU count.
local function updated(job, record)
  local after, set = {min_nodes = count(job.min_nodes) or record.min_nodes}, false
  after.cpus_per_tres = job.cpus_per_tres or record.cpus_per_tres
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

-- is_uneven reports whether a request is for nodes with different numbers of GPUs: it counts slices, but no GPUs, per
-- node, and its GPUs per job or task. Such a job keeps its request.
local function is_uneven(r) return r.node.gpu.all == 0 and r.node.mig.all > 0 and counts_elsewhere(r) end

-- reshapes reports whether an update changes a number that the script uses to convert counts per job, socket or task
-- into counts per node.
local function reshapes(job)
  for _, name in ipairs({
    "num_tasks", "min_nodes", "max_nodes", "ntasks_per_node", "ntasks_per_socket", "sockets_per_node",
  }) do
    if count(job[name]) then return true end
  end
  return false
end

local function modify(job, record, parts)
  -- While a job has the caelum:held tag, only an agent may hold or release it, because Caelum could not tell the user's
  -- hold from the script's. If the user released the job before its slice is offered, its reason would become
  -- BadConstraints. slurm_job_modify cannot remove the tag from admin_comment.
  -- slurmctld also releases a held job whose nice value changes (22.05.8).
  local holds = job.priority == 0 or job.priority == slurm.INFINITE
  local nice = type(job.nice) == "number" and job.nice ~= slurm.NO_VAL
  if (holds or nice) and tostring(record.admin_comment):find("caelum:held", 1, true) then
    return refuse("the job is held until its slice can be carved, and will then be released automatically; " ..
      (nice and "its nice value can be changed then" or "to cancel it, use scancel"))
  end
  -- ntasks_per_tres and cpus_per_tres add GPUs that appear in none of the job's strings (source of 22.05). scontrol
  -- cannot set ntasks_per_tres, but other clients can.
  if count(job.ntasks_per_tres) then return refuse(NO_CHANGE) end

  local after, set = updated(job, record)
  local r, why = request(after)
  local before, unknown = request(record)
  -- If a job with --ntasks-per-gpu was submitted to an unmanaged partition, only tres_fmt_req_str contains its GPUs.
  local counted = tostring(record.tres_fmt_req_str):find("gres/[gm][pi][ug]")
  local has_shards = shards(job, job.partition or record.partition, parts)
  if not (r or why or before or unknown or counted or has_shards) then return slurm.SUCCESS end
  -- slurmctld itself rejects changes to the GPUs and the partition of a started job. In a pending job's state, the low
  -- 8 bits are 0.
  if (tonumber(record.job_state) or 0) % 256 ~= 0 and not set and not job.partition then return slurm.SUCCESS end

  local t, no_table = table_or_reason()
  if not t then return refuse(no_table) end
  if not managed(job.partition or record.partition, parts, t) then
    -- If the partition changes later, the script needs a string that lists all of the job's GPUs and slices.
    for _, per in ipairs(PER) do
      local new = job["tres_per_" .. per]
      if type(new) == "string" and new ~= "" and drops(record["tres_per_" .. per], new) then
        return refuse(NO_CHANGE)
      end
    end
    -- slurmctld would hold the job (BadConstraints), because only managed partitions have catalogue nodes.
    if job.partition and r and r.node.mig.all > 0 and managed(record.partition, parts, t) then
      return refuse("a job with MIG slices cannot move to a partition without them: cancel it, and submit it there")
    end
    local without = set and lacks_slots(after, r, why)
    -- With other tasks or nodes, a node could have more GPUs than slices.
    if not without and r and is_uneven(r) and reshapes(job) then without = NO_CHANGE end
    return without and refuse(without) or slurm.SUCCESS
  end
  local moves = job.partition and not managed(record.partition, parts, t)
  local asked, unclear = translate(job, t)
  if not asked then return refuse(unclear) end
  after.tres_per_node = rawget(asked, "tres_per_node") or after.tres_per_node
  r, why = request(after, t)
  before, unknown = request(record, t)
  -- tres_fmt_req_str also shows GPUs that none of the job's strings does.
  if r and counted and not (before or unknown) then return refuse(NO_CHANGE) end
  if r and not drop_unmanaged(r, t) then
    for _, per in ipairs(PER) do
      local new = job["tres_per_" .. per]
      if type(new) == "string" and drops(record["tres_per_" .. per], new) then return refuse(NO_CHANGE) end
    end
    return slurm.SUCCESS
  end
  if not r then
    if not why and not before and not unknown and not moves then return slurm.SUCCESS end
    return refuse(why or NO_CHANGE)
  end
  local more = before and (r.node.mig.all > before.node.mig.all or r.node.gpu.all > before.node.gpu.all)
  if t.bypass and (moves or more or not (before or unknown)) then
    return refuse("jobs get no new MIG slices at present: submit the job to partition " .. t.bypass)
  end
  -- A job record shows neither the number of tasks nor the number of sockets, so the script can add types only to
  -- counts per node.
  for _, per in ipairs({"job", "socket", "task"}) do
    local has = r[per].gpu.all > 0 or before and before[per].gpu.all > 0 or unknown
    if has and type(job["tres_per_" .. per]) == "string" then return refuse(NO_CHANGE) end
  end
  if r.node.gpu.all == 0 and r.node.mig.all == 0 then return refuse(NO_CHANGE) end
  if counts_elsewhere(r) and (set or reshapes(job)) then return refuse(NO_CHANGE) end
  if is_uneven(r) and moves then return refuse(NO_CHANGE) end
  if (typed(r) or is_uneven(r)) and not set and not moves then return slurm.SUCCESS end

  local invalid = unreadable(r)
  if invalid then return refuse(invalid) end
  local gpus, unshared = slots(r, after)
  if not gpus then return refuse(unshared) end
  if gpus.sum and gpus.all * r.nodes ~= gpus.sum.all then return refuse(NO_CHANGE) end
  local comment = tostring(record.admin_comment)
  local key, fingerprint = comment:match("caelum:key=(%x+)") or "", comment:match("caelum:work=(%x+)")
  local own = job.time_limit
  if own == nil or own == slurm.NO_VAL then own = record.time_limit end
  local limit = time_limit(t, own, job.partition or record.partition, parts)
  local full = full_of(t, gpus.types, job.partition or record.partition, parts)
  local run = learned(t, user_id(record), key, fingerprint, comment:match("caelum:args=([%d.,]+)"), record.name)
  run.options, run.too_many = options(record)
  local changes, unfit = resolve(r, gpus, t, record, run, limit, full)
  if not changes then return refuse(unfit) end
  local now = {}
  for _, text in ipairs(changes.kept) do now[#now + 1] = text end
  for _, text in ipairs(changes.added) do now[#now + 1] = "gres:" .. text end
  if drops(record.tres_per_node, table.concat(now, ",")) then return refuse(NO_CHANGE) end
  adopt(job, asked, t)
  write(job, after, changes)
  return slurm.SUCCESS
end

-- change handles an update, and hides the catalogue nodes from the job that results from it. If the job had no GPUs
-- before and has slices now, the catalogue nodes must no longer be excluded. A job's record does not show the excluded
-- nodes, so the user's own are lost.
local function change(job, record, parts)
  local rc = modify(job, record, parts)
  local hidden = rc == slurm.SUCCESS and catalogue(job.partition or record.partition, parts)
  if not hidden or beyond(job, hidden) then return rc end
  local after = updated(job, record)
  local r, why = request(after)
  local before, unknown = request(record)
  if not r and not why then
    if job.exc_nodes then exclude(job, hidden) end
  elseif not before and not unknown and not job.exc_nodes then
    job.exc_nodes = ""
  end
  return rc
end

---------------------------------------------------------------- jobs that waited while Caelum was installed

-- as_new returns a table that reads like the submission of a waiting job and writes into changes. given holds fields
-- that the job's record lacks. Defaults of partitions, which appear in the record, read as not given.
local function as_new(record, parts, given, changes)
  given.reservation, given.req_nodes = record.resv_name, given.named and "named"
  for _, name in ipairs({"cpus_per_tres", "mem_per_tres"}) do
    if not tostring(record[name]):find("gres", 1, true) then given[name] = "" end
  end
  -- With --gpus-per-task, slurmctld adds a partition's CPUs per GPU to those of a task.
  if given.cpus_per_tres and record.cpus_per_tres and record.tres_per_task then given.cpus_per_task = nil end
  return setmetatable({}, {
    __index = function(_, name)
      if given[name] ~= nil then return given[name] end
      local value = record[name]
      local memory = name == "min_mem_per_node" or name == "min_mem_per_cpu"
      if memory and (value == 0 or value == (parts[record.partition] or {})["def_" .. name:sub(5)]) then return nil end
      return value
    end,
    __newindex = changes,
  })
end

-- complete adds what an update of a converted job needs but a submission does not, because slurmctld does not take it
-- from the job's record. count(record.max_nodes) is nil if the job has no largest number of nodes.
local function complete(changes, record, given)
  local nodes = changes.min_nodes or record.min_nodes
  if changes.tres_per_job == "" then   -- a script cannot remove a field
    local all = {}
    for _, entry in ipairs(entries(changes.tres_per_node)) do
      if entry.name == "gpu" then
        all[#all + 1] = entry.text:gsub("%d+$", "") .. string.format("%d", entry.count * nodes)
      end
    end
    changes.tres_per_job = table.concat(all, ",")
  end
  if changes.ntasks_per_node then
    changes.num_tasks = given.num_tasks
    changes.min_cpus = given.num_tasks and given.num_tasks * (given.cpus_per_task or 1)
  end
  changes.sockets_per_node, changes.ntasks_per_tres = given.sockets_per_node, given.ntasks_per_tres
  local total = record.tres_per_job or record.tres_per_task or given.ntasks_per_tres
  if not (changes.tres_per_node or changes.gres):find("gpu", 1, true) then
    changes.tres_per_task = record.tres_per_task   -- slurmctld rejects memory per GPU without GPUs (22.05.8)
  elseif total and not count(record.max_nodes) then
    changes.max_nodes = nodes
  end
end

-- convert changes a waiting job as submit changes a new job, if root sets the job's admin_comment to "caelum:convert"
-- and the numbers of the request that the record does not contain, as in "caelum:convert num_tasks=4". named means that
-- the job names or excludes nodes. If the job cannot be converted, convert holds it and writes the reason into
-- admin_comment. Without a usable decision table, it changes nothing, so that the command finds its own text there.
local function convert(job, record, parts)
  local numbers = tostring(job.admin_comment):match("^caelum:convert(.*)$")
  if not numbers then return slurm.SUCCESS end
  refresh()
  if not decisions or decisions.bypass then return slurm.SUCCESS end
  local given, changes, why = {}, {}, nil
  for name, value in numbers:gmatch(" ([%l_]+)=(%d+)") do given[name] = tonumber(value) end
  given.admin_comment = tostring(record.admin_comment or ""):gsub(" ?caelum:%S+", "")
  for _, per in ipairs(PER) do
    if dynamic(record["tres_per_" .. per], decisions) then why = "the request names static MIG devices or shards" end
  end
  if not why then
    local show = inform
    inform = function(text) why = text end
    local ok, rc = pcall(submit, as_new(record, parts, given, changes), parts, true)
    inform = show
    if not ok then
      why = rc
    elseif rc == NO_SUCH_NODE then
      why = "Requested node configuration is not available"
    elseif rc == slurm.SUCCESS then
      why = nil
      if changes.admin_comment and (changes.tres_per_node or changes.gres) then
        complete(changes, record, given)
      elseif changes.min_nodes or changes.min_cpus then
        why = "the partition does not have enough nodes or CPUs"
      else
        changes = {admin_comment = ""}   -- the job's own comment remains
      end
    end
  end
  if why then
    local tag = " caelum:unconverted=" .. tostring(why):sub(1, 256):gsub("[^\33-\126]", "_")
    changes = {admin_comment = given.admin_comment .. tag, priority = 0}
  end
  changes.admin_comment = changes.admin_comment:gsub("^%s+", "")
  for name, value in pairs(changes) do job[name] = value end
  return slurm.SUCCESS
end

-- guarded runs f and returns its result. If f raises an error, guarded returns `otherwise`, because an error in
-- job_submit.lua must not block all submissions. A submission is then accepted unchanged, and an agent later requeues
-- the job with a profile. A change is rejected, so that the job remains in a valid state.
local function guarded(what, otherwise, f, ...)
  local ok, rc = pcall(f, ...)
  if ok then return rc end
  slurm.log_error("%s", "caelum: " .. what .. " after an error in job_submit.lua: " .. tostring(rc))
  return otherwise
end

notify()   -- slurmctld loads the script when it starts or is reconfigured, and both remove all offers

-- caelum_restore_types lets a site's own code, which runs before slurm_job_submit, see the types of static MIG devices
-- that the plugin has removed from the request of srun or salloc.
function caelum_restore_types(job_desc)
  local given = options(job_desc)
  guarded("the types of GPUs were not restored", false, restore, job_desc, given and given.static)
end

-- names_many refuses a user's request with a list of nodes that is longer than MAX_NODES, in every partition.
local function names_many(job, uid)
  for _, list in ipairs({job.req_nodes or "", job.exc_nodes or ""}) do
    if uid ~= 0 and type(list) == "string" and #list > MAX_NODES then
      refuse("the list of nodes has more than " .. MAX_NODES .. " characters: write ranges such as n[1-9], or use a " ..
        "feature (--constraint) or a partition")
      return true
    end
  end
end

function slurm_job_submit(job_desc, part_list, submit_uid)
  return guarded("a submission was accepted unchanged", slurm.SUCCESS, function()
    return names_many(job_desc, submit_uid) and slurm.ERROR or submit(job_desc, part_list)
  end)
end

function slurm_job_modify(job_desc, job_rec, part_list, modify_uid)
  -- The script accepts all changes by root, because the agents run as root. It cannot tell operators and coordinators
  -- from ordinary users, so the same rules apply to them.
  if modify_uid == 0 then
    return guarded("a job was not converted", slurm.SUCCESS, convert, job_desc, job_rec, part_list)
  end
  return guarded("a change was refused", slurm.ERROR, function()
    return names_many(job_desc, modify_uid) and slurm.ERROR or change(job_desc, job_rec, part_list)
  end)
end

return slurm.SUCCESS
