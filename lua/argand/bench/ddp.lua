--- ddp: `argand bench ddp [--quick] [--json FILE]`: what a second rank on a second processor adds to a training.
--
-- A network of 10 million parameters is trained with AdamW by one rank, by two ranks (with and without a shared-out optimizer),
-- and by two jobs of one rank at once, which exchange nothing: what two processors can give at most. Each rank has one thread
-- and a batch of its own, of the same size. Groups live through the run and are asked in turn; a step lasts from the first
-- rank's start to the last one's end. Memory that ranks share counts in equal parts.
local core = require "argand.core"
local ranks_of = require "argand.bench.ranks"
local report_of = require "argand.bench.report"

local M = {}

local ANSWER_S = 300
local BAR = 1.7
local FULL = { batch = 256, steps = 4, samples = 10 }
local QUICK = { batch = 8, steps = 2, samples = 1 }

-- The groups, in the order of the table.
local function open_groups(script, batch, folder, groups)
  local name = "bench-ddp-" .. core.process.self().pid
  local function job(suffix, rank, size, shard)
    return ranks_of.command({ script, tostring(batch), shard }, { job = name .. suffix, rank = rank, size = size })
  end
  local setups = {
    { label = "1 rank", ranks = 1, commands = { job("a", 0, 1) } },
    { label = "2 ranks", ranks = 2, commands = { job("b", 0, 2), job("b", 1, 2) } },
    { label = "2 ranks, shard ranks", ranks = 2, commands = { job("e", 0, 2, "ranks"), job("e", 1, 2, "ranks") } },
    { label = "2 ranks, shard host", ranks = 2, commands = { job("f", 0, 2, "host"), job("f", 1, 2, "host") } },
    { label = "2 jobs of 1 rank", ranks = 2, commands = { job("c", 0, 1), job("d", 0, 1) } },
  }
  for _, setup in ipairs(setups) do
    local group, reason = ranks_of.open(setup.label, folder, setup.commands)
    if not group then core.raise("state", "bench", reason) end
    groups[#groups + 1] = { group = group, label = setup.label, ranks = setup.ranks, times = {}, hidden = 0, exposed = 0 }
  end
end

local function take_sample(g, num_steps)
  local answers, reason = g.group:ask(tostring(num_steps), ANSWER_S)
  if not answers then core.raise("state", "bench", reason) end
  local first, last = math.huge, 0
  for _, answer in ipairs(answers) do
    local start, stop, hidden, exposed, mib = answer:match "^ok (%S+) (%S+) (%S+) (%S+) (%S+)$"
    g.mib = math.max(g.mib or 0, tonumber(mib))
    first, last = math.min(first, tonumber(start)), math.max(last, tonumber(stop))
    g.hidden, g.exposed = g.hidden + tonumber(hidden), g.exposed + tonumber(exposed)
  end
  g.times[#g.times + 1] = (last - first) / num_steps
end

local function summarize(g, batch)
  table.sort(g.times)
  local step_s = g.times[math.ceil(#g.times / 2)]
  local result = { label = g.label, ranks = g.ranks, step_p50 = step_s, step_best = g.times[1],
    samples_per_s = g.ranks * batch / step_s, mib = g.mib }
  local total = g.hidden + g.exposed
  if total > 0 then result.hidden_share = g.hidden / total end
  return result
end

local ROW = "%-21s %10s %10s %12s %7s %8s %9s %-8s %s"

local function show(results)
  print(ROW:format("", "step p50", "best", "samples/s", "ratio", "hidden", "MiB/rank", "bar", ""))
  for _, r in ipairs(results) do
    local is_met = r.bar and (r.ratio >= r.bar and "ok" or "MISSED")
    print(ROW:format(r.label, report_of.time_text(r.step_p50), report_of.time_text(r.step_best),
      ("%.0f"):format(r.samples_per_s), ("%.2f"):format(r.ratio), r.hidden_share and ("%.0f %%"):format(r.hidden_share * 100) or
      "-", ("%.0f"):format(r.mib), report_of.optional(">= %.1f", r.bar), is_met or ""))
  end
end

local function run(script, settings, folder, groups)
  open_groups(script, settings.batch, folder, groups)
  print(("%s; %s parameters, AdamW, batch %d for each rank, 1 thread for each rank"):format(core.info().cpu,
    groups[1].group.version, settings.batch))
  for _, g in ipairs(groups) do g.group:ask("1", ANSWER_S) end -- warm up
  for _ = 1, settings.samples do
    for _, g in ipairs(groups) do take_sample(g, settings.steps) end
  end
  local results = {}
  for i, g in ipairs(groups) do
    results[i] = summarize(g, settings.batch)
    results[i].ratio = results[i].samples_per_s / results[1].samples_per_s
  end
  results[2].bar = BAR
  show(results)
  return { cpu = core.info().cpu, batch = settings.batch, parameters = tonumber(groups[1].group.version), results = results }
end

--- Times the trainings, prints a table, and returns {cpu, batch, parameters, results}.
---@param args string[]
---@return {cpu: string, batch: integer, parameters: integer, results: table[]}
function M.main(args)
  local options, names = report_of.read_args(args, { "--quick" })
  if names[1] then core.raise("argument", "bench", "ddp takes no names, got " .. names[1]) end
  local script, reason = ranks_of.script "ddp_rank.lua"
  if not script then core.raise("state", "bench", reason) end
  local groups, folder, remove = {}, ranks_of.folder()
  local ok, report = pcall(run, script, options.quick and QUICK or FULL, folder, groups)
  for _, g in ipairs(groups) do g.group:close() end
  remove()
  if not ok then error(report, 0) end
  if options.json then report_of.write_json(options.json, report) end
  return report
end

return M
