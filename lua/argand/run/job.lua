--- job: runs the ranks of a job on all hosts, ends all when one fails, and starts them again when that was asked for.
local core = require "argand.core"
local Loop = require "argand.run.loop"
local Output = require "argand.run.output"
local Ranks = require "argand.run.ranks"
local Remote = require "argand.run.remote"
local plan = require "argand.run.plan"
local process = core.process

local SIGHUP, SIGINT, SIGPIPE, SIGKILL, SIGTERM = 1, 2, 13, 9, 15
local SETTLE_S = 1 -- a rank that failed because another one did waits so long for that one's end to be known
local DEATH_S = 10 -- what a killed rank may take to be gone
local READER_S = 1 -- how long the end by a signal waits for who reads the output

local Job = {}
Job.__index = Job

--- fields: see plan.nodes; and hosts, size, key_file, made_key (the same if it was made for this job).
function Job.new(fields)
  local self = setmetatable(fields, Job)
  self.restart, self.warned = 0, {}
  self.output = Output.new {
    has_prefix = not self.opts.no_prefix and self.size > 1, log_dir = self.opts.log_dir,
    wait_for_room = function(fd) return self:wait_for_room(fd) end,
    on_broken = function(...) return self:on_broken(...) end,
  }
  return self
end

function Job:say(format, ...) self.output:say("argand run: " .. format:format(...)) end

-- Says once of a host what its ranks should know, however often they are started.
function Job:warning(host, text)
  if not self.warned[host] then self:say("%s", text) end
  self.warned[host] = true
end

---- what the ranks tell

function Job:started(rank, pid) self.ranks[rank].pid = pid end

-- Waits until our output is read; false when the job ends by a signal and nobody does.
function Job:wait_for_room(fd)
  local deadline
  repeat
    if self.end_signal then deadline = self.is_killed and 0 or deadline or core.now() + READER_S end
    if self.loop:wait_for_room(fd, deadline and deadline - core.now() or 3600) then return true end
  until deadline and core.now() >= deadline
  return false
end

-- Nobody reads our output any more, or its disk is full: the job ends, as a program does that writes there itself.
function Job:on_broken(name, err)
  if self.end_code then return end
  local is_closed = err:find("Broken pipe", 1, true)
  self.end_code = is_closed and 128 + SIGPIPE or 1
  if not is_closed then self:say("%s: %s; the ranks end", name, (err:gsub("^write: ", ""))) end
  self:stop(SIGTERM)
end

function Job:status(rank, kind, text)
  local record = self.ranks[rank]
  if not record then return end
  if kind == "note" then record.note = text end
  if kind == "fail" or kind == "peer" then record.failure = kind end
  if kind == "fail" and self.suspect and self.suspect.failure ~= "fail" then self.suspect = record end
end

function Job:ended(rank, code, signal)
  local record = self.ranks[rank]
  record.is_alive, record.code, record.signal = false, code, signal
  self.output:flush(rank)
  if (signal or code ~= 0) and not self.is_stopping then self:on_failure(record) end
end

function Job:lost(node, message)
  self.gone[node.host] = true
  self.output:flush(node.host)
  local first
  for _, rank in ipairs(node.ranks) do
    local record = self.ranks[rank.rank]
    if record.is_alive then
      record.is_alive = false
      first = first or record
    end
  end
  if first and not self.is_stopping then
    first.lost = message
    self:on_failure(first)
  end
end

---- failure

local function describe(record)
  local text = ("rank %d (host %s%s)"):format(record.rank, record.host, record.pid and ", pid " .. record.pid or "")
  if record.not_started then return ("%s could not be started: %s"):format(text, record.not_started) end
  if record.lost then return ("%s is lost with its host: %s"):format(text, record.lost) end
  if record.signal then
    text = ("%s was killed by signal %d (%s)"):format(text, record.signal, process.signal_name(record.signal))
  elseif record.code then
    text = ("%s exited with code %d"):format(text, record.code)
  else
    text = text .. " failed"
  end
  return record.note and ("%s at: %s"):format(text, record.note) or text
end

local function exit_code(record)
  if record.is_hanging then return 1 end
  if record.signal then return 128 + record.signal end
  return record.code and record.code ~= 0 and record.code or 1
end

-- Ranks whose early end may be why another one failed: in words.
function Job:early_ends()
  local names = {}
  for rank = 0, self.size - 1 do
    local record = self.ranks[rank]
    if record.code == 0 then
      names[#names + 1] = ("rank %d had ended with code 0%s"):format(rank, record.note and " at: " .. record.note or "")
    end
  end
  return names
end

-- Blames a rank and ends the others.
function Job:blame(record)
  self.first, self.settle_at = record, nil
  record.is_hanging = record.is_alive -- what ends it now is no failure of its own
  self:say("%s", describe(record))
  if record.failure == "peer" then
    for _, text in ipairs(self:early_ends()) do self:say("%s", text) end
  end
  self:stop(SIGTERM)
end

-- A rank failed. When it did so because of another one, that one is to blame, and it has time to say how it ends.
function Job:on_failure(record)
  if self.first then return end
  for _, node in ipairs(self.nodes) do node:drain_status() end
  if record.failure ~= "peer" or record.lost then return self:blame(record) end
  if self.suspect then return end
  self.suspect, self.settle_at = record, core.now() + SETTLE_S
  for _, other in pairs(self.ranks) do
    if other.failure == "fail" then self.suspect = other end
  end
end

---- the end

function Job:signal_all(number)
  for _, node in ipairs(self.nodes) do node:signal(number) end
end

--- Asks all ranks to end; after the grace they are killed.
function Job:stop(number)
  self.is_stopping = true
  if self.kill_at then return end
  self.kill_at = core.now() + self.opts.grace
  self:signal_all(number)
end

function Job:kill()
  self.is_stopping, self.is_killed = true, true
  self.kill_at = core.now() + DEATH_S
  self:signal_all(SIGKILL)
end

function Job:on_signal(number)
  if self.end_signal then
    if number == SIGINT then self:kill() end
    return
  end
  self.end_signal = number
  self.end_code = 128 + number
  self:say(number == SIGINT and "interrupted; the ranks end, another Ctrl-C kills them" or "%s; the ranks end",
    process.signal_name(number))
  self:stop(number == SIGHUP and SIGTERM or number)
end

---- an attempt

function Job:num_alive()
  local count = 0
  for _, node in ipairs(self.nodes) do count = count + node.num_alive end
  return count
end

function Job:next_deadline()
  local deadline = self.kill_at or math.huge
  deadline = math.min(deadline, self.settle_at or math.huge)
  for _, node in ipairs(self.nodes) do
    deadline = math.min(deadline, node.deadline and node:deadline() or math.huge)
  end
  return deadline
end

function Job:check_deadlines()
  local now = core.now()
  for _, node in ipairs(self.nodes) do
    if node.check_deadline then node:check_deadline(now) end
  end
  if self.settle_at and now >= self.settle_at and not self.first then self:blame(self.suspect) end
  if not self.kill_at or now < self.kill_at then return end
  if self.is_killed then
    self:say "a killed rank does not go; it is left to the system"
    self.is_given_up = true
  else
    self:kill()
  end
end

function Job:sink()
  local job = self
  return {
    started = function(_, ...) return job:started(...) end, output = function(_, ...) return job.output:write(...) end,
    status = function(_, ...) return job:status(...) end, ended = function(_, ...) return job:ended(...) end,
    lost = function(_, ...) return job:lost(...) end, warning = function(_, ...) return job:warning(...) end,
  }
end

function Job:start_nodes()
  self.nodes, self.ranks, self.gone = {}, {}, {}
  self.first, self.suspect, self.settle_at, self.kill_at, self.is_stopping, self.is_killed = nil, nil, nil, nil, false, false
  local nodes, sink = plan.nodes(self, self.hosts, self.size), self:sink()
  for _, node in ipairs(nodes) do
    for _, rank in ipairs(node.ranks) do
      self.ranks[rank.rank] = {rank = rank.rank, host = node.host, is_alive = true}
      if node.is_local then rank.variables.ARGAND_KEY_FILE = self.key_file end
    end
  end
  for _, node in ipairs(nodes) do
    local side = node.is_local and Ranks.new(self.loop, node, sink, self.guard_fd) or Remote.new(self.loop, self, node, sink)
    self.nodes[#self.nodes + 1] = side
    local ok, err = side:start()
    if not ok then
      self.slots_left = self.slots_left or {}
      self.slots_left[node.host] = side.num_alive
      local record = self.ranks[node.ranks[side.num_alive + 1].rank]
      record.is_alive, record.not_started = false, err
      self:on_failure(record)
      return
    end
  end
end

--- Runs all ranks once; the exit code of the attempt.
function Job:attempt()
  self:start_nodes()
  while self:num_alive() > 0 and not self.is_given_up do
    self.loop:step(math.max(0, math.min(self:next_deadline() - core.now(), 3600)))
    self:check_deadlines()
  end
  if self.suspect and not self.first and not self.end_code then self:blame(self.suspect) end
  for _, node in ipairs(self.nodes) do node:finish() end
  self.output:flush_all()
  return self.end_code or self.first and exit_code(self.first) or 0
end

-- The hosts that are left, and how many ranks go there; nil when they are too few.
function Job:reduced()
  local hosts = {}
  for _, entry in ipairs(self.hosts) do
    local slots = self.slots_left and self.slots_left[entry.host] or entry.slots
    if not self.gone[entry.host] and slots > 0 then hosts[#hosts + 1] = {host = entry.host, slots = slots} end
  end
  local size = math.min(self.wanted_size, plan.num_slots(hosts))
  if size >= self.opts.min_n then return hosts, size end
end

-- Prepares the next attempt; false when there is none.
function Job:prepare_restart()
  if self.restart >= self.opts.max_restarts or self.is_given_up then return false end
  if self.opts.min_n then
    local hosts, size = self:reduced()
    if not hosts then
      self:say("fewer than %d slots are left", self.opts.min_n)
      return false
    end
    self.hosts, self.size, self.slots_left = hosts, size, nil
  end
  self.restart = self.restart + 1
  self:say("restart %d of %d with %d rank%s", self.restart, self.opts.max_restarts, self.size, self.size == 1 and "" or "s")
  return true
end

--- Runs the job to its end.
---@return integer exit_code
function Job:run()
  process.adopt()
  self.loop = Loop.new(function(number) self:on_signal(number) end)
  self.guard_fd = self.loop:guard(self.made_key)
  self.wanted_size = self.size
  local code
  repeat
    code = self:attempt()
  until code == 0 or self.end_code or not self:prepare_restart()
  return code
end

return Job
