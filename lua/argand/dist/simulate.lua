--- simulate: a job of n ranks in one process, one after the other and seeded: what a script does with its job can be tested,
-- with every order of events that a network makes, and with ranks that are lost.
--
-- Each rank is a fiber (core.dist.fiber) that runs until it waits for a call. When no rank can run, the calls that all members
-- of a group have reached are made, one at a time, by the engine's simulator: algorithms, segments, delays and losses are real,
-- the network and its clock are not. Within the function all of dist is that rank's: rank, collectives, groups, backward
-- through collectives, regroup.
local core = require "argand.core"
local class = require "argand.class"
local groups = require "argand.dist.group"
local jobs = require "argand.dist.simulated_job"
local options_of = require "argand.options"

local fibers = core.dist
local optional = options_of.optional

local M = {}

local OPTIONS = {
  n = 2, seed = 1, seeds = optional.number, faults = optional.table, timeout = 300, expiry = 5,
  min_delay = 1e-5, max_delay = 2e-4,
}

-- ---- reports ----

--- What became of a simulated job. report[rank], from 0: {state = "ended", "failed", "dead" or "silent", results, error}.
local Report = class.new("Report")

--- Raises the first rank's error, with its seed and rank; returns the report when no rank failed. Lost ranks are no failures.
---@return argand.dist.Report
function Report:check()
  for rank = 0, self.size - 1 do
    local of = self[rank]
    if of.state == "failed" then
      local err = of.error
      local where = type(err) == "table" and err.traceback and "\n" .. err.traceback or ""
      error(("seed %d, rank %d: %s%s"):format(self.seed, rank, tostring(err), where), 0)
    end
  end
  return self
end

Report.__tostring = function(report)
  local states = {}
  for rank = 0, report.size - 1 do
    local of = report[rank]
    states[rank + 1] = ("rank %d %s%s"):format(rank, of.state, of.error and ": " .. tostring(of.error) or "")
  end
  return ("seed %d, %.6f s, %d calls, %d segments: %s"):format(report.seed, report.seconds, report.calls, report.segments,
    table.concat(states, "; "))
end

M.Report = Report

-- ---- running ranks ----

-- A rank's fiber has ended. An error that is no consequence of another rank's ends the job for the others.
local function end_rank(rank, ok, ...)
  rank.results, rank.has_ended = {...}, true
  if ok then
    rank.state = "ended"
    return
  end
  rank.error = (...)
  rank.results = {}
  rank.state = "failed"
  local err = rank.error
  if type(err) == "table" and err.code == "interrupted" then error(err, 0) end
  local message = type(err) == "table" and err.message or tostring(err)
  rank.job:cancel("peer", {rank.name}, ("rank %d failed: %s"):format(rank.name, message))
end

local function resume(rank, must_end)
  local before = groups.simulated
  groups.simulated = rank
  local function after(ok, how, ...)
    groups.simulated = before
    if not ok then error(how, 0) end
    if how == "ended" then end_rank(rank, ...) end
  end
  after(pcall(fibers.fiber_resume, rank.fiber, must_end))
end

-- Unwinds a rank that was lost. What it catches on the way may make calls: they raise again. It is given up after some.
local MAX_ENDS = 1000

local function end_fiber(rank)
  rank.is_ending = true
  for _ = 1, MAX_ENDS do
    if rank.has_ended then return end
    local before = groups.simulated
    groups.simulated = rank
    local ok, how = pcall(fibers.fiber_resume, rank.fiber, true)
    groups.simulated = before
    if not ok or how == "ended" then rank.has_ended = true end
  end
end

local function shuffle(list, random)
  for i = #list, 2, -1 do
    local j = random(i)
    list[i], list[j] = list[j], list[i]
  end
  return list
end

-- One round: every rank that can go on does. True when one did more than ask whether a call is done.
local function run_ready(job)
  local progress, order = false, {}
  for i, rank in ipairs(job.ranks) do order[i] = rank end
  for _, rank in ipairs(shuffle(order, job.random)) do
    if rank.state == "running" and rank:is_ready() then
      local was_polling = rank.is_polling
      rank.is_polling, rank.waits_for = false, nil
      resume(rank, false)
      if not (was_polling and rank.is_polling) then progress = true end
    end
  end
  return progress
end

local function end_lost(job)
  for _, rank in ipairs(job.ranks) do
    if (rank.state == "dead" or rank.state == "silent") and not rank.has_ended then end_fiber(rank) end
  end
end

local function is_any_running(job)
  for _, rank in ipairs(job.ranks) do
    if rank.state == "running" then return true end
  end
  return false
end

local function run_job(job, fn)
  for _, rank in ipairs(job.ranks) do
    rank.fiber = fibers.fiber(fn, rank.index)
  end
  local ok, err = pcall(function()
    while is_any_running(job) do
      local progress = run_ready(job)
      if job:make_call() then progress = true end
      end_lost(job)
      if not progress then job:resolve_deadlock() end
    end
  end)
  for _, rank in ipairs(job.ranks) do
    if rank.state == "running" then end_fiber(rank) end
  end
  if not ok then error(err, 0) end
end

local function run_once(opts, seed, fn)
  local job = jobs.new(opts, seed, groups.of, function() return groups.simulated end)
  run_job(job, fn)
  local report = Report()
  report.seed, report.seconds, report.segments, report.calls = seed, job.seconds, job.segments, job.calls
  report.size, report.seeds = opts.n, 1
  for _, rank in ipairs(job.ranks) do
    report[rank.index] = {state = rank.state, results = rank.results or {}, error = rank.error}
    if rank.state == "dead" or rank.state == "silent" then report[rank.index].error = nil end
    if rank.state == "failed" then report.failing_seed = seed end
  end
  return report
end

-- ---- options ----

local KINDS = {dead = true, silent = true}

local function check_fault(fault, n)
  if type(fault) ~= "table" then
    core.raise("option", "simulate", "faults: expected a list of {rank =, at =, kind =}, got " .. type(fault))
  end
  local read = options_of.read("simulate.faults", fault, {rank = optional.number, at = 1, kind = "dead"})
  if not read.rank or read.rank ~= math.floor(read.rank) or not options_of.is_between(read.rank, 0, n - 1) then
    core.raise("value", "simulate", ("faults: expected a rank, 0 to %d, got %s"):format(n - 1, tostring(read.rank)))
  end
  if read.at < 1 or read.at ~= math.floor(read.at) then
    core.raise("value", "simulate", "faults: at: expected the number of a call, from 1, got " .. tostring(read.at))
  end
  if not KINDS[read.kind] then
    core.raise("value", "simulate", ("faults: kind: expected \"dead\" or \"silent\", got \"%s\""):format(read.kind))
  end
  return read
end

local function check_count(name, value, low, high)
  if value ~= math.floor(value) or not options_of.is_between(value, low, high) then
    core.raise("value", "simulate", ("%s: expected %d to %d, got %s"):format(name, low, high, tostring(value)))
  end
end

--- Returns a function that runs fn(rank) as n simulated ranks and returns a report. faults: the rank is lost somewhere in its
-- call number `at` (1 = the first); "dead" ranks are noticed at once, "silent" ones after `expiry`. With seeds it stops at the
-- first seed for which a rank failed.
---@param options? argand.dist.SimulateOptions
---@return fun(fn: fun(rank: integer): ...): argand.dist.Report
function M.simulate(options)
  local opts = options_of.read("simulate", options, OPTIONS)
  check_count("n", opts.n, 1, 256)
  check_count("seed", opts.seed, 0, 2 ^ 48)
  if opts.seeds then check_count("seeds", opts.seeds, 1, 1e9) end
  local faults = {}
  for i, fault in ipairs(opts.faults or {}) do faults[i] = check_fault(fault, opts.n) end
  opts.faults = faults
  return function(fn)
    if type(fn) ~= "function" then core.raise("argument", "simulate", "fn: expected a function, got " .. type(fn)) end
    local report
    local seconds, segments, calls = 0, 0, 0
    local count = opts.seeds or 1
    for i = 1, count do
      report = run_once(opts, opts.seed + i - 1, fn)
      seconds, segments, calls = seconds + report.seconds, segments + report.segments, calls + report.calls
      report.seeds, report.seconds, report.segments, report.calls = i, seconds, segments, calls
      if report.failing_seed then break end
    end
    return report
  end
end

return M
