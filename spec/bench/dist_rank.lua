--- dist_rank: one rank of a job of ours for `argand bench dist`; a server on standard input.
--
-- First it prints "ready", a version and the transport. A line "<way> <count> <iterations> <lead>" asks for a sample:
-- all_reduce of `count` f32. The answer is "ok", how many elements were wrong, then start and end of each iteration in seconds
-- of the monotonic clock, which is the same in all processes of a host. Ways:
--   ordinary   a tensor into another one
--   resident   out of memory that all ranks share into a result for each of them, in such memory, too
--   shared     out of that memory into one result for all ranks
--   in_place   in place in that memory
--   copy       no collective: a tensor is copied into another one
--
-- With a lead (microseconds; 0 = none) ranks agree on a time so much later before each iteration, and begin it then: one that
-- begins early would measure how late the others are.
--
-- All sums are checked. Element i holds (rank + 1) (1 + i % 61), so that a part in the wrong place is noticed; before and after
-- the timed iterations all elements are compared. In between, a few elements get other values before each iteration, so that a
-- result which was left from the one before is noticed, too. None of that is timed.
local ag = require "argand"
local core = require "argand.core"
local dist = require "argand.dist"

local now = core.now

local PERIOD, FRESH = 61, 100
local LAST = { op = "max" }

local rank, size

-- How often sums may be summed again in place before f32 rounds them.
local function exact_steps()
  local bits, power = 0, 1
  while power < size do bits, power = bits + 1, power * 2 end
  return math.max(1, math.floor((power == size and 90 or 14) / math.max(1, bits)))
end

local function fill(data, count, scale)
  local i = 0
  while i < count do
    for k = 1, math.min(PERIOD, count - i) do data[i + k - 1] = scale * k end
    i = i + PERIOD
  end
end

local function count_wrong(data, count, scale)
  local i, wrong = 0, 0
  while i < count do
    for k = 1, math.min(PERIOD, count - i) do
      if data[i + k - 1] ~= scale * k then wrong = wrong + 1 end
    end
    i = i + PERIOD
  end
  return wrong
end

local function base(i) return 1 + i % PERIOD end
local function fresh(i, step) return FRESH + (i + step) % PERIOD end

local spots = {}
local function choose_spots(count, step)
  spots[1], spots[2] = 0, count - 1
  spots[3], spots[4] = step * 2654435761 % count, (step * 40503 + 12345) % count
  return spots
end

-- ---- ways: make(count) -> input, output, run ----

local ways = {}

function ways.ordinary(count)
  local input, output = ag.zeros(count), ag.zeros(count)
  local opts = { out = output }
  return input, output, function() dist.all_reduce(input, opts) end
end

local function shared_way(count, has_one_result)
  local own, result = dist.shared_tensor(count, { shared_result = has_one_result })
  local opts = { out = result }
  return own, result, function() dist.all_reduce(own, opts) end
end

function ways.resident(count) return shared_way(count, false) end
function ways.shared(count) return shared_way(count, true) end

function ways.in_place(count)
  local own = dist.shared_tensor(count, { shared_result = true })
  return own, own, function() dist.all_reduce_(own) end
end

function ways.copy(count)
  local input, output = ag.zeros(count), ag.zeros(count)
  return input, output, function() output:copy_(input) end
end

-- ---- samples ----

local held = {}

-- The case asked for; one of a kind is kept.
local function hold(way, count)
  local case = held[way]
  if case and case.count == count then return case end
  held[way] = nil
  collectgarbage()
  local input, output, run = ways[way](count)
  case = { count = count, input = input:data(), output = output:data(), run = run, is_in_place = input == output,
    is_shared = way == "shared", num = way == "copy" and 1 or size, own = way == "copy" and 1 or rank + 1 }
  case.sum = case.num * (case.num + 1) / 2
  held[way] = case
  return case
end

-- Tells how many of the spots were wrong. Of a result in place they become what the elements beside them are.
local function check_spots(case, step, scale)
  local wrong = 0
  for _, i in ipairs(spots) do
    if case.output[i] ~= case.sum * fresh(i, step) then wrong = wrong + 1 end
  end
  for _, i in ipairs(spots) do
    case.input[i] = (case.is_in_place and scale or case.own) * base(i)
  end
  return wrong
end

-- Returns at a time that is the same on all ranks, or at once where it has passed.
local function wait_together(lead_s)
  local start = dist.all_reduce(now() + lead_s, LAST)
  while now() < start do end
end

local function sample(case, iterations, lead_s, times)
  local count, input, run, period = case.count, case.input, case.run, exact_steps()
  local scale, wrong = case.sum, 0
  fill(input, count, case.own)
  if not case.is_in_place and not case.is_shared then fill(case.output, count, -1) end
  run()
  wrong = wrong + count_wrong(case.output, count, scale)
  for step = 1, iterations do
    if case.is_in_place and step % period == 0 then
      fill(input, count, case.own)
      scale = case.sum
    elseif case.is_in_place then
      scale = scale * case.num
    end
    local has_spots = step < iterations
    if has_spots then
      for _, i in ipairs(choose_spots(count, step)) do input[i] = case.own * fresh(i, step) end
    end
    if lead_s > 0 then wait_together(lead_s) end
    local start = now()
    run()
    times[2 * step - 1], times[2 * step] = start, now()
    if has_spots then wrong = wrong + check_spots(case, step, scale) end
  end
  return wrong + count_wrong(case.output, count, scale)
end

local function answer(way, count, iterations, lead_us)
  local times = {}
  local wrong = sample(hold(way, count), iterations, lead_us / 1e6, times)
  for i = 1, 2 * iterations do times[i] = ("%.9f"):format(times[i]) end
  return ("ok %d %s"):format(wrong, table.concat(times, " "))
end

dist.init()
rank, size = dist.rank(), dist.size()
io.stdout:setvbuf "line"
print(("ready Argand %s %s"):format(ag._VERSION, dist.info().transport))
for line in io.stdin:lines() do
  local way, count, iterations, lead_us = line:match "^([%a_]+) (%d+) (%d+) (%d+)$"
  print(answer(way, tonumber(count), tonumber(iterations), tonumber(lead_us)))
end
dist.close()
