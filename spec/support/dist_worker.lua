--- dist_worker: a rank for the fault specs: joins, does what its phase says, and prints what came of it as events (job.lua).
-- Arguments: phase=, fault= (of this rank itself), limit= (the one that is changed from outside), count= elements, seconds= of
-- the loop, and options of dist.init.
local ffi = require "ffi"
local core = require "argand.core"
local ag = require "argand"
local dist = require "argand.dist"
for _, name in ipairs {"argand.dist.ddp", "argand.nn"} do require(name) end -- files, which could not be opened later

local args = {}
for _, word in ipairs(arg) do
  local key, value = word:match "^([%w_]+)=(.*)$"
  args[key] = tonumber(value) or value
end

local function emit(name, fields)
  local parts = {"@" .. name, ("at=%.6f"):format(core.now())}
  for key, value in pairs(fields or {}) do parts[#parts + 1] = key .. "=" .. tostring(value):gsub("[\t\n]", " ") end
  io.stdout:write(table.concat(parts, "\t"), "\n")
  io.stdout:flush()
end

local rank = tonumber(os.getenv "ARGAND_RANK")
local size = tonumber(os.getenv "ARGAND_WORLD_SIZE")
local num_right = 0

local function fields_of(err)
  if type(err) ~= "table" then return {code = "none", culprits = "", message = tostring(err)} end
  return {code = err.code, culprits = table.concat(err.culprits or {}, ","), seq = err.seq or 0, op = err.op,
          message = tostring(err), num_right = num_right}
end

local function report(err, more)
  local fields = fields_of(err)
  for key, value in pairs(more or {}) do fields[key] = value end
  emit("error", fields)
end

-- The fault that this rank does to itself; those from outside come while it waits here.
local has_failed = false

local function misbehave()
  if args.phase == "close" then -- until the others are in close
    local word = ("%s/go-%s"):format(os.getenv "TMPDIR", os.getenv "ARGAND_JOB")
    while not io.open(word) do core.sleep(0.005) end
  end
  emit "fault"
  if args.fault == "exit" then os.exit(0) end
  if args.fault == "error" then
    has_failed = true
    error "boom"
  end
  if args.fault == "slow" then core.sleep(args.slow) end
  if args.fault == "wait" then core.sleep(60) end
end

-- Element i of rank r's input is i % 13 + r + 1; whole numbers, so sums are exact.
local pattern

local function input_of(which) return pattern + (which + 1) end

-- ---- phases ----

local phases = {}

-- Rank 0 says whether there is another round.
local function goes_on(until_s)
  return dist.broadcast(core.now() < until_s and 1 or 0) == 1
end

local function is_same(a, b) return a:eq(b):all():item() end

-- Makes the calls over and over. `call(input)` returns the result; rank 2's all_reduce is in place.
local function loop(call, expected)
  local kept = input_of(rank)
  local input, deadline = kept:clone(), nil
  local is_ok, err = pcall(function()
    repeat
      local is_last = args.fault and num_right == 2
      if is_last then -- while the call is under way
        call(input, true)
        core.sleep(0.002)
        misbehave()
      end
      local result = call(input)
      if not is_same(result, expected) then error "a wrong result" end
      num_right = num_right + 1
      if result == input then input = kept:clone() end
      if num_right == 1 then -- which has taken as long as it took
        emit "phase"
        deadline = core.now() + args.seconds
      end
    until not goes_on(deadline)
  end)
  if has_failed then error(err, 0) end -- nobody catches it
  if not is_ok then
    report(err, {is_intact = is_same(input, kept), has_ended = dist.world():has_ended()})
    return false
  end
  return true
end

function phases.all_reduce()
  local out = ag.zeros {args.count}
  local expected = pattern * size + size * (size + 1) / 2
  return loop(function(input, is_async)
    if is_async then return dist.all_reduce(input, {async = true}) end
    if rank == 2 then return dist.all_reduce_(input) end
    return dist.all_reduce(input, {out = out})
  end, expected)
end

function phases.all_gather()
  local parts = {}
  for i = 0, size - 1 do parts[i + 1] = input_of(i) end
  return loop(function(input, is_async) return dist.all_gather(input, {async = is_async}) end, ag.cat(parts))
end

-- All are in Lua; a small call now and then. Survivors learn of the end without a call.
function phases.between()
  emit "phase"
  if args.fault then misbehave() end
  local deadline, expected = core.now() + args.seconds, pattern * size + size * (size + 1) / 2
  local kept = input_of(rank)
  local input, world = kept:clone(), dist.world()
  local noticed_at
  local is_ok, err = pcall(function()
    repeat
      local step_end = core.now() + 0.1
      while core.now() < step_end and not world:has_ended() do core.sleep(0.005) end
      if world:has_ended() then noticed_at = core.now() end
      if not is_same(dist.all_reduce(input), expected) then error "a wrong result" end
      num_right = num_right + 1
    until not goes_on(deadline)
  end)
  if is_ok then return true end
  report(err, {is_intact = is_same(input, kept), has_ended = world:has_ended(), noticed_at = noticed_at})
  return false
end

function phases.close()
  local sum = dist.all_reduce(rank + 1)
  if sum ~= size * (size + 1) / 2 then error "a wrong result" end
  num_right = num_right + 1
  emit "phase"
  if args.fault then misbehave() end
  return true
end

ffi.cdef "int getrlimit(int resource, uint64_t *limit);"
local LIMITS = {fsize = 1, nofile = 7}

local function limit_now()
  local limit = ffi.new "uint64_t[2]"
  ffi.C.getrlimit(LIMITS[args.limit], limit)
  return limit[0]
end

-- Makes something new, after a limit of this process was changed from outside; which nothing is opened to look at.
local function make_new(make)
  local before = args.limit and limit_now()
  emit "phase"
  while args.limit and limit_now() == before do core.sleep(0.005) end
  local is_ok, err = pcall(make)
  if not is_ok then
    report(err, {has_ended = dist.world():has_ended()})
    return false
  end
  num_right = num_right + 1
  return true
end

function phases.blocks()
  return make_new(function() dist.register {ag.zeros({args.count}, {requires_grad = true})} end)
end

function phases.split()
  return make_new(function()
    local group = dist.group {0, 1, 2}
    if group:all_reduce(rank + 1) ~= size * (size + 1) / 2 then error "a wrong result" end
  end)
end

-- ---- the rank ----

local function close()
  local began = core.now()
  local is_ok, value, err = pcall(dist.close, args.close_wait or 3)
  local fields = fields_of(err or (not is_ok and value) or "")
  fields.ok, fields.took = tostring(is_ok and value), core.now() - began
  emit("closed", fields)
end

emit("start", {pid = core.process.self().pid})
if args.phase == "before" then
  if args.fault then misbehave() end
  core.sleep(0.05)
end

local INIT = {"expiry", "heartbeat", "init_timeout", "timeout", "key_file", "address"}
local options = {}
for _, name in ipairs(INIT) do options[name] = args[name] end

local is_joined, join_error = pcall(dist.init, options)
if not is_joined then
  report(join_error, {is_joining = true})
  os.exit(0, true)
end
emit("ready", {transport = dist.info().transport, encrypted = dist.info().encrypted})

pattern = ag.arange(args.count or 16):remainder(13)
local phase = phases[args.phase] or phases.between
if phase() then emit("finished", {num_right = num_right, rejected = dist.info().stats.rejected}) end
close()
os.exit(0, true)
