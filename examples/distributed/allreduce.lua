-- Measures all_reduce between the ranks of a job for a range of sizes, and checks every sum.
--
--   argand run -n 2 examples/distributed/allreduce.lua [--min 1K] [--max 64M] [--iters 20] [--op sum] [--dtype f32]
--
-- Columns: size in bytes of a rank's tensor; the median time of a call on the slowest rank; algbw = size / time; busbw = algbw
-- times 2 (n - 1) / n, what a ring sends over each link; #wrong = elements that are not the expected result, on all ranks.

local ag = require "argand"
local core = require "argand.core"
local dist = require "argand.dist"

local USAGE = "usage: allreduce.lua [--min SIZE] [--max SIZE] [--iters N] [--op OP] [--dtype DTYPE]; sizes as 4, 64K, 1M, 2G"
local UNITS = { [""] = 1, K = 2 ^ 10, M = 2 ^ 20, G = 2 ^ 30 }
local ELEMENT_BYTES = { f64 = 8, f32 = 4, f16 = 2, bf16 = 2, i64 = 8, i32 = 4, i16 = 2, i8 = 1, u8 = 1 }
local NUM_WARM_UP = 3

local function refuse(text)
  io.stderr:write(text, "\n", USAGE, "\n")
  os.exit(2)
end

local function size_of(name, text)
  local number, unit = text:upper():match "^(%d+)([KMG]?)$"
  return number and number * UNITS[unit] or refuse(("%s %s: no size"):format(name, text))
end

local function read_arguments()
  local settings = { min = "1K", max = "64M", iters = "20", op = "sum", dtype = "f32" }
  for i = 1, #arg, 2 do
    local name = arg[i]:match "^%-%-(%a+)$"
    if not name or not settings[name] or not arg[i + 1] then refuse(arg[i] .. ": unknown, or without a value") end
    settings[name] = arg[i + 1]
  end
  settings.min, settings.max = size_of("--min", settings.min), size_of("--max", settings.max)
  settings.iters = tonumber(settings.iters)
  if not settings.iters or settings.iters < 1 then refuse "--iters: expected a number from 1 on" end
  if not ELEMENT_BYTES[settings.dtype] then refuse("--dtype: no numbers of dtype " .. settings.dtype) end
  return settings
end

local settings = read_arguments()
dist.init()
local rank, size = dist.rank(), dist.size()
local can, reason = dist.supports("all_reduce", { dtype = settings.dtype }, settings.op)
if not can then refuse(reason) end

-- What rank r gives at place i: small whole numbers, so that no dtype rounds or overflows; a factor is 2 now and then, else 1.
local PERIOD = 7
local function value(r, i)
  local k = (r + i) % PERIOD
  if settings.op == "prod" then return k == 0 and 2 or 1 end
  return 1 + k
end

local FOLD = {
  sum = function(a, b) return a + b end, mean = function(a, b) return a + b end,
  min = math.min, max = math.max, prod = function(a, b) return a * b end,
}

-- What all ranks together give at place i.
local function result_at(i)
  local result = value(0, i)
  for r = 1, size - 1 do result = FOLD[settings.op](result, value(r, i)) end
  return settings.op == "mean" and result / size or result
end

-- [count] of fn(0), fn(1) … fn(PERIOD - 1), over and over.
local function periodic(count, fn)
  local values, times = {}, math.ceil(count / PERIOD)
  for i = 1, PERIOD do values[i] = fn(i - 1) end
  return ag.tensor(values, { dtype = settings.dtype }):expand(times, PERIOD):reshape(-1):narrow(1, 1, count):clone()
end

local function wrong_in(t, expected)
  return dist.all_reduce(t:ne(expected):sum():item())
end

-- The median of the times of run(), the longest of all ranks; before() is not timed.
local function time_of(before, run)
  local times = {}
  for i = 1 - NUM_WARM_UP, settings.iters do
    before()
    dist.barrier()
    local start = core.now()
    run()
    if i > 0 then times[i] = core.now() - start end
  end
  table.sort(times)
  return dist.all_reduce(times[math.ceil(#times / 2)], { op = "max" })
end

local function measure(count)
  local input = periodic(count, function(i) return value(rank, i) end)
  local expected = periodic(count, result_at)
  local out = ag.zeros(count, { dtype = settings.dtype })
  local result = { count = count, bytes = count * ELEMENT_BYTES[settings.dtype] }
  result.out_s = time_of(function() out:fill_(0) end, function() dist.all_reduce(input, { op = settings.op, out = out }) end)
  result.out_wrong = wrong_in(out, expected)
  result.in_s = time_of(function() out:copy_(input) end, function() dist.all_reduce_(out, { op = settings.op }) end)
  result.in_wrong = wrong_in(out, expected)
  return result
end

local ROW = "%11s %11s %6s %5s  %10s %7s %7s %7s  %10s %7s %7s %7s"

local function show(r)
  local columns = {}
  for _, seconds in ipairs { r.out_s, r.in_s } do
    local algbw = r.bytes / seconds / 1e9
    columns[#columns + 1] = ("%.1f"):format(seconds * 1e6)
    columns[#columns + 1] = ("%.2f"):format(algbw)
    columns[#columns + 1] = ("%.2f"):format(algbw * 2 * (size - 1) / size)
  end
  print(ROW:format(r.bytes, r.count, settings.dtype, settings.op, columns[1], columns[2], columns[3], r.out_wrong, columns[4],
    columns[5], columns[6], r.in_wrong))
  io.stdout:flush()
end

local info = dist.info()
dist.on(0, function()
  print(("# %d ranks over %s%s, median of %d calls"):format(size, info.transport, info.encrypted and ", encrypted" or "",
    settings.iters))
  print(ROW:format("", "", "", "", "out of place", "", "", "", "in place", "", "", ""))
  print(ROW:format("bytes", "elements", "type", "op", "us", "algbw", "busbw", "#wrong", "us", "algbw", "busbw", "#wrong"))
end)

local bytes, num_wrong = settings.min, 0
while bytes <= settings.max do
  local result = measure(math.max(1, math.floor(bytes / ELEMENT_BYTES[settings.dtype])))
  num_wrong = num_wrong + result.out_wrong + result.in_wrong
  dist.on(0, show, result)
  bytes = bytes * 4
end
dist.close()
os.exit(num_wrong == 0 and 0 or 1)
