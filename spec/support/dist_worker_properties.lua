--- dist_worker_properties: a rank for properties_spec: collectives over dtypes, counts and layouts, against results of Lua.
-- Elements are small whole numbers, so that sums and products are exact in every dtype.
local core = require "argand.core"
local ag = require "argand"
local dist = require "argand.dist"

local rank = tonumber(os.getenv "ARGAND_RANK")
local n = tonumber(os.getenv "ARGAND_WORLD_SIZE")
local BIG = 100003
local num_passed, num_failed = 0, 0

local function emit(name, fields)
  local parts = {"@" .. name, ("at=%.6f"):format(core.now())}
  for key, value in pairs(fields or {}) do parts[#parts + 1] = key .. "=" .. tostring(value):gsub("[\t\n]", " ") end
  io.stdout:write(table.concat(parts, "\t"), "\n")
  io.stdout:flush()
end

local function element(of, i) return (of * 5 + i * 7) % 3 + 1 end

local function values_of(of, count)
  local list = {}
  for i = 1, count do list[i] = element(of, i) end
  return list
end

local function tensor_of(list, dtype)
  if #list == 0 then return ag.zeros({0}, {dtype = dtype}) end
  return ag.tensor(list, {dtype = dtype})
end

-- The same elements, lying in memory in different ways.
local layouts = {
  {"contiguous", tensor_of},
  {"strided", function(list, dtype)
    local view = ag.zeros({#list, 2}, {dtype = dtype}):select(2, 2)
    view:copy_(tensor_of(list, dtype))
    return view
  end},
  {"unaligned", function(list, dtype)
    local view = ag.zeros({#list + 1}, {dtype = dtype}):narrow(1, 2, #list)
    view:copy_(tensor_of(list, dtype))
    return view
  end},
}

local function differs(t, list, tolerance)
  if t == nil then return "no result" end
  local got = t:tolist()
  if #got ~= #list then return ("%d elements, expected %d"):format(#got, #list) end
  for i = 1, #list do
    if math.abs(got[i] - list[i]) > tolerance * math.abs(list[i]) then
      return ("element %d is %s, expected %s"):format(i, tostring(got[i]), tostring(list[i]))
    end
  end
end

-- run(): returns a result and the list it should be, or nil and nil on a rank that gets nothing.
local function check(name, run, tolerance)
  local is_ok, t, list = pcall(run)
  local fault = not is_ok and tostring(t) or list ~= nil and differs(t, list, tolerance or 0)
    or (list == nil and t ~= nil and "a result where none is due") or nil
  if not fault then
    num_passed = num_passed + 1
    return
  end
  num_failed = num_failed + 1
  if num_failed <= 5 then emit("failure", {name = name, fault = fault}) end
end

local reducers = {
  sum = function(a, b) return a + b end, min = math.min, max = math.max, prod = function(a, b) return a * b end,
  mean = function(a, b) return a + b end,
}

local function reduced(op, count)
  local list, reduce = {}, reducers[op]
  for i = 1, count do
    local value = element(0, i)
    for of = 1, n - 1 do value = reduce(value, element(of, i)) end
    list[i] = op == "mean" and value / n or value
  end
  return list
end

local function joined(lists)
  local all = {}
  for _, list in ipairs(lists) do
    for _, value in ipairs(list) do all[#all + 1] = value end
  end
  return all
end

local function slice(list, first, count)
  local part = {}
  for i = 1, count do part[i] = list[first + i - 1] end
  return part
end

local function part(list, index, count) return slice(list, index * count + 1, count) end

-- ---- the kinds: fn(make, dtype, count) makes a call, checks it by `check` ----

local tolerances = {f32 = 1e-6, f64 = 1e-15, f16 = 1e-3, bf16 = 1e-2} -- of a mean: thirds

local function intact(input, list) return differs(input, list, 0) end

local function all_reduce(name, make, dtype, count, op)
  local own, expected = values_of(rank, count), reduced(op, count)
  local tolerance = op == "mean" and tolerances[dtype] or 0
  check("all_reduce " .. name, function()
    local input = make(own, dtype)
    local result = dist.all_reduce(input, {op = op})
    local fault = intact(input, own)
    if fault then error("the input: " .. fault) end
    return result, expected
  end, tolerance)
  check("all_reduce_ " .. name, function() return dist.all_reduce_(make(own, dtype), {op = op}), expected end, tolerance)
  check("all_reduce out " .. name, function()
    local out = ag.zeros({count + 1}, {dtype = dtype}):narrow(1, 2, count)
    dist.all_reduce(make(own, dtype), {op = op, out = out})
    return out, expected
  end, tolerance)
end

local kinds = {}

function kinds.reduce(name, make, dtype, count)
  for root = 0, n - 1 do
    check(("reduce to %d %s"):format(root, name), function()
      return dist.reduce(make(values_of(rank, count), dtype), {root = root}), rank == root and reduced("sum", count) or nil
    end)
  end
end

function kinds.broadcast(name, make, dtype, count)
  for root = 0, n - 1 do
    check(("broadcast of %d %s"):format(root, name), function()
      return dist.broadcast(make(values_of(rank, count), dtype), {root = root}), values_of(root, count)
    end)
    check(("broadcast_ of %d %s"):format(root, name), function()
      return dist.broadcast_(make(values_of(rank, count), dtype), {root = root}), values_of(root, count)
    end)
  end
end

function kinds.all_gather(name, make, dtype, count)
  local even, uneven = {}, {}
  for of = 0, n - 1 do
    even[of + 1] = values_of(of, count)
    uneven[of + 1] = values_of(of, count + of)
  end
  check("all_gather " .. name, function() return dist.all_gather(make(values_of(rank, count), dtype)), joined(even) end)
  check("all_gather uneven " .. name, function()
    return dist.all_gather(make(values_of(rank, count + rank), dtype), {uneven = true}), joined(uneven)
  end)
end

function kinds.reduce_scatter(name, make, dtype, count)
  check("reduce_scatter " .. name, function()
    return dist.reduce_scatter(make(values_of(rank, count * n), dtype)), part(reduced("sum", count * n), rank, count)
  end)
end

function kinds.gather(name, make, dtype, count)
  local all = {}
  for of = 0, n - 1 do all[of + 1] = values_of(of, count) end
  for root = 0, n - 1 do
    check(("gather to %d %s"):format(root, name), function()
      return dist.gather(make(values_of(rank, count), dtype), {root = root}), rank == root and joined(all) or nil
    end)
  end
end

function kinds.scatter(name, make, dtype, count)
  for root = 0, n - 1 do
    check(("scatter of %d %s"):format(root, name), function()
      local result
      if rank == root then
        result = dist.scatter(make(values_of(rank, count * n), dtype), {root = root})
      else
        result = dist.scatter(nil, {root = root, shape = {count}, dtype = dtype})
      end
      return result, part(values_of(root, count * n), rank, count)
    end)
  end
end

function kinds.all_to_all(name, make, dtype, count)
  local even, uneven, counts = {}, {}, {}
  for of = 0, n - 1 do
    even[of + 1] = part(values_of(of, count * n), rank, count)
    counts[of + 1] = count + of -- to rank `of`
    local first = count * rank + rank * (rank - 1) / 2
    uneven[of + 1] = slice(values_of(of, first + count + rank), first + 1, count + rank)
  end
  check("all_to_all " .. name, function() return dist.all_to_all(make(values_of(rank, count * n), dtype)), joined(even) end)
  check("all_to_all counts " .. name, function()
    return dist.all_to_all(make(values_of(rank, count * n + n * (n - 1) / 2), dtype), {counts = counts}), joined(uneven)
  end)
end

-- Around the ring, the even ranks first.
function kinds.pairs(name, make, dtype, count)
  if n == 1 then return end
  local to, from = (rank + 1) % n, (rank + n - 1) % n
  check("send and receive " .. name, function()
    local function send() dist.send(make(values_of(rank, count), dtype), to) end
    local function receive() return dist.receive(from, {shape = {count}, dtype = dtype}) end
    local result
    if rank % 2 == 0 and not (n % 2 == 1 and rank == n - 1) then
      send()
      result = receive()
    else
      result = receive()
      send()
    end
    return result, values_of(from, count)
  end)
end

-- ---- all of them ----

dist.init {timeout = 30}
emit("ready", {transport = dist.info().transport})
local began = core.now()

local dtypes = {"f32", "f64", "f16", "bf16", "i64", "i32", "i16", "i8", "u8"}
local counts = {0, 1, math.max(n - 1, 2), n + 1, 257}
local order = {"reduce", "broadcast", "all_gather", "reduce_scatter", "gather", "scatter", "all_to_all", "pairs"}

local turn = 0
for _, dtype in ipairs(dtypes) do
  for _, count in ipairs(counts) do
    for index, layout in ipairs(layouts) do
      turn = turn + 1
      local name = ("%s of %d, %s"):format(dtype, count, layout[1])
      for _, op in ipairs {"sum", "mean", "min", "max", "prod"} do -- all layouts of f32, and one of the others
        local is_wanted = dtype == "f32" or turn % 3 == 0
        if is_wanted and not (op == "mean" and not dtype:find "f") then
          all_reduce(op .. " " .. name, layout[2], dtype, count, op)
        end
      end
      if dtype == "f32" or (index == turn % 3 + 1 and (count == 257 or count == 1)) then
        for _, kind in ipairs(order) do kinds[kind](name, layout[2], dtype, count) end
      end
    end
  end
end

for _, layout in ipairs(layouts) do
  local name = ("f32 of %d, %s"):format(BIG, layout[1])
  all_reduce("sum " .. name, layout[2], "f32", BIG, "sum")
  for _, kind in ipairs {"reduce_scatter", "pairs"} do kinds[kind](name, layout[2], "f32", BIG) end
end
kinds.broadcast("i64 big", layouts[2][2], "i64", BIG)

-- In one order on all ranks: that of pairs() is not the same in two processes.
local logic = {{"and", function(a, b) return a and b end}, {"or", function(a, b) return a or b end}}
for _, count in ipairs {0, 1, 257} do
  for _, row in ipairs(logic) do
    local op, expected = row[1], row[2]
    check(("all_reduce %s of %d"):format(op, count), function()
      local own, wanted = {}, {}
      for i = 1, count do
        own[i] = (rank + i) % 2 == 0
        local value = i % 2 == 0
        for of = 1, n - 1 do value = expected(value, (of + i) % 2 == 0) end
        wanted[i] = value and 1 or 0
      end
      local result = dist.all_reduce(count == 0 and ag.zeros({0}, {dtype = "bool"}) or ag.tensor(own), {op = op})
      return result:to "i32", wanted
    end)
  end
end
-- In memory that ranks share: into the result, of a part, and in place. A result of one's own may be written to.
for _, dtype in ipairs {"f32", "bf16", "i64"} do
  for _, count in ipairs {0, 1, 257, BIG} do
    for _, shared_result in ipairs {false, true} do
      local name = ("%s of %d, %s"):format(dtype, count, shared_result and "one result" or "own results")
      local own, result = dist.shared_tensor(count, {dtype = dtype, shared_result = shared_result})
      local list, expected = values_of(rank, count), reduced("sum", count)
      check("shared tensor " .. name, function()
        own:copy_(tensor_of(list, dtype))
        dist.all_reduce(own, {out = result})
        local fault = intact(own, list)
        if fault then error("the input: " .. fault) end
        return result, expected
      end)
      check("part of a shared tensor " .. name, function()
        local from, num = math.max(1, math.min(count, 2)), math.max(count - 1, 0)
        dist.barrier() -- all have looked at the result
        if not shared_result then result:fill_(-rank) end
        dist.all_reduce(own:narrow(1, from, num), {out = result:narrow(1, from, num)})
        local is_first_kept = shared_result or count == 0 or result:narrow(1, 1, 1):item() == -rank
        assert(is_first_kept, "others wrote beside the part")
        return result:narrow(1, from, num), slice(expected, from, num)
      end)
      check("shared tensor in place " .. name, function() return dist.all_reduce_(own), expected end)
    end
  end
end

check("barrier", function()
  dist.barrier()
  return nil, nil
end)

emit("done", {passed = num_passed, failed = num_failed, seconds = core.now() - began})
local is_closed = dist.close(10)
os.exit(is_closed and 0 or 1, true)
