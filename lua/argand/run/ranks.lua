--- ranks: the ranks of this host: starts them, reads what they write, tells how they end.
--
-- A sink hears of them: started(rank, pid), output(rank, "out" | "err", bytes), status(rank, kind, text),
-- ended(rank, exit code or nil, signal or nil), warning(host, text).
local core = require "argand.core"
local plan = require "argand.run.plan"
local process = core.process

local Ranks = {}
Ranks.__index = Ranks

local SIGKILL = 9
local MAX_READS = 256

-- What a rank must not have from a job around it.
local FOREIGN = {"ARGAND_STATUS_FD", "ARGAND_KEY_FILE", "ARGAND_RESTART"}

local function environment_table()
  local result = {}
  for _, entry in ipairs(process.environment()) do
    local name, value = entry:match "^([^=]+)=(.*)$"
    if name then result[name] = value end
  end
  return result
end

-- The list of "NAME=value" for a rank of a node: what this process has, then what the job says.
local function environment(node, rank, share)
  local all = environment_table()
  for _, name in ipairs(FOREIGN) do all[name] = nil end
  for name, value in pairs(node.forward) do all[name] = value end
  for name, value in pairs(plan.thread_variables(node, share, all)) do all[name] = value end
  for name, value in pairs(rank.variables) do all[name] = value end
  local list = {}
  for name, value in pairs(all) do list[#list + 1] = name .. "=" .. value end
  table.sort(list)
  return list
end

--- node: see plan.lua. guard_fd: of process.guard.
function Ranks.new(loop, node, sink, guard_fd)
  return setmetatable({loop = loop, node = node, sink = sink, guard_fd = guard_fd, children = {}, num_alive = 0}, Ranks)
end

function Ranks:close(child, slot)
  local fd = child[slot]
  if not fd then return end
  self.loop:read(fd, nil)
  process.close(fd)
  child[slot] = nil
end

-- Reads what is there now from a slot; within bounds, since a process that a rank left behind may write without end.
function Ranks:drain(child, slot)
  for _ = 1, MAX_READS do
    if not child[slot] then return end
    local bytes = process.read(child[slot])
    if bytes == nil then return end
    if bytes == false then return self:close(child, slot) end
    if slot == "status" then
      child.line = child.line .. bytes
      child.line = child.line:gsub("(%w+) ([^\n]*)\n", function(kind, text)
        self.sink:status(child.rank, kind, text)
        return ""
      end)
    else
      self.sink:output(child.rank, slot == "stdout" and "out" or "err", bytes)
    end
  end
end

-- One read a call, so that a rank that never stops writing does not keep the others waiting.
function Ranks:read_some(child, slot)
  local bytes = process.read(child[slot])
  if bytes == false then return self:close(child, slot) end
  if bytes then self.sink:output(child.rank, slot == "stdout" and "out" or "err", bytes) end
end

local function on_end(self, child, code, signal)
  child.is_alive = false
  self.num_alive = self.num_alive - 1
  process.guard_tell(self.guard_fd, -child.pid)
  self:drain_all(child)
  self.sink:ended(child.rank, code, signal)
end

function Ranks:drain_all(child)
  for _, slot in ipairs {"stdout", "stderr", "status"} do self:drain(child, slot) end
end

--- Reads what all ranks have told about themselves.
function Ranks:drain_status()
  for _, child in ipairs(self.children) do self:drain(child, "status") end
end

-- share: the processors that it is bound to, nil for all.
function Ranks:start_rank(rank, share)
  local how = not self.node.inherits and "pipe" or nil
  local child, err = process.spawn {argv = self.node.argv, env = environment(self.node, rank, share), stdin = "null",
                                    stdout = how, stderr = how, status = "pipe", processors = share}
  if not child then return nil, err end
  child.rank, child.is_alive, child.line = rank.rank, true, ""
  self.children[#self.children + 1] = child
  self.num_alive = self.num_alive + 1
  process.guard_tell(self.guard_fd, child.pid)
  if how then
    self.loop:read(child.stdout, function() self:read_some(child, "stdout") end)
    self.loop:read(child.stderr, function() self:read_some(child, "stderr") end)
  end
  self.loop:read(child.status, function() self:drain(child, "status") end)
  self.loop:child(child.pid, function(code, signal) on_end(self, child, code, signal) end)
  self.sink:started(child.rank, child.pid)
  return true
end

--- Starts all; nil and a message when one could not be started: those before it run.
function Ranks:start()
  local node, processors = self.node, process.processors()
  local shares = plan.shares(node, processors, plan.core_of(processors))
  if node.bind and not shares then
    self.sink:warning(node.host, ("--bind: %d ranks are too many for the %d processor%s of host %s; they are not bound"):format(
      node.bind.size, #processors, #processors == 1 and "" or "s", node.host))
  end
  for i, rank in ipairs(node.ranks) do
    local ok, err = self:start_rank(rank, shares and shares[i])
    if not ok then return nil, err end
  end
  return true
end

--- Sends a signal to the process groups of all ranks that have not ended.
function Ranks:signal(number)
  for _, child in ipairs(self.children) do
    if child.is_alive then process.kill(-child.pid, number) end
  end
end

--- After the end of all: reads the rest and closes everything. Ranks that would not die are left to the kernel.
function Ranks:finish()
  self:signal(SIGKILL)
  self.loop:end_orphans(2)
  for _, child in ipairs(self.children) do
    self:drain_all(child)
    for _, slot in ipairs {"stdout", "stderr", "status"} do self:close(child, slot) end
  end
end

return Ranks
