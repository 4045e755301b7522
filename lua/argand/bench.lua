--- bench: `argand bench [names] [--quick] [--no-torch] [--json FILE]`: times the cases beside PyTorch, in one run.
-- `argand bench dist` and `argand bench ddp` time jobs of several processes: bench/dist.lua, bench/ddp.lua.
--
-- Samples alternate (ours, PyTorch's, ours, ...), so that what disturbs the machine disturbs both; the minimum of each is
-- compared. The machine's peak is measured first, in the same run and with the engine's own kernels, since a Lua loop reaches
-- no vector unit: floating point by matrix products that stay in the second-level cache (256^3, 512^3), bandwidth by scaling a
-- tensor in place and by a + b into c, whichever is faster, with tensors of 4 MiB (last-level cache) and of 128 MiB (memory).
local ag = require "argand"
local core = require "argand.core"
local report_of = require "argand.bench.report"

local time_text, optional = report_of.time_text, report_of.optional

local M = {}

-- A sample is long enough to hold its share of garbage collection. A case gets samples for `case_s`, within the two counts.
local FULL = { min_samples = 15, max_samples = 100, case_s = 2, sample_s = 0.003, settle_s = 0.003 }
local QUICK = { min_samples = 3, max_samples = 3, case_s = 0, sample_s = 0.0005, settle_s = 0 }

local function time_run(run, count)
  local start = core.now()
  run(count)
  return core.now() - start
end

-- How many runs make a sample of about `target` seconds; time(count) gives seconds. It also warms up.
local function count_for(time, target)
  local count = 1
  while true do
    local seconds = time(count)
    if seconds >= target / 2 or count >= 1e7 then return math.max(1, math.ceil(count * target / seconds)) end
    count = count * (seconds > target / 64 and 2 or 8)
  end
end

local function summary(samples)
  table.sort(samples)
  local n = #samples
  return { min = samples[1], median = (samples[math.ceil(n / 2)] + samples[math.floor(n / 2) + 1]) / 2, num_samples = n }
end

local function best_of(run, count, num_samples)
  local best = math.huge
  for _ = 1, num_samples do best = math.min(best, time_run(run, count) / count) end
  return best
end

local function bandwidth(num_elements, count, num_samples)
  local a, b, c = ag.ones(num_elements), ag.ones(num_elements), ag.zeros(num_elements)
  local out = { out = c }
  local add = 12 * num_elements / best_of(function(n) for _ = 1, n do a:add(b, out) end end, count, num_samples)
  local scale = 8 * num_elements / best_of(function(n) for _ = 1, n do c:mul_(0.5) end end, count, num_samples)
  for _, tensor in ipairs { a, b, c } do tensor:free() end
  return math.max(add, scale) / 1e9
end

local function product_rate(size, num_samples)
  local a, b = ag.randn(size, size), ag.randn(size, size)
  return 2 * size ^ 3 / best_of(function(n) for _ = 1, n do a:matmul(b) end end, 4, num_samples) / 1e9
end

--- Peak rates of this machine as the engine's kernels reach them.
---@return {gflops: number, cache_gbs: number, memory_gbs: number}
local function measure_peak(settings)
  local is_quick = settings == QUICK
  return {
    gflops = math.max(product_rate(256, settings.max_samples), product_rate(512, settings.max_samples)),
    cache_gbs = bandwidth(2 ^ 20, 4, settings.max_samples),
    memory_gbs = bandwidth(is_quick and 2 ^ 23 or 2 ^ 25, 1, settings.min_samples),
  }
end

-- The peer's better thread count of 1 and 2, and the count of runs for a sample.
local function prepare_peer(peer, name, settings)
  if not peer:time(name, 1, 1) then return nil end
  local best
  for threads = 1, 2 do
    local count = count_for(function(n) return peer:time(name, n, threads) end, settings.sample_s)
    local seconds = math.huge
    for _ = 1, 3 do seconds = math.min(seconds, peer:time(name, count, threads) / count) end
    if not best or seconds < best.seconds then best = { threads = threads, count = count, seconds = seconds } end
  end
  return best
end

local function measure(case, peer, settings)
  local run = case.make()
  run(1)
  local count = count_for(function(n) return time_run(run, n) end, settings.sample_s)
  local theirs = peer and prepare_peer(peer, case.name, settings)
  local samples, peer_samples = {}, {}
  local start, i = core.now(), 0
  while i < settings.min_samples or (i < settings.max_samples and core.now() - start < settings.case_s) do
    i = i + 1
    core.sleep(settings.settle_s) -- idle threads of the other side stop spinning
    samples[i] = time_run(run, count) / count
    if theirs then
      core.sleep(settings.settle_s)
      peer_samples[i] = peer:time(case.name, theirs.count, theirs.threads) / theirs.count
    end
  end
  local result = summary(samples)
  result.name, result.bar = case.name, case.bar
  if theirs then
    result.torch = summary(peer_samples)
    result.torch.threads = theirs.threads
    result.ratio = result.min / result.torch.min
  end
  return result
end

local function add_rates(result, case, peak)
  if case.bytes then result.gbs = case.bytes / result.min / 1e9 end
  if case.flops then result.gflops = case.flops / result.min / 1e9 end
  local peak_gbs = case.place == "memory" and peak.memory_gbs or peak.cache_gbs
  result.of_peak = case.flops and result.gflops / peak.gflops or case.bytes and result.gbs / peak_gbs or nil
end

-- ---- showing ----

local ROW = "%-40s %9s %9s %7s %8s %8s %9s %9s %7s %6s %5s %s"

local function print_header(peak, peer, reason)
  print(("peak: %.0f GFLOP/s (f32 matrix product), %.0f GB/s in cache, %.0f GB/s in memory; %d threads"):format(
    peak.gflops, peak.cache_gbs, peak.memory_gbs, core.get_num_threads()))
  print(peer and "beside PyTorch " .. peer.version .. " at its better thread count of 1 and 2" or
    "without PyTorch: " .. reason)
  print(ROW:format("case", "min", "median", "GB/s", "GFLOP/s", "of peak", "torch min", "median", "threads", "ratio", "bar", ""))
end

local function print_result(r)
  local torch = r.torch
  print(ROW:format(r.name, time_text(r.min), time_text(r.median), optional("%.1f", r.gbs), optional("%.0f", r.gflops),
    r.of_peak and ("%.0f %%"):format(r.of_peak * 100) or "-", torch and time_text(torch.min) or "-",
    torch and time_text(torch.median) or "-", optional("%d", torch and torch.threads), optional("%.3f", r.ratio),
    optional("%.2f", r.bar), r.ratio and (r.ratio <= r.bar and "ok" or "MISSED") or ""))
  io.stdout:flush()
end

local function is_chosen(case, names)
  for _, name in ipairs(names) do
    if case.name:find(name, 1, true) then return true end
  end
  return #names == 0
end

--- Times the cases whose names contain one of `args`, prints a table, and returns {peak, results}.
---@param args string[]
---@return {peak: table, results: table[]}
function M.main(args)
  if args[1] == "dist" or args[1] == "ddp" then return require("argand.bench." .. args[1]).main({ unpack(args, 2) }) end
  local options, names = report_of.read_args(args, { "--quick", "--no-torch" })
  local settings = options.quick and QUICK or FULL
  local peer, reason
  if options.no_torch or options.quick then reason = "not asked for" else peer, reason = require("argand.bench.peer").open() end
  local peak = measure_peak(settings)
  print_header(peak, peer, reason)
  local results = {}
  for _, case in ipairs(require("argand.bench.cases")) do
    if is_chosen(case, names) then
      local result = measure(case, peer, settings)
      add_rates(result, case, peak)
      print_result(result)
      results[#results + 1] = result
      core.memory_trim()
    end
  end
  if peer then peer:close() end
  local report = { peak = peak, results = results, torch = peer and peer.version, cpu = core.info().cpu }
  if options.json then report_of.write_json(options.json, report) end
  return report
end

return M
