--- soak: jobs whose ranks are killed, stopped and left to go on, for as long as asked; by hand:
--   build/argand spec/dist/soak.lua [seconds = 600] [seed = 1]
-- Checked: those that live regroup and compute right sums; memory and descriptors of a rank stay where they were; nothing is
-- left in /dev/shm, among sockets or as a process.
package.path = arg[0]:match "^(.*)/dist/soak%.lua$" .. "/?.lua;" .. package.path
local core = require "argand.core"
local job = require "support.job"

local seconds, seed = tonumber(arg[1] or 600), tonumber(arg[2] or 1)
local worker = arg[0]:match "^(.*)/dist/soak%.lua$" .. "/support/dist_worker_soak.lua"

local SIZE = 5
local LIVENESS_S = 15 -- a step after each fault
-- The allocator's cache and the collector's slack are in the former; the latter is for connections, which are made when first
-- needed: over tcp four to a peer, each with a monitor of its own.
local MOST_MIB, GROWTH_FILES = 256, 48

math.randomseed(seed)
local totals = {jobs = 0, kills = 0, stops = 0, pauses = 0, regroups = 0, steps = 0, problems = 0,
                most_mib = 0, most_files = 0}
local takes = {}

local function complain(text, ranks)
  totals.problems = totals.problems + 1
  print("PROBLEM: " .. text)
  for _, rank in pairs(ranks) do
    local last = {}
    for i = math.max(1, #rank.lines - 4), #rank.lines do last[#last + 1] = rank.lines[i] end
    print(("  rank %d (code %s): %s"):format(rank.index, tostring(rank.code), table.concat(last, " | ")))
  end
  io.flush()
end

local function last(rank, name)
  for i = #rank.events, 1, -1 do
    if rank.events[i].name == name then return rank.events[i] end
  end
end

local function living(ranks)
  local list = {}
  for _, rank in pairs(ranks) do
    if not rank:has_exited() and not rank.is_stopped then list[#list + 1] = rank end
  end
  return list
end

-- Every rank that lives has made a step since `since`.
local function all_step_since(ranks, since)
  return function()
    for _, rank in ipairs(living(ranks)) do
      local alive = last(rank, "alive")
      if not alive or alive.at < since then return false end
    end
    return true
  end
end

local function check_growth(ranks)
  for _, rank in pairs(ranks) do
    local first, now
    for _, event in ipairs(rank.events) do
      if event.name == "alive" then
        if not first and tonumber(event.steps) > 50 then first = event end
        now = event
        totals.most_mib = math.max(totals.most_mib, event.mib)
      end
    end
    if first then
      local files = now.files - first.files
      totals.most_files = math.max(totals.most_files, files)
      if files > GROWTH_FILES or tonumber(now.mib) > MOST_MIB then
        complain(("rank %d: %d more descriptors, %.0f MiB"):format(rank.index, files, now.mib), {rank})
      end
    end
    if now then totals.steps = totals.steps + now.steps end
  end
end

local function strike(victim)
  local choice = math.random(4)
  if choice <= 2 then
    totals.kills = totals.kills + 1
    victim:kill(job.SIGKILL)
    job.wait(function() return victim:has_exited() end, 5)
  elseif choice == 3 then
    totals.stops = totals.stops + 1
    victim:kill(job.SIGSTOP)
    victim.is_stopped = true
  else
    totals.pauses = totals.pauses + 1
    victim:kill(job.SIGSTOP)
    job.sleep(0.5)
    victim:kill(job.SIGCONT)
  end
  return choice < 4 and core.now() or nil
end

-- One job: faults until two ranks are left.
local function run_job(until_s)
  totals.jobs = totals.jobs + 1
  local ranks = job.start {size = SIZE, script = worker, transport = ({"shm", "tcp", "auto"})[math.random(3)]}
  local is_well = job.wait(all_step_since(ranks, core.now()), 20)
  if not is_well then complain("the job did not begin", ranks) end
  while is_well and core.now() < until_s and #living(ranks) > 2 do
    job.sleep(math.random() * 1.5)
    local list = living(ranks)
    table.sort(list, function(a, b) return a.index < b.index end)
    local since = strike(list[math.random(#list)])
    local before = core.now()
    is_well = job.wait(all_step_since(ranks, before + 0.05), LIVENESS_S)
    if not is_well then complain("no step within " .. LIVENESS_S .. " s of a fault", ranks) end
    for _, rank in ipairs(living(ranks)) do
      local regrouped = last(rank, "regrouped")
      if since and regrouped and regrouped.at > since then
        totals.regroups = totals.regroups + 1
        takes[#takes + 1] = regrouped.at - since
      end
      if last(rank, "wrong") then complain("a wrong result", ranks) end
    end
  end
  check_growth(ranks)
  for _, rank in pairs(ranks) do
    if last(rank, "lost") and not rank.is_stopped then complain("a rank could not go on", ranks) break end
  end
  for _, rank in pairs(ranks) do
    if not rank:has_exited() then rank:kill(job.SIGKILL) end
  end
  local problems = job.finish(ranks, 10)
  if #problems > 0 then complain(table.concat(problems, "; "), ranks) end
  local left = job.leftovers()
  if #left > 0 then complain("left behind: " .. table.concat(left, ", "), {}) end
end

local began = core.now()
while core.now() < began + seconds do job.alone(function() run_job(began + seconds) end) end
job.remove_folder()
table.sort(takes)
print(("%d s, seed %d: %d jobs of %d ranks, %d kills, %d stops, %d pauses, %d regroups, %d steps"):format(core.now() - began,
  seed, totals.jobs, SIZE, totals.kills, totals.stops, totals.pauses, totals.regroups, totals.steps))
print(("a rank: at most %d more descriptors, %.0f MiB of its own"):format(totals.most_files, totals.most_mib))
if #takes > 0 then
  print(("from a fault to a new world: p50 %.2f s, most %.2f s"):format(takes[math.ceil(#takes / 2)], takes[#takes]))
end
print(("%d problems"):format(totals.problems))
os.exit(totals.problems == 0 and 0 or 1)
