--- dist: `argand bench dist [names] [--quick] [--neighbour] [--bind] [--json FILE]`: all_reduce beside Gloo and MPI.
--
-- Groups of ranks, ours, Gloo's (PyTorch) and MPI's, live through a section and sleep until they are asked. They are asked in
-- turn, for a few iterations each, so that what disturbs the machine disturbs all. An iteration lasts from the first rank's
-- start to the last rank's end; its sums are checked outside of that time. See spec/bench/README.md.
local core = require "argand.core"
local ranks_of = require "argand.bench.ranks"
local report_of = require "argand.bench.report"

local M = {}

local KI, MI = 2 ^ 10, 2 ^ 20
local ANSWER_S = 120
local LEAD_US = 200 -- longer than the ranks need to agree on a time
local NEIGHBOUR_BAR = 2

local WAYS = { "ordinary", "resident", "shared", "in_place" }

-- A bar is a ratio to Gloo's time, or seconds, for each way but in_place, which keeps inputs (README). A case takes `samples`
-- samples of `iterations` from each group.
local SECTIONS = {
  { ranks = 2, transports = { "shm" }, cases = {
    { bytes = 64 * MI, iterations = 4, samples = 12, ways = WAYS, bars = { ordinary = 3, resident = 6, shared = 9 } },
    { bytes = 4 * MI, iterations = 15, samples = 15, ways = WAYS, bars = { ordinary = 6, resident = 6, shared = 6 } },
    { bytes = 64 * KI, iterations = 100, samples = 20, ways = WAYS, seconds = 20e-6 },
    { bytes = 4, iterations = 200, samples = 20, ways = WAYS, seconds = 15e-6 },
  } },
  { ranks = 4, transports = { "shm" }, cases = {
    { bytes = 64 * MI, iterations = 3, samples = 10, ways = WAYS, bars = { ordinary = 4, resident = 4, shared = 4 } },
  } },
  { ranks = 2, transports = { "ipc", "tcp", "curve" }, cases = {
    { bytes = 1 * MI, iterations = 20, samples = 12, ways = { "ordinary" }, bars = { tcp = 1 } },
    { bytes = 4 * MI, iterations = 8, samples = 12, ways = { "ordinary" }, bars = { tcp = 1 } },
    { bytes = 64 * MI, iterations = 2, samples = 8, ways = { "ordinary" }, bars = { tcp = 1 } },
  } },
}

-- Bytes that n ranks move at least, as multiples of the tensor's size, when memory is read once and written once; see README.
local TRAFFIC = {
  ordinary = function(n) return 2 * n end,
  resident = function(n) return 2 * n end,
  in_place = function(n) return 3 * n + 1 end,
  shared = function(n) return n + 1 end,
}

-- ---- groups ----

local function exists(path)
  local file = io.open(path)
  if file then file:close() end
  return file ~= nil
end

local num_jobs = 0
local function new_job()
  num_jobs = num_jobs + 1
  return ("bench-%d-%d"):format(core.process.self().pid, num_jobs)
end

-- Ranks of ours, each with one thread.
local function open_ours(setup, num_ranks, transport)
  local job, commands, key = new_job(), {}, nil
  if transport == "curve" then
    key = setup.folder .. "/key." .. job
    if not core.dist.keygen(key) then return nil, "no key could be made" end
  end
  for rank = 0, num_ranks - 1 do
    commands[rank + 1] = ranks_of.command({ setup.script }, { job = job, rank = rank, size = num_ranks, key = key,
      transport = transport == "curve" and "tcp" or transport })
  end
  if setup.bind then ranks_of.bind(commands) end
  return ranks_of.open(("ours-%s-%d"):format(transport, num_ranks), setup.folder, commands)
end

local function open_gloo(setup, num_ranks)
  local python = os.getenv "ARGAND_PYTHON" or "/usr/bin/python3"
  if not exists(python) then return nil, "there is no " .. python end
  local script, reason = ranks_of.script "gloo_rank.py"
  if not script then return nil, reason end
  local commands, meeting = {}, setup.folder .. "/gloo." .. new_job()
  for rank = 0, num_ranks - 1 do
    commands[rank + 1] = { argv = { python, script, tostring(rank), tostring(num_ranks), meeting },
      env = ranks_of.environment { OMP_NUM_THREADS = 1 } }
  end
  if setup.bind then ranks_of.bind(commands) end
  return ranks_of.open("gloo-" .. num_ranks, setup.folder, commands)
end

local function open_mpi(setup, num_ranks)
  local program = setup.folder .. "/mpi_allreduce"
  if not exists(program) then
    local source, reason = ranks_of.script "mpi_allreduce.c"
    if not source then return nil, reason end
    if not ranks_of.run({ "mpicc", "-std=gnu11", "-O2", "-o", program, source }, 60) then return nil, "no mpicc" end
  end
  return ranks_of.open("mpi-" .. num_ranks, setup.folder, { {
    argv = { "mpirun", "--oversubscribe", "-n", tostring(num_ranks), program, setup.folder },
    env = ranks_of.environment { OMPI_ALLOW_RUN_AS_ROOT = 1, OMPI_ALLOW_RUN_AS_ROOT_CONFIRM = 1, TMPDIR = setup.folder },
  } })
end

-- ---- samples ----

-- A contender of a case: a group, a way, and what was measured so far.
local function contender(group, way, label)
  return { group = group, way = way, label = label, times = {}, wrong = 0 }
end

-- Adds an iteration's time for each pair of first start and last end.
local function add_times(times, answers)
  local starts, ends = {}, {}
  for _, answer in ipairs(answers) do
    local i, is_start = 1, true
    for number in answer:gmatch " (%d+%.%d+)" do
      local value = tonumber(number)
      if is_start then
        starts[i] = math.min(starts[i] or math.huge, value)
      else
        ends[i] = math.max(ends[i] or 0, value)
        i = i + 1
      end
      is_start = not is_start
    end
  end
  for i = 1, #ends do times[#times + 1] = ends[i] - starts[i] end
end

local function take_sample(c, count, iterations, lead_us)
  local answers, reason = c.group:ask(("%s %d %d %d"):format(c.way, count, iterations, lead_us), ANSWER_S)
  if not answers then core.raise("state", "bench", reason) end
  for _, answer in ipairs(answers) do
    local wrong = answer:match "^ok (%d+) "
    if not wrong then core.raise("state", "bench", c.group.name .. " said " .. answer) end
    c.wrong = c.wrong + tonumber(wrong)
  end
  add_times(c.times, answers)
end

local function summarize(c)
  local times = c.times
  table.sort(times)
  return { p50 = times[math.ceil(#times / 2)], best = times[1], num_iterations = #times, wrong = c.wrong }
end

-- Asks in turn, until each has given its samples.
local function measure(contenders, count, iterations, samples, lead_us)
  for _ = 1, samples do
    for _, c in ipairs(contenders) do
      take_sample(c, count, iterations, lead_us)
    end
  end
  for _, c in ipairs(contenders) do c.result = summarize(c) end
end

-- Bytes read and written in a second while all ranks copy at once. Nothing holds them together, so each rank's own times count.
local function traffic_rate(group, count)
  local answers, reason = group:ask(("copy %d 12 0"):format(count), ANSWER_S)
  if not answers then core.raise("state", "bench", reason) end
  local rate = 0
  for _, answer in ipairs(answers) do
    local times = {}
    add_times(times, { answer })
    table.sort(times)
    rate = rate + 8 * count / times[#times / 2]
  end
  return rate
end

-- ---- results ----

local function size_text(bytes)
  if bytes >= MI then return ("%g MiB"):format(bytes / MI) end
  return bytes >= KI and ("%g KiB"):format(bytes / KI) or ("%d B"):format(bytes)
end

local function add_verdict(r, case, has_neighbour)
  local bar = case.bars and (case.bars[r.way] or case.bars[r.transport])
  if has_neighbour and r.transport == "shm" then bar = NEIGHBOUR_BAR end
  if bar then
    r.bar = (">= %gx"):format(bar)
    if r.ratio then r.is_met = r.ratio >= bar end
  elseif case.seconds and r.way ~= "in_place" then
    r.bar = ("<= %.0f us"):format(case.seconds * 1e6)
    if r.p50 then r.is_met = r.p50 <= case.seconds end
  end
end

-- run: a section under way, {section, groups, traffic, setup}.
local function make_result(c, case, bytes, peers, run)
  local r, num_ranks = c.result, run.section.ranks
  r.ranks, r.bytes, r.way, r.transport = num_ranks, bytes, c.way, c.label
  r.gbs = r.p50 and bytes / r.p50 / 1e9
  r.gloo, r.mpi = peers.gloo and peers.gloo.result, peers.mpi and peers.mpi.result
  if r.p50 and r.gloo and r.gloo.p50 then r.ratio = r.gloo.p50 / r.p50 end
  if run.setup.quick then return r end -- its times are no measure of anything
  if run.traffic and case.bytes >= 64 * MI then r.limit = TRAFFIC[c.way](num_ranks) * bytes / run.traffic end
  add_verdict(r, case, run.setup.neighbour)
  return r
end

local ROW = "%5s %8s  %-6s %-9s %9s %9s %6s %9s %9s %6s %9s %6s %-9s %s"

local function print_header()
  print(ROW:format("ranks", "size", "over", "way", "p50", "best", "GB/s", "limit", "Gloo p50", "ratio", "MPI p50", "wrong",
    "bar", ""))
end

local function time_or_dash(seconds) return seconds and report_of.time_text(seconds) or "-" end

local function print_result(r)
  local verdict = r.is_met == nil and "" or r.is_met and "ok" or "MISSED"
  if r.wrong and r.wrong > 0 then verdict = "WRONG SUMS" end
  print(ROW:format(r.ranks, size_text(r.bytes), r.transport, r.way, time_or_dash(r.p50), time_or_dash(r.best),
    report_of.optional("%.2f", r.gbs), time_or_dash(r.limit), time_or_dash(r.gloo and r.gloo.p50),
    report_of.optional("%.1fx", r.ratio), time_or_dash(r.mpi and r.mpi.p50), report_of.optional("%d", r.wrong), r.bar or "",
    verdict))
  io.stdout:flush()
end

-- ---- sections ----

local function open_groups(section, setup)
  local groups = { ours = {} }
  setup.open[#setup.open + 1] = groups
  for _, transport in ipairs(section.transports) do
    local group, reason = open_ours(setup, section.ranks, transport)
    if not group then core.raise("state", "bench", reason) end
    local actual = group.version:match "%S+$" -- where shared memory cannot be had, it is another
    groups.ours[#groups.ours + 1] = { group = group, transport = transport == "curve" and transport or actual }
  end
  local reasons = {}
  groups.gloo, reasons.gloo = open_gloo(setup, section.ranks)
  groups.mpi, reasons.mpi = open_mpi(setup, section.ranks)
  for _, name in ipairs { "gloo", "mpi" } do
    local version = groups[name] and groups[name].version
    print(("%d ranks: %s"):format(section.ranks, version and "beside " .. version or name .. " is not here: " .. reasons[name]))
  end
  return groups
end

local function close_groups(groups)
  for _, ours in ipairs(groups.ours) do ours.group:close() end
  if groups.gloo then groups.gloo:close() end
  if groups.mpi then groups.mpi:close() end
end

local function run_case(case, run, results)
  local setup, groups = run.setup, run.groups
  local bytes = setup.quick and math.max(4, case.bytes / 64) or case.bytes
  local mine, all, peers = {}, {}, {}
  for _, ours in ipairs(groups.ours) do
    for _, way in ipairs(case.ways) do mine[#mine + 1] = contender(ours.group, way, ours.transport) end
  end
  for i, c in ipairs(mine) do all[i] = c end
  for _, name in ipairs { "gloo", "mpi" } do
    peers[name] = groups[name] and contender(groups[name], name == "gloo" and "in_place" or "ordinary", name)
    all[#all + 1] = peers[name]
  end
  -- Ranks that share processors cannot wait for a moment together: who waits keeps another from coming to it.
  local num_busy = run.section.ranks + (setup.neighbour and 1 or 0)
  local lead_us = num_busy <= setup.processors and LEAD_US or 0
  measure(all, bytes / 4, setup.quick and 2 or case.iterations, setup.quick and 1 or case.samples, lead_us)
  for _, c in ipairs(mine) do
    local r = make_result(c, case, bytes, peers, run)
    results[#results + 1] = r
    print_result(r)
  end
end

-- Whether a case is asked for: "2 ranks 64 MiB shm" contains one of the names.
local function is_chosen(case, section, names)
  local text = ("%d ranks %s %s"):format(section.ranks, size_text(case.bytes), table.concat(section.transports, " "))
  for _, name in ipairs(names) do
    if text:find(name, 1, true) then return true end
  end
  return #names == 0
end

local function run_section(section, setup, results)
  local cases = {}
  for _, case in ipairs(section.cases) do
    if is_chosen(case, section, setup.names) then cases[#cases + 1] = case end
  end
  if #cases == 0 then return end
  local run = { section = section, setup = setup, groups = open_groups(section, setup) }
  if section.transports[1] == "shm" then
    run.traffic = traffic_rate(run.groups.ours[1].group, setup.quick and 2 ^ 18 or 2 ^ 24)
    print(("%d ranks that copy at once read and write %.1f GB/s"):format(section.ranks, run.traffic / 1e9))
  end
  print_header()
  for _, case in ipairs(cases) do run_case(case, run, results) end
  close_groups(table.remove(setup.open))
  print()
end

local function run_all(setup, results)
  local cpu = core.info().cpu
  print(("%s; a rank has one thread%s%s"):format(cpu, setup.bind and ", bound where there are processors enough" or "",
    setup.neighbour and "; a busy process beside" or ""))
  for _, section in ipairs(SECTIONS) do run_section(section, setup, results) end
  if #results == 0 then
    core.raise("value", "bench", "no case has a name with " .. table.concat(setup.names, " or "),
      "they are like \"2 ranks 64 MiB shm\"")
  end
  return { cpu = cpu, neighbour = setup.neighbour or false, bound = setup.bind or false, results = results }
end

--- Times the cases, prints a table, and returns {cpu, neighbour, bound, results}.
---@param args string[]
---@return {cpu: string, neighbour: boolean, bound: boolean, results: table[]}
function M.main(args)
  local setup, names = report_of.read_args(args, { "--quick", "--neighbour", "--bind" })
  local script, reason = ranks_of.script "dist_rank.lua"
  if not script then core.raise("state", "bench", reason) end
  setup.script, setup.names, setup.open = script, names, {}
  setup.processors = core.process.self().processors
  local remove
  setup.folder, remove = ranks_of.folder()
  local stop = setup.neighbour and ranks_of.start_neighbour()
  local ok, report = pcall(run_all, setup, {})
  for _, groups in ipairs(setup.open) do close_groups(groups) end
  if stop then stop() end
  remove()
  if not ok then error(report, 0) end
  if setup.json then report_of.write_json(setup.json, report) end
  return report
end

return M
