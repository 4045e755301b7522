--- remote: the ranks of another host, behind ssh; for its sink like the ranks of this one (ranks.lua).
--
-- A sink hears also: lost(node, message) when the host, or the way to it, failed.
local core = require "argand.core"
local plan = require "argand.run.plan"
local wire = require "argand.run.wire"
local process = core.process

local Remote = {}
Remote.__index = Remote

local SIGTERM = 15
local START_S = 60 -- within which the other side has to answer
local FAREWELL_S = 2
local MAX_NOISE_BYTES = 65536

function Remote.new(loop, job, node, sink)
  return setmetatable({loop = loop, job = job, node = node, sink = sink, alive = {}, num_alive = 0, noise = "", to_send = ""},
    Remote)
end

local function lose(self, message)
  if self.is_lost then return end
  self.is_lost = true
  self.num_alive = 0
  self.sink:lost(self.node, message)
end

-- Frames from the other side.
local function on_frame(self, kind, name, payload)
  local rank, sink = tonumber(name), self.sink
  if kind == "out" or kind == "err" then sink:output(rank, kind, payload)
  elseif kind == "warning" then sink:warning(self.node.host, payload)
  elseif kind == "status" then sink:status(rank, payload:match "^(%S*) (.*)$")
  elseif kind == "started" then
    sink:started(rank, tonumber(payload))
  elseif kind == "ended" and self.alive[rank] and not self.is_lost then
    self.alive[rank] = nil
    self.num_alive = self.num_alive - 1
    local how, number = payload:match "^(%l+) (%d+)$"
    number = tonumber(number)
    sink:ended(rank, how == "code" and number or nil, how == "signal" and number or nil)
  elseif kind == "failed" then
    lose(self, payload)
  end
end

-- Bytes before the greeting are a shell's or a banner's.
local function on_bytes(self, bytes)
  if self.reader then
    if not self.reader(bytes) then
      lose(self, "it sent what is no frame: does a shell's profile print something?")
      self:hang_up()
    end
    return
  end
  self.noise = self.noise .. bytes
  local first, last = self.noise:find(wire.HELLO, 1, true)
  if not first and #self.noise <= MAX_NOISE_BYTES then return end
  if not first then return self:hang_up() end
  if first > 1 then self.sink:output(self.node.host, "err", self.noise:sub(1, first - 1)) end
  self.reader = wire.reader(function(...) on_frame(self, ...) end)
  self.has_answered = true
  bytes, self.noise = self.noise:sub(last + 1), ""
  if bytes ~= "" then on_bytes(self, bytes) end
end

function Remote:close(slot)
  local fd = self.child[slot]
  if not fd then return end
  self.loop:read(fd, nil)
  self.loop:write(fd, nil)
  process.close(fd)
  self.child[slot] = nil
end

local function read_some(self, slot)
  local bytes = process.read(self.child[slot])
  if bytes == false then return self:close(slot) end
  if not bytes then return end
  if slot == "stdout" then on_bytes(self, bytes) else self.sink:output(self.node.host, "err", bytes) end
  return true
end

local function drain(self)
  for _, slot in ipairs {"stdout", "stderr"} do
    local num_reads = 0
    while self.child[slot] and num_reads < 1024 and read_some(self, slot) do num_reads = num_reads + 1 end
  end
end

-- Writes what waits for the other side, as far as it takes it.
local function send_some(self)
  if not self.child.stdin then return end
  local written = process.write(self.child.stdin, self.to_send)
  if not written then return self:close "stdin" end -- its end will be told
  self.to_send = self.to_send:sub(written + 1)
  self.loop:write(self.child.stdin, self.to_send ~= "" and function() send_some(self) end or nil)
end

function Remote:send(kind, payload)
  self.to_send = self.to_send .. wire.frame(kind, "-", payload)
  send_some(self)
end

local function on_end(self, code, signal)
  drain(self)
  self.has_ended = true
  if self.num_alive == 0 then return end
  local how = signal and "was killed by " .. process.signal_name(signal) or "ended with code " .. code
  lose(self, self.has_answered and ("the connection to it %s"):format(how)
    or ("it could not be reached: %s %s"):format(self.argv[1], how))
end

function Remote:start()
  self.argv = plan.remote_argv(self.job, self.node)
  local child, err = process.spawn {argv = self.argv, env = process.environment(), stdin = "pipe", stdout = "pipe",
                                    stderr = "pipe"}
  if not child then return nil, err end
  self.child = child
  self.answer_by = core.now() + START_S
  for _, rank in ipairs(self.node.ranks) do self.alive[rank.rank] = true end
  self.num_alive = #self.node.ranks
  self.loop:read(child.stdout, function() read_some(self, "stdout") end)
  self.loop:read(child.stderr, function() read_some(self, "stderr") end)
  self.loop:child(child.pid, function(code, signal) on_end(self, code, signal) end)
  self:send("node", wire.encode(self.node))
  return true
end

--- When the other side has to have answered, nil when it has.
function Remote:deadline() return not self.has_answered and not self.has_ended and self.answer_by or nil end

function Remote:check_deadline(now)
  local deadline = self:deadline()
  if deadline and now >= deadline then
    lose(self, ("it did not answer for %d s"):format(START_S))
    self:hang_up()
  end
end

function Remote:signal(number)
  if self.num_alive > 0 or self.is_lost then self:send("signal", tostring(number)) end
end

--- What it knows is told at once.
function Remote:drain_status() end

--- Ends the connection; the other side ends its ranks when it sees that.
function Remote:hang_up()
  if not self.child or self.has_ended then return end
  self:close "stdin"
  if not self.has_answered then process.kill(-self.child.pid, SIGTERM) end
end

--- After the end of all ranks: waits for the other side to leave, and sees to it that ssh ends.
function Remote:finish()
  if not self.child then return end
  self:hang_up()
  local wait_s = FAREWELL_S + (self.is_lost and 2 or 0)
  local deadline = core.now() + wait_s
  while not self.has_ended and core.now() < deadline do self.loop:step(deadline - core.now()) end
  if not self.has_ended then
    process.kill(-self.child.pid, 9)
    while not self.has_ended and core.now() < deadline + 1 do self.loop:step(0.1) end
  end
  for _, slot in ipairs {"stdin", "stdout", "stderr"} do self:close(slot) end
end

return Remote
