--- faults: what is promised when a rank dies, stops, is slow or has no room, and when a connection breaks: real processes, a cell
-- for each fault, phase and transport. Survivors get an error that names the culprit in bounded time, or none where none is due.
-- FAULTS="SIGKILL, all_" in the environment runs only the cells whose names match that pattern.
local ag = require "argand"
local core = require "argand.core"
local cases = require "support.cases"
local dist = require "argand.dist"
local job = require "support.job"
local tcp_proxy = require "support.tcp_proxy"

local process = core.process
local worker = arg[0]:match "^(.*)/[^/]*$" .. "/dist_worker.lua"

local EXPIRY_S, INIT_S, LOCAL_S = 2, 3, 0.5 -- LOCAL_S: what a death on this host may take
local GRACE_S = 2 -- over the expiry
local LONG_S = 30 -- of a loop that a fault has to end
local COUNTS = {all_reduce = 4 * 2 ^ 20, all_gather = 2 ^ 20, between = 1000, close = 1000, blocks = 2 ^ 18, split = 16}
local is_sanitized = not ag.info().build:find("sanitizers: none", 1, true)
local BIG_COUNT = (is_sanitized and 4 or 16) * 2 ^ 20 -- 64 MiB; a call of a quarter lasts as long under sanitizers
local CAPACITY = 12

-- Sanitizers and other loads stretch time: a late cell gets this many further tries, alone, and some more when other programs
-- were demonstrably at work meanwhile. One of them has to be in time.
local MORE_TRIES, MOST_TRIES = 2, 10
local DISTURBED = 0.1 -- of a processor

-- ---- one cell ----

local function others_of(ranks, victim)
  local list = {}
  for index, rank in pairs(ranks) do
    if index ~= victim then list[#list + 1] = rank end
  end
  table.sort(list, function(a, b) return a.index < b.index end)
  return list
end

local function all_have(list, name)
  return function()
    for _, rank in ipairs(list) do
      if not rank:first(name) and not rank:has_exited() then return false end
    end
    return true
  end
end

local function outcome_of(rank) return rank:first "error" or rank:first "finished" end

-- Whoever came through closes, too.
local function all_have_ended(list)
  return function()
    for _, rank in ipairs(list) do
      local is_over = rank:first(outcome_of(rank) and outcome_of(rank).name == "finished" and "closed" or "error")
      if not is_over and not rank:has_exited() then return false end
    end
    return true
  end
end

-- A survivor of a call in close has no error but what close returned.
local function error_of(rank, cell)
  local err = rank:first "error"
  if err or cell.phase ~= "close" then return err end
  local closed = rank:first "closed"
  return closed and closed.ok ~= "true" and closed or nil
end

local function names_victim(err, cell)
  if cell.culprits then return err.culprits:find(cell.culprits) ~= nil end
  return err.culprits == tostring(cell.victim)
end

-- Adds to `result` what is wrong with a survivor that was due an error.
local function check_error(rank, cell, result, began)
  local function wrong(text) result.problems[#result.problems + 1] = text .. "; " .. rank:text() end
  local err = error_of(rank, cell)
  if not err then return wrong "no error" end
  local codes = cell.codes or "peer"
  if not codes:find(err.code, 1, true) then wrong("code " .. err.code) end
  if not names_victim(err, cell) then wrong(("culprits {%s}"):format(err.culprits)) end
  if err.is_intact == "false" then wrong "the input is damaged" end
  if err.message:find "wrong result" then wrong "a wrong result" end
  local took = (tonumber(err.noticed_at) or err.at) - began
  result.took[#result.took + 1] = took
  if took > cell.bound then result.late = math.max(result.late or 0, took) end
end

-- What is wrong with a rank that was due no error.
local function fault_of(rank)
  local finished, closed = rank:first "finished", rank:first "closed"
  if not finished or tonumber(finished.num_right) < 1 then return "an error where none is due: " .. rank:text() end
  if not closed or closed.ok ~= "true" then return "close failed: " .. rank:text() end
end

local function check_survivors(list, cell, result, began)
  for _, rank in ipairs(list) do
    local fault = cell.is_harmless and fault_of(rank)
    if fault and cell.is_either and (rank:first "error" or rank:first "closed") then
      if rank:first "error" then check_error(rank, cell, result, began) end
    elseif cell.is_harmless then
      result.problems[#result.problems + 1] = fault or nil
    else
      check_error(rank, cell, result, began)
    end
  end
end

-- Options of the worker. Faults of the victim's own are an argument.
local function worker_args(cell)
  local seconds = cell.is_harmless and (cell.seconds or 1) or LONG_S
  local phase = (cell.phase == "hello" and "between") or cell.phase
  return {"phase=" .. phase, "count=" .. (cell.count or COUNTS[cell.phase] or 1000), "seconds=" .. seconds, "expiry=" .. (cell.expiry or EXPIRY_S),
          "init_timeout=" .. (cell.init_timeout or INIT_S), "timeout=60", "close_wait=" .. (cell.close_wait or 3)}
end

local function start(cell)
  local opts = {
    size = 3, script = worker, transport = cell.transport, args = worker_args(cell),
    each = function(index)
      if index ~= cell.victim then return {} end
      local args = {}
      if cell.own_fault then args[#args + 1] = "fault=" .. cell.own_fault end
      if cell.limit then args[#args + 1] = "limit=" .. cell.limit end
      if cell.slow then args[#args + 1] = "slow=" .. cell.slow end
      return {args = args, wrapper = cell.wrapper, env = cell.victim_env}
    end,
  }
  if cell.open_proxy then opts.coordinator = cell.open_proxy() end
  if cell.phase == "hello" then opts.only = {0, 1} end
  return job.start(opts), opts
end

-- How many connections there are to rank 0's address: its own, and one of each rank that has said hello or is about to.
local function num_connections(coordinator)
  local count, name = 0, coordinator:match "^ipc://(@.*)$"
  if name then
    for line in io.lines "/proc/net/unix" do
      if line:match " 03 +%d+ (@.*)$" == name then count = count + 1 end
    end
  else
    local established = ("^%%s*%%d+: %%x+:%04X %%x+:%%x+ 01 "):format(coordinator:match ":(%d+)$")
    for line in io.lines "/proc/net/tcp" do
      if line:find(established) then count = count + 1 end
    end
  end
  return count
end

-- What a victim in close waits for.
local function word_of(opts) return ("%s/go-%s"):format(job.folder, opts.job) end

-- Waits until the fault is due, and returns whether it came to that.
local function wait_for_phase(cell, ranks, opts, result)
  local list = {}
  for _, rank in pairs(ranks) do list[#list + 1] = rank end
  local event = (cell.phase == "before" or cell.phase == "hello") and "start" or "phase"
  if not job.wait(all_have(list, event), 100) or (event == "phase" and not list[1]:first(event)) then
    for _, rank in ipairs(list) do result.problems[#result.problems + 1] = "did not get there: " .. rank:text() end
    return false
  end
  if cell.phase == "hello" then
    job.wait(function() return num_connections(opts.coordinator) >= 2 end, 10)
    job.sleep(0.3) -- rank 1 has said hello long since
    if not cell.is_incomplete then
      ranks[2] = job.start_rank(opts, 2)
      job.sleep(0.02)
    end
  elseif cell.phase == "all_reduce" or cell.phase == "all_gather" then
    job.sleep(0.05 + (cell.number * 37 % 100) / 1000) -- anywhere in a call
  elseif cell.phase == "between" then
    job.sleep(0.2)
  elseif cell.phase == "close" then
    job.wait(all_have(others_of(ranks, cell.victim), "finished"), 20)
    job.sleep(0.2) -- they are in close by then
    io.open(word_of(opts), "w"):close()
  end
  return true
end

local function run_cell(cell)
  local result = {problems = {}, took = {}}
  local ranks, opts = start(cell)
  local proxy = cell.proxy
  if wait_for_phase(cell, ranks, opts, result) then
    local victim = ranks[cell.victim]
    local began = cell.strike(victim, ranks, opts, proxy) or core.now()
    if cell.own_fault and victim:first "fault" then began = victim:first("fault").at end
    local survivors = others_of(ranks, not cell.is_harmless and not cell.spares_victim and cell.victim or nil)
    local limit = cell.is_harmless and 20 or math.max(cell.bound * 3, cell.bound + 5)
    if cell.phase == "close" then
      job.wait(all_have(survivors, "closed"), limit)
    else
      job.wait(all_have_ended(survivors), limit)
    end
    -- What a sanitizer does at the end of a process comes before that end.
    if is_sanitized and cell.own_fault == "exit" then began = victim.ended or began end
    check_survivors(survivors, cell, result, cell.began_with_job and victim.started or began)
    if cell.check then cell.check(ranks, result) end
    if not cell.is_harmless and not cell.spares_victim and not victim:has_exited() then victim:kill(job.SIGKILL) end
  end
  if #result.problems > 0 then
    for _, rank in pairs(ranks) do
      if not rank:has_exited() then rank:kill(job.SIGKILL) end
    end
  end
  if proxy then proxy:close() end
  os.remove(word_of(opts))
  for _, problem in ipairs(job.finish(ranks, 8)) do result.problems[#result.problems + 1] = problem end
  return result
end

-- ---- faults ----

local function kill(victim)
  local now = core.now()
  victim:kill(job.SIGKILL)
  return now
end

local function stop(victim)
  local now = core.now()
  victim:kill(job.SIGSTOP)
  return now
end

local function pause(victim)
  local now = stop(victim)
  job.sleep(3)
  victim:kill(job.SIGCONT)
  return now
end

-- 2 ms of work in 100.
local function hamper(victim)
  local now = core.now()
  while core.now() < now + 1.5 do
    victim:kill(job.SIGSTOP)
    job.sleep(0.098)
    victim:kill(job.SIGCONT)
    job.sleep(0.002)
  end
  return now
end

local function by_itself(victim)
  job.wait(function() return victim:first "fault" or victim:has_exited() end, 20)
end

local cells = {}

local name_pattern = os.getenv "FAULTS" or ""

local function add(cell)
  cell.name = ("%s, %s, %s"):format(cell.fault, cell.phase, cell.transport)
  cell.number = #cells + 1
  cell.victim = cell.victim or 1
  if cell.name:find(name_pattern) then cells[#cells + 1] = cell end
end

local function is_mid(phase) return phase == "all_reduce" or phase == "all_gather" end

-- What is due after the loss of a rank in that phase, in seconds.
local function due(cell, is_dead)
  if cell.phase == "before" then
    cell.codes, cell.bound, cell.began_with_job = "timeout", INIT_S + 1, true
  elseif cell.phase == "hello" and is_dead then
    cell.bound, cell.is_incomplete = LOCAL_S, true -- rank 2 never comes, and rank 0 does not wait for it
  elseif cell.phase == "hello" then
    cell.codes, cell.bound = "peer timeout", INIT_S + EXPIRY_S + GRACE_S
  elseif cell.phase == "close" then
    cell.codes, cell.bound = "timeout", is_dead and LOCAL_S or math.max(EXPIRY_S, 3) + GRACE_S
  else
    cell.bound = is_dead and LOCAL_S or EXPIRY_S + GRACE_S
  end
  return cell
end

local PHASES = {"before", "hello", "all_reduce", "all_gather", "between", "close"}

for _, transport in ipairs {"shm", "tcp"} do
  for _, phase in ipairs(PHASES) do
    local function cell(fault, fields)
      fields.fault, fields.phase, fields.transport = fault, phase, transport
      fields.weight = is_mid(phase) and 2 or 1
      fields.count = phase == "all_reduce" and not fields.is_harmless and BIG_COUNT or nil
      return fields
    end
    local waits = (phase == "before" or phase == "close") and "wait" or nil -- until the signal
    add(due(cell("SIGKILL", {strike = kill, own_fault = waits}), true))
    add(due(cell("SIGSTOP", {strike = stop, own_fault = waits}), false))
    add(cell("STOP 3 s, CONT", {strike = pause, is_harmless = true, expiry = 6, init_timeout = 10, seconds = 4, close_wait = 10,
                                own_fault = phase == "close" and "slow" or nil, slow = 0.3}))
    if phase ~= "hello" then -- there the script is inside of dist.init
      add(due(cell("exit 0", {strike = by_itself, own_fault = "exit"}), true))
      add(due(cell("Lua error", {strike = by_itself, own_fault = "error"}), true))
      add(cell("100x slow", {strike = is_mid(phase) and hamper or by_itself, own_fault = not is_mid(phase) and "slow" or nil, slow = 1,
                             is_harmless = true, seconds = 2, init_timeout = 10}))
    end
  end
  -- Rank 0 has the coordinator.
  for _, phase in ipairs {"before", "all_reduce", "between", "close"} do
    local waits = (phase == "before" or phase == "close") and "wait" or nil
    local function cell(fault, fields)
      fields.fault, fields.phase, fields.transport, fields.victim = fault .. ", rank 0", phase, transport, 0
      return fields
    end
    add(due(cell("SIGKILL", {strike = kill, own_fault = waits}), true))
    add(due(cell("SIGSTOP", {strike = stop, own_fault = waits}), false))
    add(due(cell("exit 0", {strike = by_itself, own_fault = "exit"}), true))
  end
end

-- ---- no room ----

local function limited(how) return {"sh", "-c", how .. '; exec "$@"', "sh"} end
local function nothing() return core.now() end

local function has_transport(wanted)
  return function(ranks, result)
    for _, rank in pairs(ranks) do
      local ready = rank:first "ready"
      if ready and ready.transport ~= wanted then
        result.problems[#result.problems + 1] = ("transport %s, expected %s"):format(ready.transport, wanted)
      end
    end
  end
end

-- The victim cannot even join: it says why, and the others name it.
local function victim_says(pattern)
  return function(ranks, result)
    local err = ranks[1]:first "error"
    if not err or not err.message:find(pattern) then
      result.problems[#result.problems + 1] = ("expected %s of %s"):format(pattern, ranks[1]:text())
    end
  end
end

for _, transport in ipairs {"shm", "tcp"} do
  add {fault = "12 descriptors", phase = "before", transport = transport, strike = nothing, wrapper = limited "ulimit -n 12",
       codes = "timeout peer network", bound = INIT_S + 1, began_with_job = true, check = victim_says "[Oo]pen files"}
end
-- The memory that ranks share is a file to the limit; rank 0 makes it.
add {fault = "no arena, rank 0", phase = "between", transport = "auto", victim = 0, strike = nothing, wrapper = limited "ulimit -f 1",
     is_harmless = true, check = has_transport "ipc"}
add {fault = "no arena, rank 0", phase = "before", transport = "shm", victim = 0, strike = nothing, wrapper = limited "ulimit -f 1",
     codes = "network", culprits = "", bound = INIT_S, began_with_job = true, spares_victim = true}
add {fault = "no arena, rank 1", phase = "all_reduce", transport = "auto", strike = nothing, wrapper = limited "ulimit -f 1",
     is_harmless = true, check = has_transport "shm"}

local function prlimit(victim, option)
  local ok = os.execute(("prlimit --pid %d --%s 2>/dev/null"):format(victim.pid, option))
  assert(ok == 0 or ok == true, "prlimit")
  return core.now()
end

local function limit_files(victim) return prlimit(victim, "fsize=4096") end

-- All that it has open stays usable; nothing more can be opened.
local function limit_descriptors(victim)
  local is_open, first_free = {}, 3
  local pipe = io.popen(("ls /proc/%d/fd"):format(victim.pid))
  for line in pipe:lines() do is_open[tonumber(line) or -1] = true end
  pipe:close()
  while is_open[first_free] do first_free = first_free + 1 end
  return prlimit(victim, ("nofile=%d"):format(first_free))
end

-- Rank 0 makes the blocks, the others are handed a descriptor.
for _, victim in ipairs {0, 1} do
  add {fault = ("no block, rank %d"):format(victim), phase = "blocks", transport = "shm", victim = victim, strike = limit_files,
       limit = "fsize", codes = "memory network", culprits = "", bound = 3, spares_victim = true, is_harmless = victim ~= 0}
end
-- Memory is offered until a rank has said that it cannot take it.
for _, transport in ipairs {"shm", "tcp"} do
  for _, phase in ipairs {"blocks", "split"} do
    add {fault = "no descriptors", phase = phase, transport = transport, strike = limit_descriptors, limit = "nofile",
         codes = "memory network state peer", culprits = "", bound = 3, spares_victim = true}
  end
  add {fault = "no descriptors", phase = "all_reduce", transport = transport, strike = limit_descriptors, is_harmless = true, seconds = 2}
end

-- ---- the network ----

local garbage = {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", ("\0\255\127\1"):rep(16384), "\255\0\0\0\0\0\0\0\1\127\3\0NULL" .. ("\0"):rep(48),
                 "\22\3\1\2\0\1\0\1\252\3\3" .. ("\170"):rep(300), ""}

-- What scanners send, to all ports of all ranks.
local function scan(_, ranks, opts)
  local ports = {tonumber(opts.coordinator:match ":(%d+)$")}
  for _, rank in pairs(ranks) do
    for _, port in ipairs(tcp_proxy.ports_of(rank.pid)) do ports[#ports + 1] = port end
  end
  assert(opts.transport ~= "tcp" or #ports >= 2, "no ports were found")
  local open = {}
  for _, port in ipairs(ports) do
    for _, bytes in ipairs(garbage) do
      local fd = tcp_proxy.dial(port)
      tcp_proxy.send(fd, bytes)
      open[#open + 1] = fd
    end
  end
  job.sleep(0.5)
  for _, fd in ipairs(open) do process.close(fd) end
  return core.now()
end

for _, phase in ipairs {"hello", "all_reduce", "between"} do
  add {fault = "port scanner", phase = phase, transport = "tcp", strike = scan, is_harmless = true, seconds = 2, init_timeout = 10}
end

-- Rank 1 reaches the coordinator through a proxy.
local function through_proxy(cell)
  cell.open_proxy = function()
    local port = job.free_port()
    cell.proxy = tcp_proxy.new(port)
    cell.victim_env = {ARGAND_COORDINATOR = ("tcp://127.0.0.1:%d"):format(cell.proxy.port)}
    return ("tcp://127.0.0.1:%d"):format(port)
  end
  return cell
end

local function fault_of_link(name)
  return function(_, _, _, proxy)
    proxy.fault = name
    job.wait(function() return proxy.happened end, 10)
    assert(proxy.happened, "nothing was sent")
    return proxy.happened
  end
end

for _, transport in ipairs {"shm", "tcp"} do
  for _, phase in ipairs {"hello", "all_reduce", "between", "close"} do
    for _, name in ipairs {"reset", "stall", "flip", "truncate"} do
      -- A connection that broke is made again, and what was lost is sent again. Of a silent one the ends name each other. A wrong
      -- bit breaks it, or makes it wait for bytes that do not come.
      local init_s = name == "stall" and INIT_S or 10
      add(through_proxy {fault = "link: " .. name, phase = phase, transport = transport, strike = fault_of_link(name),
                         own_fault = phase == "close" and "slow" or nil, slow = 0.6, close_wait = 6, is_harmless = name ~= "stall",
                         is_either = name == "flip", seconds = 3, codes = "peer timeout", culprits = phase == "close" and "^[01]?,?[01]?$" or "^[01],?[01]?$", spares_victim = true,
                         init_timeout = init_s, bound = phase == "hello" and init_s + EXPIRY_S + GRACE_S or EXPIRY_S + GRACE_S})
    end
  end
end

-- ---- the table ----

local marks, takes = {}, {}

local function row_of(cell) return ("%-18s %s"):format(cell.fault, cell.transport) end

local function note(cell, result)
  local mark = "FAIL"
  if #result.problems == 0 and not result.late then
    local most = 0
    for _, took in ipairs(result.took) do most = math.max(most, took) end
    mark = #result.took > 0 and ("%.2f"):format(most) or "fine"
    if #result.took > 0 and cell.phase ~= "before" and cell.phase ~= "hello" then
      local key = cell.fault:gsub(", rank 0", "")
      takes[key] = takes[key] or {}
      for _, took in ipairs(result.took) do table.insert(takes[key], took) end
    end
  end
  local row = row_of(cell)
  if not marks[row] then
    marks[row] = {}
    marks[#marks + 1] = row
  end
  marks[row][cell.phase] = mark
end

local COLUMNS = {"before", "hello", "all_reduce", "all_gather", "between", "close", "blocks", "split"}

local function print_table()
  print "  seconds until the last survivor had its error; fine: no error was due, and there was none; -: no such case"
  print(("  %-23s %s"):format("", table.concat(COLUMNS, "  ")))
  for _, row in ipairs(marks) do
    local line = {("  %-23s"):format(row)}
    for _, column in ipairs(COLUMNS) do line[#line + 1] = ("%" .. #column .. "s "):format(marks[row][column] or "-") end
    print(table.concat(line, " "))
  end
  print "  wrong key, bytes of an old epoch: security_spec. Data connections that break, are cut, silent or damaged, and garbage on"
  print "  them: zmq_transport_test, socket_test. Of jobs that had formed:"
  for name, list in pairs(takes) do
    table.sort(list)
    print(("  %-18s p50 %.3f s, most %.3f s, %d errors"):format(name, list[math.ceil(#list / 2)], list[#list], #list))
  end
end

describe("a fault", function()
  it("is an error on all survivors in bounded time, or none", function()
    if not dist.is_available() then return pending "built without ZeroMQ" end
    local check, tasks = cases.begin(), {}
    for _, cell in ipairs(cells) do
      local task = {cell = cell, weight = cell.weight or 1, run = function(task) task.result = run_cell(cell) end}
      table.insert(tasks, (cell.bound or 0) > 10 and 1 or #tasks + 1, task) -- the longest first
    end
    job.together(tasks, CAPACITY)
    for _, task in ipairs(tasks) do
      local cell, tries = task.cell, 0
      local result = task.result or {problems = {tostring(task.error)}, took = {}}
      local is_disturbed = true
      while result.late and #result.problems == 0 and tries < (is_disturbed and MOST_TRIES or MORE_TRIES) do
        tries = tries + 1
        local began, foreign = core.now(), job.foreign_time()
        job.alone(function() result = run_cell(cell) end)
        is_disturbed = job.foreign_time() - foreign > DISTURBED * (core.now() - began)
      end
      if result.late then result.problems[#result.problems + 1] = ("after %.2f s, due %.2f s"):format(result.late, cell.bound) end
      note(cell, result)
      check(cell.name, function()
        if #result.problems > 0 then error(table.concat(result.problems, "\n    "), 0) end
      end)
    end
    print_table()
    check.done()
  end)

  it("leaves nothing behind", function()
    local left = job.leftovers()
    job.remove_folder()
    assert.equal("", table.concat(left, "\n"))
  end)
end)
