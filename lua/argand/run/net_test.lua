--- net_test: `argand run --net-test`: latency and bandwidth between every two ranks, one pair at a time, medians.
local ag = require "argand"
local core = require "argand.core"
local dist = require "argand.dist"

local NUM_ROUNDS, NUM_LARGE, NUM_FLOATS = 200, 8, 2 ^ 20
local SMALL, LARGE = {shape = {1}, dtype = "f32"}, {shape = {NUM_FLOATS}, dtype = "f32"}

-- Sends to `peer` and back, `rounds` times; the seconds of one way, the median.
local function one_way(peer, is_first, tensor, like, rounds)
  local samples = {}
  for round = 0, rounds do
    local start = core.now()
    if is_first then
      dist.send(tensor, peer)
      dist.receive(peer, like)
    else
      dist.send(dist.receive(peer, like), peer)
    end
    if round > 0 then samples[round] = (core.now() - start) / 2 end -- the first one warms up
  end
  table.sort(samples)
  return samples[math.ceil(rounds / 2)]
end

local function measure(peer, is_first)
  local latency = one_way(peer, is_first, ag.zeros(1), SMALL, NUM_ROUNDS)
  local seconds = one_way(peer, is_first, ag.zeros(NUM_FLOATS), LARGE, NUM_LARGE)
  return latency * 1e6, 4 * NUM_FLOATS / seconds / 1e9
end

dist.init()
local rank, size = dist.rank(), dist.size()
local results = {}
for a = 0, size - 1 do
  for b = a + 1, size - 1 do
    local latency, bandwidth
    if rank == a then latency, bandwidth = measure(b, true) elseif rank == b then measure(a, false) end
    if a ~= 0 and rank == a then dist.send(ag.tensor({latency, bandwidth}, {dtype = "f64"}), 0) end
    if a ~= 0 and rank == 0 then latency, bandwidth = unpack(dist.receive(a, {shape = {2}, dtype = "f64"}):tolist()) end
    if rank == 0 then results[#results + 1] = {a, b, latency, bandwidth} end
    dist.barrier()
  end
end
if rank == 0 then
  print(("%-11s %12s %16s"):format("ranks", "latency", "bandwidth"))
  for _, row in ipairs(results) do
    print(("%-11s %9.1f us %11.2f GB/s"):format(("%d - %d"):format(row[1], row[2]), row[3], row[4]))
  end
  if size == 1 then print "one rank has nobody to talk to: say -n 2" end
end
dist.close()
