--- dist_worker_misuse: a rank for misuse_spec: makes the wrong call that its argument names, and goes on if it can.
local core = require "argand.core"
local ag = require "argand"
local dist = require "argand.dist"

local rank = tonumber(os.getenv "ARGAND_RANK")
local which = arg[1]

local function emit(name, fields)
  local parts = {"@" .. name, ("at=%.6f"):format(core.now())}
  for key, value in pairs(fields or {}) do parts[#parts + 1] = key .. "=" .. tostring(value):gsub("[\t\n]", " ") end
  io.stdout:write(table.concat(parts, "\t"), "\n")
  io.stdout:flush()
end

local is_odd = rank == 1 -- the one that does it differently
local t = ag.ones {6}

-- Each returns nothing; rank 1 makes another call than ranks 0 and 2.
local cases = {
  op = function() dist.all_reduce(t, {op = is_odd and "max" or "sum"}) end,
  dtype = function() dist.all_reduce(is_odd and ag.ones({6}, {dtype = "f64"}) or t) end,
  shape = function() dist.all_reduce(is_odd and ag.ones {2, 3} or t) end,
  count = function() dist.all_reduce(is_odd and ag.ones {7} or t) end,
  big_count = function() dist.all_reduce(ag.ones {is_odd and 2 ^ 20 + 1 or 2 ^ 20}) end,
  root = function() dist.broadcast(t, {root = is_odd and 1 or 0}) end,
  kind = function() dist[is_odd and "all_gather" or "all_reduce"](t) end,
  algorithm = function() dist.all_reduce(t, {algorithm = is_odd and "direct" or "ring"}) end,
  order = function()
    if is_odd then
      dist.broadcast(t)
      dist.all_reduce(t)
    else
      dist.all_reduce(t)
      dist.broadcast(t)
    end
  end,
  skipped = function()
    if not is_odd then dist.all_reduce(t) end
    dist.barrier()
  end,
  int_mean = function() dist.all_reduce(is_odd and ag.ones({6}, {dtype = "i32"}) or t, {op = is_odd and "mean" or "sum"}) end,
  late_refusal = function()
    if is_odd then core.sleep(0.6) end -- the others are stopped meanwhile
    dist.all_reduce(is_odd and ag.ones({6}, {dtype = "i32"}) or t, {op = is_odd and "mean" or "sum"})
  end,
  reference = function() dist.all_reduce(is_odd and ag.ones({6}, {device = "reference"}) or t) end,
  out_shape = function() dist.all_reduce(t, {out = ag.zeros {is_odd and 5 or 6}}) end,
  -- Beyond what leaves over sockets before the receiver has come.
  refused_send = function()
    if rank == 1 then dist.send(ag.ones({2 ^ 21}, {device = "reference"}), 0) end
    if rank == 0 then dist.receive(1, {like = ag.zeros {2 ^ 21}}) end
  end,
  refused_receive = function()
    if rank == 1 then dist.receive(0, {like = ag.zeros({2 ^ 21}, {device = "reference"})}) end
    if rank == 0 then dist.send(ag.ones {2 ^ 21}, 1) end
  end,
  no_op = function() dist.all_reduce(t, {op = is_odd and "median" or "sum"}) end,
  no_root = function() dist.broadcast(t, {root = is_odd and 7 or 0}) end,
}

local function report(name, err)
  if type(err) ~= "table" then return emit(name, {code = "none", message = tostring(err), culprits = ""}) end
  local message = tostring(err):gsub("^[^%s]+:%d+: ", "") -- where it was called
  emit(name, {code = err.code, message = message, culprits = table.concat(err.culprits or {}, ","), seq = err.seq or 0,
              has_ended = dist.world():has_ended()})
end

dist.init {timeout = 5, expiry = 3}
emit("ready", {transport = dist.info().transport})

-- What right calls cost: messages, or rounds in shared memory.
local function cost(count, calls)
  local input = ag.ones {count}
  dist.all_reduce(input)
  local before = dist.info().stats
  for _ = 1, calls do dist.all_reduce(input) end
  local after = dist.info().stats
  return (after.messages - before.messages) / calls
end

if which == "cost" then
  emit("cost", {small = cost(16, 100), middle = cost(4096, 50), big = cost(2 ^ 20, 5)})
else
  local is_ok, err = pcall(cases[which])
  if is_ok then emit "passed" else report("error", err) end
  local goes_on, value = pcall(function() return dist.all_reduce(rank + 1) end)
  if goes_on then emit("after", {value = value}) else report("ended", value) end
end
emit "end"
dist.close(2)
os.exit(0, true)
